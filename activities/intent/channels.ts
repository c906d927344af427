/** Pausing and resuming channels and producers. Owns the SQL of `channels`; publication reads it with each route it loads. */
import { Context } from '@temporalio/activity';
import type { WorkflowClient } from '@temporalio/client';
import type { Pool } from 'pg';
import type { Logger } from 'pino';
import { routeRefOf } from '../../api/ids.ts';
import { setHeldSql } from '../../api/intent/held.ts';
import type { ChannelState, HeldName } from '../../workflows/intent/channel-contract.ts';
import { producerOf } from '../../workflows/intent/channel-contract.ts';
import { CHANNELS, CHANNEL_RESUMED_SIGNAL, routeWorkflowId } from '../../workflows/intent/contract.ts';
import { heartbeat } from '../heartbeat.ts';
import { query } from '../postgres.ts';
import { signalIfRunning } from '../workflows.ts';

/** Routes are let go in small groups, so that the rate is even and a pause takes effect immediately. */
const GROUPS_PER_SECOND = 10;
const PAGE_SIZE = 500;
/**
 * A route that was created so much later than the resume has seen the channel open, ms: the row of the channel has its
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
    /** As the row says; `draining` when a drain has not come to its end, whatever became of the workflow that had it. */
    async loadChannel(channel: HeldName): Promise<ChannelState> {
      const [row] = await query<ChannelRow>(db, LOAD_CHANNEL, [channel]);
      if (!row) return { channel, status: 'open', sinceMs: 0 };
      const state = {
        channel,
        ...(row.reason === null ? {} : { reason: row.reason }),
        requestedBy: row.changed_by,
        sinceMs: Number(row.changed_at_ms),
      };
      if (row.is_paused) return { ...state, status: 'paused' };
      if (row.drain_rate === null) return { ...state, status: 'open' };
      return { ...state, status: 'draining', drain: { ratePerSecond: row.drain_rate, released: 0 } };
    },

    /**
     * From the return on, no attempt that begins publishes on a paused channel, or of a paused producer.
     *
     * @param drainRate waiting routes that are to be let go per second, on resume.
     * @returns when that was, by the clock of PostgreSQL, epoch ms.
     */
    async setChannelPaused(
      channel: HeldName,
      isPaused: boolean,
      requestedBy: string,
      reason?: string | null,
      drainRate?: number,
    ): Promise<number> {
      const values = [channel, isPaused, reason ?? null, requestedBy, drainRate ?? null];
      const [row] = await query<Pick<ChannelRow, 'changed_at_ms'>>(db, SET_CHANNEL, values);
      log.warn(
        { channel, requested_by: requestedBy, ...(reason ? { reason } : {}) },
        `${producerOf(channel) === undefined ? 'channel' : 'producer'} ${isPaused ? 'paused' : 'resumed'}`,
      );
      return Number(row!.changed_at_ms);
    },

    /**
     * Lets the routes go that have been waiting since before `resumedAtMs`, oldest first. A route that does not wait
     * any more takes no notice.
     *
     * @param resumedAtMs by the clock of PostgreSQL, epoch ms.
     * @returns how many were let go.
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
      await query(db, END_DRAIN, [channel, resumedAtMs]);
      log.info({ channel, released: progress.released }, 'waiting routes were let go');
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

interface ChannelRow {
  is_paused: boolean;
  reason: string | null;
  changed_by: string;
  changed_at_ms: string;
  /** Waiting routes per second, until all are let go. */
  drain_rate: number | null;
}

const CHANGED_AT_MS = '(extract(epoch FROM changed_at) * 1000)::bigint';

const LOAD_CHANNEL = {
  name: 'load_channel',
  text: `
    SELECT is_paused, reason, changed_by, ${CHANGED_AT_MS} AS changed_at_ms, drain_rate
      FROM notification.channels
     WHERE channel = $1`,
};

const SET_CHANNEL = {
  name: 'set_channel',
  text: setHeldSql(`${CHANGED_AT_MS} AS changed_at_ms`),
};

/** A drain that was paused or begun anew meanwhile has another time. */
const END_DRAIN = {
  name: 'end_channel_drain',
  text: `
    UPDATE notification.channels SET drain_rate = NULL
     WHERE channel = $1 AND drain_rate IS NOT NULL AND ${CHANGED_AT_MS} = $2::bigint`,
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
