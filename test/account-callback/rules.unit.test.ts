/** The rules of alarms, without a workflow: what is begun, and when the next alarm is due. */
import fc from 'fast-check';
import type { AlarmInterval, CallbackState } from '../../workflows/account-callback/contract.ts';
import { ALARM_INTERVALS_MS, HOUR_MS } from '../../workflows/account-callback/contract.ts';
import type { Findings } from '../../workflows/account-callback/rules.ts';
import {
  asStored,
  initialState,
  intervalAfter,
  pausedAs,
  untilNextAlarm,
  withOutcome,
} from '../../workflows/account-callback/rules.ts';

const QUIET: Findings = {
  begun: 0,
  isWaiting: false,
  isRetryFull: false,
  isUnfinished: false,
};
const NOON = Date.UTC(2026, 2, 29, 12);
const fresh = initialState({ shard: 0 });

test('C1 more to do makes an alarm urgent, whatever it is; entries that may still come only when there is nothing', () => {
  const more: Partial<Findings>[] = [{ begun: 1 }, { isRetryFull: true }, { isUnfinished: true }];
  for (const found of more) {
    expect(intervalAfter({ ...QUIET, ...found }, NOON)).toBe('pending');
    expect(intervalAfter({ ...QUIET, ...found, isWaiting: true }, NOON)).toBe('pending');
  }
  expect(intervalAfter({ ...QUIET, isWaiting: true }, NOON - 1)).toBe('waiting');
  expect(intervalAfter(QUIET, NOON - 1)).toBe('steady');
  // Entries of an hour come after its end.
  expect(intervalAfter(QUIET, NOON)).toBe('waiting');
  expect(intervalAfter(QUIET, NOON + ALARM_INTERVALS_MS.steady)).toBe('steady');
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

test('C5 outcomes add up, and the next retry is the one that the last of them knows', () => {
  const counts = fc.nat({ max: 500 });
  const outcomes = fc.array(
    fc.record(
      { delivered: counts, failed: counts, dropped: counts, nextRetryMs: fc.nat() },
      { requiredKeys: ['delivered', 'failed', 'dropped'] },
    ),
  );
  fc.assert(
    fc.property(outcomes, (all) => {
      const inOrder = all.reduce(withOutcome, fresh);
      const sum = (key: 'delivered' | 'failed' | 'dropped') =>
        all.reduce((total, outcome) => total + outcome[key], 0);
      expect(inOrder).toMatchObject({
        delivered: sum('delivered'),
        failed: sum('failed'),
        dropped: sum('dropped'),
      });
      expect(inOrder.nextRetryMs).toBe(all.at(-1)?.nextRetryMs);
    }),
  );
});

test('C9 a pause lasts until an operator resumes the shard, whatever PostgreSQL has forgotten; then its passes begin again', () => {
  const underWay: CallbackState = {
    ...fresh,
    daily: { periodStartMs: NOON, userId: 'ann' },
    hourly: { periodStartMs: NOON, position: 3 },
  };
  const pause = { requestedBy: 'nina', sinceMs: 1_000 };
  const paused = pausedAs(underWay, { isPaused: true, ...pause });
  expect(paused).toEqual({ ...fresh, paused: pause });
  expect(asStored(paused, { isPaused: false, sinceMs: 0 })).toEqual(paused);
  expect(asStored(paused, { isPaused: false, sinceMs: 999 })).toEqual(paused);
  expect(asStored(paused, { isPaused: false, sinceMs: 1_000 })).toEqual(fresh);
  expect(asStored(underWay, { isPaused: false, sinceMs: 1_000 })).toEqual(underWay);
  expect(asStored(underWay, { isPaused: true, ...pause })).toEqual(paused);
});
