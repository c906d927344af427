/**
 * Extremes of account values: what is told about each hour and each day, computed once and kept. Owns the SQL that
 * writes `callback_snapshots`.
 *
 * The value of an account is a step function of time: cash, and of each symbol the coefficient times the price at or
 * before that time. It begins an hour with the value that it had, and changes with every tick of a symbol that is held
 * and with the positions. While a symbol that is held never had a price, there is no value.
 *
 * Prices that come late, after the hour that they belong to was computed, count from the next hour on: what was told,
 * or may have been, stays as it is.
 */
import type { Pool } from 'pg';
import type { DailyCursor, ProcessingOutcome } from '../../workflows/account-callback/contract.ts';
import { HOUR_MS } from '../../workflows/account-callback/contract.ts';
import { query } from '../postgres.ts';

/** Users whose hour is computed by one statement, at most. */
const USERS_AT_ONCE = 500;
/** Changes of values that one statement may look at: the more ticks there are, the fewer users it takes. */
const CHANGES_AT_ONCE = 100_000;
/** Users whose hours one call computes: the callbacks of the first go out before the last are computed. */
const USERS_PER_CALL = 2_000;

export const DAY_MS = 24 * HOUR_MS;

/**
 * Computes the extremes of hours that are complete, the oldest first.
 *
 * @param nowMs epoch ms.
 * @param graceMs how long after its end an hour waits for symbols without a later price.
 * @param beat called after each statement.
 */
export async function processCompleteHours(
  db: Pool,
  shard: number,
  nowMs: number,
  graceMs: number,
  beat: () => void,
): Promise<ProcessingOutcome> {
  const hourMs = nowMs - (nowMs % HOUR_MS);
  const isGraceOver = nowMs >= hourMs + graceMs;
  const [status] = await query<StatusRow>(db, READ_STATUS, [shard, hourMs]);
  const { caught_up_to_ms: caughtUpTo, is_complete: isComplete } = status!;
  if (caughtUpTo === null) return { computed: 0, isBehind: false, isWaiting: false };
  const untilMs = isGraceOver || isComplete ? hourMs : hourMs - HOUR_MS;

  let computed = 0;
  let oldestMs = Number(caughtUpTo);
  while (oldestMs < untilMs && computed < USERS_PER_CALL) {
    const [{ ticks } = { ticks: 0 }] = await query<{ ticks: number }>(db, COUNT_TICKS, [oldestMs]);
    const users = Math.max(1, Math.min(USERS_AT_ONCE, Math.floor(CHANGES_AT_ONCE / Math.max(1, ticks))));
    const [row] = await query<{ users: number; next_ms: string }>(db, COMPUTE_HOUR, [shard, oldestMs, users]);
    computed += row!.users;
    beat();
    const [next] = await query<StatusRow>(db, READ_STATUS, [shard, hourMs]);
    oldestMs = Number(next!.caught_up_to_ms ?? untilMs);
  }
  return { computed, isBehind: oldestMs < untilMs, isWaiting: untilMs < hourMs };
}

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

interface StatusRow {
  /** null: the shard has no users. */
  caught_up_to_ms: string | null;
  is_complete: boolean;
}

/** $1 shard, $2 end of the last hour that is over. Complete: no symbol can have another price before it. */
const READ_STATUS = {
  name: 'read_callback_processing',
  text: `
    SELECT (SELECT min(caught_up_to_ms) FROM notification.callback_trackings WHERE shard = $1) AS caught_up_to_ms,
           NOT EXISTS (SELECT FROM notification.callback_symbols WHERE last_at_ms < $2::bigint) AS is_complete`,
};

/** Later than every time of a tick. */
const NEVER_MS = '9223372036854775807';

/** $1 start of the hour. */
const COUNT_TICKS = {
  name: 'count_callback_ticks',
  text: `
    SELECT coalesce(sum(ticks.count), 0)::int AS ticks
      FROM notification.callback_symbols AS known
     CROSS JOIN LATERAL (
       SELECT count(*) AS count FROM notification.callback_prices
        WHERE symbol = known.symbol AND at_ms >= $1::bigint AND at_ms < $1::bigint + ${HOUR_MS}
     ) AS ticks`,
};

/**
 * $1 shard, $2 start of the hour, $3 users at most.
 *
 * A value is not computed in full at every tick: it is the value at the beginning of a stretch with the same
 * positions, plus the sum of the changes since, so that a tick costs a multiplication for each of those who hold its
 * symbol. Changes of the same moment are peers of the window, which adds all of them up. A price that was never known
 * counts as 0 until it is, and the value is left out until then.
 *
 * Made without joins of the many points with anything: how many there are, the planner cannot know.
 */
