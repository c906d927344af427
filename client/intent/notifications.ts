/** Notifications as operators look for them and at them: the record, its routes, and what Temporal says right now. */
import { routeRefOf } from '../../api/ids.ts';
import { loadOffset } from '../../api/intent/stream.ts';
import { compareEntryIds, hasEntry } from '../../api/stream-ids.ts';
import { notificationWorkflowId, routeWorkflowId } from '../../workflows/intent/contract.ts';
import { NotFoundError, causeOf } from '../errors.ts';
import type { Page, WithoutNulls } from '../lists.ts';
import { DEFAULT_LIMIT, conditions, pageOf, withoutNulls } from '../lists.ts';
import type { LiveState } from '../live.ts';
import { liveStateOf } from '../live.ts';
import type { OperatorResources } from '../resources.ts';
import { linkField } from '../resources.ts';
import type { DeadLetter } from './dead-letters.ts';
import { deadLetterOperations } from './dead-letters.ts';
import type { MalformedEntry } from './malformed.ts';
import { findMalformed } from './malformed.ts';
import type {
  IntentRow,
  NotificationRecord,
  NotificationStatus,
  NotificationSummary,
  ReplayRow,
  RouteRow,
} from './notification-rows.ts';
import {
  LIST_NOTIFICATIONS,
  SHOW_INTENT,
  SHOW_RECORD,
  SHOW_REPLAYS,
  SHOW_ROUTES,
  STATUS_CONDITIONS,
} from './notification-rows.ts';

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

export interface RouteView extends WithoutNulls<
  Omit<RouteRow, 'lastClassification' | 'lastMessage' | 'lastErrorAt'>
> {
  routeRef: string;
  lastError?: { classification: string; message: string; at: Date };
  /** What the route's own workflow waits for; for the first open routes only. */
  live?: LiveState;
  link?: string;
}

export type ReplayView = WithoutNulls<ReplayRow>;

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

/** Open routes whose workflows are asked as well. */
const LIVE_ROUTES = 5;

