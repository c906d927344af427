/**
 * One route as its activities see it, joined with the record it belongs to and with what operators decided. Owns the SQL
 * of routes' life and of dead letters.
 */
import { ApplicationFailure } from '@temporalio/activity';
import type { Pool, PoolClient } from 'pg';
import type { AudienceKind, Channel, NotificationType, Producer } from '../../api/intent/catalog.ts';
import { ROUTE_EXPIRED } from '../../api/intent/outcome.ts';
import { hashOfRouteRef, routeRefOf } from '../../api/ids.ts';
import type { Locale } from '../../api/intent/user-service.ts';
import type { RouteKey, RouteSlice, RouteTotals } from '../../workflows/intent/contract.ts';
import { handOffKey } from './hand-off.ts';
import { logFieldsOf } from './metrics.ts';
import { orderIdOf } from '../../workflows/operation-contract.ts';
import { columnsOf, query } from '../postgres.ts';

/** A route among those of all notifications. */
export interface RouteName {
  notificationId: string;
  routeId: string;
}

export interface RouteRow extends RouteName {
  channel: Channel;
  recipientRef: string;
  status: 'pending' | 'published' | 'failed' | 'dead_letter' | 'skipped';
  attemptCount: number;
  maxAttempts: number;
  email: string | null;
  locale: Locale | null;
  /** Of its last failure. */
  classification: string | null;
  message: string | null;
  /** As which it was handed off last; null when it was not, or before that was written down. */
  entryId: string | null;
  /** `updated_at` to the microsecond, for optimistic concurrency. */
  version: string;
  notificationType: NotificationType;
  producer: Producer;
  audienceKind: AudienceKind;
  idempotencyKey: string;
  /** What it carries. */
  payloadJson: string;
  /**
   * The notification by whose id it is handed off: that of the newest intent that it carries. PostgreSQL may forget that
   * a window was closed, and close it again with a newer one; the route and its notification may be the same then.
   */
  carriedId: string;
  /** How many intents it stands for. */
  itemCount: number;
  requestId: string | null;
  traceId: string | null;
  traceparent: string | null;
  /** Epoch ms, as all times of a route. */
  acceptedAtMs: number;
  /** From when on it is not worth sending any more; null: never. */
  expiresAtMs: number | null;
  /** That time has come, by PostgreSQL's clock. */
  isExpired: boolean;
  /** 0 as accepted; each replay is the next one. */
  generation: number;
  /** The replay that opened the current generation; null for generation 0. */
  replayId: string | null;
  /** Operators have paused the route's channel. */
  isChannelPaused: boolean;
  /** They have paused it, or the producer. */
  isPaused: boolean;
  /** Null without a further attempt. */
  nextAttemptAtMs: number | null;
  /** How long that is from now, ms by PostgreSQL's clock. */
  retryInMs: number | null;
}

/** The routes at [offset, offset + limit) of a notification, ordered by route id; none when there is no such one. */
export async function loadSlice(
  db: Pool,
  { notificationId, offset, limit }: RouteSlice,
): Promise<RouteRow[]> {
  return withPayload(await query<WithoutPayload>(db, LOAD_SLICE, [notificationId, offset, limit]));
}

/** These routes of some notifications, ordered by notification and route id. Those that retention has removed are missing. */
export async function loadEach(db: Pool, names: readonly RouteName[]): Promise<RouteRow[]> {
  if (names.length === 0) return [];
  const columns = columnsOf(names, 'notificationId', 'routeId');
  return withPayload(await query<WithoutPayload>(db, LOAD_EACH, columns));
}

type WithoutPayload = Omit<RouteRow, 'payloadJson'> & Record<'payloadJson' | 'contentJson', string | null>;

/** The first row of each notification has its payload, and a row its own content if it carries another one. */
function withPayload(rows: readonly WithoutPayload[]): RouteRow[] {
  let payloadJson = '';
  return rows.map(({ contentJson, ...row }) => {
    payloadJson = row.payloadJson ?? payloadJson;
    return { ...row, payloadJson: contentJson ?? payloadJson };
  });
}

/** The values by which a transition finds the row as it was loaded. */
export const keyOf = ({ notificationId, routeId, version }: RouteRow): string[] => [
  ...[notificationId, routeId, version],
];

/** What a hand-off is remembered by. */
export type HandOffName = Pick<RouteRow, 'carriedId' | 'routeId' | 'generation'>;

