/** The data folder of `npm start` and `npm run demo`, when the checkout has changed since it was made. */
import { spawnSync } from 'node:child_process';
import { chmodSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { startPostgres } from '../../dev/servers/postgres.ts';
import { PROGRAM_ENV } from '../program-env.ts';
import { scratchFolder } from '../scratch.ts';

const { dir: dataDir } = scratchFolder('folder');
const note = path.join(dataDir, 'postgres', 'migrations.json');

// As root, PostgreSQL runs as a separate user, who must get in.
beforeAll(() => chmodSync(dataDir, 0o755));

const startAndStop = async () =>
  (await startPostgres({ dataDir, port: 0, durable: false, report: () => undefined })).stop();
const noted = () => JSON.parse(readFileSync(note, 'utf8')) as Record<string, string>;

test('a folder of this checkout is used again, and takes a migration that it does not have yet', async () => {
  await startAndStop();
  const all = noted();
  const { '0006-subscription.sql': _added, ...earlier } = all;
  writeFileSync(note, JSON.stringify({ ...earlier, '9999-of-a-later-checkout.sql': 'x' }));
  await startAndStop();
  expect(noted()).toEqual({ ...all, '9999-of-a-later-checkout.sql': 'x' });
});

test.each([
  ['npm start', 'workers/main.ts', 'an edited migration', () => ({ ...noted(), '0002-operators.sql': 'x' })],
  ['npm run demo', 'dev/demo/main.ts', 'no noted migrations', () => ({})],
])('%s (%s) says in one sentence which folder to delete: %s', (_script, program, _what, changed) => {
  writeFileSync(note, JSON.stringify(changed()));
  const { status, stderr, stdout } = spawnSync(process.execPath, [program], {
    encoding: 'utf8',
    env: { ...PROGRAM_ENV, NOTIFICATION_DATA_DIR: dataDir, NOTIFICATION_DEV_BASE_PORT: '0' },
  });
  expect({ status, stdout }).toEqual({ status: 1, stdout: '' });
  expect(stderr.trim().split('\n')).toEqual([
    expect.stringMatching(/^the data in .* differs: delete it with rm -rf \/\S+$/),
  ]);
  expect(stderr).toContain(`rm -rf ${dataDir}`);
});