export function notificationOperations(resources: OperatorResources) {
  const { db, redis, intentsStream } = resources;

  return {
    /** Accepted notifications, newest first. */
    async list({ limit = DEFAULT_LIMIT, ...filter }: NotificationFilter = {}): Promise<
      Page<NotificationSummary & { link?: string }>
    > {
      const given = conditions([
        ...(filter.status === undefined ? [] : [STATUS_CONDITIONS[filter.status]]),
        ['notification_type = ?', filter.type],
        ['producer = ?', filter.producer],
        ['idempotency_key = ?', filter.idempotencyKey],
        [
          'notification_id IN (SELECT notification_id FROM notification.routes WHERE recipient_ref = ANY (?::text[]))',
          filter.recipient === undefined
            ? undefined
            : [`user:${filter.recipient}`, `email:${filter.recipient}`],
        ],
        ['accepted_at >= ?', filter.since],
        ['accepted_at <= ?', filter.until],
      ]);
      const { rows } = await db.query<NotificationSummary>(LIST_NOTIFICATIONS(given), [
        ...given.values,
        limit + 1,
      ]);
      return pageOf(rows, limit, (row) => ({
        ...row,
        ...linkField(resources, notificationWorkflowId(row.notificationId)),
      }));
    },

    /**
     * Everything about one notification, however far it has come. Temporal and Redis are asked, and not needed: when
     * they do not answer, that is said and the rest is shown.
     *
     * @param limit of routes, dead letters and replays each.
     * @throws NotFoundError when neither PostgreSQL nor Temporal nor the stream knows it.
     */
    async show(notificationId: string, limit = DEFAULT_LIMIT): Promise<NotificationView> {
      const [live, record, malformed, row] = await Promise.all([
        temporalSays(notificationWorkflowId(notificationId)),
        recordOf(notificationId),
        findMalformed(resources, notificationId),
        intentOf(notificationId),
      ]);
      const stage = await stageOf(notificationId, { record, malformed, row, live: live.live });
      if (stage === undefined) {
        const doubt =
          live.liveUnavailable === undefined ? '' : `; Temporal did not say: ${live.liveUnavailable}`;
        throw new NotFoundError(
          `no notification ${notificationId}: not in the database, not in Temporal, not in ${intentsStream}${doubt}`,
        );
      }
      return {
        notificationId,
        stage,
        ...(record ? { record: record.record } : {}),
        totals: record?.totals ?? {},
        ...(record ? await partsOf(notificationId, limit) : { ...NO_PARTS }),
        ...(malformed ? { malformed } : {}),
        ...(row?.status === 'duplicate' ? { duplicateOf: row.other! } : {}),
        ...(row?.status === 'cancelled' ? { cancelledAt: row.updatedAt } : {}),
        ...live,
        ...linkField(resources, notificationWorkflowId(notificationId)),
      };
    },
  };

  async function recordOf(notificationId: string) {
    const { rows } = await db.query<NotificationRecord & { totals: Record<string, number> | null }>(
      SHOW_RECORD,
      [notificationId],
    );
    if (!rows[0]) return undefined;
    const { totals, ...record } = rows[0];
    return { record, totals: totals ?? {} };
  }

  async function intentOf(notificationId: string): Promise<IntentRow | undefined> {
    const { rows } = await db.query<IntentRow>(SHOW_INTENT, [notificationId]);
    return rows[0];
  }

  async function temporalSays(workflowId: string): Promise<{ live?: LiveState; liveUnavailable?: string }> {
    try {
      const live = await liveStateOf(resources, workflowId);
      return live ? { live } : {};
    } catch (error) {
      return { liveUnavailable: causeOf(error) };
    }
  }

  async function stageOf(
    notificationId: string,
    found: {
      record: unknown;
      malformed: unknown;
      row: IntentRow | undefined;
      live: LiveState | undefined;
    },
  ): Promise<NotificationStage | undefined> {
    if (found.record) return 'accepted';
    if (found.malformed) return 'malformed';
    if (found.row) return found.row.status === 'open' ? 'accepting' : 'ended';
    if (found.live) return found.live.status === 'RUNNING' ? 'accepting' : 'ended';
    return (await isUnread(notificationId).catch(() => false)) ? 'unread' : undefined;
  }

  /** Whether an entry is in the stream and the reader has not come to it yet. */
  async function isUnread(entryId: string): Promise<boolean> {
    const [isThere, offset] = await Promise.all([
      hasEntry(redis, intentsStream, entryId),
      loadOffset(redis, intentsStream),
    ]);
    return isThere && compareEntryIds(entryId, offset) > 0;
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
    const open = page.items.filter(({ nextAttemptAt }) => nextAttemptAt !== undefined).slice(0, LIVE_ROUTES);
    await Promise.all(
      open.map(async (route) => {
        const { live } = await temporalSays(routeWorkflowId(notificationId, route.routeRef));
        if (live) route.live = live;
      }),
    );
    return {
      routes: page.items,
      hasMoreRoutes: page.hasMore,
      deadLetters: dead.items,
      replays: replays.rows.map(withoutNulls),
    };
  }

  function routeViewOf(notificationId: string, row: RouteRow): RouteView {
    const { lastClassification, lastMessage, lastErrorAt, ...route } = row;
    const routeRef = routeRefOf(route.routeId);
    return {
      ...withoutNulls(route),
      routeRef,
      ...(lastErrorAt
        ? {
            lastError: {
              classification: lastClassification ?? 'unknown',
              message: lastMessage ?? '',
              at: lastErrorAt,
            },
          }
        : {}),
      ...linkField(resources, routeWorkflowId(notificationId, routeRef)),
    };
  }
}

const NO_PARTS = { routes: [], hasMoreRoutes: false, deadLetters: [], replays: [] };
