/**
 * One worker of a pool: everything that is due on one server for one agent. It picks rows up, works them off list by
 * list, and ends when nothing is left. A process that writes a row for the worker starts it again, or wakes it, by
 * signal-with-start.
 *
 * ```mermaid
 * stateDiagram-v2
 *   [*] --> claiming
 *   claiming --> working: something is due
 *   working --> retrying: some items failed for now
 *   retrying --> working: after a delay, those alone
 *   working --> claiming: all lists are done
 *   claiming --> waiting: checks are due later
 *   waiting --> claiming: that time, or a signal
 *   claiming --> [*]: nothing, or the agent was closed
 * ```
 *
 * The flag `isKicked` is cleared before the worker looks for rows, so that a signal after the look is not lost.
 */
import {
  ActivityFailure,
  ApplicationFailure,
  TimeoutFailure,
  condition,
  continueAsNew,
  defineQuery,
  defineSignal,
  isCancellation,
  proxyActivities,
  setCurrentDetails,
  setHandler,
  sleep,
} from '@temporalio/workflow';
import type { SubscriptionActivities } from '../../activities/subscription/activities.ts';
import { SUBSCRIPTION_CLOSED, SUBSCRIPTION_INTERRUPTED } from '../failures.ts';
import { isHistoryLong, onRenewal } from '../long-lived.ts';
import { DATABASE, SUBSCRIPTION_BATCH, SUBSCRIPTION_CLAIM, SUBSCRIPTION_KEYS } from '../policies.ts';
import type {
  BatchOrder,
  BatchResult,
  CarriedWork,
  ClaimResult,
  PoolWorkerInput,
  PoolWorkerState,
  Round,
} from './contract.ts';
import { SUBSCRIPTION_STATE_QUERY, WORK_SIGNAL } from './contract.ts';
import type { ListKind, RetryPace, WorkList } from './rules.ts';
import { countDeath, freshRetry, listsOf, nextRetry } from './rules.ts';

const claiming = proxyActivities<SubscriptionActivities>(SUBSCRIPTION_CLAIM);
const batches = proxyActivities<SubscriptionActivities>(SUBSCRIPTION_BATCH);
const keys = proxyActivities<SubscriptionActivities>(SUBSCRIPTION_KEYS);
const database = proxyActivities<SubscriptionActivities>(DATABASE);

/** A time that was rounded on its way must not make the worker run in circles, ms. */
const SHORTEST_WAIT_MS = 250;

/** Events after which a run is continued by a new one. */
const LONG_HISTORY = 400;

