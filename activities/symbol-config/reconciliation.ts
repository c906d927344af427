/**
 * Changes that the rows have and the workflow does not know of: a program wrote symbols without a signal, or Temporal was
 * put back to a time before it heard. Without it they go out with the next push to all.
 */
import type { Pool } from 'pg';
import type { Logger } from 'pino';
import { query } from '../postgres.ts';
import type { Reconciled } from '../reconciliation.ts';
import { listed } from '../reconciliation.ts';
import { LIST_OF_SYMBOLS } from './activities.ts';

export interface UntoldOptions {
  db: Pool;
  log: Logger;
  registry: string;
  /** After which every push of a round has been recorded, ms. */
  roundMs: number;
  /** Has the workflow look at the rows, and push to all. */
  tell(): Promise<void>;
}

/** A registry is one item when two looks of the process in a row find changes that nothing is about to tell. */
export function untoldChanges({ db, log, registry, roundMs, tell }: UntoldOptions): Reconciled<string> {
  let wasFound = false;
  return listed({
    ...{ what: 'symbol registry', count: 'told' },
    async list() {
      const [row] = await query<{ is_found: boolean }>(db, FIND_UNTOLD, [registry, roundMs]);
      const isFoundAgain = row!.is_found && wasFound;
      wasFound = row!.is_found;
      return isFoundAgain ? [registry] : [];
    },
    idOf: (name) => name,
    async start() {
      await tell();
      log.warn({ registry }, 'symbols have changes that were not pushed, the workflow is told');
      return 1;
    },
  });
}

/**
 * $1 registry, $2 ms after which a round has ended. Enabled symbols that the newest snapshot does not have; an empty list is
 * pushed to no target. Targets without the newest snapshot that no push has failed for: a ladder goes on with the others.
 */
const FIND_UNTOLD = {
  name: 'find_untold_symbol_changes',
  text: `
    WITH enabled AS (
      SELECT ${LIST_OF_SYMBOLS} AS symbols
        FROM notification.symbols
       WHERE is_enabled
    ), latest AS (
      SELECT version, symbols, created_at
        FROM notification.symbol_snapshots
       WHERE registry = $1
       ORDER BY version DESC
       LIMIT 1
    )
    SELECT enabled.symbols IS NOT NULL AND enabled.symbols IS DISTINCT FROM (SELECT symbols FROM latest)
           OR EXISTS (
                SELECT FROM latest JOIN notification.symbol_targets AS target
                  ON target.acknowledged_version IS DISTINCT FROM latest.version
               WHERE target.registry = $1 AND target.consecutive_failures = 0
                 AND latest.created_at < clock_timestamp() - $2::bigint * interval '1 millisecond'
              ) AS is_found
      FROM enabled`,
};
