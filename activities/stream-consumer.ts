/**
 * A consumer of a Redis Stream: one per process, all of one group. Redis hands each entry to one of them. An entry that
 * its consumer does not acknowledge is claimed by another one (or by the same one) and taken again, so `take` must be
 * safe to repeat.
 *
 * While Redis is away, the consumer opens a new connection until one works. What `take` needs besides is its own affair:
 * it may `pause` and `keep` its entries until that answers.
 */
import { hostname } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Redis } from 'ioredis';
import type { Logger } from 'pino';
import type { EntryFields } from '../api/text.ts';
import { reasonOf } from './reason.ts';

/** BLOCK of one read, ms: how long a dead connection may go unnoticed, with the time-out of its answer. */
export const READ_BLOCK_MS = 2_000;
/** Between two attempts to reach what is away, ms. */
const OUTAGE_PAUSE_MS = 1_000;
/** A consumer shows that it is alive when it claims, and is never silent for so much longer, ms. */
const SILENCE_MS = 3 * READ_BLOCK_MS;
/** The id before the last possible one, which Redis takes for `>`: entries that are new. */
const LAST_ID = '18446744073709551615-18446744073709551614';

export interface StreamEntry {
  id: string;
  fields: EntryFields;
}

export interface DeliveredEntry extends StreamEntry {
  /** How often it was delivered, this time included. */
  deliveries: number;
}

export interface StreamConsumerOptions {
  redis: Redis;
  log: Logger;
  stream: string;
  group: string;
  /** What the entries are, for log lines: `mobile jobs`. */
  what: string;
  /** Entries per read. */
  batchSize: number;
  /** An entry that was delivered this long ago and not acknowledged is delivered again, ms. Also how often to look. */
  minIdleMs: number;
  /** A connection for blocking reads alone, which breaks when Redis is silent for longer than READ_BLOCK_MS and a time-out. */
  openReader(): Redis;
  /** Takes entries and acknowledges them. An entry that it leaves is delivered again; what it throws ends the connection. */
  take(entries: DeliveredEntry[], consumer: TakingConsumer): Promise<void>;
  /** Hears of entries that were deleted after their delivery: trimmed by their producer, perhaps. */
  onDeleted?(ids: string[]): Promise<void>;
}

/** The consumer, as `take` sees it. */
export interface TakingConsumer {
  /** Aborted when the consumer stops. Entries that are left then go to the others. */
  stopping: AbortSignal;
  /** Keeps the entries from being claimed for another `minIdleMs`. Does not count as a delivery. */
  keep(entries: readonly StreamEntry[]): Promise<void>;
  /** Waits a moment for what is away; ends early, and never throws, when the consumer stops. */
  pause(): Promise<void>;
}