export const handOffKeyOf = ({ carriedId, routeId, generation }: HandOffName): string =>
  handOffKey(carriedId, routeId, generation);

export const nameOf = ({ notificationId, routeId }: RouteName): string => `${notificationId}/${routeId}`;

export const logFields = (route: RouteRow) => ({
  ...logFieldsOf(route),
  // As in workflow ids: the route id of an administrator is an address.
  route_id: routeRefOf(route.routeId),
  channel: route.channel,
});

/** Whether it waits for an attempt. */
export const isOpen = ({ status }: Pick<RouteRow, 'status'>): boolean =>
  status === 'pending' || status === 'failed';

/** @returns undefined when there is no such route, or retention has removed it. */
export async function findRoute(
  db: Pool,
  { notificationId, routeRef }: RouteKey,
): Promise<RouteRow | undefined> {
  const hash = hashOfRouteRef(routeRef);
  const ids = hash === undefined ? [routeRef, null] : [null, hash];
  return withPayload(await query<WithoutPayload>(db, LOAD_ROUTE, [notificationId, ...ids]))[0];
}

/** @throws ApplicationFailure `RouteNotFound`, not retried. */
export async function loadRoute(db: Pool, key: RouteKey): Promise<RouteRow> {
  const route = await findRoute(db, key);
  if (route) return route;
  throw ApplicationFailure.nonRetryable(
    `notification ${key.notificationId} has no route ${key.routeRef}; retention may have removed it`,
    'RouteNotFound',
  );
}

export interface ListedRoute extends HandOffName, Pick<RouteRow, 'status'> {
  /** Skipped by acceptance, at the instant of its creation: it has no workflow. */
  isUnwanted: boolean;
}

/** The next routes of a notification after one of them, ordered by route id. */
export const listRoutes = (
  db: Pool,
  notificationId: string,
  limit: number,
  after = '',
): Promise<ListedRoute[]> => query<ListedRoute>(db, LIST_ROUTES, [notificationId, limit, after]);

/** $1 notification, $2 limit, $3 after which route. */
const LIST_ROUTES = {
  name: 'list_routes',
  text: `
    SELECT route_id AS "routeId", status, coalesce(collapse ->> 'newest', $1) AS "carriedId",
           skipped_at IS NOT DISTINCT FROM created_at AS "isUnwanted",
           (SELECT count(*)::int
              FROM notification.replays
             WHERE replays.notification_id = $1 AND replays.route_id = route.route_id) AS generation
      FROM (SELECT route_id, status, created_at, skipped_at, collapse
              FROM notification.routes
             WHERE notification_id = $1 AND route_id > $3
             ORDER BY route_id
             LIMIT $2) AS route
     ORDER BY route_id`,
};

/** How many routes of a notification have ended in which way, and how many are open. */
export async function countRoutes(db: Pool, notificationId: string): Promise<RouteTotals & { open: number }> {
  const [counts] = await query<RouteTotals & { open: number }>(db, COUNT_ROUTES, [notificationId]);
  return counts!;
}

const COUNT_ROUTES = {
  name: 'count_routes',
  text: `
    SELECT count(*) FILTER (WHERE status = 'published')::int AS published,
           count(*) FILTER (WHERE status = 'skipped')::int AS skipped,
           count(*) FILTER (WHERE status = 'dead_letter')::int AS "deadLettered",
           count(next_attempt_at)::int AS open
      FROM notification.routes
     WHERE notification_id = $1`,
};

