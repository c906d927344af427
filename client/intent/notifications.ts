/** Notifications as operators look for them and at them: the record, its routes, and what Temporal says right now. */
import type { Given } from '../../api/given.ts';
import { given } from '../../api/given.ts';
import { routeRefOf } from '../../api/ids.ts';
import { loadOffset } from '../../api/intent/stream.ts';
import { STREAM_START, compareEntryIds, hasEntry } from '../../api/stream-ids.ts';
import { notificationWorkflowId, routeWorkflowId } from '../../workflows/intent/contract.ts';
import type { Channel } from '../../api/intent/catalog.ts';
import type { IntentStatus } from '../../workflows/intent/contract.ts';
import { NotFoundError, causeOf } from '../errors.ts';
import type { Listing, Page } from '../lists.ts';
import { DEFAULT_LIMIT, listOf, pageOf, spanOf } from '../lists.ts';
import type { LiveState } from '../temporal.ts';
import { liveStateOf } from '../temporal.ts';
import type { OperatorResources } from '../resources.ts';
import { linkField } from '../resources.ts';
import type { DeadLetter, MalformedEntry } from './intents.ts';
import { deadLetterOperations, findMalformed } from './intents.ts';

/** `open`: a route will still be tried. `settled`: none will. `dead_letter`: at least one is dead. */
export const NOTIFICATION_STATUSES = ['open', 'settled', 'dead_letter'] as const;
type NotificationStatus = (typeof NOTIFICATION_STATUSES)[number];

export interface NotificationRow {
  notificationId: string;
  type: string;
  producer: string;
  audience: string;
  idempotencyKey: string;
  acceptedAt: Date;
  /** Routes by what will happen to them: `open` ones will be tried again. */
  totals: Record<'open' | 'published' | 'skipped' | 'deadLettered', number>;
}

type NotificationSummary = Omit<NotificationRow, 'totals'> & NotificationRow['totals'] & { link?: string };

interface NotificationRecord {
  type: string;
  producer: string;
  audience: string;
  /** Null for administrators. */
  recipientUserIds: string[] | null;
  idempotencyKey: string;
  payload: unknown;
  requestId: string | null;
  traceId: string | null;
  traceparent: string | null;
  /** From when on it is not worth sending any more; null: never. */
  expiresAt: Date | null;
  occurredAt: Date;
  acceptedAt: Date;
  /** Until then at least, the key is reserved. */
  idempotencyExpiresAt: Date;
}

interface RouteRow {
  /** May hold an e-mail address: for the operator's eyes, not for logs. */
  routeId: string;
  channel: Channel;
  status: string;
  attempts: number;
  maxAttempts: number;
  nextAttemptAt: Date | null;
  /** When it was published, skipped or dead-lettered. */
  settledAt: Date | null;
  /** Id of the outbound stream's entry; null before a hand-off. */
  entryId: string | null;
  lastClassification: string | null;
  lastMessage: string | null;
  lastErrorAt: Date | null;
  /** Of a route that was skipped without an error. */
  skipReason: string | null;
}

interface ReplayRow {
  routeId: string;
  /** 1 for the first replay of the route. */
  generation: number;
  requestedBy: string;
  reason: string | null;
  createdAt: Date;
}

export interface NotificationFilter {
  type?: string;
  producer?: string;
  status?: NotificationStatus;
  idempotencyKey?: string;
  /** One of its routes is for this user, or for the administrator with this address. */
  recipient?: string;
  /** Bounds of the time of acceptance, both included. */
  since?: Date;
  until?: Date;
  limit?: number;
}

export interface RouteView extends Given<
  Omit<RouteRow, 'lastClassification' | 'lastMessage' | 'lastErrorAt'>
> {
  routeRef: string;
  lastError?: { classification: string; message: string; at: Date };
  link?: string;
}

export type ReplayView = Given<ReplayRow>;

/**
 * How far an intent has come. `unread`: the reader has not come to its entry. `accepting`: it is read and not decided yet. `accepted`: there is a record. `malformed`: refused, see there. `ended`: it
 * was decided without a record, as a duplicate is, or the record was removed by retention.
 */
export type NotificationStage = 'unread' | 'accepting' | 'accepted' | 'malformed' | 'ended';

export interface NotificationView {
  notificationId: string;
  stage: NotificationStage;
  record?: NotificationRecord;
  /** Routes by status. */
  totals: Record<string, number>;
  /** Those that need attention first; at most `limit`. */
  routes: RouteView[];
  hasMoreRoutes: boolean;
  deadLetters: DeadLetter[];
  replays: ReplayView[];
  malformed?: MalformedEntry;
  /** The notification that it repeats. */
  duplicateOf?: string;
  /** When an operator cancelled it; it had not been accepted. */
  cancelledAt?: Date;
  /** Absent when Temporal does not know the workflow any more. */
  live?: LiveState;
  /** Temporal did not say, and why. */
  liveUnavailable?: string;
  link?: string;
}

