/** The kinds of work a process can do: one row per feature, each with its task queue, activities and entry point. */
import { createAccountCallbackActivities } from '../activities/account-callback/activities.ts';
import { createChannelActivities } from '../activities/intent/channels.ts';
import { createIntentActivities } from '../activities/intent/acceptance.ts';
import { createIntentRetentionActivities } from '../activities/intent/retention.ts';
import { createRouteActivities } from '../activities/intent/routes.ts';
import { createMobilePushActivities } from '../activities/mobile-push/activities.ts';
import { createMobileRetentionActivities } from '../activities/mobile-push/retention.ts';
import { consumeMobileJobs } from '../activities/mobile-push/stream.ts';
import { createSteeringActivities } from '../activities/intent/steering.ts';
import { createBridgeActivities } from '../activities/intent/reader.ts';
import { createSymbolConfigActivities } from '../activities/symbol-config/activities.ts';
import { INTENT_RETENTION, MOBILE_RETENTION } from '../migrations/namespace.ts';
import { ACCOUNT_CALLBACK_TASK_QUEUE } from '../workflows/account-callback/contract.ts';
import { INTENT_TASK_QUEUE } from '../workflows/intent/contract.ts';
import { MOBILE_TASK_QUEUE } from '../workflows/mobile-push/contract.ts';
import { SUBSCRIPTION_TASK_QUEUE } from '../workflows/subscription/contract.ts';
import { SYMBOL_CONFIG_TASK_QUEUE } from '../workflows/symbol-config/contract.ts';
import { beginAccountCallbacks } from './account-callback-setup.ts';
import type { RoleName } from '../config/load.ts';
import type { Resources } from './resources.ts';
import { beginSubscriptions, subscriptionActivities } from './subscription-setup.ts';
import { beginSymbolConfig } from './symbol-config-setup.ts';
import { ensureBridge, ensureChannels, ensureRetentionSchedule } from './temporal-setup.ts';

/** Something that runs in this process for as long as the role does. */
export interface Running {
  stop(): Promise<void>;
}

interface Role {
  taskQueue: string;
  createActivities(resources: Resources): object;
  /**
   * Begins the role's work once its worker runs: long-lived workflows, readers of its own. Safe to repeat.
   *
   * @returns what must be stopped with the worker, if anything.
   */
  begin(resources: Resources): Promise<Running | void>;
}

export const ROLES: Record<RoleName, Role> = {
  intent: {
    taskQueue: INTENT_TASK_QUEUE,
    createActivities: (resources) => ({
      ...createIntentActivities(resources),
      ...createRouteActivities(resources),
      ...createSteeringActivities(resources),
      ...createChannelActivities(resources),
      ...createBridgeActivities(resources),
      ...createIntentRetentionActivities(resources),
    }),
    begin: async (resources) => {
      await Promise.all([
        ensureBridge(resources),
        ensureChannels(resources),
        ensureRetentionSchedule(resources, INTENT_RETENTION),
      ]);
    },
  },
  'mobile-push': {
    taskQueue: MOBILE_TASK_QUEUE,
    createActivities: ({ fcm, ...resources }) => {
      if (fcm === undefined) throw new Error('the role mobile-push has no sender');
      return {
        ...createMobilePushActivities({ ...resources, fcm }),
        ...createMobileRetentionActivities(resources),
      };
    },
    begin: async (resources) => {
      await ensureRetentionSchedule(resources, MOBILE_RETENTION);
      return consumeMobileJobs(resources);
    },
  },
  'symbol-config': {
    taskQueue: SYMBOL_CONFIG_TASK_QUEUE,
    createActivities: createSymbolConfigActivities,
    begin: beginSymbolConfig,
  },
  'account-callback': {
    taskQueue: ACCOUNT_CALLBACK_TASK_QUEUE,
    createActivities: ({ portfolios, ...resources }) => {
      if (portfolios === undefined) throw new Error('the role account-callback has no portfolio service');
      return createAccountCallbackActivities({ ...resources, portfolios });
    },
    begin: beginAccountCallbacks,
  },
  subscription: {
    taskQueue: SUBSCRIPTION_TASK_QUEUE,
    createActivities: subscriptionActivities,
    begin: beginSubscriptions,
  },
};
