/** The embedded Temporal: the Temporal CLI, or our own server where that cannot be had. */
import { Client, Connection } from '@temporalio/client';
import { report } from '../../dev/program.ts';
import { findTemporalProgram, startTemporal, type EmbeddedTemporal } from '../../dev/servers/temporal.ts';
import { eventually } from '../eventually.ts';
import { scratchFolder } from '../scratch.ts';

/** Where one must be built first. */
const FIND_LIMIT_MS = 900_000;
const NAMESPACE = 'server';
const ATTRIBUTE = 'Producer';

const { dir: dataDir } = scratchFolder('temporal');
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

async function found({ workflow }: Client): Promise<string[]> {
  const ids: string[] = [];
  for await (const { workflowId } of workflow.list({ query: `${ATTRIBUTE} = 'server'` }))
    ids.push(workflowId);
  return ids;
}

test('I97 it answers with metrics and a Web UI, and has after a restart what it had before', async () => {
  await withTemporal(async (client, { uiUrl, metricsUrl }) => {
    const info = await fetch(`${uiUrl}/api/v1/cluster-info`);
    expect(await info.json()).toMatchObject({ serverVersion: expect.stringMatching(/^1\.\d+\./) });
    expect(await (await fetch(metricsUrl!)).text()).toContain('service_requests');
    await client.workflow.start('none', {
      ...{ workflowId: 'before', taskQueue: 'nobody', args: [] },
      searchAttributes: { [ATTRIBUTE]: ['server'] },
    });
    await eventually('it to be found by its attribute', async () => (await found(client)).length === 1);
  });
  await withTemporal(async (client) => expect(await found(client)).toEqual(['before']));
});
