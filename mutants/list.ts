/** All mutants, by kind of work. */
import { ACCOUNT_CALLBACK_MUTANTS } from './list/account-callback.ts';
import { DELIVERY_MUTANTS } from './list/delivery.ts';
import { INTENT_MUTANTS } from './list/intent.ts';
import { MOBILE_PUSH_MUTANTS } from './list/mobile-push.ts';
import { PLATFORM_MUTANTS } from './list/platform.ts';
import { SUBSCRIPTION_MUTANTS } from './list/subscription.ts';
import { SYMBOL_CONFIG_MUTANTS } from './list/symbol-config.ts';
import type { Mutant } from './mutant.ts';

export const MUTANTS: readonly Mutant[] = [
  ...INTENT_MUTANTS,
  ...DELIVERY_MUTANTS,
  ...MOBILE_PUSH_MUTANTS,
  ...SYMBOL_CONFIG_MUTANTS,
  ...ACCOUNT_CALLBACK_MUTANTS,
  ...SUBSCRIPTION_MUTANTS,
  ...PLATFORM_MUTANTS,
];