const routeColumns = (payload: string) => `
    SELECT notification_id AS "notificationId", route_id AS "routeId", route.channel, recipient_ref AS "recipientRef", status,
           attempt_count AS "attemptCount", max_attempts AS "maxAttempts", resolved_email AS email, resolved_locale AS locale,
           last_error_classification AS classification, last_error_message AS message, entry_id AS "entryId",
           route.updated_at::text AS version, notification_type AS "notificationType", producer,
           audience_kind AS "audienceKind", idempotency_key AS "idempotencyKey", ${payload} AS "payloadJson",
           (contents -> (route.collapse ->> 'content')::int)::text AS "contentJson",
           coalesce(route.collapse ->> 'newest', notification_id) AS "carriedId",
           coalesce((route.collapse ->> 'count')::int, 1) AS "itemCount", request_id AS "requestId",
           trace_id AS "traceId", traceparent,
           floor(extract(epoch FROM accepted_at) * 1000)::float8 AS "acceptedAtMs",
           round(extract(epoch FROM expires_at) * 1000)::float8 AS "expiresAtMs",
           coalesce(expires_at <= statement_timestamp(), false) AS "isExpired",
           coalesce(replay.generation, 0) AS generation, replay.replay_id AS "replayId",
           coalesce(channel_hold.is_paused, false) AS "isChannelPaused",
           coalesce(channel_hold.is_paused, false) OR coalesce(producer_hold.is_paused, false) AS "isPaused",
           round(extract(epoch FROM next_attempt_at) * 1000)::float8 AS "nextAttemptAtMs",
           round(extract(epoch FROM next_attempt_at - statement_timestamp()) * 1000)::float8 AS "retryInMs"
      FROM notification.routes AS route
      JOIN notification.records USING (notification_id)
      LEFT JOIN notification.holds AS channel_hold ON channel_hold.kind = 'channel' AND channel_hold.name = channel
      LEFT JOIN notification.holds AS producer_hold ON producer_hold.kind = 'producer' AND producer_hold.name = producer
      LEFT JOIN LATERAL (
           SELECT generation, replay_id
             FROM notification.replays
            WHERE replays.notification_id = route.notification_id AND replays.route_id = route.route_id
            ORDER BY generation DESC
            LIMIT 1) AS replay ON true`;

/**
 * $1 notification, $2 route, or null and $3 the hash of its id. The second condition about that is the predicate of
 * routes_hashed_ref_idx, so that the index serves.
 */
const LOAD_ROUTE = {
  name: 'load_route',
  text: `${routeColumns('payload_json')}
     WHERE notification_id = $1
       AND route_id = coalesce($2, (SELECT hashed.route_id
                                      FROM notification.routes AS hashed
                                     WHERE hashed.notification_id = $1 AND md5(hashed.route_id) = $3
                                       AND hashed.route_id !~ '^(push|email):[A-Za-z0-9_.:-]{1,120}$'))`,
};

/** The payload comes with the first row only: two hundred copies of a large one would be a heap of memory. */
const LOAD_SLICE = {
  name: 'load_slice',
  text: `${routeColumns('CASE row_number() OVER (ORDER BY route_id) WHEN $2::int + 1 THEN payload_json END')}
     WHERE notification_id = $1
     ORDER BY route_id
    OFFSET $2 LIMIT $3`,
};

const LOAD_EACH = {
  name: 'load_each_route',
  text: `${routeColumns('CASE row_number() OVER (PARTITION BY notification_id ORDER BY route_id) WHEN 1 THEN payload_json END')}
     WHERE (notification_id, route_id) IN (SELECT * FROM unnest($1::text[], $2::text[]))
     ORDER BY notification_id, route_id`,
};

/** How a route ends. */
export interface Ending extends RouteName {
  /** As it was loaded; undefined when it does not matter what has become of the row since. */
  version?: string;
  /** As which entry it was handed off; without one it is skipped. */
  publishedAs?: string | undefined;
  /** Of one that is too late, what a person should know. */
  lateness?: string;
}

/**
 * Settles routes as published or as skipped.
 *
 * @param from statuses that they may have.
 * @returns the attempts spent, by `nameOf`, of those whose row was as it must be. @throws ApplicationFailure of PostgreSQL.
 */
export async function settleRoutes(
  db: Pool | PoolClient,
  endings: readonly Ending[],
  from: readonly RouteRow['status'][] = ['pending', 'failed'],
): Promise<Map<string, number>> {
  if (endings.length === 0) return new Map();
  const columns = columnsOf(endings, 'notificationId', 'routeId', 'version', 'publishedAs', 'lateness');
  const settled = await query<RouteName & { attempts: number }>(db, SETTLE_ROUTES, [...columns, from]);
  return new Map(settled.map((row) => [nameOf(row), row.attempts]));
}

// Each statement takes all its times from statement_timestamp(): one instant, so that the wait between a failure and the
// next attempt is exact.
/**
 * $1 to $5 endings, $6 statuses before. What was handed off by the last attempt of a dead route is counted. The limit leaves
 * nothing out: PostgreSQL expects few rows by it, and plans the statement once.
 */
