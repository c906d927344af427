/**
 * What operators do to routes that are on their way: cancel them. A route is closed in Redis first, next to the memory
 * of hand-offs, so that not even an attempt that is still running can publish it afterwards; then its row is settled.
 * A crash between the two leaves the row open and the attempt is repeated.
 *
 * A Redis that falls back between the two has forgotten that, and an attempt that begins there finds the row open. So
 * the route is closed once more, behind its row: who begins later finds the row settled, and who began before either
 * finds the route closed, or Redis fallen back again and appends nothing. A PostgreSQL that falls back leaves no rows to
 * close: of a notification that is cancelled as a whole, attempts from before are void in any case.
 */
import { ApplicationFailure } from '@temporalio/activity';
import pLimit from 'p-limit';
import type { Pool } from 'pg';
import { routeRefOf } from '../../api/ids.ts';
import { ROUTE_OPEN } from '../../workflows/failures.ts';
import type { RouteKey, RouteTotals, SettledStatus } from '../../workflows/intent/contract.ts';
import { SETTLED_SIGNAL, routeWorkflowId } from '../../workflows/intent/contract.ts';
import { heartbeat } from '../attempt.ts';
import { showDeadLetter } from './routes.ts';
import { handOff, leaseKey } from './hand-off.ts';
import type { IntentResources } from './resources.ts';
import type { HandOffName, ListedRoute } from './route-rows.ts';
import { countRoutes, handOffKeyOf, isOpen, listRoutes, loadRoute, settleRoutes } from './route-rows.ts';
import { signalIfRunning } from '../workflows.ts';
import { giveUp } from './entries.ts';

/** Routes of one statement: a large notification is cancelled in steps that each report progress. */
const BATCH_SIZE = 500;
const PARALLEL_SIGNALS = 20;

type SteeringResources = Pick<IntentResources, 'db' | 'redis' | 'workflows' | 'log'>;

export type SteeringActivities = ReturnType<typeof createSteeringActivities>;

/** How routes that are open are closed. */
export function createClosing({ db, redis }: Pick<SteeringResources, 'db' | 'redis'>) {
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
      if (isOpen(route)) throw stillOpen(key);
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

    /** @throws ApplicationFailure `RouteOpen`, retried, for as long as the route is on its way. */
    async awaitSettled(key: RouteKey): Promise<SettledStatus> {
      const route = await loadRoute(db, key);
      if (isOpen(route)) throw stillOpen(key);
      return route.status as SettledStatus;
    },

    /** The same for all routes of a notification. */
    async awaitAllSettled(notificationId: string): Promise<RouteTotals> {
      const { open, ...totals } = await countRoutes(db, notificationId);
      if (open === 0) return totals;
      throw ApplicationFailure.create({ type: ROUTE_OPEN, message: `${open} routes are not settled yet` });
    },
  };
}

const stillOpen = ({ routeRef }: RouteKey) =>
  ApplicationFailure.create({ type: ROUTE_OPEN, message: `${routeRef} is not settled yet` });

/** Pages of at most BATCH_SIZE routes. */
async function* pagesOf(db: Pool, notificationId: string): AsyncGenerator<ListedRoute[]> {
  for (let page: ListedRoute[] = []; ;) {
    page = await listRoutes(db, notificationId, BATCH_SIZE, page.at(-1)?.routeId);
    yield page;
    if (page.length < BATCH_SIZE) return;
  }
}
