/** The borders between the rooms (.dependency-cruiser.js): a violation of each rule is planted, and found. */
import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';

const ROOT = path.join(import.meta.dirname, '../..');
const home = mkdtempSync(path.join(tmpdir(), 'galaxy-notify-borders-'));
afterAll(() => rmSync(home, { recursive: true }));

/** Rule, the file that breaks it, and the line that does so. */
const PLANTED: [rule: string, file: string, line: string][] = [
  ['no-circle', 'api/first.ts', `import type { Second } from './second.ts'; export type First = Second;`],
  ['no-import-of-other-kinds-by-intent', 'activities/intent/a.ts', `import '../mobile-push/b.ts';`],
  ['no-import-of-other-kinds-by-mobile-push', 'workers/mobile-push.ts', `import './symbol-config.ts';`],
  ['no-import-of-other-kinds-by-symbol-config', 'cli/symbol-config/c.ts', `import '../../api/intent/d.ts';`],
  ['no-import-of-other-kinds-by-account-callback', 'config/account-callback.ts', `import './intent.ts';`],
  [
    'no-import-of-other-kinds-by-subscription',
    'dev/stand-ins/subscription/e.ts',
    `import type { F } from '../mobile-push/f.ts'; export type G = F;`,
  ],
  ['nobody-imports-cli', 'dev/tool.ts', `import '../cli/session.ts';`],
  ['border-of-api', 'api/g.ts', `import '../client/h.ts';`],
  ['border-of-workflows', 'workflows/i.ts', `import type { J } from '../api/j.ts'; export type K = J;`],
  ['workflows-import-types-of-activities', 'workflows/l.ts', `import '../activities/m.ts';`],
  ['border-of-workflows', 'workflows/n.ts', `import 'pino';`],
  ['border-of-workflows', 'workflows/o.ts', `import 'node:fs';`],
  ['workflow-code-stays-in-the-bundle', 'client/p.ts', `import '../workflows/q.ts';`],
  ['border-of-activities', 'activities/r.ts', `import '../workers/s.ts';`],
  ['border-of-config', 'config/t.ts', `import '../workers/s.ts';`],
  ['border-of-migrations', 'migrations/u.ts', `import '../workers/s.ts';`],
  ['border-of-client', 'client/v.ts', `import '../activities/m.ts';`],
  ['border-of-cli', 'cli/w.ts', `import '../workers/s.ts';`],
  ['border-of-workers', 'workers/x.ts', `import '../dev/y.ts';`],
  ['border-of-deploy', 'deploy/z.ts', `import '../activities/m.ts';`],
  [
    'the-ledger-is-a-stranger',
    'faults/ledger/judge.ts',
    `import type { AB } from '../../api/ab.ts'; export type AC = AB;`,
  ],
  ['the-ledger-is-a-stranger', 'faults/ledger/parser.ts', `import 'flatbuffers';`],
  ['the-ledger-is-a-stranger', 'faults/ledger/actor.ts', `import '../driver.ts';`],
];

/** What the rules allow, so that a rule which forbids everything does not pass. */
const ALLOWED: [file: string, line: string][] = [
  // The other half of the circle, which is named once.
  ['api/second.ts', `import type { First } from './first.ts'; export type Second = First;`],
  ['activities/intent/allowed.ts', `import '../shared.ts'; import '../../api/intent/d.ts'; import 'pino';`],
  ['workflows/intent/allowed.ts', `import type { A } from '../../activities/m.ts'; export type B = A;`],
  ['client/intent/allowed.ts', `import '../../workflows/intent/contract.ts';`],
  ['workers/allowed.ts', `export const load = () => import('../dev/y.ts');`],
  ['workers/roles.ts', `import './mobile-push.ts'; import './symbol-config.ts';`],
  ['faults/ledger/allowed.ts', `import './verdict.ts'; import 'node:buffer';`],
  ['faults/driver.ts', `import './ledger/verdict.ts'; import '../client/ad.ts';`],
  ['test/intent/allowed.ts', `import '../../cli/session.ts'; import '../../api/mobile-push/aa.ts';`],
];

function write(file: string, content: string): void {
  const named = path.join(home, file);
  mkdirSync(path.dirname(named), { recursive: true });
  writeFileSync(named, `${content}\nexport {};\n`, { flag: 'a' });
}

interface Cruise {
  summary: { violations: { from: string; rule: { name: string } }[] };
}

test('a violation of each rule is found, and nothing else is', () => {
  for (const [file, line] of [...PLANTED.map(([, file, line]) => [file, line] as const), ...ALLOWED]) {
    write(file, line);
    for (const [, target] of line.matchAll(/'(\.[^']+)'/g)) write(path.join(path.dirname(file), target!), '');
  }
  symlinkSync(path.join(ROOT, 'node_modules'), path.join(home, 'node_modules'));
  writeFileSync(path.join(home, 'tsconfig.json'), `{ "extends": "${path.join(ROOT, 'tsconfig.json')}" }`);
  const folders = [...new Set([...PLANTED.map(([, file]) => file), ...ALLOWED.map(([file]) => file)])].map(
    (file) => file.split('/')[0]!,
  );
  const cruiser = path.join(ROOT, 'node_modules/dependency-cruiser/bin/dependency-cruiser.mjs');
  const { stdout, stderr } = spawnSync(
    process.execPath,
    [
      cruiser,
      '--config',
      path.join(ROOT, '.dependency-cruiser.js'),
      '--output-type',
      'json',
      ...new Set(folders),
    ],
    { cwd: home, encoding: 'utf8' },
  );
  if (stderr) throw new Error(stderr);
  const { violations } = (JSON.parse(stdout) as Cruise).summary;
  const found = violations.map(({ rule, from }) => `${from}: ${rule.name}`).sort();
  const planted = PLANTED.map(([rule, file]) => `${file}: ${rule}`).sort();
  expect([...new Set(found)]).toEqual(planted);
});
