/**
 * Days of account values: what is told about each is made of its hours, once, and kept. Owns the SQL that writes daily
 * snapshots; those of hours come from hours.ts.
 */
import type { Pool } from 'pg';
import type { DailyCursor } from '../../workflows/account-callback/contract.ts';
import { HOUR_MS } from '../../workflows/account-callback/contract.ts';
import { query } from '../postgres.ts';

export const DAY_MS = 24 * HOUR_MS;

/** The oldest day that is due: all of the shard have come to its end. Undefined when none is. */
export async function dueDayOf(db: Pool, shard: number): Promise<number | undefined> {
  const [row] = await query<{ day_start_ms: string | null }>(db, FIND_DUE_DAY, [shard]);
  return row?.day_start_ms == null ? undefined : Number(row.day_start_ms);
}

/**
 * Writes what is told to the next users about a day, where it is not written yet. Users without a value on that day are
 * settled with it: there is nothing to tell.
 *
 * @returns how many users of the page are to be told, and the last user of it; without one when there are no more.
 */
export async function freezeDay(
  db: Pool,
  shard: number,
  after: DailyCursor,
  limit: number,
): Promise<{ found: number; upTo?: DailyCursor }> {
  const { periodStartMs } = after;
  const values = [shard, periodStartMs, after.userId, limit];
  const [row] = await query<{ found: number; last_user: string | null }>(db, FREEZE_DAY, values);
  if (!row || row.last_user === null) return { found: 0 };
  return { found: row.found, upTo: { periodStartMs, userId: row.last_user } };
}

const EPOCH = "date '1970-01-01'";

/** $1 shard. Whoever has a daily callback to be retried is left out, and is due again when it is settled. */
const FIND_DUE_DAY = {
  name: 'find_due_callback_day',
  text: `
    SELECT (next_day - ${EPOCH})::bigint * ${DAY_MS} AS day_start_ms
      FROM (
        SELECT daily_date + 1 AS next_day
          FROM notification.callback_trackings AS tracking
         WHERE shard = $1
           AND NOT EXISTS (SELECT FROM notification.failed_callbacks AS failed
                            WHERE failed.user_id = tracking.user_id AND kind = 'daily')
         ORDER BY daily_date
         LIMIT 1
      ) AS oldest
     WHERE (next_day - ${EPOCH} + 1)::bigint * ${DAY_MS}
           <= (SELECT min(caught_up_to_ms) FROM notification.callback_trackings WHERE shard = $1)`,
};

/**
 * $1 shard, $2 start of the day, $3 the last user of the page before, $4 users at most.
 *
 * The closing value is the one at midnight, prices of that very moment included. Where a price or the coefficients of
 * that time are missing, it is the peak.
 *
 * Snapshots are looked up user by user, which a LIMIT holds PostgreSQL to: it knows of no row of a day that is new, and
 * would go through the whole of it for each user.
 */
const FREEZE_DAY = {
  name: 'freeze_callback_day',
  text: `
    WITH due AS MATERIALIZED (
      SELECT user_id
        FROM notification.callback_trackings AS tracking
       WHERE shard = $1 AND daily_date = ${EPOCH} + ($2::bigint / ${DAY_MS})::int - 1 AND user_id > $3
         AND caught_up_to_ms >= $2::bigint + ${DAY_MS}
         AND NOT EXISTS (SELECT FROM notification.failed_callbacks AS failed
                          WHERE failed.user_id = tracking.user_id AND kind = 'daily')
       ORDER BY user_id
       LIMIT $4
    ), known AS MATERIALIZED (
      SELECT user_id, status
        FROM due
       CROSS JOIN LATERAL (
         SELECT status FROM notification.callback_snapshots AS daily
          WHERE kind = 'daily' AND daily.user_id = due.user_id AND period_start_ms = $2::bigint
          LIMIT 1
       ) AS written_before
    ), hours AS (
      SELECT user_id, hour.*, max(peak_value) OVER of_user AS peak, min(bottom_value) OVER of_user AS bottom
        FROM due
       CROSS JOIN LATERAL (
         SELECT peak_value, peak_at_ms, bottom_value, bottom_at_ms FROM notification.callback_snapshots AS hourly
          WHERE kind = 'hourly' AND hourly.user_id = due.user_id
            AND period_start_ms >= $2::bigint AND period_start_ms < $2::bigint + ${DAY_MS}
          LIMIT ${DAY_MS / HOUR_MS}
       ) AS hour
       WHERE user_id NOT IN (SELECT user_id FROM known)
      WINDOW of_user AS (PARTITION BY user_id)
    ), days AS MATERIALIZED (
      SELECT user_id, min(peak) AS peak, min(peak_at_ms) FILTER (WHERE peak_value = peak) AS peak_at_ms,
             min(bottom) AS bottom, min(bottom_at_ms) FILTER (WHERE bottom_value = bottom) AS bottom_at_ms
        FROM hours
       GROUP BY user_id
    ), midnight_prices AS MATERIALIZED (
      SELECT symbol, price
        FROM notification.callback_symbols AS known_symbol
       CROSS JOIN LATERAL (
         SELECT price FROM notification.callback_prices
          WHERE symbol = known_symbol.symbol AND at_ms <= $2::bigint + ${DAY_MS}
          ORDER BY at_ms DESC
          LIMIT 1
       ) AS latest
    ), held AS MATERIALIZED (
      SELECT user_id, cash, coefficients
        FROM days
       CROSS JOIN LATERAL (
         SELECT cash, coefficients FROM notification.callback_positions AS positions
          WHERE positions.user_id = days.user_id AND at_ms <= $2::bigint + ${DAY_MS}
          ORDER BY at_ms DESC
          LIMIT 1
       ) AS latest
       WHERE coefficients IS NOT NULL
    ), closings AS MATERIALIZED (
      SELECT held.user_id, held.cash + coalesce(sum(coefficient::numeric * price), 0) AS value
        FROM held
        LEFT JOIN LATERAL jsonb_each_text(coefficients) AS leg (symbol, coefficient) ON true
        LEFT JOIN midnight_prices ON midnight_prices.symbol = leg.symbol
       GROUP BY held.user_id, held.cash
      HAVING count(leg.symbol) = count(price)
    ), written AS (
      INSERT INTO notification.callback_snapshots
        (kind, user_id, period_start_ms, shard, peak_value, peak_at_ms, bottom_value, bottom_at_ms, closing_value,
         created_at)
      SELECT 'daily', user_id, $2::bigint, $1, peak, peak_at_ms, bottom, bottom_at_ms,
             trim_scale(coalesce(closings.value, peak)), clock_timestamp()
        FROM days LEFT JOIN closings USING (user_id)
       ORDER BY user_id
      ON CONFLICT DO NOTHING
    ), settled AS (
      UPDATE notification.callback_trackings AS tracking
         SET daily_date = ${EPOCH} + ($2::bigint / ${DAY_MS})::int
        FROM due
       WHERE tracking.user_id = due.user_id AND daily_date < ${EPOCH} + ($2::bigint / ${DAY_MS})::int
         AND due.user_id NOT IN (SELECT user_id FROM days)
         AND due.user_id NOT IN (SELECT user_id FROM known WHERE status IN ('pending', 'retrying'))
      RETURNING 1
    )
    SELECT count(*)::int - (SELECT count(*)::int FROM settled) AS found, max(user_id) AS last_user FROM due`,
};
