/** Intents in this process: their settings, activities, reader and gauges. */
import type { Client } from '@temporalio/client';
import { createAcceptance, createIntentActivities } from '../activities/intent/acceptance.ts';
import { createDirectDelivery } from '../activities/intent/dispatch.ts';
import { createReplication, defineHandOffCommands } from '../activities/intent/hand-off.ts';
import { createIntentMetrics, intentGauges } from '../activities/intent/metrics.ts';
import { createBridgeActivities } from '../activities/intent/reader.ts';
import { OUTCOMES, keepTelling } from '../activities/intent/outcomes.ts';
import { createRecoveryActivities, intentReconciliation } from '../activities/intent/reconciliation.ts';
import { createRepairActivities } from '../activities/intent/repair.ts';
import { intentTables } from '../activities/intent/retention.ts';
import { createRouteActivities } from '../activities/intent/routes.ts';
import { createSteeringActivities, intentOperations } from '../activities/intent/steering.ts';
import { createUserService } from '../activities/intent/user-service.ts';
import { createOperationActivities } from '../activities/operations.ts';
import { reasonOf } from '../activities/reason.ts';
import { relayRows } from '../activities/relay.ts';
import type { LongLivedWorkflow } from '../activities/workflows.ts';
import { keepRunning } from '../activities/workflows.ts';
import { USER_SERVICE } from '../config/intent.ts';
import type { Config } from '../config/load.ts';
import { INTENT_TASK_QUEUE, BRIDGE_WORKFLOW, bridgeWorkflowId } from '../workflows/intent/contract.ts';
import { OUTCOMES_STREAM } from '../api/intent/outcome.ts';
import { watchEvery } from '../api/watch.ts';
import type { Connections } from './connections.ts';
import type { ProcessContext } from './context.ts';
import { openCaller } from './connections.ts';
import type { Role } from './role.ts';

/** How long a relayed event is kept in case that Redis loses it, ms. */
const OUTCOME_RETENTION_MS = 24 * 3_600_000;

export function openIntents(context: ProcessContext): Role {
  const { config, endpoints, log, meter, draining } = context;
  const { values } = config;
  const intentsStream = values.NOTIFICATION_INTENTS_STREAM;
  const settings = settingsOf(config);
  const metrics = createIntentMetrics(meter, config.catalog);
  const tellsOutcomes = values.NOTIFICATION_OUTCOMES.length > 0;
  const userService = createUserService({
    baseUrl: endpoints.userServiceUrl,
    timeoutMs: values.NOTIFICATION_USER_SERVICE_TIMEOUT,
    caller: openCaller(context, USER_SERVICE, 'User Service'),
    log,
  });

  const reader: LongLivedWorkflow = {
    workflowType: BRIDGE_WORKFLOW,
    workflowId: bridgeWorkflowId(intentsStream),
    taskQueue: INTENT_TASK_QUEUE,
    args: [intentsStream],
    staticSummary: `reads ${intentsStream}`,
    isNeverIdle: true,
  };
  let opened: ReturnType<typeof openResources> | undefined;
  /** For attempts of workflows and for those of the reconciliation. */
  const resourcesOf = (connections: Connections) => (opened ??= openResources(connections));

  return {
    taskQueue: INTENT_TASK_QUEUE,
    longLived: [reader],
    expiring: intentTables({ ...settings.retention, idempotencyTtlMs: settings.intent.idempotencyTtlMs }),

    activities(connections) {
      const { db, openReader } = connections;
      const resources = resourcesOf(connections);
      const acceptIntents = createAcceptance(resources);
      return {
        ...createIntentActivities(resources, acceptIntents),
        ...createRouteActivities(resources),
        ...createSteeringActivities(resources),
        ...createBridgeActivities({
          ...{ ...resources, deliverTogether: createDirectDelivery({ ...resources, acceptIntents }) },
          openStreamReader: () => openReader(settings.bridge.blockMs),
        }),
        ...createOperationActivities(db, intentOperations({ ...resources, intentsStream })),
        ...createRepairActivities(resources),
        ...createRecoveryActivities(resources),
      };
    },

    gauges: ({ db, redis }) => intentGauges({ db, redis, intentsStream, tellsOutcomes }),

    reconciled: (connections) => intentReconciliation(resourcesOf(connections)),

    async startWork({ db, redis, client }) {
      const telling = await keepTelling({ db, log }, values.NOTIFICATION_OUTCOMES);
      await keepRunning(client.workflow, reader);
      await endOtherReaders(client);
      // Again and again: what is listed lags behind what runs.
      const readers = watchEvery(
        values.NOTIFICATION_RECONCILIATION_INTERVAL,
        () => endOtherReaders(client),
        (error) => log.warn({ reason: reasonOf(error) }, 'readers of other streams not looked for'),
      );
      const relay = tellsOutcomes
        ? relayRows({ ...settings, db, redis, log }, OUTCOMES, {
            stream: OUTCOMES_STREAM,
            maxLen: values.NOTIFICATION_OUTCOMES_STREAM_MAX_LEN,
            onRelayed: (rows) => {
              for (const [, kind] of rows.flatMap(({ events }) => events)) metrics.outcomeRelayed({ kind });
            },
          })
        : undefined;
      return [telling.stop, readers.stop, ...(relay ? [relay.stop] : [])];
    },
  };

  function openResources({ db, redis, openReader, client: { workflow: workflows } }: Connections) {
    defineHandOffCommands(redis);
    const { replication } = settings;
    const confirmReplicated = createReplication(() => openReader(replication.timeoutMs), replication);
    return {
      ...settings,
      ...{ db, redis, confirmReplicated, workflows },
      ...{ log, metrics, userService, draining },
    };
  }

  /** Entry ids of two streams may be the same, so one is read: the one that is configured. */
  async function endOtherReaders({ workflow }: Client): Promise<void> {
    const query = `WorkflowType = '${BRIDGE_WORKFLOW}' AND ExecutionStatus = 'Running'`;
    for await (const { workflowId } of workflow.list({ query, pageSize: 100 })) {
      if (workflowId === reader.workflowId) continue;
      log.warn(
        { workflowId, stream: intentsStream },
        'the reader of another stream is ended; what it has not read is not delivered',
      );
      await workflow.getHandle(workflowId).cancel();
    }
  }
}

