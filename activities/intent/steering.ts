/**
 * What operators do to routes that are on their way: cancel them. A route is closed in Redis first, next to the memory
 * of hand-offs, so that not even an attempt that is still running can publish it afterwards; then its row is settled.
 * A crash between the two leaves the row open and the attempt is repeated.
 */
import { ApplicationFailure, Context } from '@temporalio/activity';
import type { WorkflowClient } from '@temporalio/client';
import type { Redis } from 'ioredis';
import pLimit from 'p-limit';
import type { Pool } from 'pg';
import type { Logger } from 'pino';
import { routeRefOf } from '../../api/ids.ts';
import { ROUTE_OPEN } from '../../workflows/failures.ts';
import type { RouteKey, RouteSlice, RouteTotals, SettledStatus } from '../../workflows/intent/contract.ts';
import { SETTLED_SIGNAL, routeWorkflowId } from '../../workflows/intent/contract.ts';
import { query } from '../postgres.ts';
import { handOff, handOffKey } from './hand-off.ts';
import { loadRoute } from './route-rows.ts';
import { signalIfRunning } from '../workflows.ts';
import { forgetWaiting } from './waiting.ts';

/** Routes of one statement: a large notification is cancelled in steps that each report progress. */
const BATCH_SIZE = 500;
const PARALLEL_SIGNALS = 20;

export interface SteeringResources {
  db: Pool;
  redis: Redis;
  workflows: WorkflowClient;
  log: Logger;
}

export type SteeringActivities = ReturnType<typeof createSteeringActivities>;

interface ListedRoute {
  route_id: string;
}
interface OpenRoute extends ListedRoute {
  generation: number;
}

export function createSteeringActivities({ db, redis, workflows, log }: SteeringResources) {
  async function close(notificationId: string, routes: OpenRoute[]): Promise<void> {
    const keys = routes.map(({ route_id, generation }) => handOffKey(notificationId, route_id, generation));
    const entries = await Promise.all(keys.map((key) => handOff.close(redis, key)));
    await query(db, SETTLE_CLOSED, [
      notificationId,
      routes.map(({ route_id }) => route_id),
      entries.map((entry) => entry ?? null),
    ]);
    // Best effort: what does not fade goes in the end.
    void handOff.fade(redis, keys).catch(() => undefined);
  }

  /** All that were ever cancelled: a crash may have come between closing some and telling them. */
  async function tellSkipped(notificationId: string): Promise<void> {
    for (let after = ''; ;) {
      const page = await query<ListedRoute>(db, LIST_CANCELLED, [notificationId, after, BATCH_SIZE]);
      await tell(notificationId, page);
      Context.current().heartbeat(after);
      after = page.at(-1)?.route_id ?? '';
      if (page.length < BATCH_SIZE) return;
    }
  }

  async function tell(notificationId: string, routes: ListedRoute[]): Promise<void> {
    await pLimit(PARALLEL_SIGNALS).map(routes, async ({ route_id }) => {
      const workflowId = routeWorkflowId(notificationId, routeRefOf(route_id));
      await signalIfRunning(workflows, workflowId, SETTLED_SIGNAL);
    });
  }

  return {
    /**
     * Skips one route unless it is settled already.
     *
     * @returns how it is settled: `published` when cancelling came too late.
     */
    async skipRoute(key: RouteKey): Promise<SettledStatus> {
      const route = await loadRoute(db, key);
      if (isOpen(route.status)) await close(route.notification_id, [route]);
      const { status } = await loadRoute(db, key);
      if (isOpen(status)) throw stillOpen(key);
      return status as SettledStatus;
    },

    /**
     * Skips every route of a notification that is still open, then tells the routes' workflows, which may be waiting
     * for something that does not matter any more. One that was never accepted waits no more.
     */
    async skipOpenRoutes(notificationId: string): Promise<void> {
      await forgetWaiting(db, [notificationId]);
      for (let total = 0; ;) {
        const open = await query<OpenRoute>(db, LIST_OPEN, [notificationId, BATCH_SIZE]);
        if (open.length > 0) await close(notificationId, open);
        total += open.length;
        Context.current().heartbeat(total);
        if (open.length < BATCH_SIZE) {
          await tellSkipped(notificationId);
          log.info(
            { notification_id: notificationId, result: 'skipped', routes: total },
            'notification cancelled',
          );
          return;
        }
      }
    },

    /** The same for the routes of one slice; siblings outside it go on. */
    async skipOpenRoutesOfSlice({ notificationId, offset, limit }: RouteSlice): Promise<void> {
      const slice = [notificationId, offset, limit];
      const open = await query<OpenRoute>(db, LIST_OPEN_OF_SLICE, slice);
      if (open.length > 0) await close(notificationId, open);
      await tell(notificationId, await query<ListedRoute>(db, LIST_CANCELLED_OF_SLICE, slice));
      log.info(
        { notification_id: notificationId, offset, result: 'skipped', routes: open.length },
        'slice of a notification cancelled',
      );
    },

    /** @throws ApplicationFailure `RouteOpen`, retried, for as long as the route is on its way. */
    async awaitSettled(key: RouteKey): Promise<SettledStatus> {
      const { status } = await loadRoute(db, key);
      if (isOpen(status)) throw stillOpen(key);
      return status as SettledStatus;
    },

    /**
     * The same for the routes at [offset, offset + limit) of a notification, ordered by route id. Those that
     * acceptance skipped are not counted.
     */
    async awaitBatchSettled(notificationId: string, offset: number, limit: number): Promise<RouteTotals> {
      const rows = await query<{ status: string; count: number }>(db, COUNT_BATCH, [
        notificationId,
        offset,
        limit,
      ]);
      const count = (status: string) => rows.find((row) => row.status === status)?.count ?? 0;
      const open = count('pending') + count('failed');
      if (open > 0) {
        throw ApplicationFailure.create({ type: ROUTE_OPEN, message: `${open} routes are not settled yet` });
      }
      return {
        published: count('published'),
        skipped: count('skipped'),
        deadLettered: count('dead_letter'),
      };
    },
  };
}

