/** The rules of alarms, without a workflow: what is begun, and when the next alarm is due. */
import fc from 'fast-check';
import type { AlarmInterval, CallbackState } from '../../workflows/account-callback/contract.ts';
import { ALARM_INTERVALS_MS, HOUR_MS } from '../../workflows/account-callback/contract.ts';
import type { Findings } from '../../workflows/account-callback/rules.ts';
import {
  asStored,
  initialState,
  intervalAfter,
  mayBegin,
  pausedAs,
  untilNextAlarm,
  withOutcome,
  without,
} from '../../workflows/account-callback/rules.ts';

const IDLE = { hourly: 0, daily: 0, retry: 0 };
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
    fc.property(intervals, times, retries, fc.nat({ max: 1 }), (interval, timeMs, retryInMs, retry) => {
      const state = retryInMs === undefined ? fresh : { ...fresh, nextRetryMs: timeMs + retryInMs };
      const inMs = untilNextAlarm(interval, state, { ...IDLE, retry }, timeMs);

      expect(inMs).toBeGreaterThan(0);
      expect(inMs).toBeLessThanOrEqual(ALARM_INTERVALS_MS[interval]);
      expect(Math.floor((timeMs + inMs - 1) / HOUR_MS)).toBe(Math.floor(timeMs / HOUR_MS));
      const limits: number[] = [ALARM_INTERVALS_MS[interval], HOUR_MS - (timeMs % HOUR_MS)];
      if (retryInMs !== undefined && retry === 0) limits.push(Math.max(1, retryInMs));
      expect(inMs).toBe(Math.min(...limits));
    }),
  );
});

test('C5 a retry that is due does not wake an alarm while it is being tried', () => {
  const due = { ...fresh, nextRetryMs: NOON - 1 };
  expect(untilNextAlarm('steady', due, IDLE, NOON)).toBe(1);
  expect(untilNextAlarm('steady', due, { ...IDLE, retry: 1 }, NOON)).toBe(ALARM_INTERVALS_MS.steady);
});

test('C2 C3 a pass begins when no page of its kind is left or under way; the other kind makes no difference', () => {
  expect(mayBegin('daily', fresh, IDLE)).toBe(true);
  expect(mayBegin('daily', fresh, { ...IDLE, daily: 1 })).toBe(false);
  expect(mayBegin('daily', fresh, { ...IDLE, hourly: 3, retry: 1 })).toBe(true);
  const within: CallbackState = { ...fresh, hourly: { periodStartMs: NOON, position: 7 } };
  expect(mayBegin('hourly', within, IDLE)).toBe(false);
  expect(mayBegin('daily', within, IDLE)).toBe(true);
  expect(mayBegin('hourly', without(within, 'hourly'), IDLE)).toBe(true);
});

test('C5 outcomes add up in any order, and the soonest retry is the one that is known', () => {
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
      expect(all.toReversed().reduce(withOutcome, fresh)).toEqual(inOrder);
      const sum = (key: 'delivered' | 'failed' | 'dropped') =>
        all.reduce((total, outcome) => total + outcome[key], 0);
      expect(inOrder).toMatchObject({
        delivered: sum('delivered'),
        failed: sum('failed'),
        dropped: sum('dropped'),
      });
      const known = all.flatMap(({ nextRetryMs }) => (nextRetryMs === undefined ? [] : [nextRetryMs]));
      expect(inOrder.nextRetryMs).toBe(known.length === 0 ? undefined : Math.min(...known));
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
