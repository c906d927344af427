/** Entries of the stream of extremes: accepted ones become callbacks, and each refusal names its field. */
import type { CallbackInput, PeriodInput } from '../../api/account-callback/input.ts';
import { callbackOf, parseCallbackInput } from '../../api/account-callback/input.ts';
import { callbackBody } from '../../api/account-callback/callback.ts';
import { DAY, HOUR, MINUTE, day, hour, track, untrack } from './values.ts';

const MIDNIGHT = Date.UTC(2026, 2, 29);
const NOW = MIDNIGHT + 30 * MINUTE;
const parsed = (input: object, nowMs = NOW) =>
  parseCallbackInput([[Buffer.from('payload'), Buffer.from(JSON.stringify(input))]], nowMs);
const problemOf = (input: object) => {
  const result = parsed(input);
  return result.ok ? undefined : `${result.code}: ${result.message}`;
};
const bodyOf = (input: CallbackInput) => {
  const callback = callbackOf(input as PeriodInput);
  return JSON.parse(callbackBody(callback)) as Record<string, unknown>;
};

test('C4 values are passed on unchanged; a day closes with its midnight value, or with its peak when that is missing', () => {
  const values = { peak_value: '0010.500', bottom_value: '-0', closing_value: '1.000000000000000000000001' };
  const given = { ...hour('ann', MIDNIGHT - HOUR), ...values };
  expect(parsed(given)).toEqual({ ok: true, input: given });
  expect(bodyOf(given as CallbackInput)).toMatchObject({ period_start_ms: MIDNIGHT - HOUR, ...values });
  expect(bodyOf(day('ann', MIDNIGHT - DAY, 7))).toMatchObject({
    ...{ period_start_ms: MIDNIGHT - DAY, period_end_ms: MIDNIGHT },
    ...{ peak_value: '17', closing_value: '7' },
  });
  const { midnight_value: _, ...without } = day('ann', MIDNIGHT - DAY, 7) as Extract<
    CallbackInput,
    { kind: 'day' }
  >;
  expect(parsed(without)).toEqual({ ok: true, input: without });
  expect(bodyOf(without)).toMatchObject({ peak_value: '17', closing_value: '17' });
});

test('kinds-F5 a period that is not over is refused, whatever the clock of a worker says', () => {
  expect(problemOf(hour('ann', MIDNIGHT))).toMatch(/^invalid_payload: hour_start_ms: the period is not over/);
  expect(problemOf(day('ann', MIDNIGHT))).toMatch(/^invalid_payload: day: the period is not over/);
  // The clock of the producer may be a little ahead.
  expect(parsed(hour('ann', MIDNIGHT), MIDNIGHT + HOUR - MINUTE).ok).toBe(true);
});

test('C7 what breaks the contract is refused, and its field is named', () => {
  const good = hour('ann', MIDNIGHT - HOUR);
  for (const [changes, problem] of [
    [
      { hour_start_ms: MIDNIGHT - HOUR + 1 },
      /^invalid_payload: hour_start_ms: must be the beginning of an hour/,
    ],
    [{ peak_at_ms: MIDNIGHT }, /^invalid_payload: peak_at_ms is outside of the period/],
    [{ bottom_at_ms: 0 }, /^invalid_payload: bottom_at_ms is outside of the period/],
    [{ peak_value: '0' }, /^invalid_payload: peak_value is below bottom_value/],
    [{ closing_value: 1 }, /^invalid_payload: closing_value/],
    [{ closing_value: '1e5' }, /^invalid_payload: closing_value/],
    [{ user_id: '..' }, /^invalid_payload: user_id/],
    [{ user_id: 'a\tb' }, /^invalid_payload: user_id/],
    [{ user_id: 'x'.repeat(513) }, /^invalid_payload: user_id/],
    [{ more: 1 }, /^invalid_payload: payload: has an unknown field/],
    [{ kind: 'minute' }, /^invalid_payload: kind/],
  ] as const) {
    expect(problemOf({ ...good, ...changes })).toMatch(problem);
  }
  for (const wrong of ['2026-02-30', '1969-12-31', '28.03.2026', '2026-3-1']) {
    expect(problemOf({ ...day('ann', MIDNIGHT - DAY), day: wrong })).toMatch(/^invalid_payload: day/);
  }
  expect(problemOf(track('ann', NOW * 1_000))).toMatch(/^invalid_payload: from_ms: is more than/);
  expect(problemOf(untrack('ann', NOW + 3 * DAY))).toMatch(/^invalid_payload: until_ms: is more than/);
  expect(problemOf(untrack('ann', -1))).toMatch(/^invalid_payload: until_ms/);
});
