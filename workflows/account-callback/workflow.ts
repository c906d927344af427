/**
 * Delivers the callbacks of one shard's users to their portfolio services: the extremes of account values, of each hour
 * and each day. Callbacks and their outcomes are rows in PostgreSQL; this workflow decides when which step is due.
 *
 * ```mermaid
 * flowchart LR
 *   timer((alarm)) --> s0[0 resume pending] --> s1[1 day boundary] --> s2[2 hour boundary]
 *   s2 --> s4[4 retry failed]
 *   s4 -->|100 ms: more to do| timer
 *   s4 -->|60 s: entries are expected| timer
 *   s4 -->|5 min| timer
 * ```
 *
 * Step 3, the calculation of extremes, is the producer's; step 5, the deletion of old snapshots, is the retention of all kinds
 * (activities/retention.ts).
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
} from '@temporalio/workflow';
import type { AccountCallbackActivities } from '../../activities/account-callback/activities.ts';
import type { AlarmInterval, CallbackKind, CallbackState, ShardInput } from './contract.ts';
import {
  ALARM_INTERVALS_MS,
  CALLBACK_STATUS_QUERY,
  HOUR_MS,
  MAX_EMISSIONS,
  RUN_NOW_UPDATE,
} from './contract.ts';
import { detailsOf } from '../details.ts';
import { isHistoryLong, onRenewal } from '../long-lived.ts';
import { HTTP_ROUND } from '../policies.ts';

const portfolios = proxyActivities<AccountCallbackActivities>(HTTP_ROUND);

/** Hours of which one alarm emits callbacks: its history must stay short. */
const MAX_HOURLY_PAGES = 10;

/** One run of the workflow. */
interface Run {
  /** What the next run carries on. */
  state: CallbackState;
  /** The alarm at work has found more to do. */
  isUnfinished: boolean;
}

/** Runs for good. `carried` is the state of the run before, when this one continues it. */
export async function accountCallback(input: ShardInput, carried?: CallbackState): Promise<void> {
  const run: Run = { state: carried ?? input, isUnfinished: false };
  let alarmsAsked = 0;
  let alarmsAnswered = 0;
  const isRenewed = onRenewal();
  const isAlarmAsked = () => alarmsAsked > alarmsAnswered;

  setHandler(defineQuery<CallbackState>(CALLBACK_STATUS_QUERY), () => run.state);
  setHandler(
    defineUpdate<CallbackState>(RUN_NOW_UPDATE),
    async () => {
      const asked = (alarmsAsked += 1);
      await condition(() => alarmsAnswered >= asked);
      return run.state;
    },
    { description: 'Runs the pipeline now instead of at its next alarm.' },
  );

  for (;;) {
    const asked = alarmsAsked;
    await goThroughSteps(run);
    alarmsAnswered = asked;
    if (isRenewed() || isHistoryLong()) {
      // A request that came in the meantime gets its alarm first.
      await condition(() => isAlarmAsked() || allHandlersFinished());
      if (!isAlarmAsked()) await continueAsNew<typeof accountCallback>(input, run.state);
    }
    const waitMs = Math.max(1, (run.state.nextAlarm?.atMs ?? 0) - Date.now());
    await condition(() => isAlarmAsked() || isRenewed(), waitMs);
  }
}

/** One alarm: every step of the pipeline, then the next alarm is set. */
async function goThroughSteps(run: Run): Promise<void> {
  run.isUnfinished = false;
  run.state = { ...run.state, nextAlarm: undefined };

  const resumed = await resumePending(run, MAX_EMISSIONS);
  const daily = await handleDayBoundary(run, MAX_EMISSIONS - resumed);
  await handleHourBoundary(run, MAX_EMISSIONS - resumed - daily);
  const isBehind = await retryFailed(run);

  const timeMs = Date.now();
  const interval = intervalAfter(run.isUnfinished, isBehind, timeMs);
  enterState(run, {
    nextAlarm: { atMs: timeMs + untilNextAlarm(interval, run.state, timeMs), interval },
  });
}

