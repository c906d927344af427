/** One running process of the service: its life from connected to stopped. */
import { IllegalStateError } from '@temporalio/common';
import type { LogLevel, TelemetryOptions, WorkerOptions } from '@temporalio/worker';
import { DefaultLogger, Runtime, Worker, makeTelemetryFilterString } from '@temporalio/worker';
import type { Logger } from 'pino';
import { HEARTBEAT_THROTTLE_MS, watchAttempts } from '../activities/attempt.ts';
import { observeReads } from '../activities/metrics.ts';
import { listOpenOperations } from '../activities/operations.ts';
import type { Reconciled } from '../activities/reconciliation.ts';
import { createReconciliationActivities } from '../activities/reconciliation.ts';
import { createRetentionActivities, operatorTables, retentionGauge } from '../activities/retention.ts';
import { given } from '../api/given.ts';
import { allOf } from '../api/within.ts';
import type { Config, RoleName } from '../config/load.ts';
import { needsOf } from '../config/load.ts';
import { migrateOrCheck } from '../migrations/migrate.ts';
import { ensureSchedule, ensureSearchAttributes } from '../migrations/namespace.ts';
import { OPERATION_TASK_QUEUES } from '../workflows/operation-contract.ts';
import type { OperationKind } from '../workflows/operation-contract.ts';
import packageJson from '../package.json' with { type: 'json' };
import { openAccountCallbacks } from './account-callback.ts';
import type { Connections } from './connections.ts';
import { openConnections } from './connections.ts';
import type { Endpoints, ProcessContext } from './context.ts';
import { DependencyError, OpenParts, sayWhatIsOpen } from './context.ts';
import { openIntents } from './intent.ts';
import { createKeyProblems } from './key-boxes.ts';
import { openMobilePushes } from './mobile-push.ts';
import type { Probes } from './probes.ts';
import { openProbes } from './probes.ts';
import { startReconciler } from './reconciler.ts';
import { watchFiles } from './renewal.ts';
import type { OpenRole, Role, Stop } from './role.ts';
import { openSubscriptions } from './subscription.ts';
import { openSymbolConfig } from './symbol-config.ts';
import type { Telemetry } from './telemetry.ts';
import { startTelemetry, temporalMetrics } from './telemetry.ts';
import { workflowBundle } from './workflow-bundle.ts';
import { SEARCH_ATTRIBUTES } from '../workflows/search-attributes.ts';

/** What must be left of the shutdown time-out for closing connections after the workers have ended, ms. */
const CLOSING_MS = 2_000;

/** The kinds of work that a process can do. */
const ROLES: Record<RoleName, OpenRole> = {
  intent: openIntents,
  'mobile-push': openMobilePushes,
  'symbol-config': openSymbolConfig,
  'account-callback': openAccountCallbacks,
  subscription: openSubscriptions,
};

export interface ServiceOptions {
  config: Config;
  endpoints: Endpoints;
  log: Logger;
}

export type Service = Awaited<ReturnType<typeof start>>;

/**
 * Starts the service against servers that are already there.
 *
 * @throws DependencyError, SchemaNewerThanCodeError, SchemaBehindCodeError or an error of the probe listener; everything opened is closed.
 */
export async function startService(options: ServiceOptions): Promise<Service> {
  const open = new OpenParts(options.log);
  try {
    return await start(options, open);
  } catch (error) {
    await open.closeAll(closingMs(options.config));
    throw error;
  }
}

