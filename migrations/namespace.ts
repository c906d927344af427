/**
 * What the service needs to find in its Temporal namespace, and how each part is made. Processes of the service and
 * `galaxy-notify setup` use the same; everything may be repeated.
 */
import type { Client, Connection } from '@temporalio/client';
import {
  ScheduleAlreadyRunning,
  ScheduleNotFoundError,
  ScheduleOverlapPolicy,
  isGrpcServiceError,
} from '@temporalio/client';
import { msToTs } from '@temporalio/common/lib/time.js';
import {
  INTENT_TASK_QUEUE,
  RETENTION_SCHEDULE_ID,
  RETENTION_WORKFLOW,
  SEARCH_ATTRIBUTES,
} from '../workflows/intent/contract.ts';
import {
  MOBILE_RETENTION_SCHEDULE_ID,
  MOBILE_RETENTION_WORKFLOW,
  MOBILE_SEARCH_ATTRIBUTES,
  MOBILE_TASK_QUEUE,
} from '../workflows/mobile-push/contract.ts';
import {
  SUBSCRIPTION_TASK_QUEUE,
  SWEEP_SCHEDULE_ID,
  SWEEP_WORKFLOW,
} from '../workflows/subscription/contract.ts';

/** `temporal.api.enums.v1.IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD`; the enum is not among the SDK's exports. */
const KEYWORD = 2;
const GRPC_NOT_FOUND = 5;
const GRPC_ALREADY_EXISTS = 6;
const GRPC_PERMISSION_DENIED = 7;
const GRPC_UNIMPLEMENTED = 12;

/** Of all features, all of type Keyword. SQL visibility stores have room for ten in a namespace. */
export const SEARCH_ATTRIBUTE_NAMES: readonly string[] = [
  ...Object.values(SEARCH_ATTRIBUTES),
  ...Object.values(MOBILE_SEARCH_ATTRIBUTES),
];

/** A connection of the client or of a worker. */
type ServerConnection = Pick<Connection, 'workflowService' | 'operatorService'>;

/** What a schedule starts. */
export interface ScheduledRun {
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

export const SUBSCRIPTION_SWEEP: ScheduledRun = {
  id: SWEEP_SCHEDULE_ID,
  workflowType: SWEEP_WORKFLOW,
  taskQueue: SUBSCRIPTION_TASK_QUEUE,
};

/** @returns how long closed workflows are kept, ms; undefined when there is no such namespace. */
export async function namespaceRetentionMs(
  { workflowService }: ServerConnection,
  namespace: string,
): Promise<number | undefined> {
  try {
    const { config } = await workflowService.describeNamespace({ namespace });
    return Number(config?.workflowExecutionRetentionTtl?.seconds?.toString() ?? 0) * 1_000;
  } catch (error) {
    if (isGrpcServiceError(error) && Number(error.code) === GRPC_NOT_FOUND) return undefined;
    throw error;
  }
}

/** Another who makes it at the same moment is no error. */
export async function createNamespace(
  { workflowService }: ServerConnection,
  namespace: string,
  retentionMs: number,
): Promise<void> {
  try {
    await workflowService.registerNamespace({
      namespace,
      description: 'galaxy-notify',
      workflowExecutionRetentionPeriod: msToTs(retentionMs),
    });
  } catch (error) {
    if (!isGrpcServiceError(error) || Number(error.code) !== GRPC_ALREADY_EXISTS) throw error;
  }
}

export async function changeRetention(
  { workflowService }: ServerConnection,
  namespace: string,
  retentionMs: number,
): Promise<void> {
  await workflowService.updateNamespace({
    namespace,
    config: { workflowExecutionRetentionTtl: msToTs(retentionMs) },
  });
}

/** @returns those of the names that the namespace lacks. */
export async function missingSearchAttributes(
  { operatorService }: ServerConnection,
  namespace: string,
  names: readonly string[],
): Promise<string[]> {
  const { customAttributes } = await operatorService.listSearchAttributes({ namespace });
  return names.filter((name) => !(name in customAttributes));
}

/** Why nothing works in a namespace whose server refuses {@link addSearchAttributes}. */
export const lackOfSearchAttributes = (namespace: string, missing: readonly string[]): string =>
  `the namespace ${namespace} lacks search attributes (Keyword), and this server does not let us add them: ${missing.join(', ')}`;

export async function addSearchAttributes(
  { operatorService }: ServerConnection,
  namespace: string,
  names: readonly string[],
): Promise<void> {
  await operatorService.addSearchAttributes({
    namespace,
    searchAttributes: Object.fromEntries(names.map((name) => [name, KEYWORD])),
  });
}

/** @returns the interval of a schedule, ms; undefined when there is no such schedule. */
export async function scheduleIntervalMs(client: Client, id: string): Promise<number | undefined> {
  try {
    const { spec } = await client.schedule.getHandle(id).describe();
    return spec.intervals?.[0]?.every;
  } catch (error) {
    if (error instanceof ScheduleNotFoundError) return undefined;
    throw error;
  }
}

/** Creates a schedule of single runs, or brings its interval to the given one. */
export async function ensureSchedule(
  client: Client,
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

/** The server does not let us: as Temporal Cloud, where namespaces are made elsewhere, or for lack of a right. */
export const isRefused = (error: unknown): boolean =>
  isGrpcServiceError(error) && [GRPC_PERMISSION_DENIED, GRPC_UNIMPLEMENTED].includes(Number(error.code));

/** The server does not know the namespace, or not yet on all of its hosts. */
export function isUnknownNamespace(error: unknown): boolean {
  if (isGrpcServiceError(error) && Number(error.code) === GRPC_NOT_FOUND) return true;
  return error instanceof Error && error.cause !== undefined && isUnknownNamespace(error.cause);
}
