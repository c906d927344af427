/**
 * Replays of dead-lettered routes. Each is one signal-with-start on the route's workflow id: a workflow that waits
 * tries now, one that ended as Failed runs again and opens the route's next generation with a fresh budget (see
 * REPLAY_SIGNAL). A workflow whose route was published cannot be started again, even if a row says otherwise. Many are
 * replayed by an operation (operations.ts).
 */
import { WorkflowExecutionAlreadyStartedError } from '@temporalio/client';
import { routeRefOf, searchableKey } from '../../api/ids.ts';
import { ROUTE_EXPIRED } from '../../api/intent/outcome.ts';
import type { ReplayRequest } from '../../workflows/intent/contract.ts';
import type { NotificationKeys } from '../../workflows/search-attributes.ts';
import { ROUTE_WORKFLOW, routeReplay } from '../../workflows/intent/contract.ts';
import { NotFoundError, NothingToDoError } from '../errors.ts';
import { clockOf, groupsOf } from '../lists.ts';
import type { OperatorResources } from '../resources.ts';
import { bounded } from '../temporal.ts';
import type { WaitOptions } from '../wait-until.ts';
import { waitUntil } from '../wait-until.ts';
import type { DeadLetterFilter, ReplayGroup } from './dead-letters.ts';
import { chooseDead } from './dead-letters.ts';

export interface ReplayedRoute {
  notificationId: string;
  routeId: string;
  routeRef: string;
  /** `already_published`: its workflow had published it; nothing was sent. */
  result: 'replayed' | 'already_published';
}

/** How replayed routes ended. */
export interface ReplayResult {
  published: number;
  skipped: number;
  /** Not sent any more, because they were too late. */
  expired: number;
  /** Spent their new budget as well. */
  diedAgain: number;
  /** Not settled when the wait ended; 0 unless it ran out of time. */
  open: number;
  /** Removed meanwhile, by retention. */
  gone: number;
}

export function replayOperations(resources: OperatorResources) {
  const { db } = resources;

  return {
    /**
     * Replays one route. An open one, which is waiting for its next attempt, tries now.
     *
     * @throws NotFoundError when there is no such route; NothingToDoError when it was published or skipped, or is too late.
     */
    async route(
      notificationId: string,
      routeId: string,
      request: ReplayRequest = {},
    ): Promise<{ startedAt: string; replayed: ReplayedRoute }> {
      const startedAt = await clockOf(db);
      const [route] = (await db.query<RouteToReplay>(FIND_ROUTE, [notificationId, routeId])).rows;
      if (!route) throw new NotFoundError(`notification ${notificationId} has no route ${routeId}`);
      const expiredAt = route.expiresAt?.toISOString();
      const nothing = (why: string) => new NothingToDoError(`route ${routeId} of ${notificationId} ${why}`);
      if (route.isLate) throw nothing(`expired at ${expiredAt}: it is not sent any more`);
      if (route.status === 'published' || route.status === 'skipped')
        throw nothing(`is ${route.status}: nothing to replay`);
      return { startedAt, replayed: await replay(route, request) };
    },

    /** What a bulk replay with this filter would replay, by type, channel and failure. */
    preview: (filter: DeadLetterFilter): Promise<ReplayGroup[]> => groupsOf(db, chooseDead(filter)),

    /**
     * Waits until replayed routes, a few, are published, skipped or dead again.
     *
     * @param startedAt of the replay: a route whose last death is older has not been taken up yet.
     * @returns their totals, with some still open when the time was up.
     */
    async wait(
      routes: readonly Pick<ReplayedRoute, 'notificationId' | 'routeId'>[],
      startedAt: string,
      options: WaitOptions,
    ): Promise<ReplayResult> {
      const ids = [routes.map(({ notificationId }) => notificationId), routes.map(({ routeId }) => routeId)];
      let outcome: ReplayResult = { ...NONE, open: routes.length };
      await waitUntil(
        async () => {
          outcome = (await db.query<ReplayResult>(OUTCOME, [...ids, startedAt])).rows[0]!;
          return outcome.open === 0 || undefined;
        },
        { everyMs: 500, ...options },
      );
      return outcome;
    },
  };

  async function replay(route: RouteToReplay, request: ReplayRequest): Promise<ReplayedRoute> {
    const { notificationId, routeId } = route;
    const routeRef = routeRefOf(routeId);
    const replayed = { notificationId, routeId, routeRef };
    const keys = { ...route, routeRef, idempotencyKey: searchableKey(route.idempotencyKey) };
    const order = routeReplay(keys, request);
    try {
      await bounded(resources.temporal, () =>
        resources.temporal.workflow.signalWithStart(ROUTE_WORKFLOW, order),
      );
      return { ...replayed, result: 'replayed' };
    } catch (error) {
      // Its last run completed, which a dead-lettered one never does.
      if (!(error instanceof WorkflowExecutionAlreadyStartedError)) throw error;
      return { ...replayed, result: 'already_published' };
    }
  }
}

