/**
 * Prices and positions, as they are kept. Each has its time, so the order in which they come makes no difference, and the
 * same one again has no effect: what is known of a moment stays. Owns the SQL of `callback_prices`, `callback_symbols`,
 * `callback_positions`, and of how trackings come to be.
 */
import type { Pool } from 'pg';
import type { CallbackInput, PositionsInput, PriceInput } from '../../api/account-callback/input.ts';
import { HOUR_MS } from '../../workflows/account-callback/contract.ts';
import { DAY_MS } from './extremes.ts';
import { query } from '../postgres.ts';

/**
 * Keeps inputs, each kind by one statement. A user who is new is tracked from the hour of the first positions on.
 *
 * @returns how many are about hours that are computed already: they count from the next hour on.
 * @param options.nowMs epoch ms.
 * @param options.maxAgeMs how long before now a tracking may begin: what is older counts, and is not told any more.
 */
export async function storeInputs(
  db: Pool,
  inputs: readonly CallbackInput[],
  options: { nowMs: number; maxAgeMs: number },
): Promise<{ late: number }> {
  let late = 0;
  const prices = inputs.filter((input): input is PriceInput => input.type === 'price');
  const positions = inputs.filter((input): input is PositionsInput => input.type === 'positions');
  if (prices.length > 0) {
    const [row] = await query<{ late: number }>(db, STORE_PRICES, [
      prices.map(({ symbol }) => symbol),
      prices.map(({ at_ms }) => at_ms),
      prices.map(({ price }) => price),
    ]);
    late += row!.late;
  }
  if (positions.length > 0) {
    const [row] = await query<{ late: number }>(db, STORE_POSITIONS, [
      positions.map(({ user_id }) => user_id),
      positions.map(({ at_ms }) => at_ms),
      positions.map(({ cash }) => cash),
      positions.map(({ coefficients }) => (coefficients === null ? null : JSON.stringify(coefficients))),
      options.nowMs - options.maxAgeMs,
    ]);
    late += row!.late;
  }
  return { late };
}

/** PostgreSQL's clock, epoch ms: the same one for every process. */
const NOW_MS = '(extract(epoch FROM clock_timestamp()) * 1000)::bigint';
/** A clock that gives times of prices may be ahead by so much, ms. */
const CLOCK_TOLERANCE_MS = 300_000;

/**
 * A price of a time to come is kept for then; that its symbol has a price so late must not end the hours before.
 *
 * $1 symbols, $2 epoch ms, $3 decimals. Symbols are locked in one order: two processes cannot lock each other out.
 */
const STORE_PRICES = {
  name: 'store_callback_prices',
  text: `
    WITH given AS MATERIALIZED (
      SELECT * FROM unnest($1::text[], $2::bigint[], $3::numeric[]) AS given (symbol, at_ms, price)
    ), stored AS (
      INSERT INTO notification.callback_prices (symbol, at_ms, price)
      SELECT symbol, at_ms, price FROM given
      ON CONFLICT DO NOTHING
      RETURNING at_ms
    ), known AS (
      INSERT INTO notification.callback_symbols AS known (symbol, last_at_ms)
      SELECT symbol, least(max(at_ms), ${NOW_MS} + ${CLOCK_TOLERANCE_MS}) FROM given GROUP BY symbol ORDER BY symbol
      ON CONFLICT (symbol) DO UPDATE SET last_at_ms = excluded.last_at_ms, forgotten_at = NULL
       WHERE known.last_at_ms < excluded.last_at_ms
    ), computed AS (
      SELECT max(latest.caught_up_to_ms) AS until_ms
        FROM notification.callback_settings
       CROSS JOIN LATERAL generate_series(0, shards - 1) AS shard (number)
       CROSS JOIN LATERAL (
         SELECT caught_up_to_ms FROM notification.callback_trackings
          WHERE shard = shard.number
          ORDER BY caught_up_to_ms DESC
          LIMIT 1
       ) AS latest
    )
    SELECT count(*)::int AS late FROM stored, computed WHERE at_ms < until_ms`,
};

/**
 * $1 users, $2 epoch ms, $3 cash, $4 coefficients, $5 the earliest begin of a tracking, epoch ms; the latest is now:
 * positions of a time to come may be followed by earlier ones. The lock keeps a tracking from being ended (closed.ts)
 * while its user gets positions.
 */
const STORE_POSITIONS = {
  name: 'store_callback_positions',
  text: `
    WITH given AS MATERIALIZED (
      SELECT * FROM unnest($1::text[], $2::bigint[], $3::numeric[], $4::jsonb[])
                 AS given (user_id, at_ms, cash, coefficients)
    ), stored AS (
      INSERT INTO notification.callback_positions (user_id, at_ms, cash, coefficients)
      SELECT user_id, at_ms, cash, coefficients FROM given
      ON CONFLICT DO NOTHING
      RETURNING user_id, at_ms
    ), begins AS (
      SELECT user_id, greatest(least(min(at_ms), ${NOW_MS}), $5::bigint) / ${HOUR_MS} * ${HOUR_MS} AS from_ms
        FROM given
       GROUP BY user_id
    ), known AS MATERIALIZED (
      SELECT tracking.user_id
        FROM begins JOIN notification.callback_trackings AS tracking USING (user_id)
       ORDER BY user_id
         FOR KEY SHARE OF tracking
    ), tracked AS (
      INSERT INTO notification.callback_trackings (user_id, shard, daily_date, caught_up_to_ms, created_at)
      SELECT user_id, notification.callback_shard(user_id), date '1970-01-01' + (from_ms / ${DAY_MS})::int - 1, from_ms,
             clock_timestamp()
        FROM begins
       WHERE user_id NOT IN (SELECT user_id FROM known)
       ORDER BY user_id
      ON CONFLICT DO NOTHING
    )
    SELECT count(*)::int AS late
      FROM stored JOIN notification.callback_trackings AS tracking USING (user_id)
     WHERE at_ms < caught_up_to_ms`,
};
