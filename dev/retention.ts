/** The activity of retention without a worker, for tests and benchmarks. */
import type { Context } from '@temporalio/activity';
import { asyncLocalStorage } from '@temporalio/activity';
import type { Pool } from 'pg';
import type { Kept } from '../activities/retention.ts';
import { createRetentionActivities } from '../activities/retention.ts';
import { createLogger } from '../workers/logger.ts';
import type { RetentionResult } from '../workflows/recovery-contract.ts';

/** Runs the activity over these tables. */
export const deleteExpired = (db: Pool, tables: readonly Kept[]): Promise<RetentionResult> => {
  const activity = { heartbeat: () => undefined, cancellationSignal: new AbortController().signal };
  const log = createLogger('silent');
  return asyncLocalStorage.run(
    activity as unknown as Context,
    createRetentionActivities({ db, log, tables }).deleteExpired,
  );
};

/** As the workflow does: runs the activity until it leaves nothing. */
export async function deleteAllExpired(db: Pool, tables: readonly Kept[]): Promise<void> {
  while ((await deleteExpired(db, tables)).isUnfinished);
}
