/**
 * Shards that operators have paused. Delivery looks at the row, which outlives Temporal; the shard's workflow
 * changes it, and rests. Owns the SQL of `callback_pauses`.
 */
import type { Pool } from 'pg';
import type { Logger } from 'pino';
import type { ShardPause, StoredPause } from '../../workflows/account-callback/contract.ts';
import { query } from '../postgres.ts';

export function createPauseActivities({ db, log }: { db: Pool; log: Logger }) {
  return {
    /** As the row says. */
    loadShardPause: (shard: number): Promise<StoredPause> => storedPauseOf(db, shard),

    /**
     * From the return on, no step of the shard that begins delivers anything while it is paused.
     *
     * @returns when that was, by the clock of PostgreSQL, epoch ms.
     */
    async setShardPaused(
      shard: number,
      isPaused: boolean,
      requestedBy: string,
      reason?: string,
    ): Promise<number> {
      const values = [shard, isPaused, reason ?? null, requestedBy];
      const [row] = await query<{ changed_at_ms: string }>(db, SET_PAUSE, values);
      log.warn(
        { shard, requested_by: requestedBy, ...(reason === undefined ? {} : { reason }) },
        `shard of account callbacks ${isPaused ? 'paused' : 'resumed'}`,
      );
      return Number(row!.changed_at_ms);
    },
  };
}

/** @returns the pause of a shard that is paused. */
export async function pauseOf(db: Pool, shard: number): Promise<ShardPause | undefined> {
  return (await storedPauseOf(db, shard)).paused;
}

async function storedPauseOf(db: Pool, shard: number): Promise<StoredPause> {
  const [row] = await query<PauseRow>(db, LOAD_PAUSE, [shard]);
  if (!row) return {};
  const sinceMs = Number(row.changed_at_ms);
  if (!row.is_paused) return { resumedMs: sinceMs };
  const reason = row.reason === null ? {} : { reason: row.reason };
  return { paused: { requestedBy: row.changed_by, ...reason, sinceMs } };
}

interface PauseRow {
  is_paused: boolean;
  reason: string | null;
  changed_by: string;
  changed_at_ms: string;
}

const CHANGED_AT_MS = '(extract(epoch FROM changed_at) * 1000)::bigint AS changed_at_ms';

const LOAD_PAUSE = {
  name: 'load_callback_pause',
  text: `
    SELECT is_paused, reason, changed_by, ${CHANGED_AT_MS}
      FROM notification.callback_pauses
     WHERE shard = $1`,
};

const SET_PAUSE = {
  name: 'set_callback_pause',
  text: `
    INSERT INTO notification.callback_pauses (shard, is_paused, reason, changed_by, changed_at)
    VALUES ($1, $2, $3, $4, clock_timestamp())
    ON CONFLICT (shard) DO UPDATE
       SET is_paused = excluded.is_paused, reason = excluded.reason, changed_by = excluded.changed_by,
           changed_at = excluded.changed_at
    RETURNING ${CHANGED_AT_MS}`,
};
