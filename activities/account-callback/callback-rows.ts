/**
 * Callbacks that are due, and their outcomes: delivered, to be tried again, or given up. One statement writes the outcomes
 * of many. Owns the SQL of `failed_callbacks`, and of the status of snapshots, and says how long rows are kept.
 */
import type { Pool } from 'pg';
import type { CallbackKey, CallbackValues } from '../../api/account-callback/callback.ts';
import type { CallbackKind, EmissionCursor, ShardWaits } from '../../workflows/account-callback/contract.ts';
import { DAY_MS } from '../../workflows/account-callback/contract.ts';
import type { Statement } from '../postgres.ts';
import { columnsOf, query } from '../postgres.ts';
import type { Kept } from '../retention.ts';

/** A callback that is to be delivered, with what it tells. */
export interface DueCallback extends CallbackKey, CallbackValues {
  /** Attempts that failed before. */
  attempts: number;
}

export interface FailedCallback extends DueCallback {
  /** In the portfolio service's own words, which may quote the values of the callback. */
  reason: string;
  /** For logs. */
  outline: string;
  /** Until the next attempt, ms; absent when it is given up. */
  waitMs?: number | undefined;
}

/**
 * Begins the next callbacks of a kind, all of one period: days by user, hours by their index. From then on no entry replaces them.
 *
 * @param after the last one of the page before; absent: those of the oldest period that is pending, of a day if all trackings
 *   of the shard have caught up to its end.
 * @returns them, and the last of them.
 */
export async function beginPage(
  db: Pool,
  shard: number,
  kind: CallbackKind,
  after: EmissionCursor | undefined,
  limit: number,
): Promise<{ due: DueCallback[]; upTo?: EmissionCursor }> {
  const isDaily = kind === 'daily';
  const [oldest] = isDaily && !after ? await query<EmissionCursor>(db, FIND_DUE_DAY, [shard]) : [NO_HOUR];
  const from = after ?? oldest;
  if (!from) return { due: [] };
  const statement = isDaily ? BEGIN_DAILY_PAGE : BEGIN_HOURLY_PAGE;
  const values = [shard, from.periodStartMs, from.last, limit];
  const due = await query<DueCallback & EmissionCursor>(db, statement, values);
  const end = due.at(-1);
  return { due, ...(end && { upTo: { periodStartMs: end.periodStartMs, last: end.last } }) };
}

/** Before all hours. */
const NO_HOUR: EmissionCursor = { periodStartMs: 0, last: '0' };

/** The failed callbacks that are due, those first that are due the longest. @param nowMs epoch ms. */
export const loadDueRetries = (
  db: Pool,
  shard: number,
  nowMs: number,
  limit: number,
): Promise<DueCallback[]> => query(db, LOAD_DUE_RETRIES, [shard, nowMs, limit]);

/** What the shard waits for at the end of an alarm. @param nowMs epoch ms. */
export async function waitsOf(db: Pool, shard: number, nowMs: number): Promise<ShardWaits> {
  const [row] = await query<{ next_ms: number | null; is_behind: boolean }>(db, FIND_WAITS, [shard, nowMs]);
  return { isBehind: row!.is_behind, nextRetryMs: row!.next_ms ?? undefined };
}

/** Settles callbacks that were delivered. `daily_date` of their users advances to the latest day, and never goes back. */
export async function recordDelivered(db: Pool, delivered: readonly DueCallback[]): Promise<void> {
  if (delivered.length > 0) await query(db, RECORD_DELIVERED, columnsOf(delivered, ...KEY));
}

/** Notes attempts that failed, and when the next ones are due; those given up are dead letters. @param nowMs epoch ms. */
export async function recordFailed(
  db: Pool,
  failed: readonly FailedCallback[],
  nowMs: number,
): Promise<void> {
  if (failed.length === 0) return;
  const columns = columnsOf(failed, ...KEY, 'attempts', 'reason', 'waitMs');
  await query(db, RECORD_FAILED, [...columns, nowMs]);
}

