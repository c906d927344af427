/**
 * Routes that spent their budget. A row of `dead_letters` is history and stays when the route is replayed by an operation
 * (operations.ts); whether the route is still dead is `routes.status`.
 */
import { routeRefOf } from '../../api/ids.ts';
import type { Channel } from '../../api/intent/catalog.ts';
import { routeWorkflowId } from '../../workflows/intent/contract.ts';
import type { Grouped, Listing, Page, Span } from '../lists.ts';
import { conditionsOf, listOf, spanOf } from '../lists.ts';
import type { OperatorResources } from '../resources.ts';
import { linkField } from '../resources.ts';

/** Which dead letters; all given filters must hold. */
export interface DeadLetterFilter {
  notificationId?: string;
  /** Or the route as it is called in workflow ids. */
  routeId?: string;
  type?: string;
  producer?: string;
  channel?: Channel;
  /** Classification of the failure that killed the route. */
  failure?: string;
  /** Bounds of the time of death, both included. */
  since?: Date;
  until?: Date;
}

export interface DeadLetter {
  notificationId: string;
  /** May hold an e-mail address: for the operator's eyes, not for logs. */
  routeId: string;
  /** The route as it is called in workflow ids. */
  routeRef: string;
  type: string;
  producer: string;
  channel: Channel;
  /** Of the last death. */
  failure: string;
  message: string;
  attempts: number;
  maxAttempts: number;
  diedAt: Date;
  recoveryHint: string;
  /** Status of the route now: `dead_letter`, or what a replay made of it. */
  status: string;
  /** How often the route was replayed. */
  replays: number;
  /** The route's workflow in the Web UI. */
  link?: string;
}

export const deadLetterOperations = (resources: Pick<OperatorResources, 'db' | 'uiUrl' | 'namespace'>) => ({
  /**
   * Dead-lettered routes, newest first.
   *
   * @param all routes that were replayed since as well, with the failure and the time of their first death.
   */
  list({ all = false, ...filter }: DeadLetterFilter & { all?: boolean; limit?: number } = {}): Promise<
    Page<DeadLetter>
  > {
    const listing = all ? EVER_DEAD : STILL_DEAD;
    return listOf<DeadLetterRow, DeadLetterFilter, DeadLetter>(resources.db, listing, filter, (row) => {
      const routeRef = routeRefOf(row.routeId);
      return {
        ...{ ...row, routeRef },
        ...linkField(resources, routeWorkflowId(row.notificationId, routeRef)),
      };
    });
  },
});

const FILTERS = {
  notificationId: 'route.notification_id = ?',
  routeId: "? IN (route.route_id, route.channel || ':~' || md5(route.route_id))",
  type: 'notification_type = ?',
  producer: 'producer = ?',
  channel: 'route.channel = ?',
};

type DeadLetterRow = Omit<DeadLetter, 'routeRef' | 'link'>;

const ROUTE = `route.notification_id AS "notificationId", route.route_id AS "routeId", notification_type AS type, producer,
         route.channel, route.status, coalesce(recovery_hint, '') AS "recoveryHint",
         (SELECT count(*)::int
            FROM notification.replays
           WHERE replays.notification_id = route.notification_id AND replays.route_id = route.route_id) AS replays`;
const FAILURE = "coalesce(last_error_classification, 'unknown')";

/** Routes that are dead now, with the failure and the time of their last death. */
const STILL_DEAD: Listing<DeadLetterFilter> = {
  columns: `${ROUTE}, ${FAILURE} AS failure, coalesce(last_error_message, '') AS message, attempt_count AS attempts,
         route.max_attempts AS "maxAttempts", dead_lettered_at AS "diedAt"`,
  from: `notification.routes AS route
    JOIN notification.records USING (notification_id)
    LEFT JOIN notification.dead_letters AS dead USING (notification_id, route_id)`,
  order: 'dead_lettered_at DESC, route.notification_id DESC, route.route_id DESC',
  filters: { ...FILTERS, failure: 'last_error_classification = ?', ...spanOf('dead_lettered_at') },
  // The literal is the predicate of routes_dead_lettered_idx, so that the index serves.
  always: "route.status = 'dead_letter'",
};

const EVER_DEAD: Listing<DeadLetterFilter> = {
  columns: `${ROUTE}, coalesce(failure_classification, 'unknown') AS failure, coalesce(failure_message, '') AS message,
         final_attempt_count AS attempts, dead.max_attempts AS "maxAttempts", dead.created_at AS "diedAt"`,
  from: `notification.dead_letters AS dead
    JOIN notification.routes AS route USING (notification_id, route_id)
    JOIN notification.records USING (notification_id)`,
  order: 'dead.created_at DESC, route.notification_id DESC, route.route_id DESC',
  filters: { ...FILTERS, failure: 'failure_classification = ?', ...spanOf('dead.created_at') },
};

/** Dead routes of one kind. */
export interface ReplayGroup extends Span {
  type: string;
  channel: string;
  failure: string;
  routes: number;
  /** Of them, those that are too late: a replay does not send them. */
  expired: number;
}

/** The routes that an operation replays. */
export const chooseDead = (filter: DeadLetterFilter): Grouped => ({
  columns: ['notification_id', 'route_id'],
  from: 'notification.routes AS route JOIN notification.records AS record USING (notification_id)',
  at: 'dead_lettered_at',
  conditions: conditionsOf(STILL_DEAD, filter),
  groups: { type: 'notification_type', channel: 'route.channel', failure: FAILURE },
  counted: 'routes',
  more: ', (count(*) FILTER (WHERE expires_at <= now()))::int AS expired',
});
