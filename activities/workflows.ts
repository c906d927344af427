/** What activities and processes do to workflows: keep one running, signal one that may have ended, see how one stands. */
import type { WorkflowClient, WorkflowExecutionDescription, WorkflowHandle } from '@temporalio/client';
import type { Priority } from '@temporalio/common';
import { isStuck, unlessGone } from '../api/stuck-workflow.ts';

/** Signals a workflow; one that has ended, or was never started, needs to hear nothing. */
export async function signalIfRunning(
  workflows: WorkflowClient,
  workflowId: string,
  signal: string,
  ...args: unknown[]
): Promise<void> {
  await unlessGone(() => workflows.getHandle(workflowId).signal(signal, ...args));
}

/** @returns the status of the latest run, such as `RUNNING`; undefined when Temporal does not know the workflow. */
export async function statusOf(workflows: WorkflowClient, workflowId: string): Promise<string | undefined> {
  return (await describe(workflows, workflowId))?.status.name;
}

/**
 * As `statusOf`, but `STUCK` for a run that cannot go on: its workflow task fails again and again, or nothing will wake it.
 * Where rows are the truth, another takes its place.
 *
 * @param isNeverIdle as of {@link LongLivedWorkflow}.
 */
export async function stateOf(
  workflows: WorkflowClient,
  workflowId: string,
  isNeverIdle = false,
): Promise<string | undefined> {
  const described = await describe(workflows, workflowId);
  return described && (await isStuck(workflows, described, isNeverIdle)) ? 'STUCK' : described?.status.name;
}

/** @returns the latest run; undefined when Temporal does not know the workflow. */
export const describe = (
  workflows: WorkflowClient,
  workflowId: string,
): Promise<WorkflowExecutionDescription | undefined> =>
  unlessGone(() => workflows.getHandle(workflowId).describe());

/** Ends a run that is stuck, and that needs no other one in its place. */
export async function endStuck(workflows: WorkflowClient, workflowId: string): Promise<void> {
  await unlessGone(() =>
    workflows
      .getHandle(workflowId)
      .terminate('its workflow task failed again and again, or nothing would wake it'),
  );
}

/** One that has no end, and that the processes of its role keep running. */
export interface LongLivedWorkflow {
  workflowType: string;
  workflowId: string;
  taskQueue: string;
  args: unknown[];
  staticSummary: string;
  /** It always has a task, an activity, a child or a timer. */
  isNeverIdle?: boolean;
  priority?: Priority;
}

/**
 * Starts a workflow; one that runs already stays as it is.
 *
 * @param isStuck the one that runs cannot go on, and is ended in the same moment.
 */
export function keepRunning(
  workflows: WorkflowClient,
  { workflowType, isNeverIdle: _, ...options }: LongLivedWorkflow,
  isStuck = false,
): Promise<WorkflowHandle> {
  const workflowIdConflictPolicy = isStuck ? 'TERMINATE_EXISTING' : 'USE_EXISTING';
  return workflows.start(workflowType, { ...options, workflowIdConflictPolicy });
}