const isOpen = (status: string): boolean => status === 'pending' || status === 'failed';

const stillOpen = ({ routeRef }: RouteKey) =>
  ApplicationFailure.create({ type: ROUTE_OPEN, message: `${routeRef} is not settled yet` });

const OPEN_COLUMNS = `route_id,
           (SELECT count(*)::int
              FROM notification.replays
             WHERE replays.notification_id = $1 AND replays.route_id = route.route_id
           ) AS generation`;
const IS_OPEN = "status IN ('pending', 'failed')";
/** Those that acceptance skipped, at the instant of their creation, have no workflow. */
const IS_CANCELLED = 'skipped_at <> created_at';

const LIST_OPEN = {
  name: 'list_open_routes',
  text: `
    SELECT ${OPEN_COLUMNS}
      FROM notification.routes AS route
     WHERE notification_id = $1 AND ${IS_OPEN}
     ORDER BY route_id
     LIMIT $2`,
};

const LIST_CANCELLED = {
  name: 'list_cancelled_routes',
  text: `
    SELECT route_id
      FROM notification.routes
     WHERE notification_id = $1 AND ${IS_CANCELLED} AND route_id > $2
     ORDER BY route_id
     LIMIT $3`,
};

/** Routes at [$2, $2 + $3) of notification $1, ordered by route id. */
const SLICE = `(SELECT route_id, status, created_at, skipped_at
              FROM notification.routes
             WHERE notification_id = $1
             ORDER BY route_id
            OFFSET $2 LIMIT $3)`;

const LIST_OPEN_OF_SLICE = {
  name: 'list_open_routes_of_slice',
  text: `
    SELECT ${OPEN_COLUMNS}
      FROM ${SLICE} AS route
     WHERE ${IS_OPEN}`,
};

const LIST_CANCELLED_OF_SLICE = {
  name: 'list_cancelled_routes_of_slice',
  text: `
    SELECT route_id
      FROM ${SLICE} AS route
     WHERE ${IS_CANCELLED}`,
};

const SETTLE_CLOSED = {
  name: 'settle_closed_routes',
  text: `
    UPDATE notification.routes AS route
       SET status = CASE WHEN closed.entry_id IS NULL THEN 'skipped' ELSE 'published' END,
           attempt_count = attempt_count + (closed.entry_id IS NOT NULL)::int,
           next_attempt_at = NULL,
           entry_id = closed.entry_id,
           published_at = CASE WHEN closed.entry_id IS NOT NULL THEN statement_timestamp() END,
           skipped_at = CASE WHEN closed.entry_id IS NULL THEN statement_timestamp() END,
           updated_at = statement_timestamp()
      FROM unnest($2::text[], $3::text[]) AS closed (route_id, entry_id)
     WHERE route.notification_id = $1 AND route.route_id = closed.route_id AND status IN ('pending', 'failed')`,
};

const COUNT_BATCH = {
  name: 'count_batch',
  text: `
    SELECT status, count(*)::int AS count
      FROM ${SLICE} AS batch
     WHERE skipped_at IS DISTINCT FROM created_at
     GROUP BY status`,
};
