/** Which runs of workflows cannot go on. */
import type { WorkflowClient, WorkflowExecutionDescription } from '@temporalio/client';
import proto from '@temporalio/proto';

const { WORKFLOW_TASK_FAILED_CAUSE_UNHANDLED_COMMAND: UNHANDLED_COMMAND } =
  proto.temporal.api.enums.v1.WorkflowTaskFailedCause;
/**
 * The attempt of a workflow task before which three have failed, which takes about half a minute: its run cannot go on.
 * So it is with one that a worker had in memory when Temporal was put back, and its history has both now.
 */
const STUCK_AT_ATTEMPT = 4;
/** The newest of a history. */
const EVENTS_LOOKED_AT = 1_000;

/** Each signal begins a new count of attempts, so the failures since the last success are counted in the history, too. */
export async function isStuck(
  workflows: WorkflowClient,
  { raw, workflowId, runId }: WorkflowExecutionDescription,
): Promise<boolean> {
  const attempt = raw.pendingWorkflowTask?.attempt ?? 0;
  if (attempt === 0 || attempt >= STUCK_AT_ATTEMPT) return attempt > 0;
  const { history } = await workflows.workflowService.getWorkflowExecutionHistoryReverse({
    namespace: workflows.options.namespace,
    execution: { workflowId, runId },
    maximumPageSize: EVENTS_LOOKED_AT,
  });
  const events = history?.events ?? [];
  const lastSuccess = events.findIndex((event) => event.workflowTaskCompletedEventAttributes);
  const failures = events
    .slice(0, lastSuccess === -1 ? undefined : lastSuccess)
    .map((event) => event.workflowTaskFailedEventAttributes?.cause)
    // A task that ends while a signal comes is called off.
    .filter((cause) => cause != null && cause !== UNHANDLED_COMMAND);
  // The first attempt that fails is in the history; those that follow it are not.
  return failures.length + Math.max(attempt - 2, 0) >= STUCK_AT_ATTEMPT - 1;
}
