/** The kinds of work a process can do: one row per feature, each with its task queue, activities and entry point. */
import { createChannelActivities } from '../activities/channels.ts';
import { createIntentActivities } from '../activities/intent.ts';
import { createRetentionActivities } from '../activities/intent-retention.ts';
import { createRouteActivities } from '../activities/intent-route.ts';
import { createSteeringActivities } from '../activities/route-steering.ts';
import { createBridgeActivities } from '../activities/stream-bridge.ts';
import { createSymbolConfigActivities } from '../activities/symbol-config.ts';
import { INTENT_TASK_QUEUE } from '../workflows/intent-contract.ts';
import { SYMBOL_CONFIG_TASK_QUEUE } from '../workflows/symbol-config-contract.ts';
import type { RoleName } from './config.ts';
import type { Resources } from './resources.ts';
import { beginSymbolConfig } from './symbol-config-setup.ts';
import { ensureBridge, ensureChannels, ensureRetentionSchedule } from './temporal-setup.ts';

interface Role {
  taskQueue: string;
  createActivities(resources: Resources): object;
  /** Begins the role's work once its worker runs: long-lived workflows, readers of its own. Safe to repeat. */
  begin(resources: Resources): Promise<void>;
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
      ...createRetentionActivities(resources),
    }),
    begin: async (resources) => {
      await Promise.all([
        ensureBridge(resources),
        ensureChannels(resources),
        ensureRetentionSchedule(resources),
      ]);
    },
  },
  'symbol-config': {
    taskQueue: SYMBOL_CONFIG_TASK_QUEUE,
    createActivities: createSymbolConfigActivities,
    begin: beginSymbolConfig,
  },
};
