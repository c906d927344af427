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
  NotificationRecord,
  NotificationStatus,
  NotificationSummary,
  ReplayRow,
  RouteRow,
} from './notification-rows.ts';
import {
  LIST_NOTIFICATIONS,
  SHOW_CANCELLATION,
  SHOW_DUPLICATE,
  SHOW_RECORD,
  SHOW_REPLAYS,
  SHOW_ROUTES,
  STATUS_CONDITIONS,
} from './notification-rows.ts';
import { findSlice } from './slices.ts';

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
 * How far an intent has come. `unread`: the reader has not come to its entry. `accepting`: its workflow, or the slice that
 * it is in, runs and has not accepted it yet. `accepted`: there is a record. `malformed`: refused, see there. `ended`: its
 * workflow ended without a record, as for a duplicate, or the record was removed by retention.
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
  /** The slice that took it together with others; absent when it had a workflow of its own at once. */
  slice?: SliceView;
  /** Absent when Temporal does not know the workflow any more. */
  live?: LiveState;
  /** Temporal did not say, and why. */
  liveUnavailable?: string;
  link?: string;
}

export interface SliceView {
  workflowId: string;
  /** Absent when Temporal does not know it any more, or did not say. */
  live?: LiveState;
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
      // Temporal first: a workflow ends after its rows are written, so whoever sees it ended sees what became of it.
      const [slice, live] = await Promise.all([
        sliceOf(notificationId),
        temporalSays(notificationWorkflowId(notificationId)),
      ]);
      const [record, malformed, duplicateOf, cancelledAt] = await Promise.all([
        recordOf(notificationId),
        findMalformed(resources, notificationId),
        originalOf(notificationId),
        cancellationOf(notificationId),
      ]);
      const stage = await stageOf(notificationId, {
        record,
        malformed,
        duplicateOf,
        cancelledAt,
        live: live.live ?? slice?.live,
        isRunning: live.live?.status === 'RUNNING',
      });
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
        ...(duplicateOf === undefined ? {} : { duplicateOf }),
        ...(cancelledAt === undefined ? {} : { cancelledAt }),
        ...(slice ? { slice } : {}),
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

  async function originalOf(notificationId: string): Promise<string | undefined> {
    const { rows } = await db.query<{ duplicateOf: string }>(SHOW_DUPLICATE, [notificationId]);
    return rows[0]?.duplicateOf;
  }

  async function cancellationOf(notificationId: string): Promise<Date | undefined> {
    const { rows } = await db.query<{ cancelledAt: Date }>(SHOW_CANCELLATION, [notificationId]);
    return rows[0]?.cancelledAt;
  }

  async function sliceOf(notificationId: string): Promise<SliceView | undefined> {
    // That Temporal does not answer is said by the look at the notification.
    const workflowId = await findSlice(resources, notificationId).catch(() => undefined);
    if (workflowId === undefined) return undefined;
    const { live } = await temporalSays(workflowId);
    return { workflowId, ...(live ? { live } : {}), ...linkField(resources, workflowId) };
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
      duplicateOf: unknown;
      cancelledAt: unknown;
      live: LiveState | undefined;
      /** Its own workflow, not that of its slice. */
      isRunning: boolean;
    },
  ): Promise<NotificationStage | undefined> {
    if (found.record) return 'accepted';
    if (found.malformed) return 'malformed';
    // The row of a repeat is written a moment before its workflow ends.
    if (found.duplicateOf !== undefined && found.isRunning) return 'accepting';
    if (found.duplicateOf !== undefined || found.cancelledAt !== undefined) return 'ended';
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
