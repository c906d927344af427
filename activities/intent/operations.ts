/**
 * What operators do to many intents: dead-lettered routes are replayed, notifications cancelled, refused entries published
 * again. An order that was given already has no effect on a route, nothing is cancelled twice, and Redis remembers which
 * entries it has appended.
 */
import type { WorkflowClient } from '@temporalio/client';
import { WorkflowExecutionAlreadyStartedError, WorkflowNotFoundError } from '@temporalio/client';
import type { Redis } from 'ioredis';
import pLimit from 'p-limit';
import type { Pool } from 'pg';
import { routeRefOf, searchableKey } from '../../api/ids.ts';
import type { Channel } from '../../api/intent/catalog.ts';
import { mendEntry } from '../../api/intent/mending.ts';
import { republishedKey } from '../../api/intent/stream.ts';
import { ROUTE_WORKFLOW, notificationWorkflowId } from '../../workflows/intent/contract.ts';
import { routeReplay } from '../../workflows/intent/replay-contract.ts';
import { CANCEL_INTENT_SIGNAL, sliceWorkflowId } from '../../workflows/intent/slice-contract.ts';
import type { OperationKind, OperationOptions } from '../../workflows/operation-contract.ts';
import { orderIdOf } from '../../workflows/operation-contract.ts';
import type { OperationItem, OperationWork } from '../operations.ts';
import { ORDER_OF_ITEM, PARALLEL_ITEMS, operationItems, workOf } from '../operations.ts';

/**
 * How long Redis remembers that an operation has appended an entry: for longer than PostgreSQL may be away, or the
 * operation wait, after which it has to be marked.
 */
const REMEMBER_REPUBLISHED_MS = 30 * 86_400_000;

interface OperationResources {
  db: Pool;
  redis: Redis;
  workflows: WorkflowClient;
  intentsStream: string;
}

export function intentOperations({
  redis,
  workflows,
  intentsStream,
}: OperationResources): Partial<Record<OperationKind, OperationWork<OperationItem>>> {
  const oneByOne =
    <Item>(one: (item: Item) => Promise<boolean>) =>
    (items: readonly Item[]) =>
      pLimit(PARALLEL_ITEMS).map(items, one);
  return {
    replay: workOf<RouteItem>({ list: LIST_ITEMS, deal: oneByOne(replay) }),
    cancel: workOf<RouteItem>({ list: LIST_ITEMS, deal: oneByOne(cancel) }),
    republish: workOf<EntryItem>({ list: LIST_ENTRIES, deal: oneByOne(republish) }),
  };

  /** @returns whether there was something to replay. */
  async function replay(item: RouteItem): Promise<boolean> {
    if (item.was_replayed) return true;
    if (!item.is_dead || item.route_id === null) return false;
    const order = routeReplay(
      {
        ...{
          notificationId: item.notification_id,
          routeRef: routeRefOf(item.route_id),
          channel: item.channel!,
        },
        ...{ notificationType: item.notification_type!, producer: item.producer! },
        idempotencyKey: searchableKey(item.idempotency_key!),
      },
      {
        ...{ requestedBy: item.requested_by, orderId: orderIdOf(item.operation_id) },
        ...(item.reason === null ? {} : { reason: item.reason }),
      },
    );
    try {
      await workflows.signalWithStart(ROUTE_WORKFLOW, order);
      return true;
    } catch (error) {
      // Its last run completed, which a dead-lettered one never does.
      if (error instanceof WorkflowExecutionAlreadyStartedError) return false;
      throw error;
    }
  }

  /** @returns whether it was under way. */
  async function cancel({ notification_id: notificationId, slice_id: slice }: RouteItem): Promise<boolean> {
    const isRequested = await unlessGone(() =>
      workflows.getHandle(notificationWorkflowId(notificationId)).cancel(),
    );
    if (isRequested || slice === null) return isRequested;
    return unlessGone(() =>
      workflows.getHandle(sliceWorkflowId(slice)).signal(CANCEL_INTENT_SIGNAL, notificationId),
    );
  }

  /** @returns whether it is one that the service would take. */
  async function republish(item: EntryItem): Promise<boolean> {
    if (item.raw_fields === null) return false;
    const mended = mendEntry(item.entry_id, item.raw_fields, item.options ?? {});
    if ('reason' in mended) return false;
    await redis.eval(
      APPEND_ONCE,
      2,
      republishedKey(item.operation_id, item.entry_id),
      intentsStream,
      REMEMBER_REPUBLISHED_MS,
      ...Object.entries(mended.fields).flat(),
    );
    return true;
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

interface RouteItem extends OperationItem {
  notification_id: string;
  /** Null of a cancellation. */
  route_id: string | null;
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

interface EntryItem extends OperationItem {
  entry_id: string;
  options: OperationOptions | null;
  /** Null once retention has removed it. */
  raw_fields: Record<string, string> | null;
}

/** KEYS: memory, stream. ARGV: memory ms, field, value, ... Returns the id of the entry, now or before. */
const APPEND_ONCE = `
  local before = redis.call('GET', KEYS[1])
  if before then return before end
  local id = redis.call('XADD', KEYS[2], '*', unpack(ARGV, 2))
  redis.call('SET', KEYS[1], id, 'PX', ARGV[1])
  return id`;

const LIST_ITEMS = {
  name: 'list_operation_items',
  text: operationItems(
    `item.notification_id, item.route_id, operation.reason,
           coalesce(route.status = 'dead_letter' AND route.dead_lettered_at < operation.created_at
                    AND (record.expires_at > now()) IS NOT FALSE, false) AS is_dead,
           EXISTS (SELECT FROM notification.replays
                    WHERE replays.notification_id = item.notification_id AND replays.route_id = item.route_id
                      AND replay_id = ${ORDER_OF_ITEM}) AS was_replayed,
           route.channel, record.notification_type, record.producer, record.idempotency_key,
           coalesce(record.slice_id, waiting.intent ->> 'slice') AS slice_id`,
    `LEFT JOIN notification.records AS record ON record.notification_id = item.notification_id
      LEFT JOIN notification.waiting_intents AS waiting ON waiting.notification_id = item.notification_id
      LEFT JOIN notification.routes AS route
        ON route.notification_id = item.notification_id AND route.route_id = item.route_id`,
  ),
};

const LIST_ENTRIES = {
  name: 'list_operation_entries',
  text: operationItems(
    'item.notification_id AS entry_id, operation.options, malformed.raw_fields',
    'LEFT JOIN notification.malformed_intents AS malformed ON malformed.stream_entry_id = item.notification_id',
  ),
};
