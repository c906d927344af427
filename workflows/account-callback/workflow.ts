/**
 * Delivers the callbacks of one shard's users to their portfolio services: the extremes of account values, of each hour
 * and each day. Callbacks and their outcomes are rows in PostgreSQL; this workflow decides when which step is due.
 *
 * ```mermaid
 * flowchart LR
 *   timer((alarm)) --> s0[0 resume pending] --> s1[1 day boundary] --> s2[2 hour boundary]
 *   s2 --> s3[3 find trackings that are behind] --> s4[4 retry failed]
 *   s4 -->|100 ms: more to do| timer
 *   s4 -->|60 s: entries are expected| timer
 *   s4 -->|5 min| timer
 * ```
 *
 * Step 5, the deletion of old snapshots, is the retention of all kinds (activities/account-callback/retention.ts).
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
import type {
  AlarmSteps,
  CallbackKind,
  CallbackState,
  DailyCursor,
  EmissionResult,
  EmissionPage,
  HourlyCursor,
  ShardInput,
} from './contract.ts';
import {
  ALARM_INTERVALS_MS,
  CALLBACK_STATUS_QUERY,
  MAX_EMISSIONS,
  RUN_NOW_UPDATE,
  shardHold,
} from './contract.ts';
import { byWhom, detailsOf, shortText } from '../details.ts';
import type { Hold } from '../hold-contract.ts';
import { loadHold, onHold } from '../holds.ts';
import { isHistoryLong, onRenewal } from '../long-lived.ts';
import { HTTP_ROUND, DATABASE } from '../policies.ts';
import {
  asStored,
  initialState,
  intervalAfter,
  pausedAs,
  untilNextAlarm,
  withOutcome,
  without,
} from './rules.ts';

const database = proxyActivities<AccountCallbackActivities>(DATABASE);
const portfolios = proxyActivities<AccountCallbackActivities>(HTTP_ROUND);

/** Hours of which one alarm emits callbacks: its history must stay short. */
const MAX_HOURLY_PAGES = 10;

const FIRST_HOURLY: HourlyCursor = { periodStartMs: 0, position: 0 };

/** One run of the workflow. */
interface Run {
  readonly shard: number;
  /** What the next run carries on. */
  state: CallbackState;
  /** See `Findings`. */
  isUnfinished: boolean;
  /** An alarm goes through its steps. */
  isAtWork: boolean;
  /** It was paused or resumed since the alarm began. */
  hasNews: boolean;
}

/** Runs for good. `carried` is the state of the run before, when this one continues it. */
export async function accountCallback(input: ShardInput, carried?: CallbackState): Promise<void> {
  const run: Run = {
    shard: input.shard,
    state: carried ?? initialState(input),
    isUnfinished: false,
    isAtWork: false,
    hasNews: false,
  };
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

  onSteering(run);

  for (;;) {
    const asked = alarmsAsked;
    run.isAtWork = true;
    await goThroughSteps(run);
    run.isAtWork = false;
    alarmsAnswered = asked;
    if (isRenewed() || isHistoryLong()) {
      // A request that came in the meantime gets its alarm first.
      await condition(() => isAlarmAsked() || allHandlersFinished());
      if (!isAlarmAsked()) await continueAsNew<typeof accountCallback>(input, run.state);
    }
    const waitMs = Math.max(1, (run.state.nextAlarm?.atMs ?? 0) - Date.now());
    await condition(() => isAlarmAsked() || run.hasNews || isRenewed(), waitMs);
  }
}

/**
 * Takes the updates that pause and resume the shard. A run that does not know of a pause, since Temporal has forgotten it,
 * is told by its first step: PostgreSQL knows.
 */
function onSteering(run: Run): void {
  onHold<CallbackState>({
    key: shardHold(run.shard),
    pauses: 'Delivers nothing until resumed. {reason?, requestedBy?}',
    resumes: 'Delivers again, callbacks that waited first. {reason?, requestedBy?}',
    follow(hold) {
      run.state = hold.isPaused ? pausedAs(run.state, hold) : without(run.state, 'paused');
      run.hasNews ||= !hold.isPaused;
      enterState(run, {});
    },
    async answer() {
      // What had begun ends.
      await condition(() => !run.state.paused || !run.isAtWork);
      return run.state;
    },
  });
}

/** PostgreSQL told a step that the shard is paused, which this run did not know: the next alarm asks immediately. */
function restIf(run: Run, hold: Hold | undefined): void {
  if (!hold || run.state.paused) return;
  run.state = pausedAs(run.state, hold);
  enterState(run, {});
  run.hasNews = true;
}

async function lookForPause(run: Run): Promise<void> {
  const stored = await loadHold(shardHold(run.shard));
  run.state = asStored(run.state, stored);
  enterState(run, {});
}

/** One alarm: every step of the pipeline, then the next alarm is set. */
async function goThroughSteps(run: Run): Promise<void> {
  run.hasNews = run.isUnfinished = false;
  run.state = without(run.state, 'nextAlarm');
  if (run.state.paused) await lookForPause(run);

  const resumed = await resumePending(run, MAX_EMISSIONS);
  const daily = await handleDayBoundary(run, MAX_EMISSIONS - resumed);
  const hourly = await handleHourBoundary(run, MAX_EMISSIONS - resumed - daily);
  const isWaiting = await findBehind(run);
  const isRetryFull = await retryFailed(run);

  const { isUnfinished, state } = run;
  const begun = resumed + daily + hourly;
  const timeMs = timeOf(run);
  const interval = state.paused
    ? 'steady'
    : intervalAfter({ begun, isWaiting, isRetryFull, isUnfinished }, timeMs);
  const atMs =
    Date.now() + (state.paused ? ALARM_INTERVALS_MS.steady : untilNextAlarm(interval, state, timeMs));
  const lastAlarm: AlarmSteps = { resumed, daily, hourly };
  enterState(run, { nextAlarm: { atMs, interval }, alarms: state.alarms + 1, lastAlarm });
}

