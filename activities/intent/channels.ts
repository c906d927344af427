/** Pausing and resuming channels. Owns the SQL of `channels`; publication reads it with each route it loads. */
import { Context } from '@temporalio/activity';
import type { WorkflowClient } from '@temporalio/client';
import type { Pool } from 'pg';
import type { Logger } from 'pino';
import { routeRefOf } from '../../api/ids.ts';
import type { ChannelName, ChannelState } from '../../workflows/intent/channel-contract.ts';
import { CHANNEL_RESUMED_SIGNAL, routeWorkflowId } from '../../workflows/intent/contract.ts';
import { query } from '../postgres.ts';
import { signalIfRunning } from '../workflows.ts';

/** Routes are let go in small groups, so that the rate is even and a pause takes effect immediately. */
const GROUPS_PER_SECOND = 10;
const PAGE_SIZE = 500;
/** Routes created after the resume have seen the channel open; as much later as clocks may differ, ms. */
const CLOCK_ALLOWANCE_MS = 60_000;

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
    async loadChannel(channel: ChannelName): Promise<ChannelState> {
      const [row] = await query<ChannelRow>(db, LOAD_CHANNEL, [channel]);
      if (!row) return { channel, status: 'open', sinceMs: 0 };
      return {
        channel,
        status: row.is_paused ? 'paused' : 'open',
        ...(row.reason === null ? {} : { reason: row.reason }),
        requestedBy: row.changed_by,
        sinceMs: Number(row.changed_at_ms),
      };
    },

    /** From the return on, no attempt that begins publishes on a paused channel. */
    async setChannelPaused(
      channel: ChannelName,
      isPaused: boolean,
      requestedBy: string,
      reason?: string,
    ): Promise<void> {
      await query(db, SET_CHANNEL, [channel, isPaused, reason ?? null, requestedBy]);
      log.warn(
        { channel, requested_by: requestedBy, ...(reason === undefined ? {} : { reason }) },
        isPaused ? 'channel paused' : 'channel resumed',
      );
    },

    /**
     * Lets the routes go that have been waiting since before `resumedAtMs`, oldest first. A route that does not wait
     * any more takes no notice.
     *
     * @returns how many were let go.
     */
    async drainChannel(channel: ChannelName, resumedAtMs: number, ratePerSecond: number): Promise<number> {
      const activity = Context.current();
      let progress = (activity.info.heartbeatDetails as DrainProgress | undefined) ?? BEGINNING;
      const groupSize = Math.max(1, Math.round(ratePerSecond / GROUPS_PER_SECOND));
      const groupMs = (groupSize * 1_000) / ratePerSecond;

      for (;;) {
        const page = await query<WaitingRoute>(db, LIST_WAITING, [
          channel,
          new Date(resumedAtMs + CLOCK_ALLOWANCE_MS).toISOString(),
          ...progress.after,
          PAGE_SIZE,
        ]);
        for (let start = 0; start < page.length; start += groupSize) {
          const group = page.slice(start, start + groupSize);
          await Promise.all(group.map(release));
          const { next_attempt_at, notification_id, route_id } = group.at(-1)!;
          progress = {
            released: progress.released + group.length,
            after: [next_attempt_at, notification_id, route_id],
          };
          activity.heartbeat(progress);
          await activity.sleep(groupMs);
        }
        if (page.length < PAGE_SIZE) break;
      }
      log.info({ channel, released: progress.released }, 'channel drained');
      return progress.released;
    },
  };
}

interface ChannelRow {
  is_paused: boolean;
  reason: string | null;
  changed_by: string;
  changed_at_ms: string;
}

const LOAD_CHANNEL = {
  name: 'load_channel',
  text: `
    SELECT is_paused, reason, changed_by, (extract(epoch FROM changed_at) * 1000)::bigint AS changed_at_ms
      FROM notification.channels
     WHERE channel = $1`,
};

const SET_CHANNEL = {
  name: 'set_channel',
  text: `
    INSERT INTO notification.channels (channel, is_paused, reason, changed_by, changed_at)
    VALUES ($1, $2, $3, $4, clock_timestamp())
    ON CONFLICT (channel) DO UPDATE
       SET is_paused = excluded.is_paused, reason = excluded.reason, changed_by = excluded.changed_by,
           changed_at = excluded.changed_at`,
};

const LIST_WAITING = {
  name: 'list_waiting_routes',
  text: `
    SELECT notification_id, route_id, next_attempt_at::text
      FROM notification.routes
     WHERE next_attempt_at IS NOT NULL AND channel = $1 AND created_at <= $2
       AND (next_attempt_at, notification_id, route_id) > ($3::timestamptz, $4, $5)
     ORDER BY next_attempt_at, notification_id, route_id
     LIMIT $6`,
};
