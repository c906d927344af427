/** Cancelling a notification: routes that are not published yet become `skipped`, published ones stay as they are. */
import { WorkflowNotFoundError } from '@temporalio/client';
import { notificationWorkflowId } from '../../workflows/intent/contract.ts';
import { CANCEL_INTENT_SIGNAL, WAITING_SLICE_WORKFLOW } from '../../workflows/intent/slice-contract.ts';
import { NotFoundError, NothingToDoError } from '../errors.ts';
import { liveStateOf, statusAndTypeOf, statusOf } from '../live.ts';
import type { OperatorResources } from '../resources.ts';
import { bounded } from '../temporal.ts';
import type { WaitOptions } from '../wait-until.ts';
import { waitUntil } from '../wait-until.ts';
import { findSlice } from './slices.ts';
import type { Settlement } from './settlement.ts';
import { waitForSettlement } from './settlement.ts';

export interface Cancellation extends Settlement {
  notificationId: string;
  /** Of the workflow, or of the slice that had it; `RUNNING` when the wait ended before it did. */
  status: string;
}

type CancelOptions = WaitOptions & { onProgress?: (settlement: Settlement) => void };

export function cancelOperation(resources: OperatorResources) {
  const operation = {
    /**
     * Requests the cancellation of a notification and waits until its routes are settled.
     *
     * @returns how its routes stand; when the time is up, with open ones and the status `RUNNING`: the request stays.
     * @throws NotFoundError when there is no such notification; NothingToDoError when it has ended.
     */
    async cancel(notificationId: string, options: CancelOptions): Promise<Cancellation> {
      const workflowId = notificationWorkflowId(notificationId);
      const before = await liveStateOf(resources, workflowId);
      if (!before) return cancelInSlice(notificationId, options);
      if (before.status !== 'RUNNING') {
        // One that was terminated while it waited to be accepted could not say itself that it waits no more.
        await resources.db.query('DELETE FROM notification.waiting_intents WHERE notification_id = $1', [
          notificationId,
        ]);
        throw new NothingToDoError(
          `notification ${notificationId} has ended (${before.status}${before.closedAt ? ` at ${before.closedAt.toISOString()}` : ''}): nothing to cancel`,
        );
      }
      try {
        await bounded(resources.temporal, () => resources.temporal.workflow.getHandle(workflowId).cancel());
      } catch (error) {
        if (!(error instanceof WorkflowNotFoundError)) throw error;
        throw new NothingToDoError(`notification ${notificationId} has just ended: nothing to cancel`);
      }

      const deadline = Date.now() + options.limitMs;
      const ended = await waitUntil(async () => {
        const status = await statusOf(resources, workflowId);
        return status === 'RUNNING' ? undefined : (status ?? 'UNKNOWN');
      }, options);
      // Each route is another workflow, which may end a moment later than the notification's.
      const settlement = await waitForSettlement(resources, [notificationId], {
        ...options,
        limitMs: ended === undefined ? 0 : deadline - Date.now(),
      });
      return { notificationId, status: ended ?? 'RUNNING', ...settlement };
    },
  };

  /** A notification without a workflow of its own, which it may be given just now. */
  async function cancelInSlice(notificationId: string, options: CancelOptions): Promise<Cancellation> {
    const deadline = Date.now() + options.limitMs;
    const slice = await findSlice(resources, notificationId);
    if (slice === undefined) throw await unknown(notificationId);
    try {
      const handle = resources.temporal.workflow.getHandle(slice);
      await bounded(resources.temporal, () => handle.signal(CANCEL_INTENT_SIGNAL, notificationId));
    } catch (error) {
      if (!(error instanceof WorkflowNotFoundError)) throw error;
      throw new NothingToDoError(
        `notification ${notificationId} was finished in ${slice}: nothing to cancel`,
      );
    }
    const ended = await waitUntil(async () => {
      const found = await statusAndTypeOf(resources, slice);
      if (found?.status !== 'RUNNING') return found?.status ?? 'UNKNOWN';
      // The others wait on, perhaps for days.
      return found.type === WAITING_SLICE_WORKFLOW && !(await isWaiting(notificationId))
        ? 'CANCELLED'
        : undefined;
    }, options);
    const rest = { ...options, limitMs: Math.max(0, deadline - Date.now()) };
    if ((await statusOf(resources, notificationWorkflowId(notificationId))) === 'RUNNING')
      return operation.cancel(notificationId, rest);
    const settlement = await waitForSettlement(resources, [notificationId], { ...rest, limitMs: 0 });
    return { notificationId, status: ended ?? 'RUNNING', ...settlement };
  }

  return operation;

  async function isWaiting(notificationId: string): Promise<boolean> {
    const { rows } = await resources.db.query(
      'SELECT FROM notification.waiting_intents WHERE notification_id = $1',
      [notificationId],
    );
    return rows.length > 0;
  }

  async function unknown(notificationId: string): Promise<Error> {
    const { rows } = await resources.db.query('SELECT FROM notification.records WHERE notification_id = $1', [
      notificationId,
    ]);
    return rows.length > 0
      ? new NothingToDoError(
          `notification ${notificationId} ended longer ago than Temporal remembers: nothing to cancel`,
        )
      : new NotFoundError(`Temporal knows no notification ${notificationId}`);
  }
}
