/** Releases the routes that waited for a channel or a producer, after a resume (workflows/intent/channel.ts). */
import { Context } from '@temporalio/activity';
import { routeRefOf } from '../../api/ids.ts';
import type { HeldName } from '../../workflows/intent/channel-contract.ts';
import { holdKeyOf, producerOf } from '../../workflows/intent/channel-contract.ts';
import { CHANNELS, CHANNEL_RESUMED_SIGNAL, routeWorkflowId } from '../../workflows/intent/contract.ts';
import { heartbeat } from '../attempt.ts';
import { query } from '../postgres.ts';
import { signalIfRunning } from '../workflows.ts';
import type { IntentResources } from './resources.ts';
import type { WaitingRoute } from './route-rows.ts';
import { placeOf, waitingRoutes } from './route-rows.ts';

/** Routes are released in small groups, so that the rate is even and a pause takes effect immediately. */
const GROUPS_PER_SECOND = 10;
const PAGE_SIZE = 500;
/**
 * A route that was created so much later than the resume has seen the channel open, ms: the row of the hold has its
 * time from before its transaction ends. Both times are PostgreSQL's.
 */
const COMMIT_ALLOWANCE_MS = 60_000;

export type ChannelActivities = ReturnType<typeof createChannelActivities>;

/** How far a drain has come; its heartbeat keeps it, so that another worker continues from there. */
interface DrainProgress {
  released: number;
  after: string[];
}

export function createChannelActivities({
  db,
  log,
  workflows,
}: Pick<IntentResources, 'db' | 'log' | 'workflows'>) {
  /** One that was settled since it was listed, or is about to be started, sees the channel open anyway. */
  const release = ({ notificationId, routeId }: WaitingRoute): Promise<void> =>
    signalIfRunning(workflows, routeWorkflowId(notificationId, routeRefOf(routeId)), CHANNEL_RESUMED_SIGNAL);

  return {
    /**
     * Releases the routes that have been waiting since before `resumedAtMs`, oldest first. A route that does not wait
     * any more takes no notice.
     *
     * @param resumedAtMs by the clock of PostgreSQL, epoch ms.
     * @returns how many were released.
     */
    async drainChannel(channel: HeldName, resumedAtMs: number, ratePerSecond: number): Promise<number> {
      const activity = Context.current();
      const held = activity.info.heartbeatDetails as DrainProgress | undefined;
      let progress = held ?? { released: 0, after: placeOf() };
      const groupSize = Math.max(1, Math.round(ratePerSecond / GROUPS_PER_SECOND));
      const groupMs = (groupSize * 1_000) / ratePerSecond;
      const producer = producerOf(channel);

      for (;;) {
        const page = await query<WaitingRoute & { isLetGo: boolean }>(db, LIST_WAITING, [
          ...[...progress.after, PAGE_SIZE],
          producer === undefined ? [channel] : CHANNELS,
          new Date(resumedAtMs + COMMIT_ALLOWANCE_MS).toISOString(),
          producer ?? null,
        ]);
        const wanted = page.filter(({ isLetGo }) => isLetGo);
        for (let start = 0; start < wanted.length; start += groupSize) {
          const group = wanted.slice(start, start + groupSize);
          await Promise.all(group.map(release));
          reportAt(group.at(-1)!, group.length);
          await activity.sleep(groupMs);
        }
        // Those of other producers that come after them.
        if (page.length > 0) reportAt(page.at(-1)!);
        if (page.length < PAGE_SIZE) break;
      }
      const { kind, name } = holdKeyOf(channel);
      await query(db, END_DRAIN, [kind, name, resumedAtMs]);
      log.info({ channel, released: progress.released }, 'waiting routes were released');
      return progress.released;

      function reportAt(route: WaitingRoute, released = 0): void {
        progress = { released: progress.released + released, after: placeOf(route) };
        heartbeat(progress);
      }
    },
  };
}

/** A drain that was paused or begun again meanwhile has another time. */
const END_DRAIN = {
  name: 'end_channel_drain',
  text: `
    UPDATE notification.holds SET drain_rate = NULL
     WHERE kind = $1 AND name = $2 AND drain_rate IS NOT NULL
       AND (extract(epoch FROM changed_at) * 1000)::bigint = $3::bigint`,
};

/**
 * What was created in time to come was created before the clock was put back. Routes of all producers are looked at, since
 * no index has them apart: a page of those of one could be a walk through all. $1 to $4 as of {@link waitingRoutes}, $5
 * channels, $6 created until, $7 producer, or null for all.
 */
const LIST_WAITING = {
  name: 'list_waiting_routes',
  text: `
    SELECT waiting.*,
           $7::text IS NULL OR $7 = (SELECT producer FROM notification.records
                                      WHERE notification_id = "notificationId") AS "isLetGo"
      FROM (${waitingRoutes('unnest($5::text[])', '(created_at <= $6 OR created_at > clock_timestamp())')}) AS waiting
     ORDER BY "dueAt"::timestamptz, "notificationId", "routeId"`,
};
