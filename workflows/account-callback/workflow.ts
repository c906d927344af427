/**
 * Tells the portfolio services of one shard's users about the extremes of their account values (seed "Data Flow").
 * Values, callbacks and their outcomes are rows in PostgreSQL; this workflow decides when which step is due.
 *
 * ```mermaid
 * flowchart LR
 *   timer((alarm)) --> s0[0 resume pending] --> s1[1 day boundary] --> s2[2 hour boundary]
 *   s2 --> s3[3 batch process prices] --> s4[4 retry failed] --> s5[5 clean up]
 *   s5 -->|100 ms: more to do| timer
 *   s5 -->|60 s: prices may still come| timer
 *   s5 -->|5 min| timer
 * ```
 *
 * The cursors are progress, the rows are the truth: a callback is pending until its outcome is written, and a pass over
 * the pending ones is followed by another one until nothing is found. So rows may come, go and change in the meantime.
 */
import {
  allHandlersFinished,
  condition,
  continueAsNew,
  defineQuery,
  defineUpdate,
  proxyActivities,
  setCurrentDetails,
  setHandler,
  workflowInfo,
} from '@temporalio/workflow';
import type { AccountCallbackActivities } from '../../activities/account-callback/activities.ts';
import type {
  AlarmInterval,
  AlarmSteps,
  CallbackKind,
  CallbackState,
  DailyCursor,
  EmissionOutcome,
  EmissionPage,
  HourlyCursor,
  ShardInput,
} from './contract.ts';
import {
  ALARM_INTERVALS_MS,
  CALLBACK_STATUS_QUERY,
  HOUR_MS,
  MAX_EMISSIONS,
  RUN_NOW_UPDATE,
} from './contract.ts';
import { CALLBACK_DELIVERY, CALLBACK_PROCESSING, DATABASE } from '../policies.ts';

const database = proxyActivities<AccountCallbackActivities>(DATABASE);
const processing = proxyActivities<AccountCallbackActivities>(CALLBACK_PROCESSING);
const portfolios = proxyActivities<AccountCallbackActivities>(CALLBACK_DELIVERY);

/** An emission that takes longer, because some target hangs, does not hold up the next one. */
const PATIENCE_MS = 500;
/** Emissions that may go on beside each other because of such targets. */
const MAX_UNDER_WAY = 8;
/** Hours of which one alarm emits callbacks: its history must stay short. */
const MAX_HOURLY_PAGES = 10;
/** Between two runs of step 5. */
const CLEANUP_EVERY_MS = HOUR_MS;

/** Events after which a run is continued by a new one: replaying must stay quick. */
const LONG_HISTORY = 1_000;

const FIRST_HOURLY: HourlyCursor = { periodStartMs: 0, position: 0 };