export function notificationOperations(resources: OperatorResources) {
  const { db, redis, intentsStream } = resources;

  return {
    /** Accepted notifications, newest first. */
    list({ status, recipient, ...filter }: NotificationFilter = {}): Promise<Page<NotificationSummary>> {
      const recipients = recipient === undefined ? undefined : [`user:${recipient}`, `email:${recipient}`];
      return listOf<NotificationRow, RowFilter, NotificationSummary>(
        db,
        { ...NOTIFICATIONS, always: status === undefined ? 'true' : STATUS_CONDITIONS[status] },
        given({ ...filter, recipients }),
        ({ totals, ...row }) => ({
          ...row,
          ...totals,
          ...linkField(resources, notificationWorkflowId(row.notificationId)),
        }),
      );
    },

    /**
     * Everything about one notification, however far it has come. Temporal and Redis are asked, and not needed: when
     * they do not answer, the view says so and shows the rest.
     *
     * @param limit of routes, dead letters and replays each.
     * @throws NotFoundError when neither PostgreSQL nor Temporal nor the stream knows it.
     */
    async show(notificationId: string, limit = DEFAULT_LIMIT): Promise<NotificationView> {
      const [live, { rows: records }, malformed, { rows: intents }] = await Promise.all([
        temporalSays(notificationId),
        db.query<RecordRow>(SHOW_RECORD, [notificationId]),
        findMalformed(resources, notificationId),
        db.query<IntentRow>(SHOW_INTENT, [notificationId]),
      ]);
      const [found] = records;
      const [row] = intents;
      const stage = found ? 'accepted' : await stageWithoutRecord(notificationId, malformed, row, live.live);
      if (stage === undefined) {
        const doubt =
          live.liveUnavailable === undefined ? '' : `; Temporal did not say: ${live.liveUnavailable}`;
        throw new NotFoundError(
          `no notification ${notificationId}: not in the database, not in Temporal, not in ${intentsStream}${doubt}`,
        );
      }
      const { totals, ...record } = found ?? { totals: null };
      return {
        ...{ notificationId, stage },
        ...(found ? { record: record as NotificationRecord } : {}),
        totals: totals ?? {},
        ...(found ? await partsOf(notificationId, limit) : { ...NO_PARTS }),
        ...given({
          malformed,
          duplicateOf: row?.status === 'duplicate' ? row.other! : undefined,
          cancelledAt: row?.status === 'cancelled' ? row.updatedAt : undefined,
        }),
        ...live,
        ...linkField(resources, notificationWorkflowId(notificationId)),
      };
    },
  };

  async function temporalSays(
    notificationId: string,
  ): Promise<Pick<NotificationView, 'live' | 'liveUnavailable'>> {
    try {
      return given({ live: await liveStateOf(resources, notificationWorkflowId(notificationId)) });
    } catch (error) {
      return { liveUnavailable: causeOf(error) };
    }
  }

  async function stageWithoutRecord(
    notificationId: string,
    malformed: MalformedEntry | undefined,
    row: IntentRow | undefined,
    live: LiveState | undefined,
  ): Promise<NotificationStage | undefined> {
    if (malformed) return 'malformed';
    if (row) return row.status === 'open' ? 'accepting' : 'ended';
    if (live) return live.status === 'RUNNING' ? 'accepting' : 'ended';
    // In the stream, and the reader has not come to it yet.
    const asked = [hasEntry(redis, intentsStream, notificationId), loadOffset(redis, intentsStream)] as const;
    const [isThere, offset] = await Promise.all(asked).catch(() => [false, STREAM_START] as const);
    return isThere && compareEntryIds(notificationId, offset) > 0 ? 'unread' : undefined;
  }

  async function partsOf(
    notificationId: string,
    limit: number,
  ): Promise<Pick<NotificationView, 'routes' | 'hasMoreRoutes' | 'deadLetters' | 'replays'>> {
    const [routes, replays, dead] = await Promise.all([
      db.query<RouteRow>(SHOW_ROUTES, [notificationId, limit + 1]),
      db.query<ReplayRow>(SHOW_REPLAYS, [notificationId, limit]),
      deadLetterOperations(resources).list({ all: true, notificationId, limit }),
    ]);
    const page = pageOf(routes.rows, limit, (row) => routeViewOf(notificationId, row));
    return {
      routes: page.items,
      hasMoreRoutes: page.hasMore,
      deadLetters: dead.items,
      replays: replays.rows.map(given),
    };
  }

  function routeViewOf(notificationId: string, row: RouteRow): RouteView {
    const { lastClassification, lastMessage, lastErrorAt, ...route } = row;
    const [classification, message] = [lastClassification ?? 'unknown', lastMessage ?? ''];
    const routeRef = routeRefOf(route.routeId);
    return {
      ...given(route),
      routeRef,
      ...(lastErrorAt ? { lastError: { classification, message, at: lastErrorAt } } : {}),
      ...linkField(resources, routeWorkflowId(notificationId, routeRef)),
    };
  }
}

