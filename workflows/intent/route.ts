/**
 * One route of a notification: publish it, with the budget of its channel.
 *
 * ```mermaid
 * stateDiagram-v2
 *   [*] --> pending
 *   pending --> published: first attempt, a local activity of this workflow or of the notification
 *   pending --> failed: publication failed
 *   failed --> published: a later attempt
 *   failed --> failed: publication failed, budget left
 *   failed --> dead_letter: budget spent (workflow ends Failed, RouteDeadLettered)
 *   dead_letter --> pending: replay, a new generation with a fresh budget
 *   pending --> skipped: cancelled, or expired
 *   failed --> skipped: cancelled, or expired
 * ```
 *
 * The row in PostgreSQL is the truth about a route; this workflow supplies the attempts. The budget counts failed
 * publications that were recorded, so an attempt that a paused channel, PostgreSQL or a foreign lease prevented is
 * not spent.
 */
import {
  ActivityFailure,
  ApplicationFailure,
  CancellationScope,
  TemporalFailure,
  isCancellation,
  proxyActivities,
  proxyLocalActivities,
  setCurrentDetails,
  sleep,
  upsertSearchAttributes,
  workflowInfo,
} from '@temporalio/workflow';
import type { RouteActivities } from '../../activities/intent/routes.ts';
import type { SteeringActivities } from '../../activities/intent/steering.ts';
import { ROUTE_DEAD_LETTERED, isPublicationFailure } from '../failures.ts';
import type {
  Death,
  FailedAttempt,
  Publication,
  PublicationFailureDetails,
  PublishResult,
  RouteInput,
  RouteKey,
  RouteOutcome,
  SettledStatus,
} from './contract.ts';
import { FIRST_TRY, PUBLICATION_WHEN_POSSIBLE, STEERING, remainingBudget } from '../policies.ts';
import type { RouteOperator } from './route-operator.ts';
import { listenToOperator } from './route-operator.ts';
import { keyword, routeAttributes, routeStatus } from '../search-attributes.ts';
import { detailsOf, shortText } from '../details.ts';

type AttemptResult = PublishResult | FailedAttempt;
type Settled = Extract<PublishResult, { status: SettledStatus }>;

const firstTry = proxyLocalActivities<RouteActivities>(FIRST_TRY);
const persistent = proxyActivities<RouteActivities>(PUBLICATION_WHEN_POSSIBLE);
const steering = proxyActivities<SteeringActivities>(STEERING);

/**
 * Publishes one route.
 *
 * @returns how the route ended: published, or skipped because it was cancelled or too late.
 * @throws ApplicationFailure `RouteDeadLettered` when the budget is spent. Its last attempt has shown the dead letter
 * (dead-letter.ts), which is open until the route is replayed.
 */
export async function notificationRoute(input: RouteInput): Promise<RouteOutcome> {
  const operator = listenToOperator(input);
  // An operator may have started it by hand, without attributes.
  if (workflowInfo().parent === undefined)
    upsertSearchAttributes([
      keyword('NotificationId', input.notificationId),
      ...routeAttributes(input.routeRef),
    ]);
  let settled: Settled;
  try {
    settled = await publishUntilSettled(input, operator);
  } catch (error) {
    if (!isCancellation(error)) throw error;
    settled = await cancel(input);
  }
  if (settled.status !== 'dead_letter') return { status: settled.status };
  throw ApplicationFailure.nonRetryable(
    `budget spent: ${settled.classification}`,
    ROUTE_DEAD_LETTERED,
    settled.classification,
  );
}

