/** The kinds of work that a process can do, by the names of config/load.ts. */
import type { RoleName } from '../config/load.ts';
import { openAccountCallbacks } from './account-callback.ts';
import { openIntents } from './intent.ts';
import { openMobilePushes } from './mobile-push.ts';
import type { OpenRole } from './role.ts';
import { openSubscriptions } from './subscription.ts';
import { openSymbolConfig } from './symbol-config.ts';

export const ROLES: Record<RoleName, OpenRole> = {
  intent: openIntents,
  'mobile-push': openMobilePushes,
  'symbol-config': openSymbolConfig,
  'account-callback': openAccountCallbacks,
  subscription: openSubscriptions,
};
