/** What Temporal knows about a workflow right now. */
import type { Client, WorkflowExecutionDescription, WorkflowExecutionStatusName } from '@temporalio/client';
import { WorkflowNotFoundError } from '@temporalio/client';
import type { Payload } from '@temporalio/common';
import type { OperatorResources } from './operator.ts';
import { workflowLink } from './web-ui-links.ts';

/** Answered by Temporal's SDK in every workflow, by a worker. */
const METADATA_QUERY = '__temporal_workflow_metadata';

/** Longest wait for one answer of Temporal, ms; queries need a worker, which may be away. */
export const ANSWER_LIMIT_MS = 5_000;
const QUERY_LIMIT_MS = 3_000;
/**
 * A schedule is a workflow of the server's own, and its worker starts anew when the namespace is made or changed: until
 * the server has noticed that, 5 s and more, it waits for the worker that is gone.
 */
export const SCHEDULE_LIMIT_MS = 15_000;

export interface PendingActivity {
  id: string;
  type: string;
  /** 1 for the first. */
  attempt: number;
  isPaused: boolean;
  lastFailure?: string;
  nextAttemptAt?: Date;
}

export interface LiveState {
  workflowId: string;
  runId: string;
  status: WorkflowExecutionStatusName;
  startedAt: Date;
  /** Absent while it runs. */
  closedAt?: Date;
  /** What a running workflow says it waits for; empty when it says nothing. */
  details?: string;
  /** The details could not be asked for, and why. */
  detailsUnavailable?: string;
  pendingActivities: PendingActivity[];
  pendingChildren: number;
  /** What a completed workflow returned. */
  result?: unknown;
  link?: string;
}

/** Bounds a call to Temporal, which the SDK would otherwise retry for much longer than an operator waits. */
export function bounded<T>(temporal: Client, call: () => Promise<T>, limitMs = ANSWER_LIMIT_MS): Promise<T> {
  return temporal.withDeadline(Date.now() + limitMs, call);
}

/**
 * @returns undefined when Temporal does not know the workflow: it never ran, or it ended longer ago than the
 * namespace's retention.
 * @throws what the Temporal client throws when the server does not answer within 5 s.
 */
export async function liveStateOf(
  { temporal, namespace, uiUrl }: OperatorResources,
  workflowId: string,
): Promise<LiveState | undefined> {
  const described = await describe(temporal, workflowId);
  if (!described) return undefined;

  const isRunning = described.status.name === 'RUNNING';
  const { pendingActivities = [], pendingChildren = [] } = described.raw;
  return {
    workflowId,
    runId: described.runId,
    status: described.status.name,
    startedAt: described.startTime,
    ...(described.closeTime ? { closedAt: described.closeTime } : {}),
    ...(isRunning ? await detailsOf(temporal, workflowId) : {}),
    pendingActivities: await Promise.all(
      (pendingActivities ?? []).map((activity) => pendingActivityOf(temporal, activity)),
    ),
    pendingChildren: pendingChildren?.length ?? 0,
    ...(described.status.name === 'COMPLETED'
      ? {
          result: await bounded(temporal, () => temporal.workflow.getHandle(workflowId).result()).catch(
            () => undefined,
          ),
        }
      : {}),
    ...(uiUrl === undefined ? {} : { link: workflowLink({ uiUrl, namespace }, workflowId, described.runId) }),
  };
}

/** The status alone, for those who look again and again. Returns and throws as `liveStateOf`. */
export async function statusOf(
  { temporal }: Pick<OperatorResources, 'temporal'>,
  workflowId: string,
): Promise<WorkflowExecutionStatusName | undefined> {
  return (await describe(temporal, workflowId))?.status.name;
}

async function describe(
  temporal: Client,
  workflowId: string,
): Promise<WorkflowExecutionDescription | undefined> {
  try {
    return await bounded(temporal, () => temporal.workflow.getHandle(workflowId).describe());
  } catch (error) {
    if (error instanceof WorkflowNotFoundError) return undefined;
    throw error;
  }
}

async function detailsOf(
  temporal: Client,
  workflowId: string,
): Promise<Pick<LiveState, 'details' | 'detailsUnavailable'>> {
  try {
    const metadata = await bounded(
      temporal,
      () => temporal.workflow.getHandle(workflowId).query<{ currentDetails?: string }>(METADATA_QUERY),
      QUERY_LIMIT_MS,
    );
    return { details: metadata.currentDetails ?? '' };
  } catch {
    return { detailsUnavailable: `no worker answered within ${QUERY_LIMIT_MS / 1_000} s` };
  }
}

type RawActivity = NonNullable<WorkflowExecutionDescription['raw']['pendingActivities']>[number];

async function pendingActivityOf(temporal: Client, raw: RawActivity): Promise<PendingActivity> {
  const lastFailure = await failureMessageOf(temporal, raw.lastFailure);
  const nextAttemptAt = dateOf(raw.nextAttemptScheduleTime);
  return {
    id: raw.activityId ?? '',
    type: raw.activityType?.name ?? '',
    attempt: raw.attempt ?? 1,
    isPaused: raw.paused ?? false,
    ...(lastFailure ? { lastFailure } : {}),
    ...(nextAttemptAt ? { nextAttemptAt } : {}),
  };
}

/**
 * A value as Temporal keeps it: encrypted where the service encrypts.
 *
 * @returns undefined also when it cannot be decrypted here: whoever has no key still sees everything else.
 */
export async function decoded<T>(
  temporal: Client,
  payload: Payload | null | undefined,
): Promise<T | undefined> {
  if (!payload) return undefined;
  const { payloadConverter, payloadCodecs } = temporal.options.loadedDataConverter;
  try {
    let payloads = [payload];
    for (const codec of payloadCodecs.toReversed()) payloads = await codec.decode(payloads);
    return payloadConverter.fromPayload<T>(payloads[0]!);
  } catch {
    return undefined;
  }
}

/** The message of a failure; where it is encrypted and cannot be decrypted here, what stands in its place. */
export async function failureMessageOf(
  temporal: Client,
  failure: RawActivity['lastFailure'],
): Promise<string | undefined> {
  const attributes = await decoded<{ message?: string }>(temporal, failure?.encodedAttributes);
  return attributes?.message ?? failure?.message ?? undefined;
}

/** A protobuf time stamp as a date. Its seconds are a 64 bit integer object or a number. */
export function dateOf(
  timestamp: { seconds?: { toString(): string } | null; nanos?: number | null } | null | undefined,
): Date | undefined {
  if (!timestamp) return undefined;
  return new Date(
    Number(timestamp.seconds?.toString() ?? 0) * 1_000 + Math.floor((timestamp.nanos ?? 0) / 1e6),
  );
}
