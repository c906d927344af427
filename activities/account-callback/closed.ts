/**
 * Accounts that were closed long ago are not tracked any more: every hour would look at them for ever. Their last
 * position stays, so that an older one that comes again does not open them. Owns the SQL of how trackings end.
 */
import type { Pool } from 'pg';
import { HOUR_MS } from '../../workflows/account-callback/contract.ts';
import { query } from '../postgres.ts';
import { inTransaction, run } from '../transactions.ts';
import { DAY_MS } from './extremes.ts';

export interface ClosedPage {
  /** Trackings that were ended. */
  deleted: number;
  after_ms: string | null;
  /** The last user that was looked at; null after the last page. */
  after_id: string | null;
  is_last: boolean;
}

/**
 * Ends the trackings of a page of users whose accounts were closed before a time, once all of them is told.
 *
 * @param beforeMs epoch ms.
 * @param afterUser the last user of the page before.
 * @throws ApplicationFailure of PostgreSQL; nothing is changed then.
 */
export async function endClosed(
  db: Pool,
  beforeMs: number,
  afterUser: string,
  limit: number,
): Promise<ClosedPage> {
  const [page] = await query<{ closed: string[]; seen: number; last: string | null }>(db, FIND_CLOSED, [
    beforeMs,
    afterUser,
    limit,
  ]);
  const { closed, seen, last } = page!;
  let deleted = 0;
  if (closed.length > 0) {
    // Looked at again under the lock: positions that came meanwhile hold it, or are seen.
    const [ended] = await inTransaction(db, async (client) => {
      await run(client, LOCK_CLOSED, [closed]);
      return run<{ deleted: number }>(client, END_CLOSED, [beforeMs, closed]);
    });
    deleted = ended!.deleted;
  }
  return { deleted, after_ms: '0', after_id: last, is_last: seen < limit };
}

/** Of `tracking` at $1: it has one position left, which closed it, and there is nothing to compute or to tell. */
const IS_CLOSED = `
  (SELECT count(*) = 1
          AND bool_and(coefficients IS NULL AND at_ms < $1::bigint
                       AND at_ms + ${HOUR_MS} <= tracking.caught_up_to_ms
                       AND date '1970-01-01' + (at_ms / ${DAY_MS})::int <= tracking.daily_date)
     FROM (SELECT at_ms, coefficients
             FROM notification.callback_positions AS positions
            WHERE positions.user_id = tracking.user_id
            ORDER BY at_ms DESC
            LIMIT 2) AS newest)
  AND NOT EXISTS (SELECT FROM notification.failed_callbacks AS failed
                   WHERE failed.kind IN ('hourly', 'daily') AND failed.user_id = tracking.user_id)
  AND NOT EXISTS (SELECT FROM notification.callback_snapshots AS snapshot
                   WHERE snapshot.kind IN ('hourly', 'daily') AND snapshot.user_id = tracking.user_id
                     AND snapshot.status = 'pending')`;

/** $1 epoch ms, $2 the last user of the page before, $3 users at most. */
const FIND_CLOSED = {
  name: 'find_closed_accounts',
  text: `
    WITH page AS MATERIALIZED (
      SELECT user_id, caught_up_to_ms, daily_date
        FROM notification.callback_trackings
       WHERE user_id > $2::text
       ORDER BY user_id
       LIMIT $3
    )
    SELECT ARRAY(SELECT user_id FROM page AS tracking WHERE ${IS_CLOSED}) AS closed,
           (SELECT count(*)::int FROM page) AS seen, (SELECT max(user_id) FROM page) AS last`,
};

/** $1 users. */
const LOCK_CLOSED = {
  name: 'lock_closed_accounts',
  text: `
    SELECT FROM notification.callback_trackings WHERE user_id = ANY($1::text[]) ORDER BY user_id FOR UPDATE`,
};

/** $1 epoch ms, $2 users. */
const END_CLOSED = {
  name: 'end_closed_accounts',
  text: `
    WITH ended AS (
      DELETE FROM notification.callback_trackings AS tracking
       WHERE user_id = ANY($2::text[]) AND ${IS_CLOSED}
      RETURNING user_id
    ), cleared AS (
      DELETE FROM notification.callback_set_aside AS aside USING ended WHERE aside.user_id = ended.user_id
    )
    SELECT count(*)::int AS deleted FROM ended`,
};
