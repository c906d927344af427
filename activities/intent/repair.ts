/**
 * Watches over the streams that routes leave by, and hands off again what one has lost: routes whose rows say published
 * while their entries are gone. The entry is the same, with the `event_id` or `delivery_id` on which consumers deduplicate.
 *
 * Rows are walked from the newest back to some time before the stream was last seen whole, and further for as long as
 * entries are missing: nothing tells how far a replica lagged behind.
 */
import { ApplicationFailure, Context } from '@temporalio/activity';
import type { Redis } from 'ioredis';
import pLimit from 'p-limit';
import { CHANNELS } from '../../api/intent/catalog.ts';
import { ROUTE_DEFERRED } from '../../workflows/failures.ts';
import { INTENT_TASK_QUEUE } from '../../workflows/intent/contract.ts';
import type { RepairProgress } from '../../workflows/recovery-contract.ts';
import { REPAIR_WORKFLOW, repairWorkflowId } from '../../workflows/recovery-contract.ts';
import { compareEntryIds, later } from '../../api/stream-ids.ts';
import { watchEvery } from '../../api/watch.ts';
import type { OutboundLook, OutboundRow } from '../outbound-state.ts';
import {
  CLEAR_OUTBOUND,
  KEEP_SUSPECTING_OUTBOUND,
  LOAD_OUTBOUND,
  checkOutbound,
  databaseOf,
  lookAtOutbound,
  missingIn,
  suspicionOf,
  valuesOf,
} from '../outbound-state.ts';
import { heartbeat } from '../attempt.ts';
import { columnsOf, query } from '../postgres.ts';
import { reasonOf } from '../reason.ts';
import type { LongLivedWorkflow } from '../workflows.ts';
import { keepRunning } from '../workflows.ts';
import { handOff } from './hand-off.ts';
import type { IntentResources } from './resources.ts';
import { createEncoder } from './publication.ts';
import type { RouteName, RouteRow } from './route-rows.ts';
import { handOffKeyOf, loadEach, logFields } from './route-rows.ts';

/** Routes that are looked for together. */
const PAGE_SIZE = 100;
const PARALLEL_HAND_OFFS = 50;
const MAX_SEQUENCE = '18446744073709551615';
const NEWEST = { publishedAt: 'infinity', notificationId: '', routeId: '' };

const LOOK_INTERVAL_MS = 1_000;
/** How often a paused channel is looked at, ms. */
const PAUSED_CHECK_MS = 10_000;
/** In lease times: attempts that were being made have ended, and their rows are written. */
const SETTLING_LEASES = 6;

type RepairResources = Pick<IntentResources, 'db' | 'redis' | 'log' | 'metrics' | 'catalog' | 'route'>;
type WatchResources = Pick<IntentResources, 'db' | 'redis' | 'workflows' | 'log' | 'metrics' | 'route'>;

/** The reader's watch. A stream that looks suspicious is left to the workflow that repairs it. @returns ends it. */
export function watchOutbound(resources: WatchResources): () => Promise<unknown> {
  const { workflows, log, metrics, route } = resources;
  const watches = [...new Set([route.gatewayStream, route.mailStream])].map((stream) =>
    watchEvery(
      LOOK_INTERVAL_MS,
      () => checkStream(stream),
      (error) => log.warn({ stream, reason: reasonOf(error) }, 'outbound stream not looked at'),
    ),
  );
  return () => Promise.all(watches.map((watch) => watch.stop()));

  async function checkStream(stream: string): Promise<void> {
    const suspect = await checkOutbound(resources, stream, (reason) => {
      metrics.outboundSuspicion({ stream });
      log.warn({ stream, reason }, 'outbound stream may have lost entries, its routes are checked');
    });
    // Again at each look: a workflow may get lost as well.
    if (suspect) await keepRunning(workflows, repairOf(stream, suspect.suspect_reason!, route));
  }
}

/** The workflow that repairs an outbound stream. */
export const repairOf = (
  stream: string,
  reason: string,
  { leaseTtlMs }: { leaseTtlMs: number },
): LongLivedWorkflow => ({
  workflowType: REPAIR_WORKFLOW,
  workflowId: repairWorkflowId(stream),
  taskQueue: INTENT_TASK_QUEUE,
  args: [stream, SETTLING_LEASES * leaseTtlMs],
  staticSummary: `checks ${stream}: ${reason}`,
});

