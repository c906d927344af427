/** All mutants: those written by hand, by kind of work, and those made by program. */
import { ACCOUNT_CALLBACK_MUTANTS } from './list/account-callback.ts';
import { DELIVERY_MUTANTS } from './list/delivery.ts';
import { INTENT_MUTANTS } from './list/intent.ts';
import { MOBILE_PUSH_MUTANTS } from './list/mobile-push.ts';
import { PLATFORM_MUTANTS } from './list/platform.ts';
import { SUBSCRIPTION_MUTANTS } from './list/subscription.ts';
import { SYMBOL_CONFIG_MUTANTS } from './list/symbol-config.ts';
import { hashOf, readGenerated } from './generated.ts';
import type { Mutant } from './mutant.ts';
import { mutantOf } from './mutant.ts';

const HAND_WRITTEN = [
  ...INTENT_MUTANTS,
  ...DELIVERY_MUTANTS,
  ...MOBILE_PUSH_MUTANTS,
  ...SYMBOL_CONFIG_MUTANTS,
  ...ACCOUNT_CALLBACK_MUTANTS,
  ...SUBSCRIPTION_MUTANTS,
  ...PLATFORM_MUTANTS,
];

export const MUTANTS: readonly Mutant[] = [...HAND_WRITTEN.map(mutantOf), ...readGenerated()];

/**
 * @param files that have changed, from the top of the checkout.
 * @param commit decides the order, so that each commit tries others when time ends before the list does.
 * @returns the mutants of these files and of suites in them that a test has to notice. Suites without servers come first.
 */
export function affectedMutants(
  mutants: readonly Mutant[],
  files: ReadonlySet<string>,
  commit: string,
): Mutant[] {
  const rank = ({ id, suite }: Mutant) => `${suite.tier === 'service' ? 1 : 0} ${hashOf(commit + id)}`;
  return mutants
    .filter(
      ({ file, suite, survives }) => survives === undefined && (files.has(file) || files.has(suite.file)),
    )
    .sort((one, other) => (rank(one) < rank(other) ? -1 : 1));
}
