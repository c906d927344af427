/**
 * The operator's side of a route's workflow: its signals, and what a run that was started by hand or reset stands for.
 *
 * A dead-lettered route is published again only on an order. There are four ways to give one: the signal `replay`; a
 * run without a parent (started again in the Web UI or by signal-with-start); a notification that was reset and starts
 * its routes again; a reset of the route's own run, which the activity notices by the run's id.
 * A run that continues after an earlier attempt is not an order.
 */
import {
  CancellationScope,
  condition,
  defineSignal,
  isCancellation,
  setHandler,
  workflowInfo,
} from '@temporalio/workflow';
import type { ReplayOrder, ReplayRequest, RouteInput } from './contract.ts';
import { CHANNEL_RESUMED_SIGNAL, REPLAY_SIGNAL, SETTLED_SIGNAL } from './contract.ts';

const MAX_REQUESTED_BY = 200;
const MAX_REASON = 500;
const MAX_ORDER_ID = 200;

export interface RouteOperator {
  /** The order with which this run begins, if it stands for a replay. */
  orderAtStart(): ReplayOrder | undefined;
  /** The order of a `replay` signal that has not been carried out yet. */
  nextOrder(): ReplayOrder | undefined;
  /** Does `work`; a `replay` or `settled` signal cancels it and leaves undefined, unless it ended all the same. */
  unlessNudged<T>(work: () => Promise<T>): Promise<T | undefined>;
  /** Resolves when the channel publishes again, or when a signal asks to look. */
  untilResumed(): Promise<void>;
}

/**
 * Whether this run repeats an earlier one from some point on. For arguments only, never for a decision: when a history
 * is replayed outside the server, the run id is not that of the reset run.
 */
export function wasReset(): boolean {
  const { runId, originalExecutionRunId } = workflowInfo();
  return runId !== originalExecutionRunId;
}

export function listenToOperator(input: RouteInput): RouteOperator {
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
  setHandler(defineSignal(CHANNEL_RESUMED_SIGNAL), () => {
    isResumed = true;
  });

  setHandler(defineSignal(SETTLED_SIGNAL), () => {
    isSettled = true;
  });

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
    nextOrder,
    orderAtStart: () => nextOrder() ?? orderByRun(),

    async unlessNudged(work) {
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

    async untilResumed() {
      await condition(() => isResumed || isNudged());
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
