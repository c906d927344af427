/** Calls to Temporal, each bounded in time: asking workflows, and reading what the server keeps. */
import type { Client, WorkflowHandle } from '@temporalio/client';
import {
  ServiceError,
  WorkflowFailedError,
  WorkflowNotFoundError,
  WorkflowUpdateFailedError,
  WorkflowUpdateRPCTimeoutOrCancelledError,
  isGrpcDeadlineError,
  isGrpcServiceError,
} from '@temporalio/client';
import type { Payload } from '@temporalio/common';
import type { temporal as protos } from '@temporalio/proto';
import { OperationFailedError, UnansweredError } from './errors.ts';
import { oncePossible } from './wait-until.ts';

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
 * Asks a workflow for something by an update.
 *
 * @param update makes it, on the handle or as an update that may start the workflow.
 * @throws OperationFailedError when the workflow refuses; UnansweredError when it does not run, or no worker answers in time.
 */
export async function ask<T>(
  temporal: Client,
  { workflowId, limitMs, ifSilent, ifNotRunning }: Asked,
  update: (handle: WorkflowHandle) => Promise<T>,
): Promise<T> {
  try {
    return await makeUpdate(temporal, () => update(temporal.workflow.getHandle(workflowId)), limitMs);
  } catch (error) {
    const because = (message: string) => new OperationFailedError(message, { cause: error });
    if (error instanceof WorkflowUpdateFailedError) throw because(error.cause?.message ?? error.message);
    const unanswered = (message: string) => new UnansweredError(message, { cause: error });
    if (error instanceof WorkflowUpdateRPCTimeoutOrCancelledError) {
      throw unanswered(`no worker answered for ${workflowId} within ${limitMs / 1_000} s; ${ifSilent}`);
    }
    if (error instanceof WorkflowNotFoundError)
      throw unanswered(`${workflowId} is not running; ${ifNotRunning}`);
    throw error;
  }
}

/**
 * Starts a workflow and waits for its end.
 *
 * @throws OperationFailedError when the workflow fails; UnansweredError when it has not ended in time.
 */
export async function awaitRun<T>(
  temporal: Client,
  { workflowId, limitMs, ifSilent }: Omit<Asked, 'ifNotRunning'>,
  execute: () => Promise<T>,
): Promise<T> {
  try {
    return await bounded(temporal, execute, limitMs);
  } catch (error) {
    const because = (message: string) => new OperationFailedError(message, { cause: error });
    if (error instanceof WorkflowFailedError) throw because(error.cause?.message ?? error.message);
    if (isGrpcDeadlineError(error) || (error instanceof ServiceError && isGrpcDeadlineError(error.cause))) {
      throw new UnansweredError(`${workflowId} has not ended within ${limitMs / 1_000} s; ${ifSilent}`, {
        cause: error,
      });
    }
    throw error;
  }
}

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
export async function failureMessageOf(
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
