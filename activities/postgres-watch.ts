/**
 * Notices that PostgreSQL fell back to an earlier state, for work that reads no stream: a row there and a key in Redis
 * know of each other (stream-memory.ts).
 */
import type { Redis } from 'ioredis';
import type { Pool } from 'pg';
import type { Logger } from 'pino';
import { recall, remember } from './stream-memory.ts';
import { watchEvery } from './watch.ts';

const LOOK_INTERVAL_MS = 1_000;
const NOTHING_READ = { passedId: '0-0', seen: undefined };

export interface PostgresWatchOptions {
  db: Pool;
  redis: Redis;
  log: Logger;
  role: string;
  /** What row and key are kept under; no stream that anybody watches has this name. */
  name: string;
  /** Makes good what was forgotten. What it throws is logged, and it is asked again. */
  onFallback(): Promise<void>;
}

/** Looks each second, in every process of the role. `stop` ends it. */
export function watchPostgres({ log, name, onFallback, ...of }: PostgresWatchOptions): {
  stop(): Promise<void>;
} {
  return watchEvery(LOOK_INTERVAL_MS, look, (reason) => log.warn({ reason }, 'PostgreSQL not looked at'));

  async function look(): Promise<void> {
    const owner = { ...of, stream: name };
    const memory = await recall(owner);
    if (memory.postgres === 'regressed') await onFallback();
    // Only now: had that failed, the next look must find it again.
    await remember(owner, NOTHING_READ, memory);
  }
}