/** Runs for good. `carried` is the state of the run before, when this one continues it. */
export async function accountCallback(input: ShardInput, carried?: CallbackState): Promise<void> {
  let state = carried ?? initialState(input);
  const { shard } = input;
  const underWay: Record<CallbackKind | 'retry', number> = { hourly: 0, daily: 0, retry: 0 };
  let isRetryFull = false;
  /** A page was found, or a pass has ended: another look finds the next one, or who came in behind the cursor. */
  let isUnfinished = false;
  /** Something that an alarm did not wait for has ended since. */
  let hasNews = false;
  let runsAsked = 0;
  let runsDone = 0;

  setHandler(defineQuery<CallbackState>(CALLBACK_STATUS_QUERY), () => state);
  setHandler(
    defineUpdate<CallbackState>(RUN_NOW_UPDATE),
    async () => {
      const run = (runsAsked += 1);
      await condition(() => runsDone >= run);
      return state;
    },
    { description: 'Runs the pipeline now instead of at its next alarm.' },
  );

  for (;;) {
    const run = runsAsked;
    await alarm();
    runsDone = run;
    if (isHistoryLong()) await continueInNewRun();
    await nextAlarm();
  }

  async function alarm(): Promise<void> {
    hasNews = isUnfinished = false;
    const { nextAlarm: _goneOff, ...rest } = state;
    state = rest;
    const steps: AlarmSteps = { resumed: 0, daily: 0, hourly: 0, computed: 0, cleaned: 0 };
    let left = MAX_EMISSIONS;

    left -= steps.resumed = await resumePending(left);
    left -= steps.daily = await handleDayBoundary(left);
    steps.hourly = await handleHourBoundary(left);
    const { computed, isBehind, isWaiting } = await processing.processPrices(shard, now());
    steps.computed = computed;
    await retryFailed();
    steps.cleaned = await cleanUp();

    const begun = steps.resumed + steps.daily + steps.hourly;
    const isPending = begun + computed > 0 || isBehind || isRetryFull || isUnfinished;
    setAlarm(isPending ? 'pending' : isWaiting ? 'waiting' : 'steady');
    enter({ alarms: state.alarms + 1, lastAlarm: steps });
  }

  /** Step 0: what the cap of earlier alarms has left over. */
  async function resumePending(limit: number): Promise<number> {
    const daily = state.daily ? await emitDaily(state.daily, limit) : 0;
    const hourly = state.hourly ? await emitHours(state.hourly, limit - daily) : 0;
    return daily + hourly;
  }

  /** Step 1: a day is due once all trackings of the shard have come to its end. */
  async function handleDayBoundary(limit: number): Promise<number> {
    // Those under way are not settled yet, and would be found again.
    if (state.daily || underWay.daily > 0 || limit === 0) return 0;
    const { dayStartMs } = await database.findDueDay(shard);
    return dayStartMs === undefined ? 0 : emitDaily({ periodStartMs: dayStartMs, userId: '' }, limit);
  }

  /** Step 2: an hour has no precondition but that its extremes are computed. */
  async function handleHourBoundary(limit: number): Promise<number> {
    if (state.hourly || underWay.hourly > 0 || limit === 0) return 0;
    return emitHours(FIRST_HOURLY, limit);
  }

  async function emitDaily(after: DailyCursor, limit: number): Promise<number> {
    if (limit === 0) return 0;
    const { found, upTo } = await database.freezeDailyPage(shard, after, limit);
    if (!upTo) {
      if (state.daily && underWay.daily === 0) leavePass('daily');
      return 0;
    }
    isUnfinished = true;
    enter({ daily: upTo });
    await emit({ kind: 'daily', after, upTo });
    return found;
  }

  /** A page is of one hour: nobody is told about an hour before the one that came before it. */
  async function emitHours(after: HourlyCursor, limit: number): Promise<number> {
    let emitted = 0;
    for (let page = 0; page < MAX_HOURLY_PAGES && emitted < limit; page += 1) {
      const found = await emitHourly(state.hourly ?? after, limit - emitted);
      if (found === 0) break;
      emitted += found;
    }
    return emitted;
  }

  async function emitHourly(after: HourlyCursor, limit: number): Promise<number> {
    if (limit === 0) return 0;
    const { found, upTo } = await database.findHourlyPage(shard, after, limit);
    if (!upTo) {
      if (state.hourly && underWay.hourly === 0) leavePass('hourly');
      return 0;
    }
    isUnfinished = true;
    enter({ hourly: upTo });
    await emit({ kind: 'hourly', after, upTo });
    return found;
  }

  /** Ends when all of the page is settled, or, if that takes long, while the rest of it goes on. */
  async function emit(page: EmissionPage): Promise<void> {
    await besides(page.kind, portfolios.emitCallbacks(shard, page, now()));
    await condition(() => underWay.hourly + underWay.daily < MAX_UNDER_WAY);
  }

  /** Step 4. One at a time: what is being tried again is still due. */
  async function retryFailed(): Promise<void> {
    if (underWay.retry > 0) return;
    isRetryFull = false;
    const { nextRetryMs: _tried, ...rest } = state;
    state = rest;
    const retrying = portfolios.retryCallbacks(shard, now()).then((outcome) => {
      isRetryFull = outcome.isFull;
      return outcome;
    });
    await besides('retry', retrying);
  }

  async function besides(what: CallbackKind | 'retry', delivering: Promise<EmissionOutcome>): Promise<void> {
    let isSettled = false;
    let isLeft = false;
    underWay[what] += 1;
    const settling = delivering.then(count).finally(() => {
      isSettled = true;
      hasNews ||= isLeft;
      underWay[what] -= 1;
    });
    // It fails only when the workflow is cancelled, which ends the wait below as well.
    settling.catch(() => undefined);
    isLeft = !(await condition(() => isSettled, PATIENCE_MS));
  }

  function count({ delivered, failed, dropped, nextRetryMs }: EmissionOutcome): void {
    // Emissions beside each other may answer out of order. One that is taken for sooner than it is costs a look.
    if (nextRetryMs !== undefined) {
      enter({ nextRetryMs: Math.min(nextRetryMs, state.nextRetryMs ?? Infinity) });
    }
    enter({
      delivered: state.delivered + delivered,
      failed: state.failed + failed,
      dropped: state.dropped + dropped,
    });
  }

  /** Step 5. */
  async function cleanUp(): Promise<number> {
    if (now() < state.lastCleanupMs + CLEANUP_EVERY_MS) return 0;
    const lastCleanupMs = now();
    const cleaned = await processing.cleanUpCallbacks(shard, lastCleanupMs);
    enter({ lastCleanupMs });
    return cleaned;
  }

  function setAlarm(interval: AlarmInterval): void {
    const [nowMs, time] = [Date.now(), now()];
    const untilHourEnds = HOUR_MS - (time % HOUR_MS);
    // What is being tried again is still due; the news of it wakes us.
    const isRetryKnown = state.nextRetryMs !== undefined && underWay.retry === 0;
    const untilRetry = isRetryKnown ? Math.max(1, state.nextRetryMs! - time) : Infinity;
    const inMs = Math.min(ALARM_INTERVALS_MS[interval], untilHourEnds, untilRetry);
    enter({ nextAlarm: { atMs: nowMs + inMs, interval } });
  }

  async function nextAlarm(): Promise<void> {
    const waitMs = Math.max(1, (state.nextAlarm?.atMs ?? 0) - Date.now());
    // A pass that waits for its last ones goes on with the news of them.
    await condition(() => runsAsked > runsDone || hasNews, waitMs);
  }

  async function continueInNewRun(): Promise<void> {
    await condition(() => underWay.hourly + underWay.daily + underWay.retry === 0);
    // Whoever asked in the meantime gets an alarm first.
    if (runsAsked > runsDone) return;
    await condition(allHandlersFinished);
    await continueAsNew<typeof accountCallback>(input, state);
  }

  function leavePass(kind: CallbackKind): void {
    const { [kind]: _ended, ...rest } = state;
    state = rest;
    isUnfinished = true;
  }

  function enter(changes: Partial<CallbackState>): void {
    state = { ...state, ...changes };
    setCurrentDetails(describe(state));
  }

  function now(): number {
    return Date.now() + state.clockOffsetMs;
  }
}

