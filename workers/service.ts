/** One running process of the service: its life from connected to stopped. */
import type { DataConverter } from '@temporalio/common';
import type { TelemetryOptions, WorkerOptions } from '@temporalio/worker';
import { Runtime, Worker, makeTelemetryFilterString } from '@temporalio/worker';
import type { Logger } from 'pino';
import { observeGauges } from '../activities/intent/metrics.ts';
import { migrate } from '../migrations/migrate.ts';
import { startCodecServer } from './codec-server.ts';
import type { Config } from '../config/load.ts';
import { startProbes } from './probes.ts';
import { logReplicas } from '../cli/check-replicas.ts';
import type { Endpoints } from './resources.ts';
import { connectResources } from './resources.ts';
import type { Running } from './roles.ts';
import { ROLES } from './roles.ts';
import { startTelemetry, temporalMetrics } from './telemetry.ts';
import { ensureSearchAttributes, temporalLogger } from './temporal-setup.ts';
import { workflowBundle } from './workflow-bundle.ts';

/** What must be left of the shutdown time-out for closing connections after the workers have ended, ms. */
const CLOSING_MS = 2_000;

export interface ServiceOptions {
  config: Config;
  endpoints: Endpoints;
  log: Logger;
  /** One line for a person about what takes long. */
  report?: (line: string) => void;
}

export interface Service {
  probesUrl: string;
  /** Rejects when a worker fails for good; resolves after `stop`. */
  done: Promise<void>;
  /** Hands the stream over, finishes what is under way, and closes everything within the shutdown time-out. */
  stop(): Promise<void>;
}

/**
 * Starts the service against servers that are already there.
 *
 * @throws DependencyError, SchemaNewerThanCodeError or an error of the probe listener; everything opened is closed.
 */
export async function startService(options: ServiceOptions): Promise<Service> {
  const { config, endpoints, log, report = () => undefined } = options;
  const opened: { what: string; close: () => Promise<unknown> }[] = [];
  try {
    return await start();
  } catch (error) {
    await closeAll();
    throw error;
  }

  /** Last opened, first closed; one that fails does not keep the others open. */
  async function closeAll(): Promise<void> {
    for (const { what, close } of opened.splice(0).reverse()) {
      await close().catch((error: unknown) => log.error({ err: error }, `${what} did not end in good order`));
    }
  }

  async function start(): Promise<Service> {
    installTemporalRuntime(log, temporalMetrics(config));
    const telemetry = startTelemetry(config, log);
    opened.push({ what: 'telemetry', close: () => telemetry.shutdown() });
    const draining = new AbortController();
    const resources = await connectResources({
      config,
      endpoints,
      log,
      telemetry,
      draining: draining.signal,
    });
    opened.push({ what: 'connections', close: () => resources.close() });
    // Nothing waits for it but the end: no line is logged after the service has stopped.
    const replicasLogged = logReplicas(config, log);
    opened.push({ what: 'check of replicas', close: () => replicasLogged });

    const applied = await migrate(endpoints.postgresDsn);
    if (applied.length > 0) log.info({ migrations: applied }, 'database schema migrated');
    const probes = await startProbes(probeOptions(config), { log, metrics: telemetry.metrics });
    opened.push({ what: 'probes', close: () => probes.stop() });
    const stopObserving = observeGauges(telemetry.meter, resources);
    opened.push({ what: 'gauges', close: async () => stopObserving() });
    await ensureSearchAttributes(resources);
    const { dataConverter } = resources;
    if (dataConverter) await openCodecServer(dataConverter);
    const bundle = await workflowBundle({
      encodesFailures: dataConverter !== undefined,
      onBuild: () => report('Bundling the workflows (a few seconds, once)'),
    });

    const roles = config.roles.map((name) => ROLES[name]);
    const workers: Worker[] = [];
    for (const role of roles) {
      workers.push(
        await Worker.create({
          connection: resources.connection,
          namespace: resources.namespace,
          taskQueue: role.taskQueue,
          workflowBundle: bundle,
          ...(dataConverter ? { dataConverter } : {}),
          activities: role.createActivities(resources),
          interceptors: { activity: telemetry.activityInterceptors },
          ...tuning(config),
          ...versionOf(config),
        }),
      );
    }
    const runs = workers.map((worker) => worker.run());
    const begun: Running[] = [];
    const running = Promise.all(runs);
    // A failed worker is reported by `done`; until somebody waits for it, it is not an unhandled rejection.
    running.catch(() => undefined);
    opened.push({
      what: 'workers',
      close: async () => {
        probes.setReady(false);
        // Polling ends first: the reader that hands over must not get its own task back.
        for (const worker of workers) if (worker.getState() === 'RUNNING') worker.shutdown();
        draining.abort();
        await Promise.all([...runs, ...begun.map((work) => work.stop())]);
      },
    });
    for (const role of roles) {
      const work = await role.begin(resources);
      if (work) begun.push(work);
    }
    probes.setReady(true);
    log.info({ probes: probes.url, namespace: resources.namespace, roles: config.roles }, 'service ready');

    let stopping: Promise<void> | undefined;
    const stop = () => (stopping ??= shutDown());
    const done = running.then(stop, async (error: unknown) => {
      // Without its worker the process is of no use: it must not look ready, nor stay.
      await stop();
      throw error;
    });
    done.catch(() => undefined);
    return { probesUrl: probes.url, done, stop };
  }

  async function openCodecServer({ payloadCodecs: [codec] = [] }: DataConverter): Promise<void> {
    const { NOTIFICATION_CODEC_HTTP_ADDR: address, NOTIFICATION_CODEC_TOKEN: token } = config.values;
    if (!address || !token || !codec) return;
    const ui = config.values.NOTIFICATION_TEMPORAL_UI_URL;
    const server = await startCodecServer({
      host: address.host || (config.production ? undefined : '127.0.0.1'),
      port: address.port,
      token,
      allowedOrigin: ui === undefined ? undefined : new URL(ui).origin,
      codec,
      log,
    });
    opened.push({ what: 'codec server', close: () => server.stop() });
  }

  async function shutDown(): Promise<void> {
    log.info({ timeout_ms: config.values.NOTIFICATION_SHUTDOWN_TIMEOUT }, 'service stopping');
    await closeAll();
    log.info('service stopped');
  }
}

