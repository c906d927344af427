/**
 * What an alarm of a shard does and when the next one is due, as pure functions of what is known: the state that lives
 * on, and what the alarm at work has found.
 */
import type { AlarmInterval, CallbackKind, CallbackState, EmissionResult, ShardInput } from './contract.ts';
import type { Hold } from '../hold-contract.ts';
import { ALARM_INTERVALS_MS, HOUR_MS } from './contract.ts';

/** What an alarm found out that decides about the next one. */
export interface Findings {
  /** Callbacks that it began to deliver. */
  begun: number;
  /** A tracking has not caught up to the end of the previous day. */
  isWaiting: boolean;
  /** As many failed callbacks as one alarm may try were due: there may be more. */
  isRetryFull: boolean;
  /** A page was found, or a pass has ended: another look finds the next one, or who came in behind the cursor. */
  isUnfinished: boolean;
}

export function initialState({ shard, clockOffsetMs = 0 }: ShardInput): CallbackState {
  return { shard, clockOffsetMs, delivered: 0, failed: 0, dropped: 0, alarms: 0 };
}

/** The state without these: what has gone off, has ended, or is being found out again. */
export function without(
  state: CallbackState,
  ...keys: ('nextAlarm' | 'nextRetryMs' | 'paused' | CallbackKind)[]
): CallbackState {
  const rest = { ...state };
  for (const key of keys) delete rest[key];
  return rest;
}

/** A pass that was under way begins again after the pause, with the oldest: what was passed over is told in order. */
export const pausedAs = (
  state: CallbackState,
  { isPaused: _, requestedBy = 'operator', ...pause }: Hold,
): CallbackState => ({
  ...without(state, 'daily', 'hourly'),
  paused: { requestedBy, ...pause },
});

/**
 * The state as PostgreSQL says that the shard stands. A pause of which it knows nothing any more, since it was put back,
 * lasts: only an operator resumes a shard.
 */
export function asStored(state: CallbackState, hold: Hold): CallbackState {
  if (hold.isPaused) return pausedAs(state, hold);
  return state.paused && hold.sinceMs >= state.paused.sinceMs ? without(state, 'paused') : state;
}

/** The last outcome knows which retry is the next. */
export const withOutcome = (
  state: CallbackState,
  { delivered, failed, dropped, nextRetryMs }: EmissionResult,
): CallbackState => ({
  ...without(state, 'nextRetryMs'),
  delivered: state.delivered + delivered,
  failed: state.failed + failed,
  dropped: state.dropped + dropped,
  ...(nextRetryMs === undefined ? {} : { nextRetryMs }),
});

/** How urgent the next alarm is. @param timeMs what the shard takes the time to be, epoch ms. */
export function intervalAfter(findings: Findings, timeMs: number): AlarmInterval {
  const { begun, isWaiting, isRetryFull, isUnfinished } = findings;
  if (begun > 0 || isRetryFull || isUnfinished) return 'pending';
  const isHourFresh = timeMs % HOUR_MS < ALARM_INTERVALS_MS.steady;
  return isWaiting || isHourFresh ? 'waiting' : 'steady';
}

/**
 * How long until the next alarm, ms: its interval, but no longer than until the hour ends or a retry is due.
 *
 * @param timeMs what the shard takes the time to be, epoch ms.
 */
export function untilNextAlarm(
  interval: AlarmInterval,
  { nextRetryMs }: CallbackState,
  timeMs: number,
): number {
  const untilHourEnds = HOUR_MS - (timeMs % HOUR_MS);
  const untilRetry = nextRetryMs === undefined ? Infinity : Math.max(1, nextRetryMs - timeMs);
  return Math.min(ALARM_INTERVALS_MS[interval], untilHourEnds, untilRetry);
}
