/**
 * Waking the workflows of an agent: its supervisor because rows have changed, its workers because something is due. Always by
 * signal-with-start: one that has ended starts again, one that runs looks again, and no command is lost. Safe to
 * repeat.
 */
import type { WorkflowClient } from '@temporalio/client';
import pLimit from 'p-limit';
import type { Logger } from 'pino';
import type { WorkerKey, WorkerPool } from '../../workflows/subscription/contract.ts';
import {
  POOL_WORKER_WORKFLOW,
  RECONCILE_SIGNAL,
  SUBSCRIPTION_TASK_QUEUE,
  WORK_SIGNAL,
  poolWorkerWorkflowId,
  signalsAbout,
  supervisorOf,
} from '../../workflows/subscription/contract.ts';
import type { ServerKey } from '../../workflows/subscription/rules.ts';
import { reasonOf } from '../reason.ts';
import type { LongLivedWorkflow } from '../workflows.ts';
import { keepRunning, stateOf } from '../workflows.ts';

/** Workflows that are looked at concurrently. */
const PARALLEL_LOOKS = 8;

/** A worker, as statements name it. */
export interface WorkerRow {
  pool: WorkerPool;
  host: string;
  port: number;
}

export const workersIn = (agentId: string, rows: readonly WorkerRow[]): WorkerKey[] =>
  rows.map(({ pool, host, port }) => ({ agentId, pool, server: { host, port } }));

interface KickResources {
  workflows: WorkflowClient;
  log: Logger;
}

export type SubscriptionCommands = ReturnType<typeof createSubscriptionCommands>;

export function createSubscriptionCommands(resources: KickResources) {
  return {
    /** Has the supervisor bring subscriptions in line with the rows. @param connIds default: all of the agent. */
    async reconcile(agentId: string, connIds?: readonly string[]): Promise<void> {
      const { workflowType, ...options } = supervisorOf(agentId);
      for (const signalArgs of signalsAbout(connIds)) {
        const signal = { signal: RECONCILE_SIGNAL, signalArgs };
        await resources.workflows.signalWithStart(workflowType, { ...options, ...signal });
      }
    },

    /** Wakes the worker for the token deletions on a notification router. */
    kickTokenDeletion: (agentId: string, server: ServerKey): Promise<void> =>
      kick(resources, { agentId, pool: 'ntf-tkn-del', server }),
  };
}

async function kick({ workflows }: KickResources, key: WorkerKey): Promise<void> {
  const { workflowType, ...options } = poolWorkerOf(key);
  await workflows.signalWithStart(workflowType, { ...options, signal: WORK_SIGNAL });
}

function poolWorkerOf(key: WorkerKey): LongLivedWorkflow {
  const { agentId, pool, server } = key;
  return {
    workflowType: POOL_WORKER_WORKFLOW,
    workflowId: poolWorkerWorkflowId(key),
    taskQueue: SUBSCRIPTION_TASK_QUEUE,
    args: [{ agentId, pool, server: { host: server.host, port: server.port } }],
    staticSummary: `${pool} of ${agentId} on ${server.host}:${server.port}`,
  };
}

/** Restarts workers that cannot go on: to wake them would change nothing. @throws what the Temporal client fails with. */
export async function replaceStuck(
  { workflows, log }: KickResources,
  keys: readonly WorkerKey[],
): Promise<number> {
  const replaced = await pLimit(PARALLEL_LOOKS).map(keys, async (key): Promise<number> => {
    const worker = poolWorkerOf(key);
    if ((await stateOf(workflows, worker.workflowId, true)) !== 'STUCK') return 0;
    await keepRunning(workflows, worker, true);
    log.warn({ workflow_id: worker.workflowId }, 'worker of subscriptions was stuck and is restarted');
    return 1;
  });
  return replaced.reduce((sum, one) => sum + one, 0);
}

/**
 * Wakes workers whose rows are already written, so a signal that fails is no failure of the caller: the reconciliation
 * wakes the worker later.
 *
 * @returns how many were woken.
 */
export async function kickAll(resources: KickResources, keys: readonly WorkerKey[]): Promise<number> {
  const distinct = [...new Map(keys.map((key) => [poolWorkerWorkflowId(key), key])).values()];
  const results = await Promise.allSettled(distinct.map((key) => kick(resources, key)));
  return results.filter((result, index) => {
    if (result.status === 'fulfilled') return true;
    const workflowId = poolWorkerWorkflowId(distinct[index]!);
    resources.log.warn(
      { workflow_id: workflowId, reason: reasonOf(result.reason) },
      'worker of subscriptions not woken',
    );
    return false;
  }).length;
}