/** Starts to consume. `stop` resolves when what was being taken is acknowledged or left to the others. */
export function consumeStream(options: StreamConsumerOptions): { stop(): Promise<void> } {
  const { redis, log, stream, group, what, batchSize, minIdleMs } = options;
  const consumer = `${hostname()}-${process.pid}`;
  const stopping = new AbortController();
  const isStopping = () => stopping.signal.aborted;
  const pauseMs = Math.min(OUTAGE_PAUSE_MS, minIdleMs / 3);

  const running = run();
  return {
    async stop() {
      stopping.abort();
      await running;
    },
  };

  async function run(): Promise<void> {
    while (!isStopping()) {
      try {
        await consumeUntilItBreaks();
      } catch (error) {
        if (isStopping()) break;
        log.warn({ stream, consumer, reason: reasonOf(error) }, `consumer of ${what} starts again`);
        await pause();
      }
    }
    await redis.eval(LEAVE_GROUP, 1, stream, group, consumer).catch((error: unknown) => {
      log.debug({ stream, consumer, reason: reasonOf(error) }, 'consumer stays listed in its group');
    });
    log.info({ stream, consumer }, `consumer of ${what} stopped`);
  }

  async function consumeUntilItBreaks(): Promise<void> {
    const connection = options.openReader();
    const hangUp = () => connection.disconnect();
    stopping.signal.addEventListener('abort', hangUp);
    try {
      await joinGroup(connection);
      log.info({ stream, group, consumer }, `consumer of ${what} started`);
      for (let claimAt = performance.now(); !isStopping();) {
        if (performance.now() >= claimAt) {
          await claim(connection);
          await showAlive(connection);
          await connection.eval(REMOVE_DEAD, 1, stream, group, 2 * minIdleMs + SILENCE_MS);
          claimAt = performance.now() + minIdleMs;
        }
        await take(await read(connection, claimAt - performance.now()), connection);
      }
    } finally {
      stopping.signal.removeEventListener('abort', hangUp);
      hangUp();
    }
  }

  /** From the beginning of the stream: entries may be waiting since before the first start. */
  async function joinGroup(connection: Redis): Promise<void> {
    try {
      await connection.xgroup('CREATE', stream, group, '0', 'MKSTREAM');
    } catch (error) {
      if (!reasonOf(error).startsWith('BUSYGROUP')) throw error;
    }
  }

  /**
   * Redis before 7.2 does not count a read that finds nothing as a sign of life. A read of what this consumer was given
   * after LAST_ID is one, and finds nothing.
   */
  async function showAlive(connection: Redis): Promise<void> {
    await connection.xreadgroup('GROUP', group, consumer, 'STREAMS', stream, LAST_ID);
  }

  async function read(connection: Redis, limitMs: number): Promise<DeliveredEntry[]> {
    const blockMs = Math.max(1, Math.floor(Math.min(READ_BLOCK_MS, limitMs)));
    const reply = await connection.xreadgroupBuffer(
      ...(['GROUP', group, consumer, 'COUNT', batchSize, 'BLOCK', blockMs, 'STREAMS', stream, '>'] as const),
    );
    return entriesOf(reply?.[0]?.[1] ?? []).map((entry) => ({ ...entry, deliveries: 1 }));
  }

  /** Takes over what others, or this consumer itself, were given and did not acknowledge. */
  async function claim(connection: Redis): Promise<void> {
    for (let cursor = '0-0'; !isStopping();) {
      const command = [stream, group, consumer, minIdleMs, cursor, 'COUNT', batchSize];
      const reply = await connection.callBuffer('XAUTOCLAIM', ...command);
      const [next, raw, deleted] = reply as [next: Buffer, entries: RawEntry[], deleted: Buffer[]];
      if (deleted.length > 0) await options.onDeleted?.(deleted.map(String));
      await take(await countDeliveries(connection, entriesOf(raw)), connection);
      cursor = next.toString();
      if (cursor === '0-0') return;
    }
  }

  /** XAUTOCLAIM counts deliveries and does not tell. */
  async function countDeliveries(connection: Redis, entries: StreamEntry[]): Promise<DeliveredEntry[]> {
    const pipeline = connection.pipeline();
    for (const { id } of entries) pipeline.xpending(stream, group, id, id, 1);
    const replies = (await pipeline.exec()) ?? [];
    return replies.map(([error, reply], index) => {
      if (error) throw error;
      const [pending] = reply as [id: string, consumer: string, idleMs: number, deliveries: number][];
      return { ...entries[index]!, deliveries: pending?.[3] ?? 1 };
    });
  }

  async function take(entries: DeliveredEntry[], connection: Redis): Promise<void> {
    if (entries.length === 0) return;
    await options.take(entries, {
      stopping: stopping.signal,
      keep: async (kept) => {
        await connection.xclaim(stream, group, consumer, 0, ...kept.map(({ id }) => id), 'JUSTID');
      },
      pause,
    });
  }

  async function pause(): Promise<void> {
    await sleep(pauseMs, undefined, { signal: stopping.signal }).catch(() => undefined);
  }
}

/**
 * A consumer that stops would be listed for ever. One that has entries stays, for them to be claimed. In one step: an
 * entry that is delivered in between would be forgotten. KEYS: stream. ARGV: group, consumer.
 */
const LEAVE_GROUP = `
  if #redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 1, ARGV[2]) == 0 then
    redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], ARGV[2])
  end`;

/**
 * Consumers that died cannot leave. One that is only slow is listed again when it next reads. KEYS: stream. ARGV: group,
 * silence that tells a dead consumer, ms.
 */
const REMOVE_DEAD = `
  for _, fields in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])) do
    local info = {}
    for i = 1, #fields, 2 do info[fields[i]] = fields[i + 1] end
    if info.pending == 0 and info.idle > tonumber(ARGV[2]) then
      redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], info.name)
    end
  end`;

type RawEntry = readonly [id: Buffer, fields: Buffer[] | null];

/** Entries that were deleted come without fields; nothing can be done with them. */
function entriesOf(raw: readonly RawEntry[]): StreamEntry[] {
  return raw.flatMap(([id, fields]) => (fields ? [{ id: id.toString(), fields: fieldsOf(fields) }] : []));
}

/** Redis gives names and values in turn. */
export function fieldsOf(flat: Buffer[]): EntryFields {
  const fields: [Buffer, Buffer][] = [];
  for (let i = 0; i + 1 < flat.length; i += 2) fields.push([flat[i]!, flat[i + 1]!]);
  return fields;
}
