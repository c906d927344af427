/** When the next alarm of a shard is due, as pure functions of what the alarm at work has found. */
import type { AlarmInterval, CallbackState } from './contract.ts';
import { ALARM_INTERVALS_MS, HOUR_MS } from './contract.ts';

/**
 * How urgent the next alarm is.
 *
 * @param isUnfinished a page was found, or a pass has ended: another look finds the next one, or who came in behind the cursor.
 * @param isWaiting a tracking has not caught up to the end of the previous day.
 * @param timeMs what the shard takes the time to be, epoch ms.
 */
export function intervalAfter(isUnfinished: boolean, isWaiting: boolean, timeMs: number): AlarmInterval {
  if (isUnfinished) return 'pending';
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
