/**
 * The steps of what operators do to many. Their client has chosen the items, as rows; each step deals with some of them
 * and says so. A step that is made again does the same to those that were not marked: an order that was given already has
 * no effect on a route, and nothing is cancelled twice.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { Context } from '@temporalio/activity';
import type { WorkflowClient } from '@temporalio/client';
import { WorkflowExecutionAlreadyStartedError, WorkflowNotFoundError } from '@temporalio/client';
import pLimit from 'p-limit';
import type { Pool } from 'pg';
import { routeRefOf, searchableKey } from '../../api/ids.ts';
import type { Channel } from '../../api/intent/catalog.ts';
import {
  INTENT_TASK_QUEUE,
  REPLAY_SIGNAL,
  ROUTE_WORKFLOW,
  notificationWorkflowId,
  routeWorkflowId,
} from '../../workflows/intent/contract.ts';
import type {
  OperationCounts,
  OperationKind,
  OperationState,
} from '../../workflows/intent/operation-contract.ts';
import { orderIdOf } from '../../workflows/intent/operation-contract.ts';
import { notificationAttributes, routeChannel } from '../../workflows/intent/search-attributes.ts';
import { CANCEL_INTENT_SIGNAL, sliceWorkflowId } from '../../workflows/intent/slice-contract.ts';
import { withHeartbeats } from '../heartbeat.ts';
import { query } from '../postgres.ts';

/** A page is what the rate allows in a second, so that a pause takes effect within about one. */
const PAGE_MS = 1_000;
const PARALLEL = 20;

interface OperationResources {
  db: Pool;
  workflows: WorkflowClient;
}

export interface OperationPage {
  counts: OperationCounts;
  isLeft: boolean;
}

export type OperationActivities = ReturnType<typeof createOperationActivities>;

export function createOperationActivities({ db, workflows }: OperationResources) {
  const deal = { replay, cancel } satisfies Record<OperationKind, (item: Item) => Promise<boolean>>;

  return {
    /** Deals with the next items, and takes about as long as the rate wants. */
    doPage: (operationId: string, kind: OperationKind, rate: number): Promise<OperationPage> =>
      withHeartbeats(async () => {
        const beganAt = performance.now();
        const items = await query<Item>(db, LIST_ITEMS, [operationId, rate, orderIdOf(operationId)]);
        const wereOrdered = await pLimit(PARALLEL).map(items, deal[kind]);
        const [row] = await query<OperationCounts>(db, MARK_ITEMS, [
          operationId,
          items.map(({ position }) => position),
          wereOrdered,
        ]);
        // Retention has removed it.
        const counts = row ?? { total: 0, done: 0, ordered: 0 };
        const isLeft = items.length === rate;
        const leftMs = (items.length * PAGE_MS) / rate - (performance.now() - beganAt);
        if (isLeft && leftMs > 0)
          await sleep(leftMs, undefined, { signal: Context.current().cancellationSignal });
        return { counts, isLeft };
      }),

    async endOperation(operationId: string, outcome: OperationState['status']): Promise<void> {
      await query(db, END_OPERATION, [operationId, outcome]);
    },
  };

  /** @returns whether there was something to replay. */
  async function replay(item: Item): Promise<boolean> {
    if (item.was_replayed) return true;
    if (!item.is_dead || item.route_id === null) return false;
    const routeRef = routeRefOf(item.route_id);
    const key = { notificationId: item.notification_id, routeRef };
    try {
      await workflows.signalWithStart(ROUTE_WORKFLOW, {
        workflowId: routeWorkflowId(item.notification_id, routeRef),
        taskQueue: INTENT_TASK_QUEUE,
        args: [key],
        signal: REPLAY_SIGNAL,
        signalArgs: [
          {
            requestedBy: item.requested_by,
            orderId: orderIdOf(item.operation_id),
            ...(item.reason === null ? {} : { reason: item.reason }),
          },
        ],
        workflowIdReusePolicy: 'ALLOW_DUPLICATE_FAILED_ONLY',
        typedSearchAttributes: [
          ...notificationAttributes({
            notificationId: item.notification_id,
            notificationType: item.notification_type!,
            producer: item.producer!,
            idempotencyKey: searchableKey(item.idempotency_key!),
          }),
          routeChannel(item.channel!),
        ],
        staticSummary: `${item.notification_type} ${routeRef} (replay)`,
      });
      return true;
    } catch (error) {
      // Its last run completed, which a dead-lettered one never does.
      if (error instanceof WorkflowExecutionAlreadyStartedError) return false;
      throw error;
    }
  }

  /** @returns whether it was under way. */
  async function cancel({ notification_id: notificationId, slice_id: slice }: Item): Promise<boolean> {
    const isRequested = await unlessGone(() =>
      workflows.getHandle(notificationWorkflowId(notificationId)).cancel(),
    );
    if (isRequested || slice === null) return isRequested;
    return unlessGone(() =>
      workflows.getHandle(sliceWorkflowId(slice)).signal(CANCEL_INTENT_SIGNAL, notificationId),
    );
  }
}