async function start({ config, endpoints, log }: ServiceOptions, open: OpenParts) {
  installTemporalRuntime(log, temporalMetrics(config));
  const telemetry = startTelemetry(config, log);
  const { meter } = telemetry;
  open.add('telemetry', () => telemetry.shutdown());
  sayWhatIsOpen(config, log);
  const draining = new AbortController();
  const context: ProcessContext = {
    ...{ config, endpoints, log, meter, draining: draining.signal, open },
    renewable: [],
    keyProblems: createKeyProblems(meter, log),
  };

  const [connections, ...roles] = await allOf<[Connections, ...Role[]]>(
    [openConnections(context, telemetry), ...config.roles.map(async (name) => ROLES[name](context))],
    DependencyError,
  );
  // Before what may take long: a start that waits is seen as one that is not ready.
  const probes = await openProbes(context);
  const applied = await migrateOrCheck(endpoints.postgresDsn);
  if (applied.length > 0) log.info({ migrations: applied }, 'database schema migrated');
  await prepareNamespace(context, connections);

  const reconciled = new Map(roles.map((role) => [role, role.reconciled?.(connections) ?? []]));
  const workers = await createWorkers(context, connections, telemetry, reconciled);
  const running = runWorkers(workers, { open, probes, draining });
  for (const role of roles) {
    running.alongside.push(...(await role.startWork(connections)));
  }
  const { NOTIFICATION_RECONCILIATION_INTERVAL: everyMs } = config.values;
  const { client, db } = connections;
  running.alongside.push(
    startReconciler({
      ...{ client, log, everyMs },
      workflows: roles.flatMap((role) => role.longLived),
      schedules: needsOf(config).schedules,
      underWay: () => listOpenOperations(db, operationKindsOf(roles)),
      scheduled: [...reconciled].map(([{ taskQueue }, kinds]) => ({ taskQueue, kinds })),
    }).stop,
    observeReads(meter, log, [
      ...roles.flatMap((role) => role.gauges(connections)),
      retentionGauge(
        db,
        roles.flatMap((role) => expiringOf(role, config)),
      ),
    ]),
  );
  watchFiles(context);
  probes.setReady(true);
  const { namespace } = connections;
  log.info({ probes: probes.url, namespace, roles: config.roles }, 'service ready');

  let stopping: Promise<void> | undefined;
  /** Hands the stream over, finishes what is under way, and closes everything within the shutdown time-out. */
  const stop = () => (stopping ??= shutDown(context));
  /** Rejects when a worker fails for good; resolves after `stop`. */
  const done = running.ended.then(stop, async (error: unknown) => {
    // Without its worker the process is of no use: it must not look ready, nor stay.
    await stop();
    throw error;
  });
  done.catch(() => undefined);
  return { probesUrl: probes.url, done, stop };
}

/** Which operations these roles work off. */
const operationKindsOf = (roles: readonly Role[]): OperationKind[] =>
  (Object.keys(OPERATION_TASK_QUEUES) as OperationKind[]).filter((kind) =>
    roles.some(({ taskQueue }) => taskQueue === OPERATION_TASK_QUEUES[kind]),
  );

/** Operators' tables are of every kind, since any role may be the only one that runs. */
const expiringOf = ({ expiring }: Role, { values }: Config) => [
  ...expiring,
  ...operatorTables(values.NOTIFICATION_RECORD_RETENTION),
];

/** Workers may use the whole time-out; what is open beside them ends after them. */
const closingMs = ({ values }: Config): number => values.NOTIFICATION_SHUTDOWN_TIMEOUT + CLOSING_MS;

/** Makes what workflows need before the first one runs: search attributes of all kinds, schedules of the roles. */
async function prepareNamespace(
  { config, log }: ProcessContext,
  { temporal, client, namespace }: Connections,
): Promise<void> {
  const created = await ensureSearchAttributes(temporal, namespace, SEARCH_ATTRIBUTES);
  if (created.length > 0) log.info({ namespace, search_attributes: created }, 'search attributes created');
  await Promise.all(needsOf(config).schedules.map((schedule) => ensureSchedule(client, schedule)));
}

/** One worker for each role. */
async function createWorkers(
  { config, log, open }: ProcessContext,
  connections: Connections,
  { activityInterceptors }: Telemetry,
  reconciled: ReadonlyMap<Role, readonly Reconciled[]>,
): Promise<Worker[]> {
  const { workerConnection, namespace, dataConverter } = connections;
  const bundle = await workflowBundle({
    encodesFailures: dataConverter !== undefined,
    onBuild: () => log.info('the workflows are bundled, once, which takes a few seconds'),
  });
  const attempts = watchAttempts();
  open.add('watch of attempts', attempts.stop);
  const workers: Worker[] = [];
  for (const [role, kinds] of reconciled) {
    const rewind = async (sinceMs: number) => role.rewind?.(connections, sinceMs);
    workers.push(
      await Worker.create({
        connection: workerConnection(),
        namespace,
        taskQueue: role.taskQueue,
        workflowBundle: bundle,
        ...given({ dataConverter }),
        activities: {
          ...role.activities(connections),
          ...createReconciliationActivities(log, kinds, rewind),
          ...createRetentionActivities({ db: connections.db, log, tables: expiringOf(role, config) }),
        },
        ...given({ maxConcurrentActivityTaskExecutions: role.mostActivities }),
        interceptors: { activity: [...activityInterceptors, ...attempts.interceptors] },
        ...tuning(config),
        ...versionOf(config),
      }),
    );
  }
  connections.keepConnected(workers);
  return workers;
}

/**
 * Runs the workers until everything is closed.
 *
 * @returns `ended` rejects when a worker fails for good; `alongside` takes what stops together with the workers.
 */
