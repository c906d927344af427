/** The kinds of work a process can do: one row per feature, each with its task queue, activities and entry point. */
import { createIntentActivities } from '../activities/intent.ts';
import { createRetentionActivities } from '../activities/intent-retention.ts';
import { createRouteActivities } from '../activities/intent-route.ts';
import { createBridgeActivities } from '../activities/stream-bridge.ts';
import { INTENT_TASK_QUEUE } from '../workflows/intent-contract.ts';
import type { Resources } from './resources.ts';
import { ensureBridge, ensureRetentionSchedule } from './temporal-setup.ts';

interface Role {
  taskQueue: string;
  createActivities(resources: Resources): object;
  /** Starts the long-lived workflows of the role, once its worker runs. Safe to repeat. */
  begin(resources: Resources): Promise<void>;
}

export const ROLES = {
  intent: {
    taskQueue: INTENT_TASK_QUEUE,
    createActivities: (resources) => ({
      ...createIntentActivities(resources),
      ...createRouteActivities(resources),
      ...createBridgeActivities(resources),
      ...createRetentionActivities(resources),
    }),
    begin: async (resources) => {
      await Promise.all([ensureBridge(resources), ensureRetentionSchedule(resources)]);
    },
  },
} satisfies Record<string, Role>;
