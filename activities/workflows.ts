/** Signals from activities to workflows that may have ended. */
import type { WorkflowClient } from '@temporalio/client';
import { WorkflowNotFoundError } from '@temporalio/client';

/** Signals a workflow; one that has ended, or was never started, needs to hear nothing. */
export async function signalIfRunning(
  workflows: WorkflowClient,
  workflowId: string,
  signal: string,
  ...args: unknown[]
): Promise<void> {
  try {
    await workflows.getHandle(workflowId).signal(signal, ...args);
  } catch (error) {
    if (!(error instanceof WorkflowNotFoundError)) throw error;
  }
}