const NO_PARTS = { routes: [], hasMoreRoutes: false, deadLetters: [], replays: [] };

interface RecordRow extends NotificationRecord {
  totals: Record<string, number> | null;
}

interface IntentRow {
  status: IntentStatus;
  /** The notification that a duplicate or a conflict is about. */
  other: string | null;
  updatedAt: Date;
}

type RowFilter = Omit<NotificationFilter, 'status' | 'recipient'> & { recipients?: string[] };

/** Each begins at another index: open and dead routes are few among many records. */
const STATUS_CONDITIONS: Record<NotificationStatus, string> = {
  open: 'notification_id IN (SELECT notification_id FROM notification.routes WHERE next_attempt_at IS NOT NULL)',
  settled:
    'NOT EXISTS (SELECT FROM notification.routes WHERE routes.notification_id = record.notification_id AND next_attempt_at IS NOT NULL)',
  dead_letter:
    "notification_id IN (SELECT notification_id FROM notification.routes WHERE status = 'dead_letter')",
};

/** Routes are counted for the rows of the page only: PostgreSQL does so behind the limit. */
const NOTIFICATIONS: Listing<RowFilter> = {
  columns: `notification_id AS "notificationId", notification_type AS type, producer, audience_kind AS audience,
         idempotency_key AS "idempotencyKey", accepted_at AS "acceptedAt",
         (SELECT json_build_object('open', count(*) FILTER (WHERE status IN ('pending', 'failed')),
                                   'published', count(*) FILTER (WHERE status = 'published'),
                                   'skipped', count(*) FILTER (WHERE status = 'skipped'),
                                   'deadLettered', count(*) FILTER (WHERE status = 'dead_letter'))
            FROM notification.routes
           WHERE routes.notification_id = record.notification_id) AS totals`,
  from: 'notification.records AS record',
  order: 'accepted_at DESC, notification_id DESC',
  filters: {
    ...{ type: 'notification_type = ?', producer: 'producer = ?', idempotencyKey: 'idempotency_key = ?' },
    recipients:
      'notification_id IN (SELECT notification_id FROM notification.routes WHERE recipient_ref = ANY (?::text[]))',
    ...spanOf('accepted_at'),
  },
};

const SHOW_RECORD = `
  SELECT notification_type AS type, producer, audience_kind AS audience, recipient_user_ids AS "recipientUserIds",
         idempotency_key AS "idempotencyKey", payload_json::json AS payload, request_id AS "requestId",
         trace_id AS "traceId", traceparent, occurred_at AS "occurredAt", expires_at AS "expiresAt", accepted_at AS "acceptedAt",
         idempotency_expires_at AS "idempotencyExpiresAt",
         (SELECT json_object_agg(status, routes)
            FROM (SELECT status, count(*) AS routes
                    FROM notification.routes
                   WHERE notification_id = $1
                   GROUP BY status) AS counts) AS totals
    FROM notification.records
   WHERE notification_id = $1`;

const SHOW_INTENT = `
  SELECT status, other, updated_at AS "updatedAt"
    FROM notification.intents
   WHERE notification_id = $1`;

const SHOW_ROUTES = `
  SELECT route_id AS "routeId", channel, status, attempt_count AS attempts, max_attempts AS "maxAttempts",
         next_attempt_at AS "nextAttemptAt",
         coalesce(published_at, skipped_at, dead_lettered_at) AS "settledAt", entry_id AS "entryId",
         last_error_classification AS "lastClassification", last_error_message AS "lastMessage",
         last_error_at AS "lastErrorAt",
         CASE WHEN status <> 'skipped' OR last_error_at IS NOT NULL THEN NULL
              WHEN recipient_ref LIKE 'config:%' THEN 'the service has no administrators for its type'
              WHEN skipped_at > created_at THEN 'an operator cancelled it'
              ELSE 'its type does not use this channel' END AS "skipReason"
    FROM notification.routes
   WHERE notification_id = $1
   ORDER BY array_position(ARRAY['dead_letter', 'failed', 'pending', 'published', 'skipped'], status), route_id
   LIMIT $2`;

const SHOW_REPLAYS = `
  SELECT route_id AS "routeId", generation, requested_by AS "requestedBy", reason, created_at AS "createdAt"
    FROM notification.replays
   WHERE notification_id = $1
   ORDER BY created_at DESC, route_id, generation DESC
   LIMIT $2`;
