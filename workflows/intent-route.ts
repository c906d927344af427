/**
 * One route of a notification: publish it, with the budget of its channel.
 *
 * ```mermaid
 * stateDiagram-v2
 *   [*] --> pending
 *   pending --> published: first attempt, a local activity
 *   pending --> failed: publication failed
 *   failed --> published: a later attempt
 *   failed --> failed: publication failed, budget left
 *   failed --> dead_letter: budget spent (workflow ends Failed, RouteDeadLettered)
 * ```
 *
 * The row in PostgreSQL is the truth about a route; this workflow supplies the attempts. The budget counts failed
 * publications that were recorded, so an attempt that PostgreSQL or a foreign lease prevented is deferred, not spent.
 */
import {
  ActivityFailure,
  ApplicationFailure,
  TemporalFailure,
  continueAsNew,
  isCancellation,
  proxyActivities,
  proxyLocalActivities,
  setCurrentDetails,
  sleep,
  upsertSearchAttributes,
  workflowInfo,
} from '@temporalio/workflow';
import type { RouteActivities } from '../activities/intent-route.ts';
import { ROUTE_DEAD_LETTERED, isPublicationFailure } from './failures.ts';
import type {
  PublicationFailureDetails,
  PublishResult,
  RouteInput,
  RouteOutcome,
} from './intent-contract.ts';
import { DATABASE_READ, FIRST_TRY, deferralDelayMs, remainingBudget } from './policies.ts';
import { routeStatus } from './search-attributes.ts';

/** A publication that failed and may be tried again. */
interface Failed {
  status: 'failed';
  classification: string;
  details: PublicationFailureDetails;
}
type AttemptResult = PublishResult | Failed;

const firstTry = proxyLocalActivities<RouteActivities>(FIRST_TRY);
/** Attempts that spend no budget, after a deferral: one at a time, the waits between them are this workflow's. */
const afterDeferral = proxyActivities<RouteActivities>({ ...DATABASE_READ, retry: { maximumAttempts: 1 } });

/**
 * Publishes one route.
 *
 * @returns how the route ended, when it was published or skipped.
 * @throws ApplicationFailure `RouteDeadLettered` when the budget is spent, so that the Failed filter of the Web UI
 * is the operator's work list.
 */
export async function notificationRoute(route: RouteInput): Promise<RouteOutcome> {
  let result = await attempt(() => firstTry.publishRoute(route));
  const startedWell = isSettled(result);

  for (let deferrals = 0; !isSettled(result);) {
    if (result.status === 'failed') {
      result = await spendRestOfBudget(route, result);
      deferrals = 0;
    } else {
      deferrals += 1;
      await waitOut(result, deferrals);
      if (workflowInfo().continueAsNewSuggested) await continueAsNew<typeof notificationRoute>(route);
      result = await attempt(() => afterDeferral.publishRoute(route));
    }
  }

  if (!startedWell || result.status === 'dead_letter') leaveDetails(result);
  if (result.status === 'dead_letter') {
    throw ApplicationFailure.nonRetryable(
      `budget spent: ${result.classification}`,
      ROUTE_DEAD_LETTERED,
      result.classification,
    );
  }
  return { status: result.status };
}

type Settled = Extract<PublishResult, { status: 'published' | 'skipped' | 'dead_letter' }>;

function isSettled(result: AttemptResult): result is Settled {
  return result.status === 'published' || result.status === 'skipped' || result.status === 'dead_letter';
}

/** Waits until the ladder allows the next attempt, then lets the activity's retry policy carry the rest. */
async function spendRestOfBudget(route: RouteInput, failed: Failed): Promise<AttemptResult> {
  const { attemptCount, maxAttempts, nextAttemptAtMs } = failed.details;
  setCurrentDetails(
    `attempt ${attemptCount + 1} of ${maxAttempts}, next at ${new Date(nextAttemptAtMs).toISOString()}, ${failed.classification}`,
  );
  upsertSearchAttributes([routeStatus('failed')]);
  await sleep(Math.max(1, nextAttemptAtMs - Date.now()), {
    summary: `before attempt ${attemptCount + 1} of ${maxAttempts}`,
  });
  const rest = proxyActivities<RouteActivities>(remainingBudget(failed.details));
  return attempt(() => rest.publishRoute(route));
}

async function waitOut(
  { reason, retryInMs }: Extract<PublishResult, { status: 'deferred' }>,
  deferrals: number,
): Promise<void> {
  const delayMs = retryInMs ?? deferralDelayMs(deferrals);
  setCurrentDetails(
    `waiting, ${reason}, next at ${new Date(Date.now() + delayMs).toISOString()}; no budget is spent`,
  );
  await sleep(delayMs, { summary: reason });
}

/** Runs one attempt and turns its failure into a result: what follows is decided in one place. */
async function attempt(publish: () => Promise<PublishResult>): Promise<AttemptResult> {
  try {
    return await publish();
  } catch (error) {
    // Cancellation and defects of the workflow itself pass through.
    if (isCancellation(error) || !(error instanceof TemporalFailure)) throw error;
    // A local activity fails with the cause itself, a regular one wraps it.
    const cause = error instanceof ActivityFailure ? error.cause : error;
    if (cause instanceof ApplicationFailure && isPublicationFailure(cause.type)) {
      const details = cause.details?.[0] as PublicationFailureDetails;
      return { status: 'failed', classification: cause.type, details };
    }
    if (cause instanceof ApplicationFailure && cause.nonRetryable) throw error;
    // A time-out, a worker that died, a defect in the activity: nothing was recorded, so nothing was spent.
    return { status: 'deferred', reason: 'attempt_not_finished' };
  }
}

function leaveDetails(result: Settled): void {
  setCurrentDetails(
    result.status === 'dead_letter' ? `dead letter: ${result.classification}` : result.status,
  );
  upsertSearchAttributes([routeStatus(result.status)]);
}