interface RouteToReplay extends NotificationKeys {
  routeId: string;
  status: string;
  expiresAt: Date | null;
  /** Dead or skipped, and not to be sent any more. */
  isLate: boolean;
}

/** Of no route. */
export const NONE: ReplayResult = {
  ...{ published: 0, skipped: 0, expired: 0 },
  ...{ diedAgain: 0, open: 0, gone: 0 },
};

/** A route that was skipped because it came too late. */
const IS_EXPIRED = `coalesce(status = 'skipped' AND last_error_classification = '${ROUTE_EXPIRED}', false)`;

const FIND_ROUTE = `
  SELECT route.notification_id AS "notificationId", route_id AS "routeId", status, notification_type AS "notificationType",
         producer, idempotency_key AS "idempotencyKey", expires_at AS "expiresAt",
         ${IS_EXPIRED} OR coalesce(status = 'dead_letter' AND expires_at <= now(), false) AS "isLate"
    FROM notification.routes AS route
    JOIN notification.records USING (notification_id)
   WHERE route.notification_id = $1 AND route.route_id = $2`;

/**
 * @param since SQL of the moment of the order: a death before it has not been taken up yet.
 * @param isReplay SQL that tells whether dead routes were ordered at all.
 * @returns the columns of a ReplayResult, of a `route` and its `record` that may be gone, and of {@link lateness}.
 */
export const outcomeColumns = (since: string, isReplay = 'true'): string => `
         count(*) FILTER (WHERE status = 'published')::int AS published,
         count(*) FILTER (WHERE status = 'skipped' AND NOT is_late)::int AS skipped,
         count(*) FILTER (WHERE is_late)::int AS expired,
         count(*) FILTER (WHERE status = 'dead_letter' AND dead_lettered_at >= ${since})::int AS "diedAgain",
         count(*) FILTER (WHERE status IN ('pending', 'failed')
                             OR status = 'dead_letter' AND dead_lettered_at < ${since}
                                AND ${isReplay} AND NOT is_late)::int AS open,
         count(*) FILTER (WHERE status IS NULL AND ${isReplay})::int AS gone`;

/** @returns what to join, so that `is_late` tells what is not sent any more. Parameters as of {@link outcomeColumns}. */
export const lateness = (since: string, isReplay = 'true'): string => `
   CROSS JOIN LATERAL (
         SELECT ${IS_EXPIRED}
                OR coalesce(${isReplay} AND status = 'dead_letter' AND dead_lettered_at < ${since}
                            AND expires_at <= now(), false) AS is_late) AS lateness`;

const SINCE = '$3::timestamptz';
const OUTCOME = `
  SELECT ${outcomeColumns(SINCE)}
    FROM unnest($1::text[], $2::text[]) AS replayed (notification_id, route_id)
    LEFT JOIN notification.routes USING (notification_id, route_id)
    LEFT JOIN notification.records USING (notification_id)
    ${lateness(SINCE)}`;