/**
 * Ends the trackings of users who are gone, and drops their other callbacks. Later entries about them are not delivered,
 * until the producer tracks them again.
 */
export async function endGone(db: Pool, userIds: readonly string[]): Promise<void> {
  if (userIds.length > 0) await query(db, END_GONE, [userIds]);
}

const KEY = ['kind', 'userId', 'periodStartMs'] as const;

/** A `DueCallback`, but for its attempts. */
const COLUMNS = `kind, user_id AS "userId", period_start_ms::float8 AS "periodStartMs", peak_value AS "peakValue",
         peak_at_ms::float8 AS "peakAtMs", bottom_value AS "bottomValue", bottom_at_ms::float8 AS "bottomAtMs",
         closing_value AS "closingValue"`;

/** SQL: two rows are about the same callback. */
const isSame = (one: string, other: string): string =>
  `(${one}.kind, ${one}.user_id, ${one}.period_start_ms) = (${other}.kind, ${other}.user_id, ${other}.period_start_ms)`;

/** Of `snapshot`: the user has no daily callback to be retried. One who has is due again when it is settled. */
const HAS_NO_DAILY_RETRY = `
  NOT EXISTS (SELECT FROM notification.failed_callbacks AS failed
               WHERE failed.user_id = snapshot.user_id AND failed.kind = 'daily'
                 AND next_attempt_at IS NOT NULL)`;

/** $1 shard: the day to whose end all its trackings have caught up; null when none is waited for. */
const OLDEST_CAUGHT_UP = `
  (SELECT caught_up_date FROM notification.callback_trackings
    WHERE shard = $1 AND is_waited_for ORDER BY caught_up_date LIMIT 1)`;

/** $1 shard. */
const FIND_DUE_DAY = {
  name: 'find_due_callback_day',
  text: `
    SELECT period_start_ms::float8 AS "periodStartMs", '' AS last
      FROM notification.callback_snapshots AS snapshot
     WHERE shard = $1 AND kind = 'daily' AND status = 'pending' AND ${HAS_NO_DAILY_RETRY}
       AND (${OLDEST_CAUGHT_UP} < date '1970-01-01' + (period_start_ms / ${DAY_MS})::int) IS NOT TRUE
     ORDER BY period_start_ms
     LIMIT 1`,
};

/**
 * Rows are locked in the order of kinds, users and periods, as elsewhere: two processes cannot lock each other out.
 *
 * @param page SQL that finds the page and locks it. @param order of the page, and its cursor.
 */
const beginOf = (name: string, page: string, order: string): Statement => ({
  name,
  text: `
    WITH page AS MATERIALIZED (${page}
         FOR NO KEY UPDATE OF snapshot
    ), begun AS (
      UPDATE notification.callback_snapshots AS snapshot
         SET emitted_at = coalesce(emitted_at, clock_timestamp())
        FROM page
       WHERE ${isSame('snapshot', 'page')}
      RETURNING snapshot.*
    )
    SELECT ${COLUMNS}, ${order}::text AS last, 0 AS attempts FROM begun ORDER BY begun.${order}`,
});

/** $1 shard, $2 start of the day, $3 the last user of the page before, $4 callbacks at most. */
const BEGIN_DAILY_PAGE = beginOf(
  'begin_daily_callbacks',
  `
      SELECT kind, user_id, period_start_ms
        FROM notification.callback_snapshots AS snapshot
       WHERE shard = $1 AND kind = 'daily' AND status = 'pending' AND period_start_ms = $2::bigint AND user_id > $3
         AND ${HAS_NO_DAILY_RETRY}
       ORDER BY user_id
       LIMIT $4`,
  'user_id',
);