function settingsOf({ values, catalog, adminEmails }: Config) {
  return {
    catalog,
    intent: {
      budgets: {
        push: values.NOTIFICATION_PUSH_RETRY_MAX_ATTEMPTS,
        email: values.NOTIFICATION_EMAIL_RETRY_MAX_ATTEMPTS,
      },
      idempotencyTtlMs: values.NOTIFICATION_IDEMPOTENCY_TTL,
      adminEmails,
      maxLookups: values.NOTIFICATION_USER_SERVICE_MAX_LOOKUPS,
      unusableAfterAttempts: values.NOTIFICATION_EMAIL_RETRY_MAX_ATTEMPTS,
    },
    route: {
      gatewayStream: values.NOTIFICATION_GATEWAY_CLIENT_EVENTS_STREAM,
      gatewayMaxLen: values.NOTIFICATION_GATEWAY_CLIENT_EVENTS_STREAM_MAX_LEN,
      mailStream: values.NOTIFICATION_MAIL_DELIVERY_COMMANDS_STREAM,
      backoffMinMs: values.NOTIFICATION_ROUTE_BACKOFF_MIN,
      backoffMaxMs: values.NOTIFICATION_ROUTE_BACKOFF_MAX,
      leaseTtlMs: values.NOTIFICATION_ROUTE_LEASE_TTL,
    },
    replication: {
      minReplicas: values.NOTIFICATION_REDIS_MIN_REPLICAS,
      // The connection breaks after the whole of it.
      timeoutMs: Math.ceil(values.NOTIFICATION_REDIS_OPERATION_TIMEOUT / 2),
    },
    bridge: {
      blockMs: values.NOTIFICATION_INTENTS_READ_BLOCK_TIMEOUT,
      dispatch: values.NOTIFICATION_ROUTE_DISPATCH,
    },
    // A relay has been answered or given up by then, and its transaction has ended.
    settlingMs: 3 * values.NOTIFICATION_REDIS_OPERATION_TIMEOUT,
    retention: {
      outcomeRetentionMs: OUTCOME_RETENTION_MS,
      recordRetentionMs: values.NOTIFICATION_RECORD_RETENTION,
      malformedIntentRetentionMs: values.NOTIFICATION_MALFORMED_INTENT_RETENTION,
    },
  };
}
