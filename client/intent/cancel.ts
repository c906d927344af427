/**
 * How far the routes of notifications have come, waiting for their end, and cancelling one notification: routes that are not
 * published yet become `skipped`, published ones stay as they are. A cancellation is an operation with one item, since a worker
 * closes the rows, whatever has become of the workflows.
 */
import { notificationWorkflowId } from '../../workflows/intent/contract.ts';
import { NotFoundError, NothingToDoError } from '../errors.ts';
import { statusOf } from '../temporal.ts';
import { operationOperations } from '../operations.ts';
import { withoutNulls } from '../lists.ts';
import type { OperatorResources } from '../resources.ts';
import type { WaitOptions } from '../wait-until.ts';
import { waitUntil } from '../wait-until.ts';

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
 * @returns the totals of its routes; when the time is up, with the status `RUNNING`: the request stays.
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
  const request = withoutNulls({ requestedBy, reason });
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

/** Totals over some notifications. */
export interface Settlement {
  /** Notifications whose routes are all settled, or which ended without any. */
  settled: number;
  notifications: number;
  /** Routes by status; `open` ones will be tried again. */
  open: number;
  published: number;
  skipped: number;
  deadLettered: number;
  /** Notifications that ended without a record: malformed, refused, cancelled, duplicate or conflict. */
  withoutRecord: number;
}

/**
 * Waits until nothing will happen to any of the notifications by itself.
 *
 * @returns their totals, with `settled` below `notifications` when the time was up.
 */
export async function waitForSettlement(
  { db }: Pick<OperatorResources, 'db'>,
  notificationIds: readonly string[],
  options: WaitOptions & { onProgress?: (settlement: Settlement) => void },
): Promise<Settlement> {
  let settlement!: Settlement;
  await waitUntil(async () => {
    settlement = (await db.query<Settlement>(SETTLEMENT, [notificationIds])).rows[0]!;
    options.onProgress?.(settlement);
    return settlement.settled >= settlement.notifications ? settlement : undefined;
  }, options);
  return settlement;
}

const SETTLEMENT = `
  SELECT count(*) FILTER (WHERE kind = 'without record' OR kind = 'record' AND open = 0)::int AS settled,
         count(*)::int AS notifications, coalesce(sum(open), 0)::int AS open,
         coalesce(sum(published), 0)::int AS published, coalesce(sum(skipped), 0)::int AS skipped,
         coalesce(sum(dead), 0)::int AS "deadLettered", count(*) FILTER (WHERE kind = 'without record')::int AS "withoutRecord"
    FROM (SELECT CASE WHEN record.notification_id IS NOT NULL THEN 'record'
                      WHEN stream_entry_id IS NOT NULL OR intent.status <> 'open' THEN 'without record'
                      ELSE 'undecided' END AS kind,
                 count(*) FILTER (WHERE routes.status IN ('pending', 'failed')) AS open,
                 count(*) FILTER (WHERE routes.status = 'published') AS published,
                 count(*) FILTER (WHERE routes.status = 'skipped') AS skipped,
                 count(*) FILTER (WHERE routes.status = 'dead_letter') AS dead
            FROM unnest($1::text[]) AS wanted (id)
            LEFT JOIN notification.records AS record ON record.notification_id = wanted.id
            LEFT JOIN notification.malformed_intents ON stream_entry_id = wanted.id
            LEFT JOIN notification.intents AS intent ON intent.notification_id = wanted.id
            LEFT JOIN notification.routes ON routes.notification_id = wanted.id
           GROUP BY wanted.id, 1) AS one`;