const SETTLE_ROUTES = {
  name: 'settle_routes',
  text: `
    UPDATE notification.routes AS route
       SET status = CASE WHEN ending.entry_id IS NULL THEN 'skipped' ELSE 'published' END,
           attempt_count = attempt_count + (ending.entry_id IS NOT NULL AND status <> 'dead_letter')::int,
           next_attempt_at = NULL, dead_lettered_at = NULL, entry_id = ending.entry_id,
           published_at = CASE WHEN ending.entry_id IS NOT NULL THEN statement_timestamp() END,
           skipped_at = CASE WHEN ending.entry_id IS NULL THEN statement_timestamp() END,
           last_error_classification = CASE WHEN lateness IS NULL THEN last_error_classification ELSE '${ROUTE_EXPIRED}' END,
           last_error_message = coalesce(lateness, last_error_message),
           last_error_at = CASE WHEN lateness IS NULL THEN last_error_at ELSE statement_timestamp() END,
           updated_at = statement_timestamp()
      FROM (SELECT *
              FROM unnest($1::text[], $2::text[], $3::timestamptz[], $4::text[], $5::text[])
             LIMIT cardinality($1)) AS ending (notification_id, route_id, version, entry_id, lateness)
     WHERE route.notification_id = ending.notification_id AND route.route_id = ending.route_id
       AND route.updated_at = coalesce(ending.version, route.updated_at) AND status = ANY ($6::text[])
    RETURNING route.notification_id AS "notificationId", route.route_id AS "routeId", route.attempt_count AS attempts`,
};

/** An operation is written down as one. A route id may name a user, whom no action does. */
export const OPEN_GENERATION = {
  name: 'open_generation',
  text: `
    WITH moved AS (
      UPDATE notification.routes AS route
         SET status = 'pending', attempt_count = 0, next_attempt_at = statement_timestamp(), dead_lettered_at = NULL,
             updated_at = statement_timestamp()
       WHERE notification_id = $1 AND route_id = $2 AND updated_at = $3::timestamptz AND status = 'dead_letter'
         AND NOT EXISTS (
             SELECT 1
               FROM notification.replays
              WHERE replays.notification_id = $1 AND replays.route_id = $2 AND replay_id = $4)
      RETURNING route.notification_id, route.route_id
    ), opened AS (
      INSERT INTO notification.replays
        (notification_id, route_id, generation, replay_id, requested_by, reason, created_at)
      SELECT notification_id, route_id,
             1 + (SELECT count(*)
                    FROM notification.replays
                   WHERE replays.notification_id = $1 AND replays.route_id = $2),
             $4, $5, $6, statement_timestamp()
        FROM moved
      RETURNING generation
    ), noted AS (
      INSERT INTO notification.operator_actions (action, target, requested_by, detail)
      SELECT 'replay', notification_id, $5, $6
        FROM moved
       WHERE $4 NOT LIKE '${orderIdOf('')}%'
    )
    SELECT generation FROM opened`,
};

export const RECORD_FAILURE = {
  name: 'record_failure',
  text: `
    WITH moved AS (
      UPDATE notification.routes AS route
         SET status = CASE WHEN $4::boolean THEN 'dead_letter' ELSE 'failed' END,
             attempt_count = attempt_count + 1,
             next_attempt_at = CASE WHEN $4 THEN NULL ELSE statement_timestamp() + $5::int * interval '1 millisecond' END,
             dead_lettered_at = CASE WHEN $4 THEN statement_timestamp() END,
             last_error_classification = $6, last_error_message = $7, last_error_at = statement_timestamp(),
             updated_at = statement_timestamp()
       WHERE notification_id = $1 AND route_id = $2 AND updated_at = $3::timestamptz AND status IN ('pending', 'failed')
      RETURNING route.notification_id, route.route_id, route.channel, route.status, route.last_error_classification,
                route.recipient_ref, route.attempt_count, route.max_attempts, route.last_error_message,
                route.dead_lettered_at, route.next_attempt_at
    ), dead_letter AS (
      INSERT INTO notification.dead_letters
        (notification_id, route_id, channel, recipient_ref, final_attempt_count, max_attempts, failure_classification,
         failure_message, recovery_hint, created_at)
      SELECT notification_id, route_id, channel, recipient_ref, attempt_count, max_attempts, last_error_classification,
             last_error_message, $8, dead_lettered_at
        FROM moved
       WHERE status = 'dead_letter'
      ON CONFLICT (notification_id, route_id) DO NOTHING
    )
    SELECT round(extract(epoch FROM next_attempt_at) * 1000)::float8 AS "nextAttemptAtMs" FROM moved`,
};
