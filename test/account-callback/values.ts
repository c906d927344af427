/** Entries of the stream of extremes, and the callbacks that become of them by the ledger's calculation. Pure. */
import type { CallbackKind } from '../../api/account-callback/callback.ts';
import type { CallbackInput } from '../../api/account-callback/input.ts';
import * as ledger from '../../faults/ledger/account-callback.ts';

export const SECOND = 1_000;
export const MINUTE = 60 * SECOND;
export { DAY, HOUR } from '../../faults/ledger/account-callback.ts';

/** @param value the lowest and last value; the peak is ten more. */
const extremesOf = (user_id: string, startMs: number, value: number) => ({
  ...{ user_id, peak_value: `${value + 10}`, peak_at_ms: startMs + MINUTE },
  ...{ bottom_value: `${value}`, bottom_at_ms: startMs },
});

export const hour = (user_id: string, hour_start_ms: number, value = 1): CallbackInput => ({
  ...{ kind: 'hour', hour_start_ms, closing_value: `${value}` },
  ...extremesOf(user_id, hour_start_ms, value),
});

/** @param startMs its midnight. */
export const day = (user_id: string, startMs: number, value = 1): CallbackInput => ({
  ...{ kind: 'day', day: new Date(startMs).toISOString().slice(0, 10), midnight_value: `${value}` },
  ...extremesOf(user_id, startMs, value),
});

export const track = (user_id: string, from_ms: number): CallbackInput => ({
  kind: 'track',
  user_id,
  from_ms,
});
export const untrack = (user_id: string, until_ms: number): CallbackInput => ({
  kind: 'untrack',
  user_id,
  until_ms,
});

/** Answers the body of the callback of a period; undefined without one. */
export function expectationsOf(inputs: readonly CallbackInput[]) {
  const expectation = ledger.expectationsOf(inputs as ledger.AccountInput[]);
  return (userId: string, kind: CallbackKind, startMs: number) => expectation({ userId, kind, startMs });
}
