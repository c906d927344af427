/** What bulk replays share: their rate, and the moment before which things must have failed to be replayed. */
import type { Pool } from 'pg';

/** Replays that are started per second unless the operator says otherwise, and the most that can be asked for. */
export const DEFAULT_REPLAY_RATE = 20;
export const MAX_REPLAY_RATE = 1_000;

/** Deaths are written with PostgreSQL's clock; this one's may be off. */
export async function clockOf(db: Pool): Promise<string> {
  const { rows } = await db.query<{ now: string }>('SELECT clock_timestamp()::text AS now');
  return rows[0]!.now;
}
