/**
 * What operators do to many intents: dead-lettered routes are replayed, notifications cancelled, refused entries published
 * again, routes that waited for a channel or a producer released. All of it may be done twice: an order that a route has carried
 * out has no effect on it, nothing is cancelled twice, Redis remembers which entries it has appended, and a route that does not wait
 * takes no notice.
 */
import { WorkflowExecutionAlreadyStartedError } from '@temporalio/client';
import { given } from '../../api/given.ts';
import { routeRefOf, searchableKey } from '../../api/ids.ts';
import type { Correction } from '../../api/intent/mending.ts';
import { mendEntry } from '../../api/intent/mending.ts';
import { republishedKey } from '../../api/intent/stream.ts';
import {
  CHANNEL_RESUMED_SIGNAL,
  ROUTE_WORKFLOW,
  notificationWorkflowId,
  routeReplay,
  routeWorkflowId,
} from '../../workflows/intent/contract.ts';
import type { OperationKind } from '../../workflows/operation-contract.ts';
import { orderIdOf } from '../../workflows/operation-contract.ts';
import type { NotificationKeys } from '../../workflows/search-attributes.ts';
import type { OperationItem, OperationWork } from '../operations.ts';
import { ORDER_OF_ITEM, operationItems } from '../operations.ts';
import { signalIfRunning, statusOf, unlessGone } from '../workflows.ts';
import { giveUp } from './entries.ts';
import { handOff } from './hand-off.ts';
import type { IntentResources } from './resources.ts';
import type { RouteName } from './route-rows.ts';
import { createClosing } from './steering.ts';

/**
 * How long Redis remembers that an operation has appended an entry: for longer than PostgreSQL may be away, or the
 * operation wait, after which it has to be marked.
 */
const REMEMBER_REPUBLISHED_MS = 30 * 86_400_000;

export function intentOperations(
  resources: Pick<IntentResources, 'db' | 'redis' | 'workflows' | 'catalog'> & { intentsStream: string },
): Partial<Record<OperationKind, OperationWork>> {
  const { db, redis, workflows, catalog, intentsStream } = resources;
  const closing = createClosing(resources);
  return {
    replay: { list: LIST_DEAD, deal: replay },
    cancel: { list: LIST_OPEN, deal: cancel },
    republish: { list: LIST_ENTRIES, deal: republish },
    release: { list: LIST_WAITING, deal: release },
  };

  /** @returns whether there was something to replay. */
  async function replay({ routeId, isDead, wasReplayed, reason, ...item }: ReplayItem): Promise<boolean> {
    if (wasReplayed || !isDead) return wasReplayed;
    const keys = {
      ...item,
      routeRef: routeRefOf(routeId),
      idempotencyKey: searchableKey(item.idempotencyKey),
    };
    const orderId = orderIdOf(item.operation_id);
    const request = given({ requestedBy: item.requested_by, orderId, reason: reason ?? undefined });
    try {
      await workflows.signalWithStart(ROUTE_WORKFLOW, routeReplay(keys, request));
      return true;
    } catch (error) {
      // Its last run has completed, so it was published, whatever a PostgreSQL says that was put back since.
      if (error instanceof WorkflowExecutionAlreadyStartedError) return false;
      throw error;
    }
  }

  /**
   * Settles the rows first: from then on nothing of it goes out, however long its workflows take to end.
   *
   * @returns whether there was something to cancel.
   */
  async function cancel({ notificationId }: CancelItem): Promise<boolean> {
    const isGivenUp = await giveUp(db, notificationId);
    const closed = await closing.closeAll(notificationId);
    if (closed > 0) await handOff.voidAttempts(redis, notificationId);
    const workflowId = notificationWorkflowId(notificationId);
    // Temporal takes the cancellation of one that has ended, too.
    const isTold =
      (await statusOf(workflows, workflowId)) === 'RUNNING' &&
      (await unlessGone(() => workflows.getHandle(workflowId).cancel())) !== undefined;
    return isTold || isGivenUp || closed > 0;
  }

  /** @returns whether it is one that the service would take. */
  async function republish(item: EntryItem): Promise<boolean> {
    const { entryId, rawFields, options } = item;
    if (rawFields === null) return false;
    const corrected = mendEntry(catalog, entryId, rawFields, options ?? {});
    if ('reason' in corrected) return false;
    const keys = [republishedKey(item.operation_id, entryId), intentsStream];
    const values = [REMEMBER_REPUBLISHED_MS, ...Object.entries(corrected.fields).flat()];
    await redis.eval(APPEND_ONCE, keys.length, ...keys, ...values);
    return true;
  }

  /** @returns whether it was open. One whose workflow is started later sees that nothing holds it. */
  async function release({ notificationId, routeId, isOpen }: WaitingItem): Promise<boolean> {
    const workflowId = routeWorkflowId(notificationId, routeRefOf(routeId));
    if (isOpen) await signalIfRunning(workflows, workflowId, CHANNEL_RESUMED_SIGNAL);
    return isOpen;
  }
}

interface ReplayItem extends OperationItem, NotificationKeys {
  routeId: string;
  reason: string | null;
  /** The route died before the operation began, is dead, and not too late. */
  isDead: boolean;
  /** By this operation. */
  wasReplayed: boolean;
}

type CancelItem = OperationItem & { notificationId: string };

interface EntryItem extends OperationItem {
  entryId: string;
  options: Correction | null;
  /** Null once retention has removed it. */
  rawFields: Record<string, string> | null;
}

interface WaitingItem extends OperationItem, RouteName {
  isOpen: boolean;
}

/** KEYS: memory, stream. ARGV: memory ms, field, value, ... Returns the id of the entry, now or before. */
const APPEND_ONCE = `
  local before = redis.call('GET', KEYS[1])
  if before then return before end
  local id = redis.call('XADD', KEYS[2], '*', unpack(ARGV, 2))
  redis.call('SET', KEYS[1], id, 'PX', ARGV[1])
  return id`;

const LIST_DEAD = {
  name: 'list_operation_routes',
  text: operationItems(
    `item.notification_id AS "notificationId", item.route_id AS "routeId", operation.reason, notification_type AS "notificationType",
           producer, idempotency_key AS "idempotencyKey",
           coalesce(route.status = 'dead_letter' AND route.dead_lettered_at < operation.created_at
                    AND (record.expires_at > now()) IS NOT FALSE, false) AS "isDead",
           EXISTS (SELECT FROM notification.replays
                    WHERE replays.notification_id = item.notification_id AND replays.route_id = item.route_id
                      AND replay_id = ${ORDER_OF_ITEM}) AS "wasReplayed"`,
    `LEFT JOIN notification.records AS record ON record.notification_id = item.notification_id
      LEFT JOIN notification.routes AS route
        ON route.notification_id = item.notification_id AND route.route_id = item.route_id`,
  ),
};

const LIST_OPEN = {
  name: 'list_operation_notifications',
  text: operationItems('item.notification_id AS "notificationId"', ''),
};

const LIST_ENTRIES = {
  name: 'list_operation_entries',
  text: operationItems(
    'item.notification_id AS "entryId", operation.options, malformed.raw_fields AS "rawFields"',
    'LEFT JOIN notification.malformed_intents AS malformed ON malformed.stream_entry_id = item.notification_id',
  ),
};

const LIST_WAITING = {
  name: 'list_operation_waiting_routes',
  text: operationItems(
    'item.notification_id AS "notificationId", item.route_id AS "routeId", next_attempt_at IS NOT NULL AS "isOpen"',
    `LEFT JOIN notification.routes AS route
        ON route.notification_id = item.notification_id AND route.route_id = item.route_id`,
  ),
};
