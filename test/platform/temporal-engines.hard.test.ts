/** The embedded Temporal, with each of its engines: the Temporal CLI, and our own server where that cannot be had. */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { Client, Connection } from '@temporalio/client';
import { report } from '../../dev/program.ts';
import { findTemporalProgram, startTemporal, type EmbeddedTemporal } from '../../dev/servers/temporal.ts';
import { eventually } from '../eventually.ts';

const ENGINES = ['1.29', '1.32'] as const;
/** Where one must be built first. */
const FIND_LIMIT_MS = 900_000;
const NAMESPACE = 'engines';
const ATTRIBUTE = 'Producer';

let dataDir: string;
beforeAll(async () => {
  dataDir = mkdtempSync(path.join(tmpdir(), 'galaxy-notify-engines-'));
  for (const engine of ENGINES) await findTemporalProgram({ engine }, report);
}, FIND_LIMIT_MS);
afterAll(() => rmSync(dataDir, { recursive: true, force: true }));

async function withTemporal<T>(
  engine: (typeof ENGINES)[number],
  work: (temporal: EmbeddedTemporal) => Promise<T>,
) {
  const temporal = await startTemporal({
    ...{ dataDir, port: 0, uiPort: 0, metricsPort: 0, program: { engine } },
    ...{ namespaces: [NAMESPACE], searchAttributes: [ATTRIBUTE] },
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
      searchAttributes: { [ATTRIBUTE]: ['engines'] },
    }),
  );

const found = (temporal: EmbeddedTemporal) =>
  withClient(temporal, async ({ workflow }) => {
    const ids: string[] = [];
    for await (const { workflowId } of workflow.list({ query: `${ATTRIBUTE} = 'engines'` }))
      ids.push(workflowId);
    return ids;
  });

const untilFound = (temporal: EmbeddedTemporal, workflowId: string) =>
  eventually(`${workflowId} to be found by its attribute`, async () =>
    (await found(temporal)).includes(workflowId),
  );

test.each(ENGINES)(
  'I97 with engine %s it answers with metrics and a Web UI, and has after a restart what it had before',
  async (engine) => {
    await withTemporal(engine, async (temporal) => {
      const info = await fetch(`${temporal.uiUrl}/api/v1/cluster-info`);
      expect(await info.json()).toMatchObject({ serverVersion: expect.stringMatching(`^${engine}\\.`) });
      const metrics = await fetch(temporal.metricsUrl!);
      expect(await metrics.text()).toContain('service_requests');
      await start(temporal, `before-${engine}`);
      await untilFound(temporal, `before-${engine}`);
    });
    // Of the other engine there is nothing: each has a database of its own.
    await withTemporal(engine, async (temporal) =>
      expect(await found(temporal)).toEqual([`before-${engine}`]),
    );
  },
);

test.each(ENGINES)(
  'I97 a key of the dynamic configuration that server %s does not know is refused',
  async (engine) => {
    const { command, isCli } = await findTemporalProgram({ engine }, () => undefined);
    // The CLI takes any key.
    if (isCli) return;
    const values = ['matching.rps="many"', 'matching.noSuchKey=1'];
    const flags = values.flatMap((value) => ['--dynamic-config-value', value]);
    const { status, stderr } = spawnSync(command, ['server', 'start-dev', ...flags], { encoding: 'utf8' });
    expect(status).toBe(1);
    expect(stderr).toMatch(/unregistered key "matching.nosuchkey"/i);
    expect(stderr).toContain('key "matching.rps" value many');
  },
);
