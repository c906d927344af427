/**
 * The extremes of an hour in SQL alone, as PostgreSQL's numeric has them: slow, and another way of thinking than that of
 * activities/account-callback/value.ts, which must find the same.
 */
import type { Pool } from 'pg';
import { HOUR } from './values.ts';

/** As `callback_snapshots` has it, every column as text. */
export interface HourRow {
  user_id: string;
  peak_value: string;
  peak_at_ms: string;
  bottom_value: string;
  bottom_at_ms: string;
  closing_value: string;
}

/** @returns those of the users that had a value, by the prices and positions that PostgreSQL has now. */
export async function hourInSql(db: Pool, userIds: readonly string[], hourMs: number): Promise<HourRow[]> {
  return (await db.query<HourRow>(HOUR_IN_SQL, [userIds, hourMs])).rows;
}

/** Later than every time of a tick. */
const NEVER_MS = '9223372036854775807';

/**
 * $1 users, $2 start of the hour.
 *
 * A value is the value at the beginning of a stretch with the same positions, plus the sum of the changes since. Changes
 * of the same moment are peers of the window, which adds all of them up. A price that was never known counts as 0 until
 * it is, and the value is left out until then.
 */
const HOUR_IN_SQL = `
  WITH batch AS MATERIALIZED (
    SELECT unnest($1::text[]) AS user_id
  ), stretches AS MATERIALIZED (
    SELECT user_id, cash, coefficients, greatest(at_ms, $2::bigint) AS from_ms,
           lead(at_ms, 1, $2::bigint + ${HOUR}) OVER (PARTITION BY user_id ORDER BY at_ms) AS to_ms
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
         WHERE positions.user_id = batch.user_id AND at_ms > $2::bigint AND at_ms < $2::bigint + ${HOUR})
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
         WHERE symbol = wanted.symbol AND at_ms > wanted.from_ms AND at_ms < $2::bigint + ${HOUR}
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
        WHERE symbol = wanted.symbol AND at_ms >= $2::bigint AND at_ms < $2::bigint + ${HOUR}
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
  )
  SELECT user_id, trim_scale(min(peak))::text AS peak_value,
         (min(at_ms) FILTER (WHERE value = peak))::text AS peak_at_ms, trim_scale(min(bottom))::text AS bottom_value,
         (min(at_ms) FILTER (WHERE value = bottom))::text AS bottom_at_ms,
         trim_scale(min(value) FILTER (WHERE at_ms = last_ms))::text AS closing_value
    FROM ranked
   GROUP BY user_id
   ORDER BY user_id COLLATE "C"`;
