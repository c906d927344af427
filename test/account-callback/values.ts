/** Inputs of account values, and what is to be told of them by the ledger's calculation. Pure. */
import type { CallbackKind } from '../../api/account-callback/callback.ts';
import type { CallbackInput } from '../../api/account-callback/input.ts';
import * as ledger from '../../faults/ledger/account-values.ts';

export const SECOND = 1_000;
export const MINUTE = 60 * SECOND;
export { DAY, HOUR } from '../../faults/ledger/account-values.ts';

export const price = (symbol: string, at_ms: number, of: string): CallbackInput => ({
  type: 'price',
  symbol,
  price: of,
  at_ms,
});

export const positions = (
  user_id: string,
  at_ms: number,
  cash: string,
  coefficients: Record<string, string> | null,
): CallbackInput => ({ type: 'positions', user_id, cash, coefficients, at_ms });

/** Answers what is to be told about a period, as a body; undefined when there is nothing to tell. */
export function expectationsOf(inputs: readonly CallbackInput[]) {
  const expectation = ledger.expectationsOf(inputs);
  return (userId: string, kind: CallbackKind, startMs: number) => expectation({ userId, kind, startMs });
}
