/** What the service needs to find in its Temporal namespace, created when missing. Safe to run at every start. */
import { ScheduleAlreadyRunning, ScheduleOverlapPolicy } from '@temporalio/client';
import type { Logger } from 'pino';
import { CHANNEL_WORKFLOW, channelWorkflowId } from '../workflows/channel-contract.ts';
import {
  CHANNELS,
  INTENT_TASK_QUEUE,
  RETENTION_SCHEDULE_ID,
  RETENTION_WORKFLOW,
  SEARCH_ATTRIBUTES,
} from '../workflows/intent-contract.ts';
import {
  MOBILE_SEARCH_ATTRIBUTES,
  MOBILE_RETENTION_SCHEDULE_ID,
  MOBILE_RETENTION_WORKFLOW,
  MOBILE_TASK_QUEUE,
} from '../workflows/mobile-push-contract.ts';
import { BRIDGE_WORKFLOW, bridgeWorkflowId } from '../workflows/stream-bridge-contract.ts';
import type { Resources } from './resources.ts';

/** `temporal.api.enums.v1.IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD`; the enum is not among the SDK's exports. */
const KEYWORD = 2;

/** Of all features, all of type Keyword. SQL visibility stores have room for ten in a namespace. */
export const SEARCH_ATTRIBUTE_NAMES: readonly string[] = [
  ...Object.values(SEARCH_ATTRIBUTES),
  ...Object.values(MOBILE_SEARCH_ATTRIBUTES),
];

/** Creates the custom search attributes that the namespace lacks. */
export async function ensureSearchAttributes({ connection, namespace, log }: Resources): Promise<void> {
  const { customAttributes } = await connection.operatorService.listSearchAttributes({ namespace });
  const missing = SEARCH_ATTRIBUTE_NAMES.filter((name) => !(name in customAttributes));
  if (missing.length === 0) return;
  await connection.operatorService.addSearchAttributes({
    namespace,
    searchAttributes: Object.fromEntries(missing.map((name) => [name, KEYWORD])),
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

/** What a schedule starts. */
interface ScheduledRun {
  /** Of the schedule and of the workflows that it starts. */
  id: string;
  workflowType: string;
  taskQueue: string;
}

export const INTENT_RETENTION: ScheduledRun = {
  id: RETENTION_SCHEDULE_ID,
  workflowType: RETENTION_WORKFLOW,
  taskQueue: INTENT_TASK_QUEUE,
};

export const MOBILE_RETENTION: ScheduledRun = {
  id: MOBILE_RETENTION_SCHEDULE_ID,
  workflowType: MOBILE_RETENTION_WORKFLOW,
  taskQueue: MOBILE_TASK_QUEUE,
};

/** Creates a retention schedule, or brings its interval to the configured one. */
export async function ensureRetentionSchedule(resources: Resources, run: ScheduledRun): Promise<void> {
  await ensureSchedule(resources, run, resources.cleanupIntervalMs);
}

/** Creates a schedule of single runs, or brings its interval to the configured one. */
export async function ensureSchedule(
  { client }: Resources,
  { id, workflowType, taskQueue }: ScheduledRun,
  everyMs: number,
): Promise<void> {
  const spec = { intervals: [{ every: everyMs }] };
  try {
    await client.schedule.create({
      scheduleId: id,
      spec,
      policies: { overlap: ScheduleOverlapPolicy.SKIP },
      action: { type: 'startWorkflow', workflowType, workflowId: id, taskQueue, args: [] },
    });
  } catch (error) {
    if (!(error instanceof ScheduleAlreadyRunning)) throw error;
    await client.schedule.getHandle(id).update((schedule) => ({ ...schedule, spec }));
  }
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