function initialState({ shard, clockOffsetMs = 0 }: ShardInput): CallbackState {
  return { shard, clockOffsetMs, delivered: 0, failed: 0, dropped: 0, alarms: 0, lastCleanupMs: 0 };
}

function isHistoryLong(): boolean {
  const { historyLength, continueAsNewSuggested } = workflowInfo();
  return historyLength >= LONG_HISTORY || continueAsNewSuggested;
}

function describe({
  daily,
  hourly,
  delivered,
  failed,
  dropped,
  nextRetryMs,
  nextAlarm,
}: CallbackState): string {
  const timeOf = (ms: number) => new Date(ms).toISOString();
  const parts = [
    `${delivered} delivered, ${failed} failed attempts, ${dropped} dropped`,
    ...(daily ? [`daily callbacks of ${timeOf(daily.periodStartMs).slice(0, 10)} are being emitted`] : []),
    ...(hourly ? [`hourly callbacks of ${timeOf(hourly.periodStartMs)} are being emitted`] : []),
    ...(nextRetryMs === undefined ? [] : [`next retry ${timeOf(nextRetryMs)}`]),
    ...(nextAlarm ? [`next alarm ${timeOf(nextAlarm.atMs)} (${nextAlarm.interval})`] : []),
  ];
  return parts.join('; ');
}
