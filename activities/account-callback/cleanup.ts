/** Step 5: what is old is deleted, in batches, but nothing that is still to be told or needed to compute it. */
import type { Pool } from 'pg';
import type { Logger } from 'pino';
import { DAY_MS } from './extremes.ts';
import type { Statement } from '../postgres.ts';
import { query } from '../postgres.ts';
import { deleteInBatches } from '../retention.ts';

const BATCH_SIZE = 5_000;

interface Retention {
  snapshotRetentionMs: number;
  recordRetentionMs: number;
}

/** @returns rows deleted. @param nowMs epoch ms. */
export async function cleanUp(
  { db, log }: { db: Pool; log: Logger },
  shard: number,
  nowMs: number,
  { snapshotRetentionMs, recordRetentionMs }: Retention,
): Promise<number> {
  const [snapshotsBefore, recordsBefore] = [nowMs - snapshotRetentionMs, nowMs - recordRetentionMs];
  let total = 0;
  const removeAll = async (statement: Statement, values: unknown[]): Promise<void> => {
    total += await deleteInBatches(db, statement, values, BATCH_SIZE);
  };
  await removeAll(DELETE_DEAD_LETTERS, [shard, recordsBefore]);
  await removeAll(DELETE_HOURLY, [shard, snapshotsBefore]);
  // That a day was told is remembered for longer: it must not be told once more, whatever becomes of its user's row.
  await removeAll(DELETE_DAILY, [shard, recordsBefore]);
  const [row] = await query<{ horizon_ms: string | null }>(db, READ_HORIZON, [snapshotsBefore]);
  const horizonMs = Number(row?.horizon_ms ?? snapshotsBefore);
  await removeAll(DELETE_POSITIONS, [shard, horizonMs]);
  // Prices belong to no shard.
  if (shard === 0) await removeAll(DELETE_PRICES, [horizonMs]);
  if (total > 0) log.info({ shard, deleted: total }, 'old account callbacks deleted');
  return total;
}

/** $1 shard, $2 epoch ms, $3 rows at most. */
const DELETE_DEAD_LETTERS = {
  name: 'delete_old_callback_dead_letters',
  text: `
    WITH old AS (
      SELECT kind, user_id, period_start_ms
        FROM notification.callback_dead_letters
       WHERE dropped_at < to_timestamp($2::bigint / 1000.0) AND notification.callback_shard(user_id) = $1
         AND NOT EXISTS (SELECT FROM notification.failed_callbacks AS failed
                          WHERE failed.kind = callback_dead_letters.kind
                            AND failed.user_id = callback_dead_letters.user_id
                            AND failed.period_start_ms = callback_dead_letters.period_start_ms)
       LIMIT $3
    ), deleted AS (
      DELETE FROM notification.callback_dead_letters AS dead USING old
       WHERE dead.kind = old.kind AND dead.user_id = old.user_id AND dead.period_start_ms = old.period_start_ms
      RETURNING 1
    )
    SELECT count(*)::int AS deleted FROM deleted`,
};

/** @param isNeeded SQL of what still needs an old snapshot. */
const deleteSnapshots = (kind: 'hourly' | 'daily', isNeeded: string): Statement => ({
  name: `delete_old_${kind}_snapshots`,
  text: `
    WITH old AS (
      SELECT kind, user_id, period_start_ms
        FROM notification.callback_snapshots AS snapshot
       WHERE kind = '${kind}' AND period_start_ms < $2::bigint AND shard = $1
         AND status IN ('delivered', 'dropped')
         AND NOT EXISTS (SELECT FROM notification.failed_callbacks AS failed
                          WHERE failed.kind = snapshot.kind AND failed.user_id = snapshot.user_id
                            AND failed.period_start_ms = snapshot.period_start_ms)
         AND NOT EXISTS (SELECT FROM notification.callback_dead_letters AS dead
                          WHERE dead.kind = snapshot.kind AND dead.user_id = snapshot.user_id
                            AND dead.period_start_ms = snapshot.period_start_ms)
         AND NOT (${isNeeded})
       ORDER BY period_start_ms
       LIMIT $3
    ), deleted AS (
      DELETE FROM notification.callback_snapshots AS snapshot USING old
       WHERE snapshot.kind = old.kind AND snapshot.user_id = old.user_id
         AND snapshot.period_start_ms = old.period_start_ms
      RETURNING 1
    )
    SELECT count(*)::int AS deleted FROM deleted`,
});

/** A day that is not settled is still to be made of its hours. */
const DELETE_HOURLY = deleteSnapshots(
  'hourly',
  `EXISTS (SELECT FROM notification.callback_trackings AS tracking
            WHERE tracking.user_id = snapshot.user_id
              AND tracking.daily_date < date '1970-01-01' + (snapshot.period_start_ms / ${DAY_MS})::int)`,
);

const DELETE_DAILY = deleteSnapshots('daily', 'false');

/** $1 the oldest time that is kept anyway. Earlier ones are needed for hours and midnights that are not written yet. */
const READ_HORIZON = {
  name: 'read_callback_horizon',
  text: `
    SELECT least($1::bigint, min(caught_up_to_ms),
                 min((daily_date - date '1970-01-01' + 1)::bigint) * ${DAY_MS}) AS horizon_ms
      FROM notification.callback_trackings`,
};

/** $1 shard, $2 horizon, $3 rows at most. What is in force at the horizon stays. */
const DELETE_POSITIONS = {
  name: 'delete_old_callback_positions',
  text: `
    WITH old AS (
      SELECT user_id, at_ms
        FROM notification.callback_positions AS positions
       WHERE at_ms < $2::bigint
         AND notification.callback_shard(user_id) = $1
         AND EXISTS (SELECT FROM notification.callback_positions AS later
                      WHERE later.user_id = positions.user_id AND later.at_ms > positions.at_ms
                        AND later.at_ms <= $2::bigint)
       LIMIT $3
    ), deleted AS (
      DELETE FROM notification.callback_positions AS positions USING old
       WHERE positions.user_id = old.user_id AND positions.at_ms = old.at_ms
      RETURNING 1
    )
    SELECT count(*)::int AS deleted FROM deleted`,
};

/** $1 horizon, $2 rows at most. The price in force at the horizon stays. */
const DELETE_PRICES = {
  name: 'delete_old_callback_prices',
  text: `
    WITH old AS (
      SELECT known.symbol, price.at_ms
        FROM notification.callback_symbols AS known
       CROSS JOIN LATERAL (
         SELECT max(at_ms) AS at_ms FROM notification.callback_prices
          WHERE symbol = known.symbol AND at_ms <= $1::bigint
       ) AS kept
        JOIN notification.callback_prices AS price ON price.symbol = known.symbol AND price.at_ms < kept.at_ms
       LIMIT $2
    ), deleted AS (
      DELETE FROM notification.callback_prices AS price USING old
       WHERE price.symbol = old.symbol AND price.at_ms = old.at_ms
      RETURNING 1
    )
    SELECT count(*)::int AS deleted FROM deleted`,
};
