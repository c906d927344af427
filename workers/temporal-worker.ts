/** How this process runs workers of Temporal: the SDK's runtime, and the settings of each worker. */
import { IllegalStateError } from '@temporalio/common';
import type { LogLevel, TelemetryOptions, WorkerOptions } from '@temporalio/worker';
import { DefaultLogger, Runtime, makeTelemetryFilterString } from '@temporalio/worker';
import type { Logger } from 'pino';
import { HEARTBEAT_THROTTLE_MS } from '../activities/attempt.ts';
import type { Config } from '../config/load.ts';
import packageJson from '../package.json' with { type: 'json' };

/** What must be left of the shutdown time-out for closing connections after the workers have ended, ms. */
export const CLOSING_MS = 2_000;

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
        ...(metrics ? { metrics } : {}),
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
export function versionOf({ values }: Config): Pick<WorkerOptions, 'workerDeploymentOptions'> {
  const deploymentName = packageJson.name;
  const { NOTIFICATION_WORKER_BUILD_ID: buildId } = values;
  if (buildId === undefined) {
    const version = { deploymentName, buildId: packageJson.version };
    return { workerDeploymentOptions: { version, useWorkerVersioning: false } };
  }
  return {
    workerDeploymentOptions: {
      version: { deploymentName, buildId },
      useWorkerVersioning: true,
      defaultVersioningBehavior: 'AUTO_UPGRADE',
    },
  };
}
