/** What activities and processes do to workflows: keep one running, signal one that may have ended, see how one stands. */
import type { WorkflowClient, WorkflowHandle } from '@temporalio/client';
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

/** @returns the status of the latest run, such as `RUNNING`; undefined when Temporal does not know the workflow. */
export async function statusOf(workflows: WorkflowClient, workflowId: string): Promise<string | undefined> {
  try {
    return (await workflows.getHandle(workflowId).describe()).status.name;
  } catch (error) {
    if (error instanceof WorkflowNotFoundError) return undefined;
    throw error;
  }
}

/** One that has no end, and that the processes of its role keep running. */
export interface LongLivedWorkflow {
  workflowType: string;
  workflowId: string;
  taskQueue: string;
  args: unknown[];
  staticSummary: string;
}

/** Starts a workflow; one that runs already stays as it is. */
export function keepRunning(
  workflows: WorkflowClient,
  { workflowType, ...options }: LongLivedWorkflow,
): Promise<WorkflowHandle> {
  return workflows.start(workflowType, { ...options, workflowIdConflictPolicy: 'USE_EXISTING' });
}