/** $1 shard, $2 and $3 hour and index of the last callback of the page before, $4 callbacks at most. */
const BEGIN_HOURLY_PAGE = beginOf(
  'begin_hourly_callbacks',
  `
      SELECT kind, user_id, period_start_ms
        FROM (SELECT kind, user_id, period_start_ms, min(period_start_ms) OVER () AS oldest
                FROM (SELECT *
                        FROM notification.callback_snapshots
                       WHERE shard = $1 AND kind = 'hourly' AND status = 'pending'
                         AND (period_start_ms, position) > ($2::bigint, $3::bigint)
                       ORDER BY period_start_ms, position
                       LIMIT $4) AS pending) AS next
        JOIN notification.callback_snapshots AS snapshot USING (kind, user_id, period_start_ms)
       WHERE period_start_ms = oldest AND status = 'pending'
       ORDER BY kind, user_id, period_start_ms`,
  'position',
);

/** $1 shard, $2 now, $3 rows at most. */
const LOAD_DUE_RETRIES = {
  name: 'load_due_callback_retries',
  text: `
    SELECT ${COLUMNS}, attempts
      FROM (
        SELECT kind, user_id, period_start_ms, attempts, next_attempt_at
          FROM notification.failed_callbacks
         WHERE shard = $1 AND next_attempt_at <= to_timestamp($2::bigint / 1000.0)
         ORDER BY next_attempt_at
         LIMIT $3
      ) AS due
      JOIN notification.callback_snapshots USING (kind, user_id, period_start_ms)
     ORDER BY next_attempt_at`,
};

/** $1 shard, $2 now, epoch ms. */
const FIND_WAITS = {
  name: 'find_callback_waits',
  text: `
    SELECT coalesce(${OLDEST_CAUGHT_UP} < date '1970-01-01' + ($2::bigint / ${DAY_MS})::int - 1, false) AS is_behind,
           ceil(extract(epoch FROM min(next_attempt_at)) * 1000)::float8 AS next_ms
      FROM notification.failed_callbacks
     WHERE shard = $1`,
};

/** Never back: a day that is older than what was told since is compared, and left alone. @param settled SQL of callbacks. */
const advancedBy = (settled: string): string => `
      UPDATE notification.callback_trackings AS tracking
         SET daily_date = day
        FROM (SELECT user_id, date '1970-01-01' + max(period_start_ms / ${DAY_MS})::int AS day
                FROM ${settled} AND kind = 'daily' GROUP BY user_id) AS told
       WHERE tracking.user_id = told.user_id AND daily_date < day`;

/** $1 kinds, $2 users, $3 starts of their periods. */
const RECORD_DELIVERED = {
  name: 'record_delivered_callbacks',
  text: `
    WITH given AS MATERIALIZED (
      SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[]) AS given (kind, user_id, period_start_ms)
    ), cleared AS (
      DELETE FROM notification.failed_callbacks AS failed
       USING given
       WHERE ${isSame('failed', 'given')}
    ), advanced AS (${advancedBy('given WHERE true')}
    )
    UPDATE notification.callback_snapshots AS snapshot
       SET status = 'delivered', settled_at = clock_timestamp()
      FROM given
     WHERE ${isSame('snapshot', 'given')} AND status <> 'delivered'`,
};

/**
 * $1 to $3 as above, $4 failed attempts before this one, $5 reasons, $6 ms to the next one or null, $7 now. A
 * callback that another process has delivered or counted in the meantime stays as it is. A day that is given up is behind its
 * user as well: the next one must not wait for it.
 */
