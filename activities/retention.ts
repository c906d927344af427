/** Deleting what is past its retention. Each kind of work names its own statements. */
import { Context } from '@temporalio/activity';
import type { Pool } from 'pg';
import type { Logger } from 'pino';
import type { Statement } from './postgres.ts';
import { query } from './postgres.ts';

/** Rows of one statement: never one long lock. */
const BATCH_SIZE = 1_000;

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
 * Runs a statement until it finds nothing more, with a heartbeat after each batch.
 *
 * @param statement takes `values` and then how many rows at most; returns one row with `deleted`.
 * @returns rows deleted in all.
 * @throws ApplicationFailure of PostgreSQL, and the reason of a stop.
 */
export async function deleteInBatches(
  db: Pool,
  statement: Statement,
  values: unknown[],
  batchSize: number,
): Promise<number> {
  const activity = Context.current();
  for (let total = 0; ;) {
    const [row] = await query<{ deleted: number }>(db, statement, [...values, batchSize]);
    total += row!.deleted;
    activity.heartbeat(total);
    if (row!.deleted < batchSize) return total;
    activity.cancellationSignal.throwIfAborted();
  }
}
