/**
 * How what a process needs in its Temporal namespace is made. Processes of the service and `galaxy-notify setup` do it
 * alike; everything may be repeated.
 */
import type { Client, Connection, ScheduleDescription } from '@temporalio/client';
import {
  ScheduleAlreadyRunning,
  ScheduleNotFoundError,
  ScheduleOverlapPolicy,
  isGrpcServiceError,
} from '@temporalio/client';
import proto from '@temporalio/proto';
import { SelfExplanatoryError } from '../api/errors.ts';
import type { SearchAttributes } from '../workflows/search-attributes.ts';

const { IndexedValueType } = proto.temporal.api.enums.v1;
const VALUE_TYPES = {
  Keyword: IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD,
  Int: IndexedValueType.INDEXED_VALUE_TYPE_INT,
  KeywordList: IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD_LIST,
};
const GRPC_NOT_FOUND = 5;
const GRPC_ALREADY_EXISTS = 6;
const GRPC_PERMISSION_DENIED = 7;
const GRPC_UNIMPLEMENTED = 12;

/** A connection of the client or of a worker. */
type ServerConnection = Pick<Connection, 'workflowService' | 'operatorService'>;

/** A schedule of single runs, each of them one workflow. */
export interface ScheduledRun {
  /** Of the schedule and of the workflows that it starts. */
  id: string;
  workflowType: string;
  taskQueue: string;
  everyMs: number;
}

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

/** @returns the form of the Temporal API. */
const durationOf = (ms: number) =>
  proto.google.protobuf.Duration.fromObject({ seconds: Math.round(ms / 1_000) });

/** Another process may create it at the same time: that is no error. */
export async function createNamespace(
  { workflowService }: ServerConnection,
  namespace: string,
  retentionMs: number,
): Promise<void> {
  try {
    await workflowService.registerNamespace({
      namespace,
      description: 'galaxy-notify',
      workflowExecutionRetentionPeriod: durationOf(retentionMs),
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
    config: { workflowExecutionRetentionTtl: durationOf(retentionMs) },
  });
}

/** @returns those that the namespace lacks, or has with another type, as `Name=Type`. */
export async function missingSearchAttributes(
  { operatorService }: ServerConnection,
  namespace: string,
  needed: SearchAttributes,
): Promise<string[]> {
  const { customAttributes } = await operatorService.listSearchAttributes({ namespace });
  const missing = Object.entries(needed).filter(
    ([name, type]) => customAttributes[name] !== VALUE_TYPES[type],
  );
  return namesOf(Object.fromEntries(missing));
}

/** As people read them, and the flags of Temporal's tools take them. */
export const namesOf = (attributes: SearchAttributes): string[] =>
  Object.entries(attributes).map(([name, type]) => `${name}=${type}`);

/**
 * Adds the search attributes that the namespace lacks.
 *
 * @returns them. @throws SelfExplanatoryError when the server refuses.
 */
export async function ensureSearchAttributes(
  connection: ServerConnection,
  namespace: string,
  needed: SearchAttributes,
): Promise<string[]> {
  const missing = await missingSearchAttributes(connection, namespace, needed);
  if (missing.length === 0) return [];
  const types = missing.map((attribute) => attribute.split('=') as [string, keyof typeof VALUE_TYPES]);
  const searchAttributes = Object.fromEntries(types.map(([name, type]) => [name, VALUE_TYPES[type]]));
  try {
    await connection.operatorService.addSearchAttributes({ namespace, searchAttributes });
  } catch (error) {
    if (!isRefused(error)) throw error;
    throw new SelfExplanatoryError(
      `the namespace ${namespace} lacks search attributes, and this server does not let us add them: ${missing.join(', ')}; on Temporal Cloud add them with tcld: docs/deploy/temporal-cloud.md`,
      { cause: error },
    );
  }
  return missing;
}

/** @returns undefined when there is no such schedule. */
export async function describeSchedule(client: Client, id: string): Promise<ScheduleDescription | undefined> {
  try {
    return await client.schedule.getHandle(id).describe();
  } catch (error) {
    if (error instanceof ScheduleNotFoundError) return undefined;
    throw error;
  }
}

/** Creates a schedule, or brings its interval to the given one. */
export async function ensureSchedule(
  client: Client,
  { id, workflowType, taskQueue, everyMs }: ScheduledRun,
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
