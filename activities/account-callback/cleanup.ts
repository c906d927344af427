/**
 * Step 5: what is old is deleted, in batches, but nothing that is still to be told or needed to compute it. A run goes
 * through the tables by their keys, a part of each statement, and remembers where it stopped: what must be kept, however
 * much it is, is looked at once in a round.
 */
import type { Pool } from 'pg';
import type { Logger } from 'pino';
import type { CleanupOutcome } from '../../workflows/account-callback/contract.ts';
import { DAY_MS } from './extremes.ts';
import type { Statement } from '../postgres.ts';
import { query } from '../postgres.ts';
import { endClosed } from './closed.ts';
import { adoptOrphans } from './shards.ts';

export interface CleanupResources {
  db: Pool;
  log: Logger;
  callbacks: {
    snapshotRetentionMs: number;
    recordRetentionMs: number;
  };
}

export interface CleanupBounds {
  /** Rows that one statement looks at or deletes. */
  batchSize: number;
  /** A run stops after so long, ms, and goes on later. */
  limitMs: number;
}

export const CLEANUP_BOUNDS: CleanupBounds = { batchSize: 2_000, limitMs: 20_000 };

/** Where a round has come to within a step, in the order of a key. */
interface Cursor {
  afterMs: number;
  afterId: string;
}

const BEGIN: Cursor = { afterMs: 0, afterId: '' };

/**
 * Deletes what is old, for some seconds.
 *
 * @param nowMs epoch ms.
 * @param beat called after each statement; what it throws ends the run.
 * @throws ApplicationFailure `PostgresUnavailable`; the next run goes on.
 */
export async function cleanUp(
  { db, log, callbacks }: CleanupResources,
  nowMs: number,
  beat: () => void,
  { batchSize, limitMs }: CleanupBounds = CLEANUP_BOUNDS,
): Promise<CleanupOutcome> {
  const began = performance.now();
  const snapshotsBefore = nowMs - callbacks.snapshotRetentionMs;
  const recordsBefore = nowMs - callbacks.recordRetentionMs;
  await adoptOrphans(db, beat);
  const [saved] = await query<SavedRow>(db, READ_CURSOR, [snapshotsBefore]);
  const horizonMs = Number(saved!.horizon_ms);
  const steps: Record<StepName, number> = {
    dead_letters: recordsBefore,
    hourly: snapshotsBefore,
    // That a day was told is remembered for longer: it must not be told once more, whatever becomes of its user's row.
    daily: recordsBefore,
    positions: horizonMs,
    prices: horizonMs,
    closed: recordsBefore,
  };
  const isLate = () => performance.now() >= began + limitMs;
  const first = STEPS.findIndex((name) => name === saved!.step);
  let deleted = 0;
  for (const [index, name] of STEPS.entries()) {
    if (index < first) continue;
    let cursor: Cursor = index === first ? cursorOf(saved!) : BEGIN;
    for (let isLast = false; !isLast;) {
      const row = await runBatch(db, name, steps[name], cursor, batchSize);
      deleted += row.deleted;
      isLast = row.is_last;
      cursor = cursorOf(row);
      beat();
      if (!isLast && isLate()) {
        await query(db, SAVE_CURSOR, [name, cursor.afterMs, cursor.afterId]);
        log.info({ deleted, step: name }, 'old account callbacks deleted; the rest is left for later');
        return { deleted, isUnfinished: true };
      }
    }
  }
  if (saved!.step !== null) await query(db, SAVE_CURSOR, [null, null, null]);
  if (deleted > 0) log.info({ deleted }, 'old account callbacks deleted');
  return { deleted, isUnfinished: false };
}

async function runBatch(
  db: Pool,
  name: StepName,
  beforeMs: number,
  { afterMs, afterId }: Cursor,
  batchSize: number,
): Promise<BatchRow> {
  if (name === 'closed') return endClosed(db, beforeMs, afterId, batchSize);
  const [row] = await query<BatchRow>(db, STATEMENTS[name], [beforeMs, afterMs, afterId, batchSize]);
  return row!;
}

