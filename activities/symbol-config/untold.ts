/**
 * Finds changes that the rows have and the workflow does not know of: a program wrote symbols and told nobody, or Temporal
 * was put back to a time before it heard. Without it they go out with the next reconciliation.
 */
import type { Pool } from 'pg';
import type { Logger } from 'pino';
import { query } from '../postgres.ts';
import { watchEvery } from '../watch.ts';
import { LIST_OF_SYMBOLS } from './activities.ts';

export interface UntoldWatchOptions {
  db: Pool;
  log: Logger;
  registry: string;
  everyMs: number;
  /** After which every push of a round has been recorded, ms. */
  roundMs: number;
  /** Has the workflow look at the rows, and push to all. */
  tell(): Promise<void>;
}

/** Looks in every process of the role; what two looks in a row find nobody is about to tell. `stop` ends it. */
export function watchUntold({ db, log, registry, everyMs, roundMs, tell }: UntoldWatchOptions): {
  stop(): Promise<void>;
} {
  let wasFound = false;
  return watchEvery(everyMs, look, (reason) => log.warn({ registry, reason }, 'symbols not looked at'));

  async function look(): Promise<void> {
    const [row] = await query<{ is_found: boolean }>(db, FIND_UNTOLD, [registry, roundMs]);
    const isFound = row!.is_found;
    if (isFound && wasFound) {
      await tell();
      log.warn({ registry }, 'symbols have changes that were not pushed, the workflow is told');
    }
    wasFound = isFound;
  }
}

/**
 * $1 registry, $2 ms after which a round has ended. Enabled symbols that the newest snapshot does not have; none enabled is
 * pushed to nobody. Targets without the newest snapshot that no push has failed for: a ladder goes on with the others.
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
