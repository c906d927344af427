/**
 * One route of a notification: publish it, with the budget of its channel.
 *
 * ```mermaid
 * stateDiagram-v2
 *   [*] --> pending
 *   pending --> published: first attempt, an activity of this workflow or of the notification
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
  condition,
  continueAsNew,
  defineSignal,
  isCancellation,
  proxyActivities,
  proxyLocalActivities,
  setCurrentDetails,
  setHandler,
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
  ReplayOrder,
  ReplayRequest,
  RouteInput,
  RouteKey,
  RouteResult,
  SettledStatus,
} from './contract.ts';
import {
  DATABASE_AT_ONCE,
  FIRST_TRY,
  PUBLICATION_WHEN_POSSIBLE,
  REST_OF_BUDGET,
  STEERING,
} from '../policies.ts';
import {
  CHANNEL_RESUMED_SIGNAL,
  DEAD_LETTER_RUNBOOK,
  LOOK_SIGNAL,
  REPLAY_SIGNAL,
  SETTLED_SIGNAL,
} from './contract.ts';
import { isHistoryLong } from '../long-lived.ts';
import { keyword, routeAttributes, routeStatus } from '../search-attributes.ts';
import { detailsOf, shortText } from '../details.ts';

type AttemptResult = PublishResult | FailedAttempt;
type Settled = Extract<PublishResult, { status: SettledStatus }>;

const firstTry = proxyLocalActivities<RouteActivities>(FIRST_TRY);
const { lookAtDeadLetter } = proxyLocalActivities<RouteActivities>(DATABASE_AT_ONCE);
const persistent = proxyActivities<RouteActivities>(PUBLICATION_WHEN_POSSIBLE);
const rest = proxyActivities<RouteActivities>(REST_OF_BUDGET);
const steering = proxyActivities<SteeringActivities>(STEERING);

/**
 * Publishes one route.
 *
 * @returns how the route ended: published, or skipped because it was cancelled or too late.
 * @throws ApplicationFailure `RouteDeadLettered` when the budget is spent. Its last attempt has shown the dead letter
 * (`notificationDeadLetter`), which is open until the route is replayed.
 */
