/**
 * What operators do to intents and their routes: cancel them, and in operations on many replay, publish again and release.
 *
 * A route that is cancelled is closed in Redis first, next to the memory of hand-offs, so that not even an attempt that is still
 * running can publish it afterwards; then its row is settled. A crash between the two leaves the row open and the attempt is
 * repeated.
 *
 * A Redis that falls back between the two has forgotten that, and an attempt that begins there finds the row open. So
 * the route is closed once more, behind its row: who begins later finds the row settled, and who began before either
 * finds the route closed, or Redis fallen back again and appends nothing. A PostgreSQL that falls back leaves no rows to
 * close: of a notification that is cancelled as a whole, attempts from before are void in any case.
 */
import { ApplicationFailure } from '@temporalio/activity';
import { WorkflowExecutionAlreadyStartedError } from '@temporalio/client';
import pLimit from 'p-limit';
import type { Pool } from 'pg';
import { given } from '../../api/given.ts';
import { routeRefOf, searchableKey } from '../../api/ids.ts';
import type { Correction } from '../../api/intent/mending.ts';
import { mendEntry } from '../../api/intent/mending.ts';
import { republishedKey } from '../../api/intent/stream.ts';
import { unlessGone } from '../../api/stuck-workflow.ts';
import { byWhom, detailsOf, shortText } from '../../workflows/details.ts';
import { ROUTE_OPEN } from '../../workflows/failures.ts';
import type { ReplayRequest, RouteKey, RouteTotals, SettledStatus } from '../../workflows/intent/contract.ts';
import {
  CHANNEL_RESUMED_SIGNAL,
  INTENT_TASK_QUEUE,
  REPLAY_SIGNAL,
  ROUTE_WORKFLOW,
  SETTLED_SIGNAL,
  notificationWorkflowId,
  routeWorkflowId,
} from '../../workflows/intent/contract.ts';
import type { OperationKind } from '../../workflows/operation-contract.ts';
import { orderIdOf } from '../../workflows/operation-contract.ts';
import type { NotificationKeys } from '../../workflows/search-attributes.ts';
import { notificationAttributes, routeAttributes } from '../../workflows/search-attributes.ts';
import { heartbeat } from '../attempt.ts';
import type { OperationItem, OperationWork } from '../operations.ts';
import { ORDER_OF_ITEM, operationItems } from '../operations.ts';
import { signalIfRunning, statusOf } from '../workflows.ts';
import { giveUp } from './entries.ts';
import { handOff, leaseKey } from './hand-off.ts';
import type { IntentResources } from './resources.ts';
import type { HandOffName, ListedRoute, RouteName } from './route-rows.ts';
import { countRoutes, handOffKeyOf, isOpen, listRoutes, loadRoute, settleRoutes } from './route-rows.ts';
import { showDeadLetter } from './routes.ts';

/** Routes of one statement: a large notification is cancelled in steps that each report progress. */
const BATCH_SIZE = 500;
const PARALLEL_SIGNALS = 20;

type SteeringResources = Pick<IntentResources, 'db' | 'redis' | 'workflows' | 'log'>;

export type SteeringActivities = ReturnType<typeof createSteeringActivities>;

/** How routes that are open are closed. */
function createClosing({ db, redis }: Pick<SteeringResources, 'db' | 'redis'>) {
  return { close, closeAll };

  /**
   * Closes routes that are open and settles their rows; or closes routes once more whose rows say `skipped`: what was handed
   * off all the same counts as published.
   */
  async function close(
    notificationId: string,
    routes: readonly HandOffName[],
    isAgain = false,
  ): Promise<void> {
    const closed = await Promise.all(
      routes.map(async (route) => {
        const { routeId } = route;
        const keys = { handOff: handOffKeyOf(route), lease: leaseKey(notificationId, routeId) };
        const publishedAs = await handOff.close(redis, keys.handOff);
        return { notificationId, routeId, keys, token: '', publishedAs };
      }),
    );
    const settled = isAgain ? closed.filter(({ publishedAs }) => publishedAs !== undefined) : closed;
    await settleRoutes(db, settled, isAgain ? ['skipped'] : undefined);
    void handOff.end(redis, closed, true);
  }

  /** Closes the open routes of a notification. @param onPage gets how many there were so far. @returns how many there were. */
  async function closeAll(notificationId: string, onPage?: (total: number) => void): Promise<number> {
    let total = 0;
    for await (const page of pagesOf(db, notificationId)) {
      const open = page.filter(isOpen);
      if (open.length > 0) await close(notificationId, open);
      total += open.length;
      onPage?.(total);
    }
    return total;
  }
}

