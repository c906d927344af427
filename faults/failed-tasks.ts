/** Tasks of workflows that failed, as histories have them. */
import proto from '@temporalio/proto';
import type { TemporalRow } from './temporal-rows.ts';

const { WorkflowTaskFailedCause: Cause } = proto.temporal.api.enums.v1;
const { History } = proto.temporal.api.history.v1;

/** Causes that are no fault of a workflow: a signal came while it was ending, an operator reset it. */
const NO_FAULTS: readonly (number | null | undefined)[] = [
  Cause.WORKFLOW_TASK_FAILED_CAUSE_UNHANDLED_COMMAND,
  Cause.WORKFLOW_TASK_FAILED_CAUSE_RESET_WORKFLOW,
  Cause.WORKFLOW_TASK_FAILED_CAUSE_FORCE_CLOSE_COMMAND,
];

/** What the SDK says when a server ends while it is asked for a history; the task is tried again. */
const NO_HISTORY = 'Fetching history failed';

/** Passes rows on, and adds up the failures in those that are of histories, by cause and message. */
export async function* countingFailedTasks(
  rows: AsyncIterable<TemporalRow>,
  counts: Record<string, number>,
): AsyncGenerator<TemporalRow> {
  for await (const entry of rows) {
    if (entry.table === 'history_node') {
      for (const { workflowTaskFailedEventAttributes: failed } of eventsOf(entry.row)) {
        if (!failed || NO_FAULTS.includes(failed.cause)) continue;
        if (failed.failure?.message?.startsWith(NO_HISTORY)) continue;
        const cause = Cause[failed.cause ?? 0] ?? 'unknown';
        const name = failed.failure?.message ? `${cause}: ${failed.failure.message}` : cause;
        counts[name] = (counts[name] ?? 0) + 1;
      }
    }
    yield entry;
  }
}

const eventsOf = (row: { data?: Uint8Array }) => History.decode(row.data ?? new Uint8Array()).events;
