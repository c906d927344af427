/** Which workflow an intent is with: its own, or the slice that took it. */
import type { WorkflowClient } from '@temporalio/client';
import { notificationWorkflowId } from '../../workflows/intent/contract.ts';
import { sliceWorkflowId } from '../../workflows/intent/slice-contract.ts';
import { statusOf } from '../workflows.ts';

/** A workflow that has ended so has decided something, and there must be a row of it; others were ended by somebody. */
export const DECIDED: readonly string[] = ['COMPLETED', 'FAILED'];

/**
 * Whether somebody has ended the workflow of an intent that waits, so that nobody takes it up any more. One that has
 * decided it is none: its record was lost, or its row comes from before, and the intent is begun again.
 *
 * @param slice that took it, if one did. @throws what the Temporal client fails with.
 */
export async function isGivenUp(
  workflows: WorkflowClient,
  { notificationId, slice }: { notificationId: string; slice: string | null | undefined },
): Promise<boolean> {
  const status = await statusOf(workflows, notificationWorkflowId(notificationId));
  if (status === undefined || status === 'RUNNING' || DECIDED.includes(status)) return false;
  return typeof slice !== 'string' || (await statusOf(workflows, sliceWorkflowId(slice))) !== 'RUNNING';
}

/**
 * @param id of an entry that a notification or a slice was started by.
 * @returns whether Temporal knows it. @throws what the Temporal client fails with.
 */
export async function isKnownToTemporal(workflows: WorkflowClient, id: string): Promise<boolean> {
  const isKnown = async (workflowId: string) => (await statusOf(workflows, workflowId)) !== undefined;
  return (await isKnown(notificationWorkflowId(id))) || (await isKnown(sliceWorkflowId(id)));
}