const COMPUTE_HOUR = {
  name: 'compute_callback_hour',
  text: `
    WITH batch AS MATERIALIZED (
      SELECT user_id
        FROM notification.callback_trackings
       WHERE shard = $1 AND caught_up_to_ms = $2::bigint
       ORDER BY user_id
       LIMIT $3
    ), stretches AS MATERIALIZED (
      SELECT user_id, cash, coefficients, greatest(at_ms, $2::bigint) AS from_ms,
             lead(at_ms, 1, $2::bigint + ${HOUR_MS}) OVER (PARTITION BY user_id ORDER BY at_ms) AS to_ms
        FROM batch
       CROSS JOIN LATERAL (
         (SELECT at_ms, cash, coefficients
            FROM notification.callback_positions AS positions
           WHERE positions.user_id = batch.user_id AND at_ms <= $2::bigint
           ORDER BY at_ms DESC
           LIMIT 1)
         UNION ALL
         (SELECT at_ms, cash, coefficients
            FROM notification.callback_positions AS positions
           WHERE positions.user_id = batch.user_id AND at_ms > $2::bigint AND at_ms < $2::bigint + ${HOUR_MS})
       ) AS held
    ), legs AS MATERIALIZED (
      SELECT user_id, from_ms, to_ms, symbol, coefficient::numeric AS coefficient
        FROM stretches CROSS JOIN LATERAL jsonb_each_text(coefficients) AS leg (symbol, coefficient)
    ), opening AS MATERIALIZED (
      SELECT wanted.symbol, wanted.from_ms, at_or_before.price,
             CASE WHEN at_or_before.price IS NULL THEN later.at_ms ELSE wanted.from_ms END AS known_from_ms
        FROM (SELECT DISTINCT symbol, from_ms FROM legs) AS wanted
        LEFT JOIN LATERAL (
          SELECT price FROM notification.callback_prices
           WHERE symbol = wanted.symbol AND at_ms <= wanted.from_ms
           ORDER BY at_ms DESC
           LIMIT 1
        ) AS at_or_before ON true
        LEFT JOIN LATERAL (
          SELECT min(at_ms) AS at_ms FROM notification.callback_prices
           WHERE symbol = wanted.symbol AND at_ms > wanted.from_ms AND at_ms < $2::bigint + ${HOUR_MS}
        ) AS later ON at_or_before.price IS NULL
    ), ticks AS MATERIALIZED (
      SELECT hour.symbol, hour.at_ms,
             hour.price - coalesce(
               lag(hour.price) OVER (PARTITION BY hour.symbol ORDER BY hour.at_ms), before.price, 0) AS change
        FROM (SELECT DISTINCT symbol FROM legs) AS wanted
        LEFT JOIN LATERAL (
          SELECT price FROM notification.callback_prices
           WHERE symbol = wanted.symbol AND at_ms < $2::bigint
           ORDER BY at_ms DESC
           LIMIT 1
        ) AS before ON true
       CROSS JOIN LATERAL (
         SELECT symbol, at_ms, price FROM notification.callback_prices
          WHERE symbol = wanted.symbol AND at_ms >= $2::bigint AND at_ms < $2::bigint + ${HOUR_MS}
       ) AS hour
    ), moves AS (
      SELECT stretches.user_id, stretches.from_ms, stretches.from_ms AS at_ms,
             stretches.cash + coalesce(sum(legs.coefficient * opening.price), 0) AS change,
             CASE WHEN count(legs.symbol) = count(opening.known_from_ms)
                  THEN greatest(stretches.from_ms, max(opening.known_from_ms))
                  ELSE ${NEVER_MS} END AS known_from_ms
        FROM stretches
        LEFT JOIN legs ON legs.user_id = stretches.user_id AND legs.from_ms = stretches.from_ms
        LEFT JOIN opening ON opening.symbol = legs.symbol AND opening.from_ms = legs.from_ms
       WHERE stretches.coefficients IS NOT NULL
       GROUP BY stretches.user_id, stretches.from_ms, stretches.cash
      UNION ALL
      SELECT legs.user_id, legs.from_ms, ticks.at_ms, legs.coefficient * ticks.change, NULL
        FROM legs
        JOIN ticks ON ticks.symbol = legs.symbol AND ticks.at_ms > legs.from_ms AND ticks.at_ms < legs.to_ms
    ), points AS (
      SELECT user_id, at_ms, value
        FROM (
          SELECT user_id, at_ms, sum(change) OVER by_time AS value, max(known_from_ms) OVER by_time AS known_from_ms
            FROM moves
          WINDOW by_time AS (PARTITION BY user_id, from_ms ORDER BY at_ms)
        ) AS running
       WHERE at_ms >= known_from_ms
    ), ranked AS (
      SELECT user_id, at_ms, value, max(value) OVER of_user AS peak, min(value) OVER of_user AS bottom,
             max(at_ms) OVER of_user AS last_ms
        FROM points
      WINDOW of_user AS (PARTITION BY user_id)
    ), written AS (
      INSERT INTO notification.callback_snapshots
        (kind, user_id, period_start_ms, shard, peak_value, peak_at_ms, bottom_value, bottom_at_ms, closing_value,
         created_at)
      SELECT 'hourly', user_id, $2::bigint, $1, trim_scale(min(peak)), min(at_ms) FILTER (WHERE value = peak),
             trim_scale(min(bottom)), min(at_ms) FILTER (WHERE value = bottom),
             trim_scale(min(value) FILTER (WHERE at_ms = last_ms)), clock_timestamp()
        FROM ranked
       GROUP BY user_id
       ORDER BY user_id
      ON CONFLICT DO NOTHING
    ), moved AS (
      UPDATE notification.callback_trackings AS tracking
         SET caught_up_to_ms = $2::bigint + ${HOUR_MS}
        FROM batch
       WHERE tracking.user_id = batch.user_id AND caught_up_to_ms = $2::bigint
    )
    SELECT count(*)::int AS users FROM batch`,
};

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
        FROM due JOIN notification.callback_snapshots USING (user_id)
       WHERE kind = 'daily' AND period_start_ms = $2::bigint
    ), hours AS (
      SELECT hour.*, max(peak_value) OVER of_user AS peak, min(bottom_value) OVER of_user AS bottom
        FROM due JOIN notification.callback_snapshots AS hour USING (user_id)
       WHERE kind = 'hourly' AND period_start_ms >= $2::bigint AND period_start_ms < $2::bigint + ${DAY_MS}
         AND user_id NOT IN (SELECT user_id FROM known)
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
