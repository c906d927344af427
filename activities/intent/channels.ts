/** Releases the routes that waited for a channel or a producer, after a resume (workflows/intent/channel.ts). */
import { Context } from '@temporalio/activity';
import type { WorkflowClient } from '@temporalio/client';
import type { Pool } from 'pg';
import type { Logger } from 'pino';
import { routeRefOf } from '../../api/ids.ts';
import type { HeldName } from '../../workflows/intent/channel-contract.ts';
import { holdKeyOf, producerOf } from '../../workflows/intent/channel-contract.ts';
import { CHANNELS, CHANNEL_RESUMED_SIGNAL, routeWorkflowId } from '../../workflows/intent/contract.ts';
import { heartbeat } from '../heartbeat.ts';
import { query } from '../postgres.ts';
import { signalIfRunning } from '../workflows.ts';

/** Routes are released in small groups, so that the rate is even and a pause takes effect immediately. */
const GROUPS_PER_SECOND = 10;
const PAGE_SIZE = 500;
/**
 * A route that was created so much later than the resume has seen the channel open, ms: the row of the hold has its
 * time from before its transaction ends. Both times are PostgreSQL's.
 */
const COMMIT_ALLOWANCE_MS = 60_000;

export interface ChannelResources {
  db: Pool;
  log: Logger;
  workflows: WorkflowClient;
}

export type ChannelActivities = ReturnType<typeof createChannelActivities>;

interface WaitingRoute {
  notification_id: string;
  route_id: string;
  /** To the microsecond, for paging. */
  next_attempt_at: string;
  /** Of the producer that was resumed, if it was one. */
  is_let_go: boolean;
}

/** Where a drain stands, kept in its heartbeat so that another worker goes on from there. */
interface DrainProgress {
  released: number;
  after: [nextAttemptAt: string, notificationId: string, routeId: string];
}

const BEGINNING: DrainProgress = { released: 0, after: ['-infinity', '', ''] };

export function createChannelActivities({ db, log, workflows }: ChannelResources) {
  /** One that was settled since it was listed, or is about to be started, sees the channel open anyway. */
  const release = ({ notification_id, route_id }: WaitingRoute): Promise<void> =>
    signalIfRunning(
      workflows,
      routeWorkflowId(notification_id, routeRefOf(route_id)),
      CHANNEL_RESUMED_SIGNAL,
    );

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
      let progress = (activity.info.heartbeatDetails as DrainProgress | undefined) ?? BEGINNING;
      const groupSize = Math.max(1, Math.round(ratePerSecond / GROUPS_PER_SECOND));
      const groupMs = (groupSize * 1_000) / ratePerSecond;
      const producer = producerOf(channel);

      for (;;) {
        const page = await query<WaitingRoute>(db, LIST_WAITING, [
          producer === undefined ? [channel] : CHANNELS,
          new Date(resumedAtMs + COMMIT_ALLOWANCE_MS).toISOString(),
          ...progress.after,
          PAGE_SIZE,
          producer ?? null,
        ]);
        const wanted = page.filter(({ is_let_go }) => is_let_go);
        for (let start = 0; start < wanted.length; start += groupSize) {
          const group = wanted.slice(start, start + groupSize);
          await Promise.all(group.map(release));
          comeTo(group.at(-1)!, group.length);
          await activity.sleep(groupMs);
        }
        // Those of other producers that come after them.
        if (page.length > 0) comeTo(page.at(-1)!);
        if (page.length < PAGE_SIZE) break;
      }
      const { kind, name } = holdKeyOf(channel);
      await query(db, END_DRAIN, [kind, name, resumedAtMs]);
      log.info({ channel, released: progress.released }, 'waiting routes were released');
      return progress.released;

      function comeTo({ next_attempt_at, notification_id, route_id }: WaitingRoute, released = 0): void {
        progress = {
          released: progress.released + released,
          after: [next_attempt_at, notification_id, route_id],
        };
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
 * no index has them apart: a page of those of one could be a walk through all. $1 channels, $2 created until, $3 to $5 the
 * last of the page before, $6 rows at most, $7 producer, or null for all.
 */
const LIST_WAITING = {
  name: 'list_waiting_routes',
  text: `
    SELECT waiting.*, $7::text IS NULL OR producer = $7 AS is_let_go
      FROM (SELECT notification_id, route_id, route.next_attempt_at::text
              FROM unnest($1::text[]) AS held (channel)
             CROSS JOIN LATERAL (
                   SELECT notification_id, route_id, next_attempt_at
                     FROM notification.routes
                    WHERE next_attempt_at IS NOT NULL AND routes.channel = held.channel
                      AND (created_at <= $2 OR created_at > clock_timestamp())
                      AND next_attempt_at >= $3::timestamptz
                      AND (next_attempt_at, notification_id, route_id) > ($3::timestamptz, $4, $5)
                    ORDER BY next_attempt_at, notification_id, route_id
                    LIMIT $6) AS route
             ORDER BY route.next_attempt_at, notification_id, route_id
             LIMIT $6) AS waiting
      JOIN notification.records USING (notification_id)
     ORDER BY waiting.next_attempt_at::timestamptz, notification_id, route_id`,
};
