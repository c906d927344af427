/**
 * The process of the baselines: a worker with the settings of the service's, another one as a tutorial starts it, and a
 * client that shares their connection. It is given orders by the benchmark.
 */
import path from 'node:path';
import { Worker } from '@temporalio/worker';
import { bundleWorkflowCode } from 'temporal-bundler';
import { tuning } from '../workers/service.ts';
import type { Order, Times } from './orders.ts';
import { inFlight, serveOrders } from './orders.ts';
import { openWork, insertNth } from './work.ts';

export type BaselineShape = 'emptyWorkflow' | 'emptyTree' | 'naiveNotification';

/** The naive tree has a worker with the SDK's defaults: what settings gain is part of the comparison. */
const TASK_QUEUES: Record<BaselineShape, string> = {
  emptyWorkflow: 'tuned',
  emptyTree: 'tuned',
  naiveNotification: 'default',
};

const { config, connections, activities } = await openWork();
const { workerConnection, client, namespace } = connections;
const workflowsPath = path.join(import.meta.dirname, 'baseline-workflows.ts');
const common = { connection: workerConnection(), namespace, activities };
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
serveOrders(carryOut);
await running;

function carryOut({ shape, count }: Order<BaselineShape>): Promise<Times> {
  return inFlight(count, async (n, beganAtMs) => {
    const handle = await client.workflow.start(shape, {
      workflowId: `${shape}/${beganAtMs}-${n}`,
      taskQueue: TASK_QUEUES[shape],
      args: shape === 'naiveNotification' ? [await insertNth(connections.db, beganAtMs, n)] : [],
      // The ceiling may use everything that the service uses. A tutorial does not mention it, and a round trip is without it.
      requestEagerStart: shape === 'emptyTree',
    });
    await handle.result();
  });
}
