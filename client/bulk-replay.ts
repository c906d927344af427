/** What bulk replays share: their rate, and the moment before which things must have failed to be replayed. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Pool } from 'pg';

/** Replays that are started per second unless the operator says otherwise, and the most that can be asked for. */
export const DEFAULT_REPLAY_RATE = 20;
export const MAX_REPLAY_RATE = 1_000;

/** Waits until `done` replays are due at this rate. */
export async function keepPace(
  beganMs: number,
  done: number,
  ratePerSecond: number,
  signal: AbortSignal | undefined,
): Promise<void> {
  const aheadMs = (done * 1_000) / ratePerSecond - (performance.now() - beganMs);
  if (aheadMs > 1) await sleep(aheadMs, undefined, signal ? { signal } : {}).catch(() => undefined);
}

/** Deaths are written with PostgreSQL's clock; this one's may be off. */
export async function clockOf(db: Pool): Promise<string> {
  const { rows } = await db.query<{ now: string }>('SELECT clock_timestamp()::text AS now');
  return rows[0]!.now;
}
