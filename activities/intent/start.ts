/** Starts the workflow of an intent, so that it is durable when the call returns. */
import type { WorkflowClient } from '@temporalio/client';
import { WorkflowExecutionAlreadyStartedError } from '@temporalio/client';
import { searchableKey } from '../../api/ids.ts';
import type { DispatchMode, NotificationInput } from '../../workflows/intent/contract.ts';
import {
  INTENT_TASK_QUEUE,
  MAX_RECIPIENTS_ACCEPTED_LOCALLY,
  NOTIFICATION_WORKFLOW,
  notificationWorkflowId,
} from '../../workflows/intent/contract.ts';
import { notificationAttributes } from '../../workflows/intent/search-attributes.ts';
import { BEFORE_NEW_ONES } from '../../workflows/policies.ts';
import { inTraceOf } from './trace-links.ts';

/** How long one start may take before it counts as failed, ms. */
const START_DEADLINE_MS = 5_000;

/** What is known of an intent where its workflow is started. */
export interface ToDispatch {
  notificationId: string;
  notificationType: string;
  producer: string;
  audienceKind: string;
  idempotencyKey: string;
  /** As its lane says. */
  isUrgent: boolean;
  recipients: number;
  requestId?: string | null;
  traceId?: string | null;
  traceparent?: string | null;
}

/**
 * Starts the intent's workflow, which finds by rows what was done before.
 *
 * @param isEager it begins in this process if that is free, past the task queue. The client and the worker share a connection then.
 * @returns false when it runs already. @throws what the Temporal client fails with.
 */
export async function startNotification(
  workflows: WorkflowClient,
  intent: ToDispatch,
  { dispatch, isEager }: { dispatch: DispatchMode; isEager: boolean },
): Promise<boolean> {
  const { notificationId, notificationType, producer, isUrgent, recipients } = intent;
  const input: NotificationInput = {
    ...{ notificationId, notificationType },
    ...(recipients > MAX_RECIPIENTS_ACCEPTED_LOCALLY ? { isLarge: true } : {}),
    ...(dispatch === 'child' && !isUrgent ? {} : { dispatch: 'on_failure' }),
  };
  try {
    await inTraceOf([intent], () =>
      workflows.withDeadline(Date.now() + START_DEADLINE_MS, () =>
        workflows.start(NOTIFICATION_WORKFLOW, {
          workflowId: notificationWorkflowId(notificationId),
          taskQueue: INTENT_TASK_QUEUE,
          args: [input],
          // The row says that there is something to do, whatever an earlier run came to.
          workflowIdReusePolicy: 'ALLOW_DUPLICATE',
          requestEagerStart: isEager,
          typedSearchAttributes: notificationAttributes({
            ...{ notificationId, notificationType, producer },
            idempotencyKey: searchableKey(intent.idempotencyKey),
          }),
          staticSummary: summaryOf(intent),
          staticDetails: detailsOf(intent),
          // A producer that floods the stream must not starve the others.
          priority: { fairnessKey: producer, ...(isUrgent ? BEFORE_NEW_ONES.priority : {}) },
        }),
      ),
    );
    return true;
  } catch (error) {
    if (error instanceof WorkflowExecutionAlreadyStartedError) return false;
    throw error;
  }
}

function summaryOf({ notificationType, audienceKind, recipients }: ToDispatch): string {
  if (audienceKind === 'admin_email') return `${notificationType} to administrators`;
  return `${notificationType} to ${recipients} ${recipients === 1 ? 'recipient' : 'recipients'}`;
}

/** Of the content, what names nobody. */
const detailsOf = ({ producer, idempotencyKey }: ToDispatch): string =>
  `Producer: ${producer}\n\nKey: \`${searchableKey(idempotencyKey)}\``;
