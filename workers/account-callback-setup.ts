/** What account callbacks need at the start of a process: their shards, and a workflow for each. */
import { WorkflowNotFoundError } from '@temporalio/client';
import { assignShards } from '../activities/account-callback/inputs.ts';
import { consumeCallbackInputs } from '../activities/account-callback/stream.ts';
import {
  ACCOUNT_CALLBACK_TASK_QUEUE,
  ACCOUNT_CALLBACK_WORKFLOW,
  accountCallbackWorkflowId,
} from '../workflows/account-callback/contract.ts';
import type { Resources } from './resources.ts';
import type { Running } from './roles.ts';

/**
 * Spreads the users over the configured shards, starts their workflows, and begins to take prices and positions. Shards
 * that run stay as they are; those that are too many end. Safe to repeat.
 */
export async function beginAccountCallbacks(resources: Resources): Promise<Running> {
  const { client, db, log, callbackShards: shards } = resources;
  const moved = await assignShards(db, shards);
  if (moved > 0) log.info({ shards, moved }, 'users moved between shards');
  await Promise.all(
    Array.from({ length: shards }, (_, shard) =>
      client.workflow.start(ACCOUNT_CALLBACK_WORKFLOW, {
        workflowId: accountCallbackWorkflowId(shard),
        taskQueue: ACCOUNT_CALLBACK_TASK_QUEUE,
        args: [{ shard }],
        workflowIdConflictPolicy: 'USE_EXISTING',
        staticSummary: `account callbacks, shard ${shard + 1} of ${shards}`,
      }),
    ),
  );
  for (let shard = shards; await endIfRunning(resources, shard); shard += 1) {
    log.info({ shard, shards }, 'shard of account callbacks ended');
  }
  return consumeCallbackInputs(resources);
}

/** @returns whether the shard has ever run: those behind it may have, too. */
async function endIfRunning({ client }: Resources, shard: number): Promise<boolean> {
  const handle = client.workflow.getHandle(accountCallbackWorkflowId(shard));
  try {
    const { status } = await handle.describe();
    if (status.name === 'RUNNING') await handle.terminate('there are fewer shards now');
    return true;
  } catch (error) {
    if (error instanceof WorkflowNotFoundError) return false;
    throw error;
  }
}
