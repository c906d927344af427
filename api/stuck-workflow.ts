/** Workflows that are gone, and runs that cannot go on. */
import type { WorkflowClient, WorkflowExecutionDescription } from '@temporalio/client';
import { WorkflowNotFoundError } from '@temporalio/client';
import proto from '@temporalio/proto';

const { WORKFLOW_TASK_FAILED_CAUSE_UNHANDLED_COMMAND: UNHANDLED_COMMAND } =
  proto.temporal.api.enums.v1.WorkflowTaskFailedCause;
/**
 * The attempt of a workflow task before which three have failed, which takes about half a minute: its run cannot go on.
 * So it is with one that a worker had in memory when Temporal was put back, and its history has both now.
 */
const STUCK_AT_ATTEMPT = 4;
/** As many as a server gives together, however many are asked for. */
const EVENTS_OF_A_PAGE = 256;

/** @returns what the call returns; undefined when there is no such workflow, or it has ended and takes nothing. */
export async function unlessGone<T>(call: () => Promise<T>): Promise<T | undefined> {
  try {
    return await call();
  } catch (error) {
    if (error instanceof WorkflowNotFoundError) return undefined;
    throw error;
  }
}

type HistoryPage = proto.temporal.api.workflowservice.v1.IGetWorkflowExecutionHistoryReverseResponse;

/**
 * Each signal begins a new count of attempts, so the failures since the last success are counted in the history, too.
 *
 * @param isNeverIdle a run of this type always has a task, an activity, a child or a timer. Without any, nothing will wake
 *   it: a worker that had the run in memory when Temporal was put back completes its task without a command.
 */
export async function isStuck(
  workflows: WorkflowClient,
  { raw, status, workflowId, runId }: WorkflowExecutionDescription,
  isNeverIdle = false,
): Promise<boolean> {
  const attempt = raw.pendingWorkflowTask?.attempt ?? 0;
  if (attempt >= STUCK_AT_ATTEMPT) return true;
  const isWaiting = [...(raw.pendingActivities ?? []), ...(raw.pendingChildren ?? [])].length > 0;
  if (attempt === 0 && (!isNeverIdle || isWaiting || status.name !== 'RUNNING')) return false;
  const newest = await page();
  const events = newest.history?.events ?? [];
  const lastSuccess = events.findIndex((event) => event.workflowTaskCompletedEventAttributes);
  if (attempt === 0) {
    // One that has gone on since it was described: a timer that it waited for has fired.
    if (Number(events[0]?.eventId) !== Number(raw.workflowExecutionInfo?.historyLength)) return false;
    // Before its first task, a run waits for the beginning that Temporal gave it.
    return lastSuccess !== -1 && !(await hasTimer(newest));
  }
  const failures = events
    .slice(0, lastSuccess === -1 ? undefined : lastSuccess)
    .map((event) => event.workflowTaskFailedEventAttributes?.cause)
    // A task that ends while a signal comes is called off.
    .filter((cause) => cause != null && cause !== UNHANDLED_COMMAND);
  // The first attempt that fails is in the history; those that follow it are not.
  return failures.length + Math.max(attempt - 2, 0) >= STUCK_AT_ATTEMPT - 1;

  /** Of its history, the newest events first. */
  function page(nextPageToken: Uint8Array | null = null): Promise<HistoryPage> {
    const execution = { workflowId, runId };
    const { namespace } = workflows.options;
    return workflows.workflowService.getWorkflowExecutionHistoryReverse({
      ...{ namespace, execution, maximumPageSize: EVENTS_OF_A_PAGE, nextPageToken },
    });
  }

  /** Whether it waits for a timer. */
  async function hasTimer(
    { history, nextPageToken }: HistoryPage,
    over = new Set<string>(),
  ): Promise<boolean> {
    for (const event of history?.events ?? []) {
      const ended = event.timerFiredEventAttributes ?? event.timerCanceledEventAttributes;
      if (ended) over.add(ended.timerId!);
      const timer = event.timerStartedEventAttributes;
      if (timer && !over.has(timer.timerId!)) return true;
    }
    return nextPageToken?.length ? hasTimer(await page(nextPageToken), over) : false;
  }
}