/** Step 0: what the cap of earlier alarms has left over. */
async function resumePending(run: Run, limit: number): Promise<number> {
  const daily = run.state.daily ? await emitDaily(run, run.state.daily, limit) : 0;
  const hourly = run.state.hourly ? await emitHours(run, run.state.hourly, limit - daily) : 0;
  return daily + hourly;
}

/** Step 1: a day is due once all trackings of the shard have come to its end. */
async function handleDayBoundary(run: Run, limit: number): Promise<number> {
  if (limit === 0 || run.state.paused || run.state.daily) return 0;
  const { dayStartMs } = await database.findDueDay(run.shard);
  return dayStartMs === undefined || run.state.paused
    ? 0
    : emitDaily(run, { periodStartMs: dayStartMs, userId: '' }, limit);
}

/** Step 2: an hour has no precondition. */
async function handleHourBoundary(run: Run, limit: number): Promise<number> {
  return run.state.hourly ? 0 : emitHours(run, FIRST_HOURLY, limit);
}

/** Step 3: whether daily callbacks wait for a tracking. */
async function findBehind(run: Run): Promise<boolean> {
  return run.state.paused ? false : database.hasTrackingBehind(run.shard, timeOf(run));
}

/** Step 4. @returns whether more may be due than one alarm tries. */
async function retryFailed(run: Run): Promise<boolean> {
  if (run.state.paused) return false;
  const outcome = await portfolios.retryCallbacks(run.shard, timeOf(run));
  // Users with a daily callback in retry were left out, and may be due for the next day.
  run.isUnfinished ||= outcome.isDaySettled;
  takeOutcome(run, outcome);
  return outcome.isFull;
}

async function emitDaily(run: Run, after: DailyCursor, limit: number): Promise<number> {
  if (limit === 0) return 0;
  const { found, upTo } = await database.findDailyPage(run.shard, after, limit);
  return emitFound(run, found, upTo ? { kind: 'daily', after, upTo } : 'daily');
}

/** A page is of one hour, the oldest. A callback that fails does not hold up those behind it, of the same user neither. */
async function emitHours(run: Run, after: HourlyCursor, limit: number): Promise<number> {
  let emitted = 0;
  for (let page = 0; page < MAX_HOURLY_PAGES && emitted < limit && !run.state.paused; page += 1) {
    const found = await emitHourly(run, run.state.hourly ?? after, limit - emitted);
    if (found === 0) break;
    emitted += found;
  }
  return emitted;
}

async function emitHourly(run: Run, after: HourlyCursor, limit: number): Promise<number> {
  const { found, upTo } = await database.findHourlyPage(run.shard, after, limit);
  return emitFound(run, found, upTo ? { kind: 'hourly', after, upTo } : 'hourly');
}

/**
 * Ends when the whole page is settled; a target that hangs ends by its time-out.
 *
 * @param page the kind alone where no page was found: its pass is over, and another one finds what came in behind its cursor.
 * @returns how many callbacks were begun to be delivered.
 */
async function emitFound(run: Run, found: number, page: EmissionPage | CallbackKind): Promise<number> {
  if (run.state.paused) return 0;
  if (typeof page === 'string') {
    run.isUnfinished ||= run.state[page] !== undefined;
    run.state = without(run.state, page);
    return 0;
  }
  run.isUnfinished = true;
  enterState(run, { [page.kind]: page.upTo });
  takeOutcome(run, await portfolios.emitCallbacks(run.shard, page, timeOf(run)));
  return found;
}

function takeOutcome(run: Run, outcome: EmissionResult): void {
  enterState(run, withOutcome(run.state, outcome));
  restIf(run, outcome.hold);
}

/** What the shard takes the time to be, epoch ms. */
const timeOf = ({ state }: Run): number => Date.now() + state.clockOffsetMs;

function enterState(run: Run, changes: Partial<CallbackState>): void {
  run.state = { ...run.state, ...changes };
  setCurrentDetails(describe(run.state));
}

function describe({
  paused,
  daily,
  hourly,
  delivered,
  failed,
  dropped,
  nextRetryMs,
  nextAlarm,
}: CallbackState): string {
  const isoOf = (ms: number) => new Date(ms).toISOString();
  const by = paused && `Paused${byWhom(paused.requestedBy)} since ${isoOf(paused.sinceMs)}`;
  return detailsOf(
    by && (paused.reason === undefined ? by : `${by}: ${shortText(paused.reason)}`),
    `${delivered} delivered, ${failed} failed attempts, ${dropped} dropped`,
    daily && `daily callbacks of ${isoOf(daily.periodStartMs).slice(0, 10)} are being emitted`,
    hourly && `hourly callbacks of ${isoOf(hourly.periodStartMs)} are being emitted`,
    nextRetryMs !== undefined && `next retry ${isoOf(nextRetryMs)}`,
    nextAlarm && `next alarm ${isoOf(nextAlarm.atMs)} (${nextAlarm.interval})`,
  );
}
