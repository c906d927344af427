/**
 * The servers of `npm start` and `npm run demo`: Temporal, which is the Temporal CLI or our own server where that cannot be had,
 * and the folder of PostgreSQL when the checkout has changed since it was made.
 */
import { spawnSync } from 'node:child_process';
import { chmodSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { Client, Connection } from '@temporalio/client';
import { report } from '../../dev/program.ts';
import { startPostgres } from '../../dev/servers/postgres.ts';
import { findTemporalProgram, startTemporal, type EmbeddedTemporal } from '../../dev/servers/temporal.ts';
import { eventually } from '../eventually.ts';
import { PROGRAM_ENV } from '../program-env.ts';
import { scratchFolder } from '../scratch.ts';

/** Where one must be built first. */
const FIND_LIMIT_MS = 900_000;
const NAMESPACE = 'server';
const ATTRIBUTE = 'Producer';

const { dir: dataDir } = scratchFolder('servers');
beforeAll(() => findTemporalProgram(undefined, report), FIND_LIMIT_MS);

async function withTemporal(work: (client: Client, temporal: EmbeddedTemporal) => Promise<void>) {
  const temporal = await startTemporal({
    ...{ dataDir, port: 0, uiPort: 0, metricsPort: 0 },
    ...{ namespaces: [NAMESPACE], searchAttributes: { [ATTRIBUTE]: 'Keyword' as const } },
    report: () => undefined,
  });
  try {
    const { address } = temporal;
    const connection = await Connection.connect({ address, connectTimeout: '1 minute' });
    await work(new Client({ connection, namespace: NAMESPACE }), temporal).finally(() => connection.close());
  } finally {
    await temporal.stop();
  }
}

const listed = async ({ workflow }: Client) => (await workflow.count(`${ATTRIBUTE} = 'server'`)).count;

test('I97 it answers with metrics and a Web UI, and has after a restart what it had before', async () => {
  await withTemporal(async (client, { uiUrl, metricsUrl }) => {
    const info = await fetch(`${uiUrl}/api/v1/cluster-info`);
    expect(await info.json()).toMatchObject({ serverVersion: expect.stringMatching(/^1\.\d+\./) });
    expect(await (await fetch(metricsUrl!)).text()).toContain('service_requests');
    await client.workflow.start('none', {
      ...{ workflowId: 'before', taskQueue: 'nobody', args: [] },
      searchAttributes: { [ATTRIBUTE]: ['server'] },
    });
    await eventually('it to be found by its attribute', async () => (await listed(client)) === 1);
  });
  await withTemporal(async (client) => expect(await listed(client)).toBe(1));
});

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
