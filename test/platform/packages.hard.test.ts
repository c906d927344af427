/**
 * The packages of a release, as a team uses them: packed, installed into a scratch project, checked and run. And `bin/gn`, the
 * command line of a clone as git makes it.
 */
import { execFile, spawn, spawnSync } from 'node:child_process';
import {
  appendFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  readFileSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { promisify } from 'node:util';
import type { Outcome } from '../../client/outcomes.ts';
import { slotOfTests } from '../harness.ts';
import { bothPublished } from '../intent/rows.ts';
import { scratchFolder } from '../scratch.ts';
import { namespaceOf } from '../slots.ts';

const run = promisify(execFile);
const ROOT = path.join(import.meta.dirname, '../..');
// The compiler, npm and pip share the machine with other tests.
jest.setTimeout(600_000);

interface Manifest {
  version: string;
  exports: Record<string, { types: string; default: string } | string>;
  dependencies: Record<string, string>;
}
const manifestIn = (folder: string) =>
  JSON.parse(readFileSync(path.join(folder, 'package.json'), 'utf8')) as Manifest;

const { dir: scratch } = scratchFolder('packages');
let tarballs: string[];
beforeAll(async () => {
  const { stdout } = await run(process.execPath, [path.join(ROOT, 'dev', 'pack.ts'), scratch, 'npm']);
  tarballs = stdout.trim().split('\n');
});

function createProject(name: string): string {
  const project = path.join(scratch, name);
  mkdirSync(path.join(project, 'node_modules'), { recursive: true });
  writeFileSync(path.join(project, 'package.json'), JSON.stringify({ type: 'module' }));
  return project;
}

/** A package of this checkout stands for the one that a team has. */
function linkPackage(project: string, name: string): void {
  const link = path.join(project, 'node_modules', name);
  mkdirSync(path.dirname(link), { recursive: true });
  symlinkSync(path.join(ROOT, 'node_modules', name), link);
}

/** Runs a program of the project. */
const runScript = async (project: string, script: string): Promise<string> =>
  (await run(process.execPath, ['--input-type=module', '--eval', script], { cwd: project })).stdout.trim();

/** Checks a file of the project with the compiler, and with the declarations of its packages. */
async function checkTypes(project: string, text: string): Promise<string> {
  writeFileSync(path.join(project, 'producer.ts'), text);
  const tsc = path.join(ROOT, 'node_modules', 'typescript', 'bin', 'tsc');
  const options = '--strict --noEmit --module nodenext --target es2024 --types node producer.ts'.split(' ');
  return run(process.execPath, [tsc, ...options], { cwd: project }).then(
    () => '',
    ({ stdout }: { stdout: string }) => stdout,
  );
}

function expectComplete(unpacked: string): void {
  const manifest = manifestIn(unpacked);
  expect(manifest.version).toBe(manifestIn(ROOT).version);
  const files = Object.values(manifest.exports).flatMap((entry) =>
    typeof entry === 'string' ? [entry] : [entry.types, entry.default],
  );
  const missing = [...files, 'README.md', 'LICENSE'].filter((file) => !existsSync(path.join(unpacked, file)));
  expect(missing).toEqual([]);
}

const loadAll = (unpacked: string, name: string) => {
  const modules = Object.keys(manifestIn(unpacked).exports).filter((one) => !one.endsWith('.sql'));
  return `for (const name of ${JSON.stringify(modules.map((one) => name + one.slice(1)))}) await import(name);`;
};

describe('galaxy-notify, for producers', () => {
  let project: string;
  let unpacked: string;
  beforeAll(async () => {
    project = createProject('producer');
    unpacked = path.join(project, 'node_modules', 'galaxy-notify');
    const quiet = ['--prefer-offline', '--no-audit', '--no-fund', '--loglevel=error'];
    await run('npm', ['install', ...quiet, tarballs[0]!], { cwd: project });
  });

  test('I37 it installs nothing but three packages, and what those need', async () => {
    expectComplete(unpacked);
    const { packages } = JSON.parse(
      readFileSync(path.join(project, 'node_modules', '.package-lock.json'), 'utf8'),
    ) as { packages: Record<string, object> };
    expect(Object.keys(packages).map((name) => name.replace('node_modules/', ''))).toEqual([
      ...['@stablelib/base64', 'canonicalize', 'fast-sha256', 'galaxy-notify', 'standardwebhooks', 'zod'],
    ]);
    await runScript(project, loadAll(unpacked, 'galaxy-notify'));
  });

  test('I37 a producer is tested with it without servers', async () => {
    const script = `
      import test from 'node:test';
      import { newGameTurnReady, publishIntent } from 'galaxy-notify';
      import { createMemoryStream, expectPublished } from 'galaxy-notify/testing';
      test('the turn is announced', async () => {
        const stream = createMemoryStream();
        await publishIntent(stream, newGameTurnReady({
          idempotencyKey: 'game-7/turn-54', recipientUserIds: ['user-1'], occurredAt: 1790000000000,
          payload: { game_id: 'game-7', game_name: 'Andromeda', turn_number: 54 },
        }));
        expectPublished(stream, { type: 'game.turn.ready', recipientUserIds: ['user-1'] });
      });`;
    expect(await runScript(project, script)).toMatch(/pass 1$/m);
  });

  test('I37 its types hold in a strict project, and refuse a wrong payload', async () => {
    linkPackage(project, '@types/node');
    const using = (payload: string) => `
        import { newGameTurnReady } from 'galaxy-notify';
        import { readOutcomes } from 'galaxy-notify/outcomes';
        export const read = readOutcomes;
        newGameTurnReady({ idempotencyKey: 'k', occurredAt: 1790000000000, recipientUserIds: ['user-1'], payload: ${payload} });`;
    expect(await checkTypes(project, using("{ game_id: 'g', game_name: 'G', turn_number: 1 }"))).toBe('');
    expect(await checkTypes(project, using("{ game_id: 'g', game_name: 'G' }"))).toContain('turn_number');
  });

  describe('with a service', () => {
    const slot = slotOfTests();
    beforeAll(async () => {
      await slot.startService({ NOTIFICATION_OUTCOMES: 'ends' });
      for (const name of ['ioredis', 'pg']) linkPackage(project, name);
      for (const name of ['publish.mjs', 'outcomes.mjs'])
        cpSync(path.join(unpacked, 'examples', name), path.join(project, name));
    });
    test('I37 an intent that its example publishes is delivered, and its example hears of the end', async () => {
      const { host, port } = slot.endpoints.redis;
      const url = `redis://${host}:${port}/${slot.slot}`;
      const publish = [path.join(project, 'publish.mjs'), url, 'user-1', 'from-the-package'];
      const { stdout } = await run(process.execPath, publish);
      const reader = spawn(process.execPath, [path.join(project, 'outcomes.mjs'), url], {
        stdio: ['ignore', 'pipe', 'inherit'],
      });
      try {
        for await (const line of createInterface({ input: reader.stdout })) {
          const outcome = JSON.parse(line) as Outcome;
          expect(outcome).toMatchObject({ kind: 'settled', idempotencyKey: 'from-the-package' });
          break;
        }
      } finally {
        reader.kill();
      }
      await bothPublished(slot, [stdout.trim()]);
    });

    test('I40 an operator that connects with galaxy-notify-operator finds what was published, and ends', async () => {
      const operators = createProject('operator');
      const operator = path.join(operators, 'node_modules', 'galaxy-notify-operator');
      mkdirSync(operator);
      await run('tar', ['-xzf', tarballs[1]!, '--strip-components=1', '-C', operator]);
      expectComplete(operator);
      // Downloads of 60 MB are left out: these are the versions that the package names.
      for (const name of Object.keys(manifestIn(operator).dependencies)) linkPackage(operators, name);
      const { redis, postgresDsn, temporalAddress } = slot.endpoints;
      const servers = {
        ...{ postgresDsn, redis: { ...redis, db: slot.slot } },
        ...{ temporal: { address: temporalAddress }, namespace: namespaceOf(slot.slot) },
      };
      const script = `
        import { connectOperator } from 'galaxy-notify-operator/connect';
        ${loadAll(operator, 'galaxy-notify-operator')}
        const payloadKeys = [{ id: 'one', key: Buffer.alloc(32, 1) }];
        const { operator, close } = connectOperator({ ...${JSON.stringify(servers)}, payloadKeys });
        const { items } = await operator.notifications.list();
        console.log(items.map(({ idempotencyKey }) => idempotencyKey).join());
        await close();`;
      expect(await runScript(operators, script)).toBe('from-the-package');
      const command = path.join(operator, 'dist', 'cli', 'main.js');
      const said = async (...args: string[]) =>
        (await run(process.execPath, [command, ...args], { cwd: operators })).stdout;
      const textOf = (file: string) => readFileSync(path.join(ROOT, file), 'utf8');
      expect(await said('outbox', 'sql')).toBe(textOf('client/outbox.sql'));
      expect(await said('catalog', 'sample')).toBe(textOf('catalog/shop.yaml'));
      expect(await said('--version')).toBe(`${manifestIn(ROOT).version}\n`);
    });
  });
});

test('I70 the Python package is built with its license, and a producer is tested with it', async () => {
  const pack = [path.join(ROOT, 'dev', 'pack.ts'), scratch, 'python'];
  const wheel = (await run(process.execPath, pack)).stdout.split('\n')[0]!;
  const environment = path.join(scratch, 'python');
  await run('python3', ['-m', 'venv', environment]);
  const python = path.join(environment, 'bin', 'python');
  await run(python, ['-m', 'pip', 'install', '--quiet', '--disable-pip-version-check', wheel]);
  const script = `
import importlib.metadata
from notificationintent import GameTurnReadyPayload, new_game_turn_ready, publish_intent
from notificationintent.testing import MemoryStream, expect_published

stream = MemoryStream()
payload = GameTurnReadyPayload(game_id="game-7", game_name="Andromeda", turn_number=54)
keywords = {"recipient_user_ids": ["user-1"], "idempotency_key": "k", "occurred_at": 1790000000000}
publish_intent(stream, new_game_turn_ready(payload, **keywords))
expect_published(stream, type="game.turn.ready", recipients=["user-1"])
package = importlib.metadata.distribution("galaxy-notify")
print(package.version, [file.name for file in package.files if file.name in ("LICENSE", "py.typed")])
`;
  const { stdout } = await run(python, ['-c', script]);
  expect(stdout.trim()).toBe(`${manifestIn(ROOT).version} ['LICENSE', 'py.typed']`);
});

describe('bin/gn', () => {
  const folder = path.join(scratch, 'clones');
  const clone = path.join(folder, 'checkout');
  beforeAll(() => {
    mkdirSync(folder);
    runIn(folder, 'git', ['clone', '--quiet', '--no-hardlinks', ROOT, clone]);
  });

  const runIn = (cwd: string, command: string, args: string[], changes: Record<string, string> = {}) =>
    spawnSync(command, args, {
      ...{ cwd, encoding: 'utf8', env: { ...process.env, NODE_OPTIONS: '', ...changes } },
    });
  const gn = path.join(clone, 'bin/gn');

  test('I40 before the dependencies are installed, the command installs them', () => {
    writeFileSync(path.join(folder, 'npm'), '#!/bin/sh\necho "npm $1 in $PWD"; exit 7\n', { mode: 0o755 });
    const { status, stdout, stderr } = runIn(folder, gn, ['--version'], {
      PATH: `${folder}:${process.env['PATH']}`,
      npm_execpath: '',
    });
    expect({ status, stdout }).toEqual({ status: 7, stdout: '' });
    expect(stderr).toContain(`npm install in ${clone}`);
  });

  test('I40 the command works in a fresh clone, changes no file, and works again after git checkout', () => {
    symlinkSync(path.join(ROOT, 'node_modules'), path.join(clone, 'node_modules'));
    // A link in their place is the test's; .gitignore knows the folder.
    appendFileSync(path.join(clone, '.git', 'info', 'exclude'), 'node_modules\n');
    for (const _ of ['first', 'again']) {
      expect(runIn(clone, gn, ['--version'])).toMatchObject({ status: 0, stdout: '0.1.0\n' });
      expect(runIn(clone, 'git', ['status', '--porcelain']).stdout).toBe('');
      expect(runIn(clone, 'git', ['checkout', '--quiet', '.']).status).toBe(0);
    }
  });

  test('I40 the command works from another folder and by a link, and looks for the npm start of its clone', () => {
    const link = path.join(folder, 'gn');
    symlinkSync('checkout/bin/gn', link);
    const { status, stderr } = runIn(folder, link, ['notifications', 'list'], {
      ...{ NOTIFICATION_DATA_DIR: '', NOTIFICATION_REDIS_MASTER_ADDR: '' },
      ...{ NOTIFICATION_POSTGRES_PRIMARY_DSN: '', TEMPORAL_ADDRESS: '' },
    });
    expect(status).toBe(1);
    expect(stderr).toContain(`no npm start is running in ${path.join(clone, '.data')}.`);
  });
});