/** @returns whether the workflow took it. */
async function unlessGone(call: () => Promise<unknown>): Promise<boolean> {
  try {
    await call();
    return true;
  } catch (error) {
    if (error instanceof WorkflowNotFoundError) return false;
    throw error;
  }
}

interface Item {
  operation_id: string;
  position: number;
  notification_id: string;
  /** Null of a cancellation. */
  route_id: string | null;
  requested_by: string;
  reason: string | null;
  /** The route died before the operation began, is dead, and not too late. */
  is_dead: boolean;
  /** By this operation, in a step that did not come to its end. */
  was_replayed: boolean;
  channel: Channel | null;
  /** Null once retention has removed it. */
  notification_type: string | null;
  producer: string | null;
  idempotency_key: string | null;
  slice_id: string | null;
}

/** $1 operation, $2 items at most, $3 its order. */
const LIST_ITEMS = {
  name: 'list_operation_items',
  text: `
    SELECT item.operation_id, position, item.notification_id, item.route_id, operation.requested_by,
           operation.reason,
           coalesce(route.status = 'dead_letter' AND route.dead_lettered_at < operation.created_at
                    AND (record.expires_at > now()) IS NOT FALSE, false) AS is_dead,
           EXISTS (SELECT FROM notification.replays
                    WHERE replays.notification_id = item.notification_id AND replays.route_id = item.route_id
                      AND replay_id = $3) AS was_replayed,
           route.channel, record.notification_type, record.producer, record.idempotency_key,
           coalesce(record.slice_id, waiting.intent ->> 'slice') AS slice_id
      FROM notification.operations AS operation
      JOIN LATERAL (
           SELECT *
             FROM notification.operation_items
            WHERE operation_id = $1 AND was_ordered IS NULL
            ORDER BY position
            LIMIT $2) AS item ON true
      LEFT JOIN notification.records AS record ON record.notification_id = item.notification_id
      LEFT JOIN notification.waiting_intents AS waiting ON waiting.notification_id = item.notification_id
      LEFT JOIN notification.routes AS route
        ON route.notification_id = item.notification_id AND route.route_id = item.route_id
     WHERE operation.operation_id = $1
     ORDER BY position`,
};

/** $1 operation, $2 positions, $3 of each whether there was something to do. Counts what was not marked before. */
const MARK_ITEMS = {
  name: 'mark_operation_items',
  text: `
    WITH marked AS (
      UPDATE notification.operation_items AS item
         SET was_ordered = dealt.was_ordered
        FROM unnest($2::int[], $3::boolean[]) AS dealt (position, was_ordered)
       WHERE item.operation_id = $1 AND item.position = dealt.position AND item.was_ordered IS NULL
      RETURNING item.was_ordered
    )
    UPDATE notification.operations
       SET done = done + (SELECT count(*) FROM marked),
           ordered = ordered + (SELECT count(*) FROM marked WHERE was_ordered)
     WHERE operation_id = $1
    RETURNING total, done, ordered`,
};

const END_OPERATION = {
  name: 'end_operation',
  text: `
    UPDATE notification.operations
       SET ended_at = clock_timestamp(), outcome = $2
     WHERE operation_id = $1 AND ended_at IS NULL`,
};
