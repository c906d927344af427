/** The rules of alarms, without a workflow: what is begun, and when the next alarm is due. */
import fc from 'fast-check';
import type { AlarmInterval } from '../../workflows/account-callback/contract.ts';
import { ALARM_INTERVALS_MS, HOUR_MS } from '../../workflows/account-callback/contract.ts';
import { intervalAfter, untilNextAlarm } from '../../workflows/account-callback/workflow.ts';

const NOON = Date.UTC(2026, 2, 29, 12);
const fresh = { shard: 0, clockOffsetMs: 0 };

test('C1 more to do makes an alarm urgent, whatever it is; entries that may still come only when there is nothing', () => {
  expect(intervalAfter(true, false, NOON)).toBe('pending');
  expect(intervalAfter(true, true, NOON)).toBe('pending');
  expect(intervalAfter(false, true, NOON - 1)).toBe('waiting');
  expect(intervalAfter(false, false, NOON - 1)).toBe('steady');
  // Entries of an hour come after its end.
  expect(intervalAfter(false, false, NOON)).toBe('waiting');
  expect(intervalAfter(false, false, NOON + ALARM_INTERVALS_MS.steady)).toBe('steady');
});

test('C1 the next alarm comes after its interval, at the end of the hour or with the next retry, whichever is first', () => {
  const intervals = fc.constantFrom<AlarmInterval>('pending', 'waiting', 'steady');
  const times = fc.integer({ min: 0, max: 4_102_444_800_000 });
  const retries = fc.option(fc.integer({ min: -2 * HOUR_MS, max: 2 * HOUR_MS }), { nil: undefined });
  fc.assert(
    fc.property(intervals, times, retries, (interval, timeMs, retryInMs) => {
      const state = retryInMs === undefined ? fresh : { ...fresh, nextRetryMs: timeMs + retryInMs };
      const inMs = untilNextAlarm(interval, state, timeMs);

      expect(inMs).toBeGreaterThan(0);
      expect(inMs).toBeLessThanOrEqual(ALARM_INTERVALS_MS[interval]);
      expect(Math.floor((timeMs + inMs - 1) / HOUR_MS)).toBe(Math.floor(timeMs / HOUR_MS));
      const limits: number[] = [ALARM_INTERVALS_MS[interval], HOUR_MS - (timeMs % HOUR_MS)];
      if (retryInMs !== undefined) limits.push(Math.max(1, retryInMs));
      expect(inMs).toBe(Math.min(...limits));
    }),
  );
});
