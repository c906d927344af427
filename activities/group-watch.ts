/**
 * A consumer group whose entries become rows of PostgreSQL. Acknowledged entries are not read again, and a
 * PostgreSQL that falls back to an earlier state has forgotten some of them. The group is then given the entries of the
 * last while again; a reader skips entries that have their row. A Redis that falls back soon after that may have
 * forgotten that it gave them, so it gives them once more.
 */
import type { Redis } from 'ioredis';
import type { Pool } from 'pg';
import type { Logger } from 'pino';
import { compareEntryIds, fieldsOf } from '../api/stream-ids.ts';
import type { StreamMemory } from './stream-memory.ts';
import { recall, remember } from './stream-memory.ts';
import { watchEvery } from './watch.ts';

const LOOK_INTERVAL_MS = 1_000;

interface Loss {
  /** How far before now entries are given again, ms. */
  marginMs: number;
  level: 'error' | 'warn';
  reason: string;
  message: string;
}

const POSTGRES_REGRESSED: Loss = {
  marginMs: 3_600_000,
  level: 'error',
  reason: 'PostgreSQL has regressed',
  message: 'PostgreSQL fell back to an earlier state, entries are given to the group again',
};
const REDIS_REGRESSED: Loss = {
  marginMs: 3_600_000,
  level: 'error',
  reason: 'Redis has regressed',
  message: 'Redis fell back to an earlier state, entries are given to the group again',
};
/** Which may hide the loss of its last moment. */
const POSTGRES_RESTARTED: Loss = {
  marginMs: 300_000,
  level: 'warn',
  reason: 'PostgreSQL has restarted',
  message: 'PostgreSQL was started, recent entries are given to the group again',
};

interface Group {
  redis: Redis;
  stream: string;
  group: string;
}

/** Looks each second, in every process of the role. `stop` ends it. */
export function watchGroup(
  { redis, stream, group }: Group,
  { db, log, role }: { db: Pool; log: Logger; role: string },
): { stop(): Promise<void> } {
  return watchEvery(LOOK_INTERVAL_MS, lookAtGroup, (reason) =>
    log.warn({ stream, reason }, 'stream not checked'),
  );

  async function lookAtGroup(): Promise<void> {
    const owner = { db, redis, role, stream };
    const memory = await recall(owner);
    const delivered = await lastDelivered({ redis, stream, group });
    // The group is there once a consumer has joined.
    if (delivered === undefined) return;
    const loss = lossOf(memory);
    if (loss) await makeGood(loss);
    // Only now: had that failed, the next look must find it again.
    await remember(owner, { passedId: delivered, seen: undefined }, memory);
  }

  async function makeGood({ marginMs, level, reason, message }: Loss): Promise<void> {
    const from = await giveAgain({ redis, stream, group }, marginMs);
    if (from !== undefined) log[level]({ stream, group, read_from: from, reason }, message);
  }
}

function lossOf({ postgres, isRedisBehind }: StreamMemory): Loss | undefined {
  if (postgres === 'regressed') return POSTGRES_REGRESSED;
  // It may hide a loss that was made good in it, however long ago PostgreSQL was started.
  if (isRedisBehind) return REDIS_REGRESSED;
  return postgres === 'restarted' ? POSTGRES_RESTARTED : undefined;
}

/**
 * Gives the group its entries of the last while again, by the clock of Redis, which gives them their ids.
 *
 * @returns from where on; undefined when there is no group, or nothing of that time was delivered to it.
 * @throws what Redis fails with.
 */
export async function giveAgain(of: Group, sinceMs: number): Promise<string | undefined> {
  const delivered = await lastDelivered(of);
  const [seconds] = await of.redis.time();
  const from = `${Math.max(0, Number(seconds) * 1_000 - sinceMs)}-0`;
  if (delivered === undefined || compareEntryIds(from, delivered) >= 0) return undefined;
  await of.redis.xgroup('SETID', of.stream, of.group, from);
  return from;
}

/** @returns undefined before there is such a group. */
async function lastDelivered({ redis, stream, group }: Group): Promise<string | undefined> {
  if ((await redis.exists(stream)) === 0) return undefined;
  const groups = (await redis.xinfo('GROUPS', stream)) as (string | number)[][];
  const ours = groups.map(fieldsOf).find(({ name }) => name === group);
  return ours && String(ours['last-delivered-id']);
}