const STEPS = ['dead_letters', 'hourly', 'daily', 'positions', 'prices', 'closed'] as const;
type StepName = (typeof STEPS)[number];

interface CursorRow {
  after_ms: string | null;
  after_id: string | null;
}

interface SavedRow extends CursorRow {
  step: string | null;
  horizon_ms: string;
}

interface BatchRow extends CursorRow {
  deleted: number;
  is_last: boolean;
}

const cursorOf = ({ after_ms: afterMs, after_id: afterId }: CursorRow): Cursor => ({
  afterMs: Number(afterMs ?? 0),
  afterId: afterId ?? '',
});

/**
 * One look at each shard. $1 the oldest time that is kept anyway. Earlier ones are needed for hours and midnights that
 * are not written yet; not for accounts that are set aside, which may be so for good.
 */
const READ_CURSOR = {
  name: 'read_callback_cleanup',
  text: `
    SELECT cleanup_step AS step, cleanup_after_ms AS after_ms, cleanup_after_id AS after_id,
           (SELECT least($1::bigint, min(caught_up_to_ms),
                         min((daily_date - date '1970-01-01' + 1)::bigint) * ${DAY_MS})
              FROM generate_series(0, (SELECT max(shard) FROM notification.callback_trackings)) AS each (shard)
             CROSS JOIN LATERAL (
               SELECT min(caught_up_to_ms) AS caught_up_to_ms, min(daily_date) AS daily_date
                 FROM notification.callback_trackings AS tracking
                WHERE tracking.shard = each.shard
             ) AS oldest) AS horizon_ms
      FROM notification.callback_settings`,
};

const SAVE_CURSOR = {
  name: 'save_callback_cleanup',
  text: `
    UPDATE notification.callback_settings
       SET cleanup_step = $1::text, cleanup_after_ms = $2::bigint, cleanup_after_id = $3::text`,
};

// Every statement: $1 epoch ms, $2 and $3 cursor, $4 rows at most.

/** From the oldest on. One that is being replayed is kept, and settled soon: the next round finds it. */
const DELETE_DEAD_LETTERS = {
  name: 'delete_old_callback_dead_letters',
  text: `
    WITH page AS MATERIALIZED (
      SELECT kind, user_id, period_start_ms, dropped_at
        FROM notification.callback_dead_letters
       WHERE dropped_at < to_timestamp($1::bigint / 1000.0) AND dropped_at >= to_timestamp($2::bigint / 1000.0)
         AND $3::text IS NOT NULL
       ORDER BY dropped_at
       LIMIT $4
    ), deleted AS (
      DELETE FROM notification.callback_dead_letters AS dead
       USING page
       WHERE dead.kind = page.kind AND dead.user_id = page.user_id AND dead.period_start_ms = page.period_start_ms
         AND NOT EXISTS (SELECT FROM notification.failed_callbacks AS failed
                          WHERE failed.kind = page.kind AND failed.user_id = page.user_id
                            AND failed.period_start_ms = page.period_start_ms)
      RETURNING 1
    ), counted AS (
      SELECT (SELECT count(*)::int FROM deleted) AS deleted, count(*) AS seen,
             floor(extract(epoch FROM max(dropped_at)) * 1000)::bigint AS after_ms
        FROM page
    )
    SELECT deleted, after_ms, '' AS after_id, seen < $4 OR deleted = 0 AND after_ms <= $2::bigint AS is_last
      FROM counted`,
};

