/** Calls to Temporal, each bounded in time: asking workflows, what the server knows about one now, and waiting for it. */
import { setTimeout as sleep } from 'node:timers/promises';
import type {
  Client,
  WorkflowExecutionDescription,
  WorkflowExecutionStatusName,
  WorkflowHandle,
} from '@temporalio/client';
import {
  ServiceError,
  WorkflowNotFoundError,
  WorkflowUpdateFailedError,
  WorkflowUpdateRPCTimeoutOrCancelledError,
  isGrpcDeadlineError,
  isGrpcServiceError,
} from '@temporalio/client';
import type { Payload } from '@temporalio/common';
import type { temporal as protos } from '@temporalio/proto';
import { given } from '../api/given.ts';
import { unlessGone } from '../api/stuck-workflow.ts';
import { OperationFailedError, UnansweredError } from './errors.ts';
import type { OperatorResources } from './resources.ts';
import { linkField } from './resources.ts';

/** Longest wait for one answer of Temporal, ms. */
export const ANSWER_LIMIT_MS = 5_000;
/** Queries need a worker, which may be away. */
export const QUERY_LIMIT_MS = 3_000;
/**
 * A schedule is a workflow of the server, whose worker for it starts again when the namespace is made or changed: until
 * the server has noticed that, 5 s and more, it waits for the worker that is gone.
 */
export const SCHEDULE_LIMIT_MS = 15_000;

/** Bounds a call to Temporal, which the SDK would otherwise retry for much longer than an operator waits. */
export function bounded<T>(temporal: Client, call: () => Promise<T>, limitMs = ANSWER_LIMIT_MS): Promise<T> {
  return temporal.withDeadline(Date.now() + limitMs, call);
}

/** @returns what a workflow answers to a query; undefined when it does not run, or no worker answers within 3 s. */
export function query<T>(temporal: Client, workflowId: string, name: string): Promise<T | undefined> {
  const handle = temporal.workflow.getHandle(workflowId);
  return bounded(temporal, () => handle.query<T>(name), QUERY_LIMIT_MS).catch(() => undefined);
}

/** Who is asked for how long, and what an operator should know when nothing comes of it. */
export interface Asked {
  workflowId: string;
  /** Longest wait for the answer, ms. */
  limitMs: number;
  /** What becomes of the request when no worker has answered. */
  ifSilent: string;
  /** Who starts the workflow. */
  ifNotRunning: string;
}

/**
 * Asks a workflow for something.
 *
 * @param call makes an update, on the handle or as one that may start the workflow.
 * @throws OperationFailedError when the workflow refuses or fails; UnansweredError when it does not run, or not in time.
 */
export async function ask<T>(
  temporal: Client,
  { workflowId, limitMs, ifSilent, ifNotRunning }: Asked,
  call: (handle: WorkflowHandle) => Promise<T>,
): Promise<T> {
  try {
    return await makeUpdate(temporal, () => call(temporal.workflow.getHandle(workflowId)), limitMs);
  } catch (error) {
    if (error instanceof WorkflowUpdateFailedError) throw refusalIn(error);
    const unanswered = (message: string) => new UnansweredError(message, { cause: error });
    if (error instanceof WorkflowNotFoundError)
      throw unanswered(`${workflowId} is not running; ${ifNotRunning}`);
    const isLate =
      error instanceof WorkflowUpdateRPCTimeoutOrCancelledError ||
      isGrpcDeadlineError(error instanceof ServiceError ? error.cause : error);
    throw isLate
      ? unanswered(`no worker answered for ${workflowId} within ${limitMs / 1_000} s; ${ifSilent}`)
      : error;
  }
}

/** What an operator is told when a workflow refuses an update. */
export const refusalIn = (error: WorkflowUpdateFailedError): OperationFailedError =>
  new OperationFailedError(error.cause?.message ?? error.message, { cause: error });

/**
 * Makes an update, and makes it again when Temporal gives it back untouched. That happens when the workflow wants to be
 * continued by a new run, or to end, in the very task that brings it the update, while something else arrives: Temporal
 * refuses the task, with everything in it, and tells the client that the update failed.
 *
 * @param limitMs of the whole, ms.
 * @throws what the Temporal client throws, WorkflowUpdateRPCTimeoutOrCancelledError when `limitMs` is over.
 */
export function makeUpdate<T>(
  temporal: Client,
  call: () => Promise<T>,
  limitMs = ANSWER_LIMIT_MS,
): Promise<T> {
  return bounded(temporal, () => oncePossible(call, isGivenBack, limitMs), limitMs);
}

/** Its code, FAILED_PRECONDITION, is also that of refusals which stay; only the text tells it from them. */
function isGivenBack(error: unknown): boolean {
  // An update that may start its workflow fails with what the server answered, others wrap it.
  const answer = error instanceof ServiceError ? error.cause : error;
  return isGrpcServiceError(answer) && answer.message.includes('unexpected workflow task failure');
}

/**
 * A value as Temporal keeps it: encrypted where the service encrypts.
 *
 * @returns undefined also when it cannot be decrypted here: an operator without a key still sees everything else.
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
async function failureMessageOf(
  temporal: Client,
  failure: protos.api.failure.v1.IFailure | null | undefined,
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

/** Answered by Temporal's SDK in every workflow, by a worker. */
const METADATA_QUERY = '__temporal_workflow_metadata';

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
  /** What a running workflow says it waits for, or that no worker answered; empty when it says nothing. */
  details?: string;
  pendingActivities: PendingActivity[];
  pendingChildren: number;
  /** What a completed workflow returned. */
  result?: unknown;
  link?: string;
}

