/** What keeping subscriptions needs in a process: the key box, the ways to routers, and what is there from the start. */
import { createMessagingRouter, createNotificationRouter } from '../activities/subscription/router/http.ts';
import type {
  MessagingRouter,
  NotificationRouter,
  RouterAddress,
} from '../activities/subscription/router/ports.ts';
import { createSubscriptionActivities } from '../activities/subscription/activities.ts';
import { ensureAgent } from '../activities/subscription/agents.ts';
import type { SubscriptionSettings } from '../activities/subscription/batches.ts';
import { createSubscriptionCommands } from '../activities/subscription/commands.ts';
import { observeSubscriptions } from '../activities/subscription/metrics.ts';
import { createSubscriptionTokenActivities } from '../activities/subscription/token.ts';
import { SUBSCRIPTION_SWEEP, ensureSchedule } from '../migrations/namespace.ts';
import { keptKey } from '../api/kept-key.ts';
import type { KeyBox } from '../api/key-box.ts';
import { createKeyBox } from '../api/key-box.ts';
import {
  SUBSCRIPTION_TASK_QUEUE,
  SUPERVISOR_WORKFLOW,
  supervisorWorkflowId,
} from '../workflows/subscription/contract.ts';
import type { Config } from '../config/load.ts';
import type { Resources } from './resources.ts';
import type { Running } from './roles.ts';

/** What only the role subscription has. */
export interface SubscriptionParts {
  agentId: string;
  keyBox: KeyBox;
  messagingRouter: MessagingRouter;
  notificationRouter: NotificationRouter;
  ntfServers: readonly RouterAddress[];
  settings: SubscriptionSettings;
  eventsStream: string;
}

/** Routers are reached when they are needed: one that is away keeps no process from starting. */
export function openSubscriptions(
  { roles, values, production }: Config,
  ntfServers: readonly RouterAddress[],
  opened: (() => Promise<unknown>)[],
): SubscriptionParts | undefined {
  if (!roles.includes('subscription')) return undefined;
  const keys =
    values.NOTIFICATION_SUBSCRIPTION_KEYS ?? (production ? [] : [keptKey(values.NOTIFICATION_DATA_DIR)]);
  const timeouts = {
    commandTimeoutMs: values.NOTIFICATION_SUBSCRIPTION_COMMAND_TIMEOUT,
    connectTimeoutMs: values.NOTIFICATION_SUBSCRIPTION_CONNECT_TIMEOUT,
  };
  const messagingRouter = createMessagingRouter(timeouts);
  const notificationRouter = createNotificationRouter(timeouts);
  opened.push(
    () => messagingRouter.close(),
    () => notificationRouter.close(),
  );
  return {
    agentId: values.NOTIFICATION_SUBSCRIPTION_AGENT,
    keyBox: createKeyBox(keys),
    messagingRouter,
    notificationRouter,
    ntfServers,
    settings: {
      batchSize: values.NOTIFICATION_SUBSCRIPTION_BATCH_SIZE,
      firstCheckMs: values.NOTIFICATION_SUBSCRIPTION_FIRST_CHECK,
      checkIntervalMs: values.NOTIFICATION_SUBSCRIPTION_CHECK_INTERVAL,
      pace: {
        firstMs: values.NOTIFICATION_SUBSCRIPTION_RETRY_FIRST,
        constantForMs: values.NOTIFICATION_SUBSCRIPTION_RETRY_CONSTANT_FOR,
        maxMs: values.NOTIFICATION_SUBSCRIPTION_RETRY_MAX,
      },
      networkWaitMs: values.NOTIFICATION_SUBSCRIPTION_NETWORK_WAIT,
      tokenDeletionKeepMs: values.NOTIFICATION_SUBSCRIPTION_TOKEN_DELETION_KEEP,
      sweepIntervalMs: values.NOTIFICATION_SUBSCRIPTION_SWEEP_INTERVAL,
    },
    eventsStream: values.NOTIFICATION_SUBSCRIPTION_EVENTS_STREAM,
  };
}

export function subscriptionActivities(resources: Resources): object {
  const { keyBox, messagingRouter, notificationRouter, ntfServers, settings, eventsStream } =
    partsOf(resources);
  const { db, redis, log, metrics, workflows } = resources;
  const commands = createSubscriptionCommands({ db, log, workflows });
  const common = { db, log, keyBox, notificationRouter, commands };
  return {
    ...createSubscriptionActivities({
      ...common,
      redis,
      metrics,
      workflows,
      messagingRouter,
      subscription: settings,
      eventsStream,
    }),
    ...createSubscriptionTokenActivities({ ...common, ntfServers }),
  };
}

/** Makes the agent, its supervisor and the sweep, and sweeps at once. Safe to repeat. */
export async function beginSubscriptions(resources: Resources): Promise<Running> {
  const { client, db, meter } = resources;
  const { agentId, settings } = partsOf(resources);
  await ensureAgent(db, agentId);
  await ensureSchedule(client, SUBSCRIPTION_SWEEP, settings.sweepIntervalMs);
  await client.workflow.start(SUPERVISOR_WORKFLOW, {
    workflowId: supervisorWorkflowId(agentId),
    taskQueue: SUBSCRIPTION_TASK_QUEUE,
    args: [agentId],
    workflowIdConflictPolicy: 'USE_EXISTING',
    staticSummary: `subscriptions of ${agentId}`,
  });
  // What became due while nobody ran.
  await client.schedule.getHandle(SUBSCRIPTION_SWEEP.id).trigger();
  const stopObserving = observeSubscriptions(meter, resources);
  return {
    async stop() {
      stopObserving();
    },
  };
}

function partsOf({ subscriptions }: Resources): SubscriptionParts {
  if (subscriptions === undefined) throw new Error('the role subscription has no routers');
  return subscriptions;
}
