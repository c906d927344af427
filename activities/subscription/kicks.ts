/**
 * Waking workers: signal-with-start, so that one that has ended starts again and one that runs looks again. Safe to
 * repeat.
 */
import type { WorkflowClient } from '@temporalio/client';
import type { Logger } from 'pino';
import type { WorkerKey } from '../../workflows/subscription/contract.ts';
import {
  POOL_WORKER_WORKFLOW,
  SUBSCRIPTION_TASK_QUEUE,
  WORK_SIGNAL,
  poolWorkerWorkflowId,
} from '../../workflows/subscription/contract.ts';
import { reasonOf } from '../reason.ts';

export interface KickResources {
  workflows: WorkflowClient;
  log: Logger;
}

export async function kick({ workflows }: KickResources, key: WorkerKey): Promise<void> {
  const { agentId, pool, server } = key;
  await workflows.signalWithStart(POOL_WORKER_WORKFLOW, {
    workflowId: poolWorkerWorkflowId(key),
    taskQueue: SUBSCRIPTION_TASK_QUEUE,
    args: [{ agentId, pool, server: { host: server.host, port: server.port } }],
    signal: WORK_SIGNAL,
    staticSummary: `${pool} of ${agentId} on ${server.host}:${server.port}`,
  });
}

/**
 * Wakes workers whose rows are already written: that must not fail because a signal does.
 *
 * @returns those that could not be woken.
 */
export async function kickAll(resources: KickResources, keys: readonly WorkerKey[]): Promise<WorkerKey[]> {
  const distinct = [...new Map(keys.map((key) => [poolWorkerWorkflowId(key), key])).values()];
  const results = await Promise.allSettled(distinct.map((key) => kick(resources, key)));
  return distinct.filter((key, index) => {
    const result = results[index]!;
    if (result.status === 'fulfilled') return false;
    const { agentId, pool, server } = key;
    resources.log.warn(
      { agent_id: agentId, pool, server: `${server.host}:${server.port}`, reason: reasonOf(result.reason) },
      'worker of subscriptions not woken',
    );
    return true;
  });
}
