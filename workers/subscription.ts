/** Subscriptions in this process: their settings, activities, key box, ways to routers, supervisor and gauges. */
import { watchPostgres } from '../activities/stream-memory.ts';
import { createSubscriptionActivities } from '../activities/subscription/activities.ts';
import { EVENTS, EVENTS_STREAM_MAX_LEN, ensureAgent } from '../activities/subscription/agents.ts';
import type { SubscriptionSettings } from '../activities/subscription/batches.ts';
import { createSubscriptionCommands } from '../activities/subscription/commands.ts';
import { relayRows } from '../activities/relay.ts';
import { createSubscriptionMetrics, subscriptionGauges } from '../activities/subscription/metrics.ts';
import { makeChecksDue } from '../activities/subscription/records.ts';
import {
  createMessagingRouters,
  createNotificationRouters,
} from '../activities/subscription/router/routers.ts';
import { subscriptionReconciliation, subscriptionTables } from '../activities/subscription/reconciliation.ts';
import { createSubscriptionTokenActivities } from '../activities/subscription/token.ts';
import { keepRunning } from '../activities/workflows.ts';
import { EVENTS_STREAM } from '../api/stream-ids.ts';
import type { Config } from '../config/load.ts';
import { SUBSCRIPTION } from '../config/subscription.ts';
import { reconciliationMs } from '../config/variables.ts';
import { reconciliationScheduleId } from '../workflows/recovery-contract.ts';
import { SUBSCRIPTION_TASK_QUEUE, supervisorOf } from '../workflows/subscription/contract.ts';
import type { Connections } from './connections.ts';
import type { ProcessContext } from './context.ts';
import { openKeyBox } from './key-boxes.ts';
import type { Role } from './role.ts';

/**
 * Batches at the same time. One that waits for a silent router costs a place and next to nothing else, so there are
 * more places than an installation has routers: silent ones must not take the places of the others.
 */
const MOST_ACTIVITIES = 1_000;

/** The agent whose subscriptions are kept from the start on. */
const agentId = 'default';

/** Routers are reached when they are needed: one that is away keeps no process from starting. */
export function openSubscriptions(context: ProcessContext): Role {
  const { config, endpoints, log, meter, open } = context;
  const { values } = config;
  // A relay has been answered or given up by then, and its transaction has ended.
  const settlingMs = 3 * values.NOTIFICATION_REDIS_OPERATION_TIMEOUT;
  const subscription = settingsOf(config);
  const metrics = createSubscriptionMetrics(meter);
  const keyBox = openKeyBox(context);
  const routerOptions = {
    commandTimeoutMs: values.NOTIFICATION_SUBSCRIPTION_COMMAND_TIMEOUT,
    timeoutMs: 1.5 * values.NOTIFICATION_SUBSCRIPTION_COMMAND_TIMEOUT,
  };
  const messagingRouter = createMessagingRouters(routerOptions);
  open.add('messaging routers', () => messagingRouter.close());
  const notificationRouter = createNotificationRouters(routerOptions);
  open.add('notification routers', () => notificationRouter.close());

  const supervisor = supervisorOf(agentId);

  const resourcesOf = ({ db, redis, client: { workflow: workflows } }: Connections) => ({
    ...{ db, redis, log, metrics, workflows, keyBox, messagingRouter, notificationRouter, subscription },
    commands: createSubscriptionCommands({ log, workflows }),
  });

  return {
    taskQueue: SUBSCRIPTION_TASK_QUEUE,
    longLived: [{ ...supervisor, isNeverIdle: true }],
    expiring: subscriptionTables(),
    mostActivities: MOST_ACTIVITIES,

    activities(connections) {
      const resources = resourcesOf(connections);
      return {
        ...createSubscriptionActivities(resources),
        ...createSubscriptionTokenActivities({ ...resources, ntfServers: endpoints.ntfServers ?? [] }),
      };
    },

    gauges: ({ db }) => subscriptionGauges(db),

    reconciled: (connections) => subscriptionReconciliation(resourcesOf(connections)),

    /** Makes the agent and its supervisor, and has a reconciliation run immediately. */
    async startWork({ db, redis, client }) {
      await ensureAgent(db, agentId);
      await keepRunning(client.workflow, supervisor);
      const schedule = client.schedule.getHandle(reconciliationScheduleId(SUBSCRIPTION_TASK_QUEUE));
      // Runs the checks that became due while no process ran.
      await schedule.trigger();
      const checkAll = async () => {
        const checked = await makeChecksDue(db);
        await schedule.trigger();
        log.error({ checked }, 'PostgreSQL fell back to an earlier state, all subscriptions are checked');
      };
      const watches = [
        relayRows({ db, redis, log, settlingMs }, EVENTS, {
          ...{ stream: EVENTS_STREAM, maxLen: EVENTS_STREAM_MAX_LEN },
          onRelayed(events) {
            for (const { agent_id, kind, errors } of events) {
              metrics.subscriptionEvent({ kind });
              log.warn(
                { agent_id, kind, errors: errors.slice(0, 20), count: errors.length },
                'subscription errors',
              );
            }
          },
        }),
        // No process of the service reads the stream of events.
        watchPostgres({ role: 'subscription', db, redis, log, stream: EVENTS_STREAM }, checkAll),
      ];
      return watches.map(({ stop }) => stop);
    },
  };
}

function settingsOf({ values }: Config): SubscriptionSettings {
  const [firstMs = 0, maxMs = 0] = values.NOTIFICATION_SUBSCRIPTION_RETRY;
  return {
    firstCheckMs: values.NOTIFICATION_SUBSCRIPTION_FIRST_CHECK,
    checkIntervalMs: values.NOTIFICATION_SUBSCRIPTION_CHECK_INTERVAL,
    pace: { firstMs, constantForMs: 5 * firstMs, maxMs },
    reconciliationMs: reconciliationMs(SUBSCRIPTION, values),
  };
}
