/** Deleting what is past its retention: in batches, never one long lock. */
import { Context } from '@temporalio/activity';
import type { Pool } from 'pg';
import type { Logger } from 'pino';
import type { Statement } from './postgres.ts';
import { query } from './postgres.ts';

const BATCH_SIZE = 1_000;

/**
 * Runs a statement until it finds nothing more, with a heartbeat after each batch.
 *
 * @param statement $1 age in ms, $2 rows at most; returns one row with `deleted`.
 * @returns rows deleted in all.
 */
export async function deleteInBatches(
  { db, log }: { db: Pool; log: Logger },
  statement: Statement,
  olderThanMs: number,
): Promise<number> {
  let total = 0;
  for (;;) {
    const [row] = await query<{ deleted: string }>(db, statement, [olderThanMs, BATCH_SIZE]);
    const deleted = Number(row?.deleted ?? 0);
    total += deleted;
    Context.current().heartbeat(total);
    if (deleted < BATCH_SIZE) break;
  }
  if (total > 0) log.info({ deleted: total, statement: statement.name }, 'expired rows deleted');
  return total;
}
