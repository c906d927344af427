/**
 * Step 5: old rows are deleted in batches, except callbacks that are still to be delivered. A run goes through the tables
 * by their keys and remembers where it stopped: rows that must be kept, however many, are read once in a round.
 */
import type { Pool } from 'pg';
import type { Logger } from 'pino';
import type { CleanupOutcome } from '../../workflows/account-callback/contract.ts';
import type { Statement } from '../postgres.ts';
import { query } from '../postgres.ts';
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
  const [saved] = await query<SavedRow>(db, READ_CURSOR, []);
  const steps: Record<StepName, number> = {
    dead_letters: recordsBefore,
    hourly: snapshotsBefore,
    // Longer than hours: a day that its producer sends again is a repeat, and not delivered again.
    daily: recordsBefore,
    trackings: recordsBefore,
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
  const [row] = await query<BatchRow>(db, STATEMENTS[name], [beforeMs, afterMs, afterId, batchSize]);
  return row!;
}

const STEPS = ['dead_letters', 'hourly', 'daily', 'trackings'] as const;
type StepName = (typeof STEPS)[number];

interface CursorRow {
  after_ms: string | null;
  after_id: string | null;
}

interface SavedRow extends CursorRow {
  step: string | null;
}

interface BatchRow extends CursorRow {
  deleted: number;
  is_last: boolean;
}

const cursorOf = ({ after_ms: afterMs, after_id: afterId }: CursorRow): Cursor => ({
  afterMs: Number(afterMs ?? 0),
  afterId: afterId ?? '',
});

const READ_CURSOR = {
  name: 'read_callback_cleanup',
  text: `
    SELECT cleanup_step AS step, cleanup_after_ms AS after_ms, cleanup_after_id AS after_id
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

const deleteSnapshots = (kind: 'hourly' | 'daily'): Statement => ({
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
      RETURNING 1
    )
    SELECT (SELECT count(*)::int FROM deleted) AS deleted, last.period_start_ms AS after_ms, last.user_id AS after_id,
           (SELECT count(*) FROM page) < $4 AS is_last
      FROM (SELECT 1) AS always
      LEFT JOIN (SELECT * FROM page ORDER BY period_start_ms DESC, user_id DESC LIMIT 1) AS last ON true`,
});

/** Users who take no part since then, and users who were never tracked. Their pending callbacks need no tracking. */
const DELETE_TRACKINGS = {
  name: 'delete_old_callback_trackings',
  text: `
    WITH page AS MATERIALIZED (
      SELECT user_id
        FROM notification.callback_trackings
       WHERE user_id > $3::text AND $2::bigint IS NOT NULL
       ORDER BY user_id
       LIMIT $4
    ), deleted AS (
      DELETE FROM notification.callback_trackings AS tracking
       USING page
       WHERE tracking.user_id = page.user_id AND (until_ms IS NOT NULL OR entry_id = '0-0')
         AND changed_at < to_timestamp($1::bigint / 1000.0)
      RETURNING 1
    )
    SELECT (SELECT count(*)::int FROM deleted) AS deleted, 0 AS after_ms, max(user_id) AS after_id, count(*) < $4 AS is_last
      FROM page`,
};

const STATEMENTS: Record<StepName, Statement> = {
  dead_letters: DELETE_DEAD_LETTERS,
  hourly: deleteSnapshots('hourly'),
  daily: deleteSnapshots('daily'),
  trackings: DELETE_TRACKINGS,
};
