/** Deleting what is past its retention. Each kind of work names its own statements. */
import { Context } from '@temporalio/activity';
import type { Pool } from 'pg';
import type { Logger } from 'pino';
import { heartbeat } from './heartbeat.ts';
import type { Statement } from './postgres.ts';
import { isStatementTimeout, query } from './postgres.ts';

/** Rows of one statement: never one long lock. */
const BATCH_SIZE = 1_000;
/** A run that has taken so long leaves the rest to the next one, ms. */
export const MAX_RUN_MS = 600_000;

export interface RetentionResources {
  db: Pool;
  log: Logger;
  retention: {
    recordRetentionMs: number;
    malformedIntentRetentionMs: number;
  };
}

interface Expiring {
  /** Of the prepared statement. */
  name: string;
  table: string;
  key: string;
  /** The column that says since when a row is there. */
  since: string;
  /** SQL that a row must meet besides its age. */
  condition?: string;
}

/** @returns the statement that deletes the oldest rows. $1 age in ms, $2 rows at most. */
export function deletionOf({ name, table, key, since, condition = 'true' }: Expiring): Statement {
  return {
    name,
    text: `
    WITH expired AS (
      SELECT ${key}
        FROM ${table}
       WHERE ${since} < now() - $1::bigint * interval '1 millisecond' AND ${condition}
       ORDER BY ${since}
       LIMIT $2
         FOR UPDATE SKIP LOCKED
    ), deleted AS (
      DELETE FROM ${table} AS old USING expired WHERE old.${key} = expired.${key}
      RETURNING 1
    )
    SELECT count(*)::int AS deleted FROM deleted`,
  };
}

/** Deletes what is older than this, in batches. @returns rows deleted in all. */
export async function deleteOlderThan(
  ageMs: number,
  statement: Statement,
  { db, log }: { db: Pool; log: Logger },
): Promise<number> {
  const total = await deleteInBatches(db, statement, [ageMs], BATCH_SIZE);
  if (total > 0) log.info({ deleted: total, statement: statement.name }, 'expired rows deleted');
  return total;
}

/**
 * Runs a statement until it finds nothing more, or the run has taken long enough, with a heartbeat after each batch.
 * What is left is deleted by the next run.
 *
 * @param statement takes `values` and then how many rows at most; returns one row with `deleted`.
 * @returns rows deleted in all.
 * @throws ApplicationFailure of PostgreSQL, and the reason of a stop.
 */
async function deleteInBatches(
  db: Pool,
  statement: Statement,
  values: unknown[],
  batchSize: number,
): Promise<number> {
  let total = 0;
  await inBatches(batchSize, MAX_RUN_MS, async (limit) => {
    const [row] = await query<{ deleted: number }>(db, statement, [...values, limit]);
    total += row!.deleted;
    return row!.deleted >= limit;
  });
  return total;
}

/**
 * Does work in batches until one says that there is no more, or until the time is up. A batch that takes PostgreSQL
 * longer than a statement may is made again with half as many rows: how long a row takes depends on what hangs on it.
 *
 * @param batch works on at most so many rows; returns whether there may be more.
 * @returns whether the work came to its end.
 * @throws what a batch throws, and the reason of a stop.
 */
export async function inBatches(
  size: number,
  maxRunMs: number,
  batch: (limit: number) => Promise<boolean>,
): Promise<boolean> {
  const activity = Context.current();
  const endAt = performance.now() + maxRunMs;
  for (let limit = size; ;) {
    try {
      if (!(await batch(limit))) return true;
      limit = Math.min(size, limit * 2);
    } catch (error) {
      if (limit === 1 || !isStatementTimeout(error)) throw error;
      limit = Math.ceil(limit / 2);
    }
    heartbeat();
    activity.cancellationSignal.throwIfAborted();
    if (performance.now() >= endAt) return false;
  }
}