/** Step 0: what the cap of earlier alarms has left over. */
async function resumePending(run: Run, limit: number): Promise<number> {
  const daily = run.state.daily ? await emitPage(run, 'daily', limit) : 0;
  const hourly = run.state.hourly ? await emitHours(run, limit - daily) : 0;
  return daily + hourly;
}

/** Step 1: a day is due once all trackings of the shard have come to its end. */
async function handleDayBoundary(run: Run, limit: number): Promise<number> {
  return run.state.daily ? 0 : emitPage(run, 'daily', limit);
}

/** Step 2: an hour has no precondition. */
async function handleHourBoundary(run: Run, limit: number): Promise<number> {
  return run.state.hourly ? 0 : emitHours(run, limit);
}

/** Step 4. What more than one alarm tries is due immediately. @returns whether daily callbacks wait for a tracking. */
async function retryFailed(run: Run): Promise<boolean> {
  const { state } = run;
  const { isDaySettled, isBehind, nextRetryMs } = await portfolios.retryCallbacks(state.shard, Date.now());
  // Users with a daily callback in retry were left out, and may be due for the next day.
  run.isUnfinished ||= isDaySettled;
  enterState(run, { nextRetryMs });
  return isBehind;
}

/** A page is of one hour, the oldest. A callback that fails does not hold up those behind it, of the same user neither. */
async function emitHours(run: Run, limit: number): Promise<number> {
  let emitted = 0;
  for (let page = 0; page < MAX_HOURLY_PAGES; page += 1) {
    const begun = await emitPage(run, 'hourly', limit - emitted);
    if (begun === 0) break;
    emitted += begun;
  }
  return emitted;
}

/**
 * Ends when the whole page is settled; a target that hangs ends by its time-out.
 *
 * @returns how many callbacks were begun to be delivered.
 */
async function emitPage(run: Run, kind: CallbackKind, limit: number): Promise<number> {
  if (limit === 0) return 0;
  const after = run.state[kind];
  const { begun, upTo } = await portfolios.emitCallbacks(run.state.shard, kind, after, limit, Date.now());
  // A pass that is over is followed by another one, which finds what came in behind its cursor.
  run.isUnfinished ||= begun > 0 || after !== undefined;
  enterState(run, { [kind]: upTo });
  return begun;
}

/**
 * How urgent the next alarm is.
 *
 * @param isUnfinished a page was found, or a pass has ended: another look finds the next one, or who came in behind the cursor.
 * @param isBehind a tracking has not caught up to the end of the previous day.
 * @param timeMs epoch ms.
 */
function intervalAfter(isUnfinished: boolean, isBehind: boolean, timeMs: number): AlarmInterval {
  if (isUnfinished) return 'pending';
  const isHourFresh = timeMs % HOUR_MS < ALARM_INTERVALS_MS.steady;
  return isBehind || isHourFresh ? 'waiting' : 'steady';
}

/**
 * How long until the next alarm, ms: its interval, but no longer than until the hour ends or a retry is due.
 *
 * @param timeMs epoch ms.
 */
function untilNextAlarm(interval: AlarmInterval, { nextRetryMs }: CallbackState, timeMs: number): number {
  const untilHourEnds = HOUR_MS - (timeMs % HOUR_MS);
  const untilRetry = nextRetryMs === undefined ? Infinity : Math.max(1, nextRetryMs - timeMs);
  return Math.min(ALARM_INTERVALS_MS[interval], untilHourEnds, untilRetry);
}

function enterState(run: Run, changes: Partial<CallbackState>): void {
  run.state = { ...run.state, ...changes };
  setCurrentDetails(describe(run.state));
}

function describe({ daily, hourly, nextRetryMs, nextAlarm }: CallbackState): string {
  const isoOf = (ms: number) => new Date(ms).toISOString();
  return detailsOf(
    daily && `daily callbacks of ${isoOf(daily.periodStartMs).slice(0, 10)} are being emitted`,
    hourly && `hourly callbacks of ${isoOf(hourly.periodStartMs)} are being emitted`,
    nextRetryMs !== undefined && `next retry ${isoOf(nextRetryMs)}`,
    nextAlarm && `next alarm ${isoOf(nextAlarm.atMs)} (${nextAlarm.interval})`,
  );
}