export async function notificationRoute(input: RouteInput): Promise<RouteResult> {
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
 * Waits until the ladder allows the next attempt, then leaves the rest of the budget to one activity, whose row counts it.
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
  return unlessNudged(operator, () => rest.publishRouteWhenPossible(publication));
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
export const deadLetterDetails = ({ classification, cause = '', hint = '' }: Death): string =>
  detailsOf(
    `Dead letter: \`${classification}\``,
    `[What to do](${DEAD_LETTER_RUNBOOK})`,
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

// --- Dead letters as operators find them in Temporal. What failed stays failed in Temporal whatever is done about it, so the failed
// runs of routes are no list of what is left to do.

/**
 * Open for as long as its route is dead, as the row says. The activity or command that changes a dead route sends the signal
 * `look`. Each day it continues in a new run, which looks at the row without a signal: retention sends none.
 *
 * @throws CancelledFailure when an operator takes the dead letter off the list; its row stays.
 */
export async function notificationDeadLetter(route: RouteKey): Promise<void> {
  let isTold = false;
  let shown = workflowInfo().typedSearchAttributes.get({ name: 'FailureClassification', type: 'KEYWORD' });
  setHandler(defineSignal(LOOK_SIGNAL), () => void (isTold = true), {
    description: 'Looks whether the route is still dead, and ends if it is not.',
  });
  do {
    isTold = false;
    const death = await lookAtDeadLetter(route);
    if (!death) return setCurrentDetails('Over: the route was replayed, or retention has removed it.');
    setCurrentDetails(deadLetterDetails(death));
    // It died again, of something else, before anything was noticed.
    if (death.classification !== shown)
      upsertSearchAttributes(routeStatus('dead_letter', death.classification));
    shown = death.classification;
  } while ((await condition(() => isTold, '1 day')) && !isHistoryLong());
  await continueAsNew<typeof notificationDeadLetter>(route);
}

// --- The operator's side: signals, and what a run that was started by hand or reset stands for. A dead-lettered route is published
// again only on an order. There are four ways to give one: the signal `replay`; a run without a parent (started again in the Web UI
// or by signal-with-start); a notification that was reset and starts its routes again; a reset of the route's own run, which the
// activity notices by the run's id. A run that continues after an earlier attempt is not an order.

const MAX_REQUESTED_BY = 200;
const MAX_REASON = 500;
const MAX_ORDER_ID = 200;

type RouteOperator = ReturnType<typeof listenToOperator>;

/**
 * Whether this run repeats an earlier one from some point on. For arguments only, never for a decision: when a history
 * is replayed outside the server, the run id is not that of the reset run.
 */
export function wasReset(): boolean {
  const { runId, originalExecutionRunId } = workflowInfo();
  return runId !== originalExecutionRunId;
}

function listenToOperator(input: RouteInput) {
  const { runId, parent } = workflowInfo();
  let request: ReplayRequest | undefined;
  let signals = 0;
  let isResumed = false;
  let isSettled = false;

  setHandler(
    defineSignal<[unknown?]>(REPLAY_SIGNAL),
    (argument) => {
      request = requestOf(argument);
      signals += 1;
    },
    { description: 'Try now; a dead-lettered route gets a fresh budget. {requestedBy?, reason?}' },
  );
  setHandler(defineSignal(CHANNEL_RESUMED_SIGNAL), () => void (isResumed = true));
  setHandler(defineSignal(SETTLED_SIGNAL), () => void (isSettled = true));

  const isNudged = () => request !== undefined || isSettled;
  function forgetNudges(): void {
    request = undefined;
    isSettled = false;
  }

  function nextOrder(): ReplayOrder | undefined {
    if (request === undefined) return undefined;
    const { requestedBy = 'signal', reason, orderId } = request;
    request = undefined;
    const replayId = orderId ?? `${runId}/signal-${signals}`;
    return { replayId, requestedBy, ...(reason === undefined ? {} : { reason }) };
  }

  function orderByRun(): ReplayOrder | undefined {
    const replayId = `${runId}/run`;
    if (input.replay) return { replayId, requestedBy: 'reset of the notification' };
    if (parent !== undefined || input.first !== undefined) return undefined;
    return { replayId, requestedBy: 'start' };
  }

  return {
    /** The order of a `replay` signal that has not been carried out yet. */
    nextOrder,
    /** The order with which this run begins, if it stands for a replay. */
    orderAtStart: () => nextOrder() ?? orderByRun(),

    /** Does `work`; a `replay` or `settled` signal cancels it and leaves undefined, unless it ended all the same. */
    async unlessNudged<T>(work: () => Promise<T>): Promise<T | undefined> {
      const working = new CancellationScope();
      const listening = new CancellationScope();
      const done = working.run(work);
      const nudge = listening.run(() => condition(isNudged)).then(() => true);
      const wasNudged = await Promise.race([done.then(() => false), nudge]);
      listening.cancel();
      if (wasNudged) working.cancel();
      try {
        // Work that ended all the same may have ended in a dead letter: then the order is still to be carried out.
        return await done;
      } catch (error) {
        const isOurs = wasNudged && isCancellation(error) && !CancellationScope.current().consideredCancelled;
        if (!isOurs) throw error;
        forgetNudges();
        return undefined;
      }
    },

    /**
     * Resolves when the channel publishes again, when a signal asks to look, or after a day. With its timer the run is never
     * idle, so that one that nothing will wake is found (api/stuck-workflow.ts).
     */
    async untilResumed(): Promise<void> {
      await condition(() => isResumed || isNudged(), '1 day');
      isResumed = false;
      forgetNudges();
    },
  };
}

/** Signals come from anywhere: what is not as it should be is left out, never an error that would stop the route. */
function requestOf(argument: unknown): ReplayRequest {
  const { requestedBy, reason, orderId } = (argument ?? {}) as Record<string, unknown>;
  return {
    ...(isText(requestedBy) ? { requestedBy: requestedBy.slice(0, MAX_REQUESTED_BY) } : {}),
    ...(isText(reason) ? { reason: reason.slice(0, MAX_REASON) } : {}),
    ...(isText(orderId) ? { orderId: orderId.slice(0, MAX_ORDER_ID) } : {}),
  };
}

/** NUL cannot be stored. */
const isText = (value: unknown): value is string =>
  typeof value === 'string' && value !== '' && !value.includes('\0') && value.isWellFormed();