export function createSteeringActivities(resources: SteeringResources) {
  const { db, redis, workflows, log } = resources;
  const { close, closeAll } = createClosing(resources);

  /** All that were ever cancelled: a crash may have come between settling some and telling them. */
  async function concludeSkipped(notificationId: string): Promise<void> {
    for await (const page of pagesOf(db, notificationId)) {
      const cancelled = page.filter(({ status, isUnwanted }) => status === 'skipped' && !isUnwanted);
      await close(notificationId, cancelled, true);
      await pLimit(PARALLEL_SIGNALS).map(cancelled, async ({ routeId }) => {
        const workflowId = routeWorkflowId(notificationId, routeRefOf(routeId));
        await signalIfRunning(workflows, workflowId, SETTLED_SIGNAL);
      });
      heartbeat(page.at(-1)?.routeId);
    }
  }

  return {
    /**
     * Skips one route unless it is settled already.
     *
     * @returns how it is settled: `published` when cancelling came too late.
     */
    async skipRoute(key: RouteKey): Promise<SettledStatus> {
      const found = await loadRoute(db, key);
      if (isOpen(found)) await close(found.notificationId, [found]);
      const settled = await loadRoute(db, key);
      if (settled.status === 'skipped') await close(settled.notificationId, [settled], true);
      const route = await loadRoute(db, key);
      if (isOpen(route)) throw stillOpen(`${key.routeRef} is`);
      if (route.status === 'dead_letter') await showDeadLetter(workflows, route);
      return route.status as SettledStatus;
    },

    /**
     * Skips every route of a notification that is still open, then tells the routes' workflows, which may be waiting
     * for something that does not matter any more. One that was never accepted never will be.
     */
    async skipOpenRoutes(notificationId: string): Promise<void> {
      await giveUp(db, notificationId);
      const routes = await closeAll(notificationId, heartbeat);
      await concludeSkipped(notificationId);
      await handOff.voidAttempts(redis, notificationId);
      log.info({ notification_id: notificationId, result: 'skipped', routes }, 'routes cancelled');
    },

    /** @throws ApplicationFailure `RouteOpen`, retried, for as long as a route of the notification is on its way. */
    async awaitAllSettled(notificationId: string): Promise<RouteTotals> {
      const { open, ...totals } = await countRoutes(db, notificationId);
      if (open === 0) return totals;
      throw stillOpen(`${open} routes are`);
    },
  };
}

const stillOpen = (what: string) =>
  ApplicationFailure.create({ type: ROUTE_OPEN, message: `${what} not settled yet` });

/** Pages of at most BATCH_SIZE routes. */
async function* pagesOf(db: Pool, notificationId: string): AsyncGenerator<ListedRoute[]> {
  for (let page: ListedRoute[] = []; ;) {
    page = await listRoutes(db, notificationId, BATCH_SIZE, page.at(-1)?.routeId);
    yield page;
    if (page.length < BATCH_SIZE) return;
  }
}

// --- Operations on many. All of it may be done twice: an order that a route has carried out has no effect on it, nothing is
// cancelled twice, Redis remembers which entries it has appended, and a route that does not wait takes no notice.

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
    const { notificationId, notificationType, operation_id: operationId, requested_by: requestedBy } = item;
    const routeRef = routeRefOf(routeId);
    const keys = { ...item, idempotencyKey: searchableKey(item.idempotencyKey) };
    const request: ReplayRequest = given({ requestedBy, orderId: orderIdOf(operationId), reason });
    try {
      // A run that waits tries now, one that failed is followed by another.
      await workflows.signalWithStart(ROUTE_WORKFLOW, {
        workflowId: routeWorkflowId(notificationId, routeRef),
        taskQueue: INTENT_TASK_QUEUE,
        args: [{ notificationId, routeRef } satisfies RouteKey],
        signal: REPLAY_SIGNAL,
        signalArgs: [request],
        workflowIdReusePolicy: 'ALLOW_DUPLICATE_FAILED_ONLY',
        typedSearchAttributes: [...notificationAttributes(keys), ...routeAttributes(routeRef)],
        staticSummary: `${notificationType} ${routeRef} (replay)`,
        staticDetails: detailsOf(`Replay${byWhom(requestedBy)}`, shortText(reason ?? '')),
      });
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