/**
 * @returns undefined when Temporal does not know the workflow: it never ran, or it ended longer ago than the
 * namespace's retention.
 * @throws what the Temporal client throws when the server does not answer within 5 s.
 */
export async function liveStateOf(
  resources: Pick<OperatorResources, 'temporal' | 'namespace' | 'uiUrl'>,
  workflowId: string,
): Promise<LiveState | undefined> {
  const { temporal } = resources;
  const described = await describe(temporal, workflowId);
  if (!described) return undefined;

  const { runId, status, startTime: startedAt, closeTime: closedAt, raw } = described;
  const result = () =>
    bounded(temporal, () => temporal.workflow.getHandle(workflowId).result() as Promise<unknown>);
  async function details(): Promise<string> {
    const metadata = await query<{ currentDetails?: string }>(temporal, workflowId, METADATA_QUERY);
    if (metadata) return metadata.currentDetails ?? '';
    return `unknown: no worker answered within ${QUERY_LIMIT_MS / 1_000} s`;
  }
  return {
    ...{ workflowId, runId, status: status.name, startedAt },
    ...given({ closedAt }),
    ...(status.name === 'RUNNING' ? { details: await details() } : {}),
    pendingActivities: await Promise.all(
      (raw.pendingActivities ?? []).map((activity) => pendingActivityOf(temporal, activity)),
    ),
    pendingChildren: raw.pendingChildren?.length ?? 0,
    ...(status.name === 'COMPLETED' ? { result: await result().catch(() => undefined) } : {}),
    ...linkField(resources, workflowId, runId),
  };
}

export async function pendingActivityOf(
  temporal: Client,
  activity: protos.api.workflow.v1.IPendingActivityInfo,
): Promise<PendingActivity> {
  return given({
    id: activity.activityId ?? '',
    type: activity.activityType?.name ?? '',
    attempt: activity.attempt ?? 1,
    isPaused: activity.paused ?? false,
    lastFailure: (await failureMessageOf(temporal, activity.lastFailure)) || undefined,
    nextAttemptAt: dateOf(activity.nextAttemptScheduleTime),
  });
}

/**
 * The status alone, for a look that is repeated.
 *
 * @returns undefined when Temporal does not know the workflow.
 * @throws as `liveStateOf`.
 */
export async function statusOf(
  { temporal }: Pick<OperatorResources, 'temporal'>,
  workflowId: string,
): Promise<WorkflowExecutionStatusName | undefined> {
  return (await describe(temporal, workflowId))?.status.name;
}

/** @returns undefined when Temporal does not know the workflow. @throws as `liveStateOf`. */
export function describe(
  temporal: Client,
  workflowId: string,
): Promise<WorkflowExecutionDescription | undefined> {
  return unlessGone(() => bounded(temporal, () => temporal.workflow.getHandle(workflowId).describe()));
}

// --- Waiting -----------------------------------------------------------------------------------------------------------

export interface WaitOptions {
  /** Longest wait, ms. */
  limitMs: number;
  /** Between two looks, ms. Default 200. */
  everyMs?: number;
  /** Ends the wait early. */
  signal?: AbortSignal;
}

/**
 * Looks until a probe finds something.
 *
 * @param probe returns undefined while there is nothing yet; what it throws ends the wait.
 * @returns what the probe found, or undefined when the time was up or the wait was aborted.
 */
export async function waitUntil<T>(
  probe: () => Promise<T | undefined>,
  { limitMs, everyMs = 200, signal }: WaitOptions,
): Promise<T | undefined> {
  const deadline = Date.now() + limitMs;
  for (;;) {
    const found = await probe();
    if (found !== undefined) return found;
    if (signal?.aborted || Date.now() + everyMs > deadline) return undefined;
    // Aborting a pause is how a wait ends early, not a failure.
    await sleep(everyMs, undefined, { ...(signal ? { signal } : {}) }).catch(() => undefined);
  }
}

export interface FollowOptions<View> extends WaitOptions {
  onProgress?: (view: View) => void;
}

/**
 * Follows something to its end.
 *
 * @param look returns how it stands; what it throws ends the wait.
 * @returns how it stood in the end, or when the time was up.
 */
export async function follow<View>(
  look: () => Promise<View>,
  hasEnded: (view: View) => boolean,
  { onProgress, ...wait }: FollowOptions<View>,
): Promise<View> {
  let view!: View;
  await waitUntil(async () => {
    view = await look();
    onProgress?.(view);
    return hasEnded(view) || undefined;
  }, wait);
  return view;
}

/**
 * Makes a call again while it fails for a reason that passes.
 *
 * @returns what the call returned in the end.
 * @throws an error of another reason immediately, and the last one of this reason when `limitMs` is over.
 */
export async function oncePossible<T>(
  call: () => Promise<T>,
  doesPass: (error: unknown) => boolean,
  limitMs: number,
): Promise<T> {
  let lastError: unknown;
  const made = await waitUntil<{ value: T }>(
    async () => {
      try {
        return { value: await call() };
      } catch (error) {
        if (!doesPass(error)) throw error;
        lastError = error;
        return undefined;
      }
    },
    { limitMs },
  );
  if (made === undefined) throw lastError;
  return made.value;
}
