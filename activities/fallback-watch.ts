/**
 * Notices that a store fell back to an earlier state, and has made good what it forgot. Acknowledged entries of a consumer group
 * are not read again, and a PostgreSQL that falls back has forgotten some of their rows: the group is given the entries of the
 * last while again, and a reader skips those that have their row. A Redis that falls back soon after that may have forgotten
 * that it gave them, so it gives them once more.
 */
import type { Redis } from 'ioredis';
import type { Logger } from 'pino';
import { STREAM_START, compareEntryIds, fieldsOf } from '../api/stream-ids.ts';
import type { MemoryOwner, StreamMemory } from './stream-memory.ts';
import { recall, remember } from './stream-memory.ts';
import { watchEvery } from './watch.ts';

const LOOK_INTERVAL_MS = 1_000;
const AFTER_A_LOSS_MS = 3_600_000;
/** A restart may hide the loss of the last moment. */
const AFTER_A_RESTART_MS = 300_000;

type Watched = MemoryOwner & { log: Logger };

interface Group {
  redis: Redis;
  stream: string;
  group: string;
}

/** Gives a group its entries again after a loss. Looks each second, in every process of the role. `stop` ends it. */
export function watchGroup({ group, ...watched }: Watched & { group: string }): { stop(): Promise<void> } {
  const { redis, stream, log } = watched;
  return watchMemory(watched, async (memory) => {
    const delivered = await lastDelivered({ redis, stream, group });
    // The group is there once a consumer has joined.
    const loss = delivered === undefined ? undefined : lossOf(memory);
    if (loss) {
      const from = await giveAgain({ redis, stream, group }, loss.marginMs);
      const fields = { stream, group, read_from: from, reason: loss.reason };
      if (from !== undefined) log[loss.level](fields, 'entries are given to the group again');
    }
    return delivered;
  });
}

/**
 * Notices that PostgreSQL fell back, for work that reads no stream. Looks each second, in every process of the role. `stop`
 * ends it.
 *
 * @param watched its `stream` is what row and key are kept under; no watched stream has this name.
 * @param onFallback makes good what was forgotten. What it throws is logged, and it is asked again.
 */
export function watchPostgres(watched: Watched, onFallback: () => Promise<void>): { stop(): Promise<void> } {
  return watchMemory(watched, async ({ postgres }) => {
    if (postgres === 'regressed') await onFallback();
    return STREAM_START;
  });
}

/** @param look returns how far the stream was read; undefined: nothing is to be remembered. */
function watchMemory(
  { log, ...owner }: Watched,
  look: (memory: StreamMemory) => Promise<string | undefined>,
): { stop(): Promise<void> } {
  return watchEvery(LOOK_INTERVAL_MS, lookAtStores, (reason) =>
    log.warn({ stream: owner.stream, reason }, 'stores not looked at'),
  );

  async function lookAtStores(): Promise<void> {
    const memory = await recall(owner);
    const passedId = await look(memory);
    // Only now: had that failed, the next look must find it again.
    if (passedId !== undefined) await remember(owner, { passedId, seen: undefined }, memory);
  }
}

function lossOf({ postgres, isRedisBehind }: StreamMemory) {
  const reason = (store: string) => `${store} fell back to an earlier state`;
  if (postgres === 'regressed')
    return { marginMs: AFTER_A_LOSS_MS, level: 'error', reason: reason('PostgreSQL') } as const;
  // It may hide a loss that was made good in it, however long ago PostgreSQL was started.
  if (isRedisBehind) return { marginMs: AFTER_A_LOSS_MS, level: 'error', reason: reason('Redis') } as const;
  if (postgres !== 'restarted') return undefined;
  return { marginMs: AFTER_A_RESTART_MS, level: 'warn', reason: 'PostgreSQL was started' } as const;
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