/** @param isNeeded SQL of what still needs an old snapshot. */
const deleteSnapshots = (kind: 'hourly' | 'daily', isNeeded: string): Statement => ({
  name: `delete_old_${kind}_snapshots`,
  text: `
    WITH page AS MATERIALIZED (
      SELECT user_id, period_start_ms
        FROM notification.callback_snapshots
       WHERE kind = '${kind}' AND status IN ('delivered', 'dropped') AND period_start_ms < $1::bigint
         AND (period_start_ms, user_id) > ($2::bigint, $3::text)
       ORDER BY period_start_ms, user_id
       LIMIT $4
    ), deleted AS (
      DELETE FROM notification.callback_snapshots AS snapshot
       USING page
       WHERE snapshot.kind = '${kind}' AND snapshot.user_id = page.user_id
         AND snapshot.period_start_ms = page.period_start_ms AND status IN ('delivered', 'dropped')
         AND NOT EXISTS (SELECT FROM notification.failed_callbacks AS failed
                          WHERE failed.kind = '${kind}' AND failed.user_id = page.user_id
                            AND failed.period_start_ms = page.period_start_ms)
         AND NOT EXISTS (SELECT FROM notification.callback_dead_letters AS dead
                          WHERE dead.kind = '${kind}' AND dead.user_id = page.user_id
                            AND dead.period_start_ms = page.period_start_ms)
         AND NOT (${isNeeded})
      RETURNING 1
    )
    SELECT (SELECT count(*)::int FROM deleted) AS deleted, last.period_start_ms AS after_ms, last.user_id AS after_id,
           (SELECT count(*) FROM page) < $4 AS is_last
      FROM (SELECT 1) AS always
      LEFT JOIN (SELECT * FROM page ORDER BY period_start_ms DESC, user_id DESC LIMIT 1) AS last ON true`,
});

/** A day that is not settled is still to be made of its hours. */
const DELETE_HOURLY = deleteSnapshots(
  'hourly',
  `EXISTS (SELECT FROM notification.callback_trackings AS tracking
            WHERE tracking.user_id = snapshot.user_id
              AND tracking.daily_date < date '1970-01-01' + (snapshot.period_start_ms / ${DAY_MS})::int)`,
);

const DELETE_DAILY = deleteSnapshots('daily', 'false');

/** What is in force at $1 stays. Keys that have more to be deleted than fits are looked at again. */
const deleteSuperseded = (name: string, keys: string, table: string, key: string): Statement => ({
  name,
  text: `
    WITH page AS MATERIALIZED (
      SELECT ${key} FROM ${keys} WHERE ${key} > $3::text AND $2::bigint IS NOT NULL ORDER BY ${key} LIMIT $4
    ), old AS MATERIALIZED (
      SELECT page.${key}, earlier.at_ms
        FROM page
       CROSS JOIN LATERAL (
         SELECT max(at_ms) AS at_ms FROM ${table} AS one WHERE one.${key} = page.${key} AND at_ms <= $1::bigint
       ) AS kept
       CROSS JOIN LATERAL (
         SELECT at_ms FROM ${table} AS one
          WHERE one.${key} = page.${key} AND at_ms < kept.at_ms
          ORDER BY at_ms
          LIMIT $4
       ) AS earlier
       LIMIT $4
    ), deleted AS (
      DELETE FROM ${table} AS one USING old WHERE one.${key} = old.${key} AND one.at_ms = old.at_ms
      RETURNING 1
    ), counted AS (
      SELECT (SELECT count(*)::int FROM deleted) AS deleted, (SELECT count(*) FROM old) >= $4 AS has_more,
             count(*) AS seen, max(${key}) AS last
        FROM page
    )
    SELECT deleted, 0 AS after_ms, CASE WHEN has_more THEN $3::text ELSE last END AS after_id,
           NOT has_more AND seen < $4 AS is_last
      FROM counted`,
});

const STATEMENTS: Record<Exclude<StepName, 'closed'>, Statement> = {
  dead_letters: DELETE_DEAD_LETTERS,
  hourly: DELETE_HOURLY,
  daily: DELETE_DAILY,
  positions: deleteSuperseded(
    'delete_old_callback_positions',
    'notification.callback_trackings',
    'notification.callback_positions',
    'user_id',
  ),
  // Symbols have no shard.
  prices: deleteSuperseded(
    'delete_old_callback_prices',
    'notification.callback_symbols',
    'notification.callback_prices',
    'symbol',
  ),
};
