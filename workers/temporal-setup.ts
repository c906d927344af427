/** What the service needs to find in its Temporal namespace, created when missing. Safe to run at every start. */
import type { Logger } from 'pino';
import type { ScheduledRun } from '../migrations/namespace.ts';
import {
  SEARCH_ATTRIBUTE_NAMES,
  addSearchAttributes,
  ensureSchedule,
  isRefused,
  lackOfSearchAttributes,
  missingSearchAttributes,
} from '../migrations/namespace.ts';
import { CHANNEL_WORKFLOW, channelWorkflowId } from '../workflows/intent/channel-contract.ts';
import { CHANNELS, INTENT_TASK_QUEUE } from '../workflows/intent/contract.ts';
import { BRIDGE_WORKFLOW, bridgeWorkflowId } from '../workflows/intent/reader-contract.ts';
import type { Resources } from './resources.ts';
import { DependencyError } from './resources.ts';

/** Creates the custom search attributes that the namespace lacks. @throws DependencyError when the server refuses. */
export async function ensureSearchAttributes({ connection, namespace, log }: Resources): Promise<void> {
  const missing = await missingSearchAttributes(connection, namespace, SEARCH_ATTRIBUTE_NAMES);
  if (missing.length === 0) return;
  await addSearchAttributes(connection, namespace, missing).catch((error: unknown) => {
    if (!isRefused(error)) throw error;
    throw new DependencyError(
      `${lackOfSearchAttributes(namespace, missing)}; galaxy-notify setup prints the commands for Temporal Cloud`,
      { cause: error },
    );
  });
  log.info({ namespace, search_attributes: missing }, 'search attributes created');
}

/** Starts the one reader of the intent stream; when it runs already, it stays as it is. */
export async function ensureBridge({ client, intentsStream }: Resources): Promise<void> {
  await client.workflow.start(BRIDGE_WORKFLOW, {
    workflowId: bridgeWorkflowId(intentsStream),
    taskQueue: INTENT_TASK_QUEUE,
    args: [intentsStream],
    workflowIdConflictPolicy: 'USE_EXISTING',
    staticSummary: `reads ${intentsStream}`,
  });
}

/** Starts the workflow of each channel; those that run stay as they are. */
export async function ensureChannels({ client }: Resources): Promise<void> {
  await Promise.all(
    CHANNELS.map((name) =>
      client.workflow.start(CHANNEL_WORKFLOW, {
        workflowId: channelWorkflowId(name),
        taskQueue: INTENT_TASK_QUEUE,
        args: [name],
        workflowIdConflictPolicy: 'USE_EXISTING',
        staticSummary: `pauses and resumes ${name}`,
      }),
    ),
  );
}

/** Creates a retention schedule, or brings its interval to the configured one. */
export async function ensureRetentionSchedule(
  { client, cleanupIntervalMs }: Resources,
  run: ScheduledRun,
): Promise<void> {
  await ensureSchedule(client, run, cleanupIntervalMs);
}

/** Brings Temporal's own log lines into ours, so that one process writes one format. */
export function temporalLogger(log: Logger) {
  const write = (level: 'trace' | 'debug' | 'info' | 'warn' | 'error', message: string, fields?: object) =>
    log[level]({ component: 'temporal', ...fields }, message);
  return {
    log: (level: string, message: string, fields?: object) =>
      write(level.toLowerCase() as 'info', message, fields),
    trace: (message: string, fields?: object) => write('trace', message, fields),
    debug: (message: string, fields?: object) => write('debug', message, fields),
    info: (message: string, fields?: object) => write('info', message, fields),
    warn: (message: string, fields?: object) => write('warn', message, fields),
    error: (message: string, fields?: object) => write('error', message, fields),
  };
}
