/** Updates of workflows, as operators make them. */
import { ServiceError, isGrpcServiceError, type Client } from '@temporalio/client';
import { ANSWER_LIMIT_MS, bounded } from './live.ts';
import { oncePossible } from './wait-until.ts';

/**
 * Makes an update, and makes it again when Temporal gives it back untouched. That happens when the workflow wants to be
 * continued by a new run, or to end, in the very task that brings it the update, while something else arrives: Temporal
 * refuses the task, with everything in it, and tells the client that the update failed.
 *
 * @param limitMs of the whole, ms.
 * @throws what the Temporal client throws, WorkflowUpdateRPCTimeoutOrCancelledError when `limitMs` is over.
 */
export function makeUpdate<T>(
  temporal: Client,
  call: () => Promise<T>,
  limitMs = ANSWER_LIMIT_MS,
): Promise<T> {
  return bounded(temporal, () => oncePossible(call, isGivenBack, limitMs), limitMs);
}

/** Its code, FAILED_PRECONDITION, is also that of refusals which stay; only the text tells it from them. */
function isGivenBack(error: unknown): boolean {
  // An update that may start its workflow fails with what the server answered, others wrap it.
  const answer = error instanceof ServiceError ? error.cause : error;
  return isGrpcServiceError(answer) && answer.message.includes('unexpected workflow task failure');
}
