/** What each role needs of Temporal: `setup` makes it, `doctor` looks for it. */
import type { Config, RoleName } from '../config/load.ts';
import { ACCOUNT_CALLBACK_TASK_QUEUE } from '../workflows/account-callback/contract.ts';
import { INTENT_TASK_QUEUE, SEARCH_ATTRIBUTES } from '../workflows/intent/contract.ts';
import { MOBILE_SEARCH_ATTRIBUTES, MOBILE_TASK_QUEUE } from '../workflows/mobile-push/contract.ts';
import { SUBSCRIPTION_TASK_QUEUE } from '../workflows/subscription/contract.ts';
import { SYMBOL_CONFIG_TASK_QUEUE } from '../workflows/symbol-config/contract.ts';
import type { ScheduledRun } from '../migrations/namespace.ts';
import { INTENT_RETENTION, MOBILE_RETENTION, SUBSCRIPTION_SWEEP } from '../migrations/namespace.ts';

export interface NeededSchedule {
  run: ScheduledRun;
  everyMs: number;
  /** What is left undone without it. */
  purpose: string;
}

export interface Needs {
  taskQueues: readonly string[];
  searchAttributes: readonly string[];
  schedules: readonly NeededSchedule[];
}

/** What the configured roles need together. */
export function needsOf({ roles, values }: Config): Needs {
  const cleanupMs = values.NOTIFICATION_CLEANUP_INTERVAL;
  const needs: Record<RoleName, Needs> = {
    intent: {
      taskQueues: [INTENT_TASK_QUEUE],
      searchAttributes: Object.values(SEARCH_ATTRIBUTES),
      schedules: [{ run: INTENT_RETENTION, everyMs: cleanupMs, purpose: 'old rows are not deleted' }],
    },
    'mobile-push': {
      taskQueues: [MOBILE_TASK_QUEUE],
      searchAttributes: Object.values(MOBILE_SEARCH_ATTRIBUTES),
      schedules: [{ run: MOBILE_RETENTION, everyMs: cleanupMs, purpose: 'old push jobs are not deleted' }],
    },
    'symbol-config': { taskQueues: [SYMBOL_CONFIG_TASK_QUEUE], searchAttributes: [], schedules: [] },
    'account-callback': { taskQueues: [ACCOUNT_CALLBACK_TASK_QUEUE], searchAttributes: [], schedules: [] },
    subscription: {
      taskQueues: [SUBSCRIPTION_TASK_QUEUE],
      searchAttributes: [],
      schedules: [
        {
          run: SUBSCRIPTION_SWEEP,
          everyMs: values.NOTIFICATION_SUBSCRIPTION_SWEEP_INTERVAL,
          purpose: 'missed subscriptions are not found',
        },
      ],
    },
  };
  return {
    taskQueues: roles.flatMap((role) => needs[role].taskQueues),
    searchAttributes: roles.flatMap((role) => needs[role].searchAttributes),
    schedules: roles.flatMap((role) => needs[role].schedules),
  };
}
