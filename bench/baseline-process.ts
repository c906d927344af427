/**
 * The process of the baselines: a worker with the settings of the service's, another one as a tutorial starts it, and a
 * client that shares their connection. It is given orders by the benchmark, and configured by its environment like the
 * service.
 */
import path from 'node:path';
import { Worker, bundleWorkflowCode } from '@temporalio/worker';
import pLimit from 'p-limit';
import { migrate } from '../migrations/migrate.ts';
import { loadConfig } from '../config/load.ts';
import { openConnections } from '../workers/connections.ts';
import { OpenParts } from '../workers/context.ts';
import { provideEndpoints } from '../workers/embedded.ts';
import { openIntents } from '../workers/intent.ts';
import { createKeyUse } from '../workers/key-use.ts';
import { createLogger } from '../workers/logger.ts';
import { startTelemetry } from '../workers/telemetry.ts';
import { installTemporalRuntime, tuning } from '../workers/temporal-worker.ts';
import type { NotificationInput } from '../workflows/intent/contract.ts';
import { intentFor } from './intent.ts';

export type BaselineShape = 'emptyWorkflow' | 'emptyTree' | 'naiveNotification';

/** Run so many workflows of a shape; or run one and say how long it took until its result was there. */
export interface Order {
  id: number;
  shape: BaselineShape;
  count: number;
  isRoundTrip: boolean;
}

export interface Answer {
  id: number;
  /** When the first start was asked for, ms since the epoch. */
  beganAtMs?: number;
  /** From the start to the result, ms. */
  roundTripMs?: number;
  error?: string;
}

/** Sent once, when orders are taken. */
export const READY = 'ready';

/** The naive tree has a worker with the SDK's defaults: what settings gain is part of the comparison. */
const TASK_QUEUES: Record<BaselineShape, string> = {
  emptyWorkflow: 'tuned',
  emptyTree: 'tuned',
  naiveNotification: 'default',
};
/** More in flight make the server slower, which would be a low ceiling. */
const IN_FLIGHT = 50;

const config = loadConfig();
const log = createLogger(config.values.NOTIFICATION_LOG_LEVEL);
installTemporalRuntime(log);
const { endpoints } = await provideEndpoints(config, () => undefined);
const telemetry = startTelemetry(config, log);
const context = {
  ...{ config, endpoints, log, meter: telemetry.meter },
  draining: new AbortController().signal,
  open: new OpenParts(log),
  renewable: [],
  keyUse: createKeyUse(telemetry.meter, log),
};
const connections = await openConnections(context, telemetry);
const { workerConnection, client, namespace } = connections;
await migrate(endpoints.postgresDsn);
const workflowsPath = path.join(import.meta.dirname, 'baseline-workflows.ts');
const common = {
  connection: workerConnection(),
  namespace,
  activities: openIntents(context).activities(connections),
};
const workers = [
  await Worker.create({
    ...common,
    taskQueue: 'tuned',
    workflowBundle: await bundleWorkflowCode({
      workflowsPath,
      preloadModules: ['@temporalio/workflow', workflowsPath],
    }),
    ...tuning(config),
  }),
  await Worker.create({
    ...common,
    taskQueue: 'default',
    workflowBundle: await bundleWorkflowCode({ workflowsPath }),
  }),
];
const running = Promise.all(workers.map((worker) => worker.run()));
process.on('message', (order: Order) => {
  void carryOut(order).then(
    (answer) => process.send!({ id: order.id, ...answer } satisfies Answer),
    (error: Error) => process.send!({ id: order.id, error: error.message } satisfies Answer),
  );
});
// The benchmark is gone, or has no more orders.
for (const event of ['disconnect', 'SIGTERM']) process.on(event, () => process.exit());
process.send!(READY);
await running;

async function carryOut({ shape, count, isRoundTrip }: Order): Promise<Omit<Answer, 'id'>> {
  // Names are like the ids of entries, which acceptance puts in order.
  const beganAtMs = Date.now();
  if (isRoundTrip) {
    const startedAt = performance.now();
    await (await start(shape, `${beganAtMs}-0`)).result();
    return { beganAtMs, roundTripMs: performance.now() - startedAt };
  }
  const limit = pLimit(IN_FLIGHT);
  const run = async (n: number): Promise<void> => {
    await (await start(shape, `${beganAtMs}-${n}`)).result();
  };
  await Promise.all(Array.from({ length: count }, (_, n) => limit(run, n)));
  return { beganAtMs };
}

function start(shape: BaselineShape, name: string) {
  return client.workflow.start(shape, {
    workflowId: `${shape}/${name}`,
    taskQueue: TASK_QUEUES[shape],
    args: shape === 'naiveNotification' ? [intentOf(name)] : [],
    // The ceiling may use everything that the service uses. A tutorial does not mention it, and a round trip is without it.
    requestEagerStart: shape === 'emptyTree',
  });
}

function intentOf(name: string): NotificationInput {
  return { ...intentFor(1), notificationId: name };
}