export type RepairActivities = ReturnType<typeof createRepairActivities>;

/** What an attempt hands to the next: how far it has come, or what the first walk has found. */
type Walk = RepairProgress & {
  suspectSince: string;
  /** How the stream stood when the walk began, and that time by PostgreSQL's clock. */
  begunWith: OutboundLook;
  begunAt: string;
  isSettled: boolean;
  /** Of the first walk: when it began, and what every later entry is above. */
  first?: { at: string; upTo: string };
};

interface PublishedRoute extends RouteName {
  entry_id: string | null;
  publishedAt: string;
  /** Published when the stream had perhaps not been seen whole. */
  isRecent: boolean;
}

export function createRepairActivities(resources: RepairResources) {
  const { db, redis, log, metrics, catalog, route: settings } = resources;
  return {
    /**
     * Walks twice. The first walk comes before the stream has trimmed what is beside the loss; the second looks only for
     * hand-offs from before the loss whose rows were written meanwhile.
     *
     * @param settlingMs after the last loss, until the rows of all hand-offs from before are written.
     * @returns what was done in all.
     * @throws ApplicationFailure `RouteDeferred`, retried, between the walks, and when an entry is gone whose channel is
     * paused.
     */
    async repairStream(stream: string, settlingMs: number): Promise<RepairProgress> {
      const [suspect] = await query<OutboundRow>(db, LOAD_OUTBOUND, [stream, databaseOf(redis)]);
      if (!suspect?.suspect_since) return { checked: 0, repaired: 0 };
      const settlesInMs = Math.max(0, Math.ceil(settlingMs - suspect.suspect_ms!));
      const walk = await beginWalk(stream, suspect.suspect_since, suspect.now, settlesInMs === 0);
      const { begunWith } = walk;
      for (let goesOn = true; goesOn;) goesOn = await checkPage(stream, suspect, walk);
      if (!walk.isSettled) {
        const upTo = later((await lookAtOutbound(redis, stream)).lastEntryId, await newestIdOf(redis));
        heartbeat({ ...walk, first: { at: walk.begunAt, upTo } });
        throw deferred('hand-offs from before the loss may still be written down', Math.max(settlesInMs, 1));
      }
      const { checked, repaired } = walk;
      // It is whole when nothing was lost between the last look of before and the end; otherwise all of it is done again.
      const isWhole =
        suspicionOf(suspect, begunWith) === undefined &&
        suspicionOf(begunWith, await lookAtOutbound(redis, stream)) === undefined;
      const values = [stream, ...valuesOf(begunWith), walk.begunAt, suspect.suspect_since];
      const [cleared] = isWhole ? await query(db, CLEAR_OUTBOUND, values) : [];
      if (!cleared) await query(db, KEEP_SUSPECTING_OUTBOUND, [stream, walk.before?.publishedAt ?? null]);
      log.info(
        { stream, reason: suspect.suspect_reason, checked, repaired, is_whole: cleared !== undefined },
        'outbound stream checked',
      );
      return { checked, repaired };
    },
  };

  /** @returns the walk of an attempt before, or the next one. */
  async function beginWalk(
    stream: string,
    suspectSince: string,
    begunAt: string,
    isSettled: boolean,
  ): Promise<Walk> {
    const held = Context.current().info.heartbeatDetails as Walk | undefined;
    const before = held?.suspectSince === suspectSince ? held : undefined;
    if (before && (before.isSettled || !before.first)) return before;
    const { checked = 0, repaired = 0, first } = before ?? {};
    const begunWith = await lookAtOutbound(redis, stream);
    return { checked, repaired, suspectSince, begunWith, begunAt, isSettled, ...(first ? { first } : {}) };
  }

  /** Checks the next older routes. @returns whether to go on. */
  async function checkPage(stream: string, suspect: OutboundRow, walk: Walk): Promise<boolean> {
    const { publishedAt, notificationId, routeId } = walk.before ?? NEWEST;
    const { gatewayStream, mailStream } = settings;
    const channels = CHANNELS.filter(
      (channel) => (channel === 'push' ? gatewayStream : mailStream) === stream,
    );
    const page = await query<PublishedRoute>(db, LIST_PUBLISHED, [
      ...[channels, publishedAt, notificationId, routeId],
      ...[suspect.seen_at, PAGE_SIZE, suspect.wanted_since, walk.first?.at ?? null],
    ]);
    // The first walk has found what was lost of those before, and what came later is trimmed as ever.
    const isAsked = (id: string, { firstEntryId }: OutboundLook) =>
      !walk.first || compareEntryIds(id, walk.first.upTo) <= 0 || compareEntryIds(id, firstEntryId) >= 0;
    const { wanted, missing } = await missingIn(redis, stream, suspect, page, isAsked);
    if (missing.length > 0) walk.repaired += await restore(missing);
    walk.checked += wanted.length;
    const last = page.at(-1);
    if (last) {
      const { publishedAt, notificationId, routeId } = last;
      walk.before = { publishedAt, notificationId, routeId };
    }
    heartbeat(walk);
    Context.current().cancellationSignal.throwIfAborted();
    return page.length === PAGE_SIZE && (last!.isRecent || missing.length > 0);
  }

  /** @returns how many of these routes were handed off again. */
  async function restore(missing: readonly PublishedRoute[]): Promise<number> {
    const routes = await loadEach(db, missing);
    const paused = routes.find(({ isChannelPaused }) => isChannelPaused);
    if (paused) {
      const { channel } = paused;
      throw deferred(
        `entries of ${channel} are lost, and ${channel} is paused: they are handed off again when it is resumed`,
        PAUSED_CHECK_MS,
      );
    }
    const encode = createEncoder(settings, catalog);
    const restored = await pLimit(PARALLEL_HAND_OFFS).map(routes, async (route) => ({
      ...route,
      now: await handOffAgain(route, encode),
    }));
    const done = restored.filter(({ now }) => now !== undefined);
    await query(db, MOVE_ENTRIES, columnsOf(done, 'notificationId', 'routeId', 'entryId', 'now'));
    return done.length;
  }

  async function handOffAgain(route: RouteRow, encode: ReturnType<typeof createEncoder>) {
    let entry;
    try {
      entry = encode(route);
    } catch (error) {
      log.error({ ...logFields(route), reason: reasonOf(error) }, 'lost entry cannot be made again');
      return undefined;
    }
    const now = await handOff.restore(redis, handOffKeyOf(route), route.entryId!, entry);
    metrics.outboundRestored({ channel: route.channel });
    log.warn(
      { ...logFields(route), entry_id: now, lost_entry_id: route.entryId },
      'lost entry handed off again',
    );
    return now;
  }
}

