/**
 * Cancelling one notification: routes that are not published yet become `skipped`, published ones stay as they are. It is an
 * operation with one item, since a worker closes the rows, whatever has become of the workflows.
 */
import { notificationWorkflowId } from '../../workflows/intent/contract.ts';
import { NotFoundError, NothingToDoError } from '../errors.ts';
import { statusOf } from '../live.ts';
import { operationOperations } from '../operations.ts';
import type { OperatorResources } from '../resources.ts';
import type { WaitOptions } from '../wait-until.ts';
import { waitUntil } from '../wait-until.ts';
import type { Settlement } from './settlement.ts';
import { waitForSettlement } from './settlement.ts';

export interface Cancellation extends Settlement {
  notificationId: string;
  /** Status of its workflow; `CANCELLED` without one, `RUNNING` when the wait ended first. */
  status: string;
}

export interface CancelRequest extends WaitOptions {
  /** Default: `operator`. */
  requestedBy?: string | undefined;
  reason?: string | undefined;
  onProgress?: (settlement: Settlement) => void;
}

/**
 * Requests the cancellation of a notification and waits until its routes are settled.
 *
 * @returns how its routes stand; when the time is up, with the status `RUNNING`: the request stays.
 * @throws NotFoundError when there is no such notification; NothingToDoError when nothing of it is open.
 */
export async function cancelNotification(
  resources: OperatorResources,
  notificationId: string,
  { requestedBy = 'operator', reason, onProgress, ...wait }: CancelRequest,
): Promise<Cancellation> {
  const deadline = Date.now() + wait.limitMs;
  const rest = () => ({ ...wait, limitMs: Math.max(0, deadline - Date.now()) });
  const { cancel, follow } = operationOperations(resources);
  const request = { requestedBy, ...(reason === undefined ? {} : { reason }) };
  const { operationId } = await cancel({ notificationId }, request);
  const { endedAt, ordered } = await follow(operationId, { everyMs: 200, ...wait });

  const settlement = await waitForSettlement(resources, [notificationId], {
    ...(ordered > 0 ? rest() : { limitMs: 0 }),
    ...(onProgress ? { onProgress } : {}),
  });
  if (endedAt !== undefined && ordered === 0) {
    if (settlement.settled > 0)
      throw new NothingToDoError(`nothing of notification ${notificationId} is open: nothing to cancel`);
    throw new NotFoundError(`there is no notification ${notificationId}`);
  }
  // Its workflow may end a moment later than its routes.
  const ended = await waitUntil(async () => {
    const status = await statusOf(resources, notificationWorkflowId(notificationId));
    return status === 'RUNNING' ? undefined : (status ?? 'CANCELLED');
  }, rest());
  return { notificationId, ...settlement, status: (endedAt && ended) ?? 'RUNNING' };
}