function runWorkers(
  workers: readonly Worker[],
  { open, probes, draining }: { open: OpenParts; probes: Probes; draining: AbortController },
): { ended: Promise<unknown>; alongside: Stop[] } {
  const runs = workers.map((worker) => worker.run());
  const alongside: Stop[] = [];
  const ended = Promise.all(runs);
  // A failed worker is reported by `done`; before `done` is awaited, its rejection must not count as unhandled.
  ended.catch(() => undefined);
  open.add('workers', async () => {
    probes.setReady(false);
    // Polling ends first: the reader that hands over must not get its own task back.
    for (const worker of workers) if (worker.getState() === 'RUNNING') worker.shutdown();
    draining.abort();
    await Promise.all([...runs, ...alongside.map((stop) => stop())]);
  });
  return { ended, alongside };
}

async function shutDown({ config, log, open }: ProcessContext): Promise<void> {
  log.info({ timeout_ms: config.values.NOTIFICATION_SHUTDOWN_TIMEOUT }, 'service stopping');
  await open.closeAll(closingMs(config));
  log.info('service stopped');
}

// --- How this process runs workers of Temporal: the SDK's runtime, and the settings of each worker.

/**
 * The SDK's runtime exists once per process and ends with the last connection: a service that starts beside another one
 * shares the runtime of the first.
 */
export function installTemporalRuntime(log: Logger, metrics?: TelemetryOptions['metrics']): void {
  try {
    Runtime.install({
      logger: temporalLogger(log),
      // The SDK's core would write lines in its own format to standard output.
      telemetryOptions: {
        logging: { forward: {}, filter: makeTelemetryFilterString({ core: 'WARN' }) },
        ...given({ metrics }),
      },
      // The process decides when to stop, and stops more than its workers.
      shutdownSignals: [],
    });
  } catch (error) {
    if (!(error instanceof IllegalStateError)) throw error;
  }
}

/** Brings Temporal's own log lines into ours, so that one process writes one format. */
const temporalLogger = (log: Logger) =>
  new DefaultLogger('TRACE', ({ level, message, meta }) => {
    const name = level.toLowerCase() as Lowercase<LogLevel>;
    if (log.isLevelEnabled(name)) log[name]({ component: 'temporal', ...meta }, message);
  });

/** Worker settings: short latency of first tasks, and bounded work. */
export function tuning({ values }: Config) {
  const shutdownMs = values.NOTIFICATION_SHUTDOWN_TIMEOUT;
  return {
    // Most of our workflows have a single workflow task, and a first task always comes from the non-sticky queue.
    workflowTaskPollerBehavior: { type: 'simple-maximum', maximum: 20 } as const,
    nonStickyToStickyPollRatio: 0.7,
    activityTaskPollerBehavior: { type: 'autoscaling' } as const,
    // Notifications wait for their routes: what is in flight should stay in the cache.
    maxCachedWorkflows: 2_000,
    // A start is only eager while one of these is free, pollers take 20 of them, and with 40, the default, nine of ten
    // notifications of a backlog took the way through the task queue: a write and a round trip more.
    maxConcurrentWorkflowTaskExecutions: 100,
    // Each of these holds a PostgreSQL connection for a moment.
    maxConcurrentLocalActivityExecutions: 2 * values.NOTIFICATION_POSTGRES_MAX_OPEN_CONNS,
    // What activities report is at most this old.
    maxHeartbeatThrottleInterval: HEARTBEAT_THROTTLE_MS,
    defaultHeartbeatThrottleInterval: HEARTBEAT_THROTTLE_MS,
    shutdownGraceTime: Math.max(1_000, shutdownMs - CLOSING_MS),
    shutdownForceTime: shutdownMs,
  };
}

/**
 * Versioned, a worker gets work once its version is current or ramping. Open executions move on to the current version:
 * a notification may wait for days, and the reader has no end; changes of workflows are patched for it (CONTRIBUTING).
 * Otherwise it gets all work, and says only which release it is, for the Web UI's page of workers.
 */
function versionOf({ values }: Config): Pick<WorkerOptions, 'workerDeploymentOptions'> {
  const { NOTIFICATION_WORKER_BUILD_ID: buildId } = values;
  const version = { deploymentName: packageJson.name, buildId: buildId ?? packageJson.version };
  return {
    workerDeploymentOptions:
      buildId === undefined
        ? { version, useWorkerVersioning: false }
        : { version, useWorkerVersioning: true, defaultVersioningBehavior: 'AUTO_UPGRADE' },
  };
}
