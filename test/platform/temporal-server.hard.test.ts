/** The embedded Temporal: the Temporal CLI, or our own server where that cannot be had. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { Client, Connection } from '@temporalio/client';
import { report } from '../../dev/program.ts';
import { findTemporalProgram, startTemporal, type EmbeddedTemporal } from '../../dev/servers/temporal.ts';
import { eventually } from '../eventually.ts';

/** Where one must be built first. */
const FIND_LIMIT_MS = 900_000;
const NAMESPACE = 'server';
const ATTRIBUTE = 'Producer';

let dataDir: string;
beforeAll(async () => {
  dataDir = mkdtempSync(path.join(tmpdir(), 'galaxy-notify-temporal-'));
  await findTemporalProgram(undefined, report);
}, FIND_LIMIT_MS);
afterAll(() => rmSync(dataDir, { recursive: true, force: true }));

async function withTemporal<T>(work: (temporal: EmbeddedTemporal) => Promise<T>) {
  const temporal = await startTemporal({
    ...{ dataDir, port: 0, uiPort: 0, metricsPort: 0 },
    ...{ namespaces: [NAMESPACE], searchAttributes: { [ATTRIBUTE]: 'Keyword' as const } },
    report: () => undefined,
  });
  try {
    return await work(temporal);
  } finally {
    await temporal.stop();
  }
}

async function withClient<T>({ address }: EmbeddedTemporal, work: (client: Client) => Promise<T>) {
  const connection = await Connection.connect({ address, connectTimeout: '1 minute' });
  try {
    return await work(new Client({ connection, namespace: NAMESPACE }));
  } finally {
    await connection.close();
  }
}

const start = (temporal: EmbeddedTemporal, workflowId: string) =>
  withClient(temporal, (client) =>
    client.workflow.start('none', {
      ...{ workflowId, taskQueue: 'nobody', args: [] },
      searchAttributes: { [ATTRIBUTE]: ['server'] },
    }),
  );

const found = (temporal: EmbeddedTemporal) =>
  withClient(temporal, async ({ workflow }) => {
    const ids: string[] = [];
    for await (const { workflowId } of workflow.list({ query: `${ATTRIBUTE} = 'server'` }))
      ids.push(workflowId);
    return ids;
  });

const untilFound = (temporal: EmbeddedTemporal, workflowId: string) =>
  eventually(`${workflowId} to be found by its attribute`, async () =>
    (await found(temporal)).includes(workflowId),
  );

test('I97 it answers with metrics and a Web UI, and has after a restart what it had before', async () => {
  await withTemporal(async (temporal) => {
    const info = await fetch(`${temporal.uiUrl}/api/v1/cluster-info`);
    expect(await info.json()).toMatchObject({ serverVersion: expect.stringMatching(/^1\.\d+\./) });
    const metrics = await fetch(temporal.metricsUrl!);
    expect(await metrics.text()).toContain('service_requests');
    await start(temporal, 'before');
    await untilFound(temporal, 'before');
  });
  await withTemporal(async (temporal) => expect(await found(temporal)).toEqual(['before']));
});
