/** Starts a notification for an intent, so that it is durable when the call returns. */
import type { WorkflowClient, WorkflowStartOptions } from '@temporalio/client';
import { ServiceError, WorkflowExecutionAlreadyStartedError, isGrpcServiceError } from '@temporalio/client';
import { isUrgentType } from '../../api/intent/catalog.ts';
import { searchableKey } from '../../api/ids.ts';
import type { Intent } from '../../api/intent/entry.ts';
import type { DispatchMode, NotificationInput } from '../../workflows/intent/contract.ts';
import {
  INTENT_TASK_QUEUE,
  NOTIFICATION_WORKFLOW,
  notificationWorkflowId,
} from '../../workflows/intent/contract.ts';
import type { SliceInput } from '../../workflows/intent/slice-contract.ts';
import { SLICE_WORKFLOW, sliceWorkflowId } from '../../workflows/intent/slice-contract.ts';
import { notificationAttributes, sliceAttributes } from '../../workflows/intent/search-attributes.ts';
import { BEFORE_NEW_ONES } from '../../workflows/policies.ts';
import { inTraceOf } from './trace-links.ts';

/** Workflows that are being started concurrently. More would only come before those that are under way. */
export const PARALLEL_STARTS = 20;

/** How long one start may take before it counts as failed, ms. */
const START_DEADLINE_MS = 5_000;

/** gRPC's code for a request that the server does not take. */
const INVALID_ARGUMENT = 3;

export interface StartSettings {
  /** Given to the notification, which keeps to it for life. */
  dispatch: DispatchMode;
  /**
   * The worker of this process may begin immediately, past the task queue and its priorities. That is quicker for one
   * notification, and wrong for hundreds: they would keep the worker from the routes of those that are under way.
   */
  isUrgent: boolean;
  /** Also when a workflow of this id has ended: what it decided is forgotten. */
  isAgain?: boolean;
  /** The workflow of this id runs, cannot go on, and is ended in the same moment. */
  isStuck?: boolean;
}

/**
 * Starts the intent's workflow.
 *
 * @returns false when there is one already. @throws what the client fails with; see {@link isTooLargeForTemporal}.
 */
export async function startNotification(
  workflows: WorkflowClient,
  intent: Intent,
  { dispatch, isUrgent, isAgain = false, isStuck = false }: StartSettings,
): Promise<boolean> {
  const goesFirst = isUrgentType(intent.notificationType);
  // An urgent one has been tried before its workflow begins, which goes on from there.
  const input: NotificationInput =
    dispatch === 'child' && !goesFirst ? intent : { ...intent, dispatch: 'on_failure' };
  const options: WorkflowStartOptions = {
    workflowId: notificationWorkflowId(intent.notificationId),
    taskQueue: INTENT_TASK_QUEUE,
    args: [input],
    workflowIdReusePolicy: isAgain ? 'ALLOW_DUPLICATE' : 'REJECT_DUPLICATE',
    ...(isStuck ? { workflowIdConflictPolicy: 'TERMINATE_EXISTING' } : {}),
    requestEagerStart: isUrgent || goesFirst,
    typedSearchAttributes: notificationAttributes({
      ...intent,
      idempotencyKey: searchableKey(intent.idempotencyKey),
    }),
    staticSummary: summaryOf(intent),
    // A producer that floods the stream must not starve the others.
    priority: { fairnessKey: intent.producer, ...(goesFirst ? BEFORE_NEW_ONES.priority : {}) },
  };
  return start(workflows, [intent], NOTIFICATION_WORKFLOW, options);
}

/**
 * Starts one workflow for intents that were read together and are of one producer.
 *
 * @returns false when there is one already that begins with the same entry. @throws as {@link startNotification}.
 */
export async function startSlice(workflows: WorkflowClient, intents: readonly Intent[]): Promise<boolean> {
  const [{ notificationId: slice, producer }] = intents as [Intent];
  const input: SliceInput = { slice, intents: [...intents] };
  return start(workflows, intents, SLICE_WORKFLOW, {
    workflowId: sliceWorkflowId(slice),
    taskQueue: INTENT_TASK_QUEUE,
    args: [input],
    workflowIdReusePolicy: 'REJECT_DUPLICATE',
    typedSearchAttributes: sliceAttributes(producer),
    staticSummary: `${intents.length} intents from ${slice} to ${intents.at(-1)!.notificationId}`,
    staticDetails: intents.map(({ notificationId }) => notificationId).join('\n'),
    priority: { fairnessKey: producer },
  });
}

/** @returns false when there is such a workflow already. */
async function start(
  workflows: WorkflowClient,
  intents: readonly Intent[],
  workflowType: string,
  options: WorkflowStartOptions,
): Promise<boolean> {
  try {
    await inTraceOf(intents, () =>
      workflows.withDeadline(Date.now() + START_DEADLINE_MS, () => workflows.start(workflowType, options)),
    );
    return true;
  } catch (error) {
    if (error instanceof WorkflowExecutionAlreadyStartedError) return false;
    throw error;
  }
}

/**
 * Whether the server refuses this start for its size, and would do so for ever: its limits can be set lower than ours.
 * The code alone does not tell: a namespace without our search attributes answers with the same one, and to every
 * intent. Read as the entry's fault, that would turn the whole stream into malformed intents; so whatever the text
 * does not show to be about size stays a failure that the reader waits out.
 */
export function isTooLargeForTemporal(error: unknown): error is ServiceError {
  if (!(error instanceof ServiceError) || !isGrpcServiceError(error.cause)) return false;
  return Number(error.cause.code) === INVALID_ARGUMENT && /size exceeds limit/i.test(error.cause.message);
}

function summaryOf({ notificationType, audienceKind, recipientUserIds }: Intent): string {
  if (audienceKind === 'admin_email') return `${notificationType} to administrators`;
  const count = recipientUserIds.length;
  return `${notificationType} to ${count} ${count === 1 ? 'recipient' : 'recipients'}`;
}