async function publishUntilSettled(
  { notificationId, routeRef, first }: RouteInput,
  operator: RouteOperator,
): Promise<Settled> {
  const publication: Publication = {
    notificationId,
    routeRef,
    originalRunId: workflowInfo().originalExecutionRunId,
  };
  const tryNow = () => attempt(() => firstTry.publishRoute(publication));

  const order = operator.orderAtStart();
  if (order) publication.replay = order;
  let result: AttemptResult = !order && first ? first : await tryNow();
  // The happy path ends here: it changes no search attribute, which would cost the server a second write.
  if (!order && (result.status === 'published' || result.status === 'skipped')) return result;

  for (let isConfirmed = false; ;) {
    const before = result.status;
    switch (result.status) {
      case 'published':
      case 'skipped':
        leave(result.status, `Ended: ${result.status}.`);
        return result;
      case 'failed':
        result = (await spendRestOfBudget(publication, result, operator)) ?? (await tryNow());
        break;
      case 'deferred':
        setCurrentDetails(
          `Waits, \`${result.reason}\`; the pending activity shows the next attempt. No budget is spent.`,
        );
        result =
          (await unlessNudged(operator, () => persistent.publishRouteWhenPossible(publication))) ??
          (await tryNow());
        break;
      case 'paused':
        setCurrentDetails('Paused: operators hold this channel or this producer. No budget is spent.');
        upsertSearchAttributes(routeStatus('paused'));
        await operator.untilResumed();
        result = await tryNow();
        break;
      case 'dead_letter': {
        const order = operator.nextOrder();
        if (!order && isConfirmed) {
          leave(result.status, deadLetterDetails(result), result.classification);
          return result;
        }
        if (order) publication.replay = order;
        // Without an order this asks once more: the run may have been reset to a point after the last attempt.
        result = await tryNow();
      }
    }
    isConfirmed = before === 'dead_letter';
  }
}

/**
 * Waits until the ladder allows the next attempt, then lets the activity's retry policy carry the rest.
 *
 * @returns undefined when an operator wants the next attempt now.
 */
async function spendRestOfBudget(
  publication: Publication,
  failed: FailedAttempt,
  operator: RouteOperator,
): Promise<AttemptResult | undefined> {
  const { attemptCount, maxAttempts, nextAttemptAtMs, retryInMs } = failed.details;
  setCurrentDetails(
    `\`${failed.classification}\`: attempt ${attemptCount + 1} of ${maxAttempts} at ${new Date(nextAttemptAtMs).toISOString()}.`,
  );
  upsertSearchAttributes(routeStatus('failed', failed.classification));
  const isDue = await operator.unlessNudged(async () => {
    await sleep(retryInMs, {
      summary: `before attempt ${attemptCount + 1} of ${maxAttempts}`,
    });
    return true;
  });
  if (!isDue) return undefined;
  const rest = proxyActivities<RouteActivities>(remainingBudget(failed.details));
  return unlessNudged(operator, () => rest.publishRoute(publication));
}

const unlessNudged = (operator: RouteOperator, publish: () => Promise<PublishResult>) =>
  operator.unlessNudged(() => attempt(publish));

/** Runs one attempt and turns its failure into a result: what follows is decided in one place. */
const attempt = (publish: () => Promise<PublishResult>): Promise<AttemptResult> =>
  publish().catch(resultOfFailure);

function resultOfFailure(error: unknown): AttemptResult {
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

/** The link comes before what may be long. */
export const deadLetterDetails = ({ classification, cause = '', hint = '', runbook }: Death): string =>
  detailsOf(
    `Dead letter: \`${classification}\``,
    runbook !== undefined && `[What to do](${runbook})`,
    shortText(cause),
    shortText(hint, 150),
  );

/** A cancelled route is skipped, unless it was settled before. */
async function cancel(key: RouteKey): Promise<Settled> {
  setCurrentDetails('Cancelled, to be skipped.');
  const status = await CancellationScope.nonCancellable(() => steering.skipRoute(key));
  leave(status, `Cancelled: ${status}.`);
  return status === 'dead_letter' ? { status, classification: 'before it was cancelled' } : { status };
}

function leave(status: SettledStatus, details: string, classification?: string): void {
  setCurrentDetails(details);
  upsertSearchAttributes(routeStatus(status, classification));
}