let runtimeInstalled = false;

/** The SDK's runtime exists once per process and cannot be replaced. */
export function installTemporalRuntime(log: Logger, metrics?: TelemetryOptions['metrics']): void {
  if (runtimeInstalled) return;
  runtimeInstalled = true;
  Runtime.install({
    logger: temporalLogger(log),
    // The SDK's core would write lines of its own format to standard output.
    telemetryOptions: {
      logging: { forward: {}, filter: makeTelemetryFilterString({ core: 'WARN' }) },
      ...(metrics ? { metrics } : {}),
    },
    // The process decides when to stop, and stops more than its workers.
    shutdownSignals: [],
  });
}

function probeOptions({ production, values }: Config) {
  const { host, port } = values.NOTIFICATION_INTERNAL_HTTP_ADDR;
  return {
    host: host || (production ? undefined : '127.0.0.1'),
    port,
    readHeaderTimeoutMs: values.NOTIFICATION_INTERNAL_HTTP_READ_HEADER_TIMEOUT,
    readTimeoutMs: values.NOTIFICATION_INTERNAL_HTTP_READ_TIMEOUT,
    idleTimeoutMs: values.NOTIFICATION_INTERNAL_HTTP_IDLE_TIMEOUT,
  };
}

/**
 * Versioned, a worker gets work once its version is current or ramping. Open executions move on to the current version:
 * a notification may wait for days, and the reader has no end; changes of workflows are patched for it (CONTRIBUTING).
 */
function versionOf({ values }: Config): Pick<WorkerOptions, 'workerDeploymentOptions'> {
  const { NOTIFICATION_WORKER_DEPLOYMENT: deploymentName, NOTIFICATION_WORKER_BUILD_ID: buildId } = values;
  if (deploymentName === undefined || buildId === undefined) return {};
  return {
    workerDeploymentOptions: {
      version: { deploymentName, buildId },
      useWorkerVersioning: true,
      defaultVersioningBehavior: 'AUTO_UPGRADE',
    },
  };
}

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
    // Each of these holds a PostgreSQL connection for a moment.
    maxConcurrentLocalActivityExecutions: 2 * values.NOTIFICATION_POSTGRES_MAX_OPEN_CONNS,
    // The reader's progress in the Web UI is at most this old, and a pause takes effect this fast.
    maxHeartbeatThrottleInterval: 2_000,
    defaultHeartbeatThrottleInterval: 2_000,
    shutdownGraceTime: Math.max(1_000, shutdownMs - CLOSING_MS),
    shutdownForceTime: shutdownMs,
  };
}
