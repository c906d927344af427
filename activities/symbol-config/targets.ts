/** The targets of symbol configuration and how far each has come. Owns the SQL of `symbol_targets`. */
import type { Pool } from 'pg';
import type { SymbolTarget, TargetKind } from '../../api/symbol-config/push.ts';
import type { DeliveryFailure } from '../http/caller.ts';
import { isGone } from '../http/caller.ts';
import { columnsOf, query } from '../postgres.ts';

/** Longest error that is kept, characters. */
const MAX_ERROR_LENGTH = 500;

export interface TargetRow {
  target: string;
  kind: TargetKind;
  geo: string;
  url: string;
}

/**
 * Makes the configured targets the registered ones. All processes push to what was registered last, so that they agree
 * while one with a new configuration takes over.
 *
 * @returns how many have not acknowledged any list yet: new ones, and changed ones, which count as new.
 */
export async function registerTargets(db: Pool, targets: readonly SymbolTarget[]): Promise<number> {
  await query(db, REGISTER_TARGETS, columnsOf(targets, 'name', 'kind', 'geo', 'url'));
  const [counted] = await query<{ unreached: number }>(db, COUNT_UNREACHED, []);
  return counted!.unreached;
}

/**
 * Of no meaning when a newer version was acknowledged meanwhile: rounds may overlap.
 *
 * @returns how many pushes to the target have failed in a row, at least 1.
 */
export async function recordFailure(
  db: Pool,
  target: string,
  version: number,
  failure: DeliveryFailure,
): Promise<number> {
  const reason = failure.message.slice(0, MAX_ERROR_LENGTH);
  const values = [target, version, reason, isGone(failure)];
  const [row] = await query<{ consecutive_failures: number }>(db, RECORD_FAILURE, values);
  return row?.consecutive_failures ?? 1;
}

const REGISTER_TARGETS = {
  name: 'register_symbol_targets',
  text: `
    WITH wanted AS (
      SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) AS wanted (target, kind, geo, url)
    ), removed AS (
      DELETE FROM notification.symbol_targets
       WHERE target NOT IN (SELECT target FROM wanted)
    )
    INSERT INTO notification.symbol_targets AS known (target, kind, geo, url)
    SELECT target, kind, geo, url FROM wanted
    ON CONFLICT (target) DO UPDATE
       SET kind = excluded.kind, geo = excluded.geo, url = excluded.url, acknowledged_version = NULL,
           acknowledged_at = NULL, last_error = NULL, last_error_at = NULL, consecutive_failures = 0, failing_since = NULL,
           is_gone = false
     WHERE (known.kind, known.geo, known.url) IS DISTINCT FROM (excluded.kind, excluded.geo, excluded.url)`,
};

const COUNT_UNREACHED = {
  name: 'count_unreached_symbol_targets',
  text: `
    SELECT count(*)::int AS unreached
      FROM notification.symbol_targets
     WHERE acknowledged_version IS NULL`,
};

/** $1 version, $2 whether all of them, and not only those that are behind. */
export const LOAD_TARGETS = {
  name: 'load_symbol_targets',
  text: `
    SELECT target, kind, geo, url
      FROM notification.symbol_targets
     WHERE $2 OR NOT is_gone AND (acknowledged_version IS DISTINCT FROM $1 OR consecutive_failures > 0)
     ORDER BY target`,
};

/** $1 target, $2 version. */
export const RECORD_ACKNOWLEDGEMENT = {
  name: 'record_symbol_acknowledgement',
  text: `
    UPDATE notification.symbol_targets
       SET acknowledged_version = $2, acknowledged_at = clock_timestamp(), consecutive_failures = 0, failing_since = NULL,
           is_gone = false
     WHERE target = $1 AND (acknowledged_version IS NULL OR acknowledged_version <= $2)`,
};

const RECORD_FAILURE = {
  name: 'record_symbol_failure',
  text: `
    UPDATE notification.symbol_targets
       SET last_error = $3, last_error_at = clock_timestamp(), consecutive_failures = consecutive_failures + 1,
           failing_since = coalesce(failing_since, clock_timestamp()), is_gone = $4
     WHERE target = $1 AND (acknowledged_version IS NULL OR acknowledged_version <= $2)
    RETURNING consecutive_failures`,
};