export async function subscriptionWorker({ carried, ...key }: PoolWorkerInput): Promise<void> {
  const work: CarriedWork = carried ?? { deaths: { minute: 0, count: 0 } };
  /** A signal came since the last look for rows. */
  let isKicked = false;
  let state: PoolWorkerState = { ...key, doing: 'claiming', remaining: 0, attempt: 0 };

  setHandler(defineQuery<PoolWorkerState>(SUBSCRIPTION_STATE_QUERY), () => state);
  setHandler(defineSignal(WORK_SIGNAL), () => void (isKicked = true), {
    description: 'Looks for something to do.',
  });

  const isRenewed = onRenewal();
  const isOver = () => isRenewed() || isHistoryLong(LONG_HISTORY);

  for (;;) {
    try {
      if (await hasEnded()) return await endUnlessKicked();
    } catch (error) {
      if (isCancellation(error)) await endUnlessKicked();
      // Everything else that is thrown ends this run; the continuation by a new run is thrown, too.
      if (isCancellation(error) || !(error instanceof ActivityFailure)) throw error;
      if (typeOf(error) === SUBSCRIPTION_CLOSED) return endUnlessKicked();
      // The round is claimed again: rows know better than a list how far their work has come.
      forgetRound();
      // The lost activity may have written rows for other workers without waking them, and the reconciliation comes later.
      if (isLost(error)) await database.kickDue(key.agentId, Date.now());
      else if (!(await survivesDeath(error))) return endUnlessKicked();
    }
  }

  /**
   * Who woke this worker while it was ending, as by opening its agent again, would have started another one a moment
   * later: so it starts over, without anything that it knows.
   */
  async function endUnlessKicked(): Promise<void> {
    if (isKicked) await continueAsNew<typeof subscriptionWorker>(key);
  }

  /** One turn. @returns whether there is nothing left to do. */
  async function hasEnded(): Promise<boolean> {
    if (isOver()) await continueInNewRun();
    if (work.round && work.pace) {
      await finishRound(work.round, work.pace);
      return false;
    }
    enterState({ doing: 'claiming', remaining: 0, attempt: 0 });
    const claim = await lookForRows();
    if (claim.isClosed) return true;
    work.epoch = claim.epoch;
    work.pace = claim.pace;
    // There may be more than one batch.
    if (claim.items.length > 0) {
      await finishRound({ claim: claim.claim, lists: listsOf(claim.items) }, claim.pace);
      return false;
    }
    if (claim.nextDueMs === undefined) return !isKicked;
    await waitUntil(claim.nextDueMs);
    return false;
  }

  async function lookForRows(): Promise<ClaimResult> {
    const { epoch } = work;
    const wasKicked = isKicked;
    isKicked = false;
    try {
      return await claiming.claim({ ...key, ...(epoch === undefined ? {} : { epoch }), nowMs: Date.now() });
    } catch (error) {
      // A look that was cut off has not seen what it was woken for.
      if (isCancellation(error)) isKicked ||= wasKicked;
      throw error;
    }
  }

  /** Works the lists off one after the other: a list that is retried holds up the rest of this server, and no other. */
  async function finishRound({ claim, lists }: Round, pace: RetryPace): Promise<void> {
    for (const [index, list] of lists.entries()) {
      await workOff(claim, list, lists.slice(index + 1), pace);
    }
    forgetRound();
  }

  /** Works one list off: again and again with the items that failed for now. */
  async function workOff(
    claim: number,
    { kind, ids }: WorkList,
    later: WorkList[],
    pace: RetryPace,
  ): Promise<void> {
    for (let remaining = ids; ;) {
      work.round = { claim, lists: [{ kind, ids: remaining }, ...later] };
      const retry = work.retry ?? freshRetry(pace);
      const attempt = retry.attempts + 1;
      enterState({ doing: 'working', kind, remaining: remaining.length, attempt });
      const order = { ...key, epoch: work.epoch ?? 0, claim, kind, ids: remaining, nowMs: Date.now() };
      remaining = (await BATCHES[kind](order)).retryIds;
      delete work.retry;
      if (remaining.length === 0) return;
      const delayMs = Math.ceil(retry.delayUs / 1_000);
      enterState({
        doing: 'retrying',
        kind,
        remaining: remaining.length,
        attempt,
        nextDueMs: Date.now() + delayMs,
      });
      await sleep(delayMs);
      work.retry = nextRetry(retry, pace);
      if (!isOver()) continue;
      work.round = { claim, lists: [{ kind, ids: remaining }, ...later] };
      await continueInNewRun();
    }
  }

  async function waitUntil(dueMs: number): Promise<void> {
    if (isKicked) return;
    enterState({ doing: 'waiting', remaining: 0, attempt: 0, nextDueMs: dueMs });
    await condition(() => isKicked || isRenewed(), Math.max(SHORTEST_WAIT_MS, dueMs - Date.now()));
  }

  /** @returns false when the worker has died too often; the next signal starts it again. */
  async function survivesDeath(error: ActivityFailure): Promise<boolean> {
    const { deaths, hasSurvived } = countDeath(work.deaths, Date.now());
    work.deaths = deaths;
    await database.reportError({
      agentId: key.agentId,
      pool: key.pool,
      kind: hasSurvived ? 'ERR INTERNAL' : 'ERR CRITICAL',
      error: `${key.pool} ${key.server.host}:${key.server.port}: ${error.cause?.message ?? error.message}`,
    });
    return hasSurvived;
  }

  function forgetRound(): void {
    delete work.round;
    delete work.retry;
  }

  async function continueInNewRun(): Promise<void> {
    await continueAsNew<typeof subscriptionWorker>({ ...key, carried: work });
  }

  function enterState(next: Omit<PoolWorkerState, keyof typeof key>): void {
    state = { ...next, ...key };
    setCurrentDetails(describe(state));
  }
}

/** The activity for each kind of list. */
const BATCHES: Record<ListKind, (order: BatchOrder) => Promise<BatchResult>> = {
  'smp-key': (order) => keys.runKeys(order),
  'smp-delete': (order) => batches.runDeletes(order),
  'ntf-create': (order) => batches.runCreates(order),
  'ntf-check': (order) => batches.runChecks(order),
  'ntf-delete': (order) => batches.runLegacyDeletes(order),
  'ntf-rotate': (order) => batches.runLegacyRotations(order),
  'token-delete': (order) => batches.runTokenDeletion(order),
};

/** The type of the failure of an activity. */
function typeOf({ cause }: ActivityFailure): string | null | undefined {
  return cause instanceof ApplicationFailure ? cause.type : undefined;
}

/** The process that ran the activity is gone: nothing is wrong with the work. */
function isLost(error: ActivityFailure): boolean {
  return typeOf(error) === SUBSCRIPTION_INTERRUPTED || error.cause instanceof TimeoutFailure;
}

function describe({ doing, kind, remaining, attempt, nextDueMs }: PoolWorkerState): string {
  const at = nextDueMs === undefined ? '' : ` until ${new Date(nextDueMs).toISOString()}`;
  switch (doing) {
    case 'claiming':
      return 'looks for what is due';
    case 'waiting':
      return `waits${at}`;
    case 'working':
      return `${kind}: ${remaining} under way, attempt ${attempt}`;
    case 'retrying':
      return `${kind}: ${remaining} failed in attempt ${attempt}, waits${at}`;
  }
}