const RECORD_FAILED = {
  name: 'record_failed_callbacks',
  text: `
    WITH given AS MATERIALIZED (
      SELECT given.*, shard
        FROM unnest($1::text[], $2::text[], $3::bigint[], $4::int[], $5::text[], $6::bigint[])
               AS given (kind, user_id, period_start_ms, attempts, reason, wait_ms)
        JOIN notification.callback_snapshots AS snapshot USING (kind, user_id, period_start_ms)
       WHERE status IN ('pending', 'retrying')
       ORDER BY kind, user_id, period_start_ms
         FOR NO KEY UPDATE OF snapshot
    ), noted AS (
      INSERT INTO notification.failed_callbacks AS known
        (kind, user_id, period_start_ms, shard, attempts, next_attempt_at, last_error, failed_at)
      SELECT kind, user_id, period_start_ms, shard, attempts + 1, to_timestamp(($7::bigint + wait_ms) / 1000.0),
             left(reason, 500), to_timestamp($7::bigint / 1000.0)
        FROM given
      ON CONFLICT (kind, user_id, period_start_ms) DO UPDATE
         SET attempts = excluded.attempts, next_attempt_at = excluded.next_attempt_at,
             last_error = excluded.last_error, failed_at = excluded.failed_at
       WHERE known.attempts = excluded.attempts - 1
      RETURNING kind, user_id, period_start_ms, next_attempt_at
    ), advanced AS (${advancedBy('noted WHERE next_attempt_at IS NULL')}
    )
    UPDATE notification.callback_snapshots AS snapshot
       SET status = CASE WHEN next_attempt_at IS NULL THEN 'dropped' ELSE 'retrying' END,
           settled_at = CASE WHEN next_attempt_at IS NULL THEN clock_timestamp() END
      FROM noted
     WHERE ${isSame('snapshot', 'noted')}`,
};

/** $1 users. */
const END_GONE = {
  name: 'end_gone_users',
  text: `
    WITH ended AS (
      INSERT INTO notification.callback_trackings AS known
        (user_id, shard, entry_id, until_ms, is_waited_for, caught_up_date, daily_date, changed_at)
      SELECT user_id, notification.callback_shard(user_id), '0-0', 0, false, 'epoch', 'epoch', clock_timestamp()
        FROM (SELECT DISTINCT unnest($1::text[]) AS user_id) AS gone
       ORDER BY user_id
      ON CONFLICT (user_id) DO UPDATE
         SET until_ms = 0, is_waited_for = false, changed_at = excluded.changed_at
    ), cleared AS (
      DELETE FROM notification.failed_callbacks
       WHERE kind IN ('hourly', 'daily') AND user_id = ANY($1::text[]) AND next_attempt_at IS NOT NULL
    )
    UPDATE notification.callback_snapshots
       SET status = 'dropped', settled_at = clock_timestamp()
     WHERE kind IN ('hourly', 'daily') AND user_id = ANY($1::text[]) AND status IN ('pending', 'retrying')`,
};

// --- Retention --------------------------------------------------------------------------------------------------------

/** How long delivered hours are kept, ms. */
const HOURS_KEPT_MS = 72 * 3_600_000;

/**
 * What is deleted, and when. Callbacks that are still to be delivered stay.
 *
 * @returns the tables in the order in which they are deleted from.
 */
export function callbackTables(recordsKeptMs: number, malformedKeptMs: number): Kept[] {
  const settled = {
    table: 'notification.callback_snapshots',
    since: 'settled_at',
    keptBy: [`FROM notification.failed_callbacks AS failed WHERE ${isSame('failed', 'callback_snapshots')}`],
    keepMs: recordsKeptMs,
  };
  return [
    {
      name: 'callback_dead_letters',
      table: 'notification.failed_callbacks',
      since: 'failed_at',
      condition: 'next_attempt_at IS NULL',
      keepMs: recordsKeptMs,
    },
    {
      ...settled,
      name: 'hourly_callbacks',
      condition: "kind = 'hourly' AND status = 'delivered'",
      keepMs: HOURS_KEPT_MS,
    },
    // Longer than hours: a day that its producer sends again is a repeat, and is not delivered again.
    { ...settled, name: 'daily_callbacks', condition: "kind = 'daily' AND status = 'delivered'" },
    // After their dead letters.
    { ...settled, name: 'dropped_callbacks', condition: "status = 'dropped'" },
    {
      // Users who take no part since then, and users who were never tracked. Their pending callbacks need no tracking.
      name: 'callback_trackings',
      table: 'notification.callback_trackings',
      since: 'changed_at',
      condition: "(until_ms IS NOT NULL OR entry_id = '0-0')",
      keepMs: recordsKeptMs,
    },
    {
      name: 'malformed_account_inputs',
      table: 'notification.malformed_account_inputs',
      since: 'recorded_at',
      keepMs: malformedKeptMs,
    },
  ];
}
