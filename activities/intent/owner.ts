/** Which workflow has an intent in hand: its own, or the slice that took it. */
import type { WorkflowClient } from '@temporalio/client';
import { notificationWorkflowId } from '../../workflows/intent/contract.ts';
import { sliceWorkflowId } from '../../workflows/intent/slice-contract.ts';
import { statusOf } from '../workflows.ts';

/** @param slice that took it, if one did. @returns whether one of them runs. @throws what the Temporal client fails with. */
export async function isInHand(
  workflows: WorkflowClient,
  { notificationId, slice }: { notificationId: string; slice: string | null | undefined },
): Promise<boolean> {
  const status = await statusOf(workflows, notificationWorkflowId(notificationId));
  if (status === 'RUNNING') return true;
  return typeof slice === 'string' && (await statusOf(workflows, sliceWorkflowId(slice))) === 'RUNNING';
}

/**
 * @param id of an entry that a notification or a slice was started by.
 * @returns whether Temporal knows it. @throws what the Temporal client fails with.
 */
export async function isKnownToTemporal(workflows: WorkflowClient, id: string): Promise<boolean> {
  const isKnown = async (workflowId: string) => (await statusOf(workflows, workflowId)) !== undefined;
  return (await isKnown(notificationWorkflowId(id))) || (await isKnown(sliceWorkflowId(id)));
}