const deferred = (message: string, nextRetryDelay: number): ApplicationFailure =>
  ApplicationFailure.create({ type: ROUTE_DEFERRED, message, nextRetryDelay });

/** @returns an id above those of all entries that were appended before, by Redis' clock. */
async function newestIdOf(redis: Redis): Promise<string> {
  const [seconds, micros] = await redis.time();
  return `${Number(seconds) * 1_000 + Math.floor(Number(micros) / 1_000)}-${MAX_SEQUENCE}`;
}

/**
 * The next older published routes. $1 channels, $2 to $4 the last route of the page before, $5 when the stream was last
 * seen whole, $6 rows at most, $7 from when on they are wanted, $8 when the first walk began, in the second one: a row has the
 * time at which its statement began, and that one saw none whose statement had not ended.
 */
const LIST_PUBLISHED = {
  name: 'list_published_routes',
  text: `
    SELECT notification_id AS "notificationId", route_id AS "routeId", entry_id, published_at::text AS "publishedAt",
           published_at >= $5::timestamptz - interval '1 minute' AS "isRecent"
      FROM notification.routes AS route
     WHERE published_at <= $2::timestamptz
       AND published_at >= greatest($7::timestamptz, $8::timestamptz
                - greatest(interval '15 seconds', 2 * current_setting('statement_timeout')::interval))
       AND (published_at, notification_id, route_id) < ($2::timestamptz, $3, $4) AND channel = ANY ($1::text[])
     ORDER BY route.published_at DESC, notification_id DESC, route_id DESC
     LIMIT $6`,
};

/** $1 and $2 routes, $3 the entries as which they were handed off, $4 and are now. */
const MOVE_ENTRIES = {
  name: 'move_entries',
  text: `
    UPDATE notification.routes AS route
       SET entry_id = moved.now
      FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) AS moved (notification_id, route_id, before, now)
     WHERE route.notification_id = moved.notification_id AND route.route_id = moved.route_id AND status = 'published'
       AND entry_id = moved.before`,
};
