/**
 * The consumer of `stream.notifications.jobs` (seed mobile-push, "Retry / XAUTOCLAIM"): one per process, all of one
 * group. Redis hands each entry to one of them; it is acknowledged once it is durable elsewhere, and before that may
 * come again, to this consumer or to another one.
 *
 * A delivery is spent by a consumer that died with the entry, or by an entry that cannot be taken though everything
 * answers. While PostgreSQL or Temporal are away, the consumer keeps what it has and tries again; while Redis is away,
 * it opens a new connection until one works.
 */
import { hostname } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Redis } from 'ioredis';
import pLimit from 'p-limit';
import type { MobileIntakeResources } from './intake.ts';
import type { StreamEntry } from '../stream-entry.ts';
import { fieldsOf } from '../stream-entry.ts';
import { createMobileIntake } from './intake.ts';
import { reasonOf } from '../reason.ts';

/** Entries per read, and workflows being started at once. */
const BATCH_SIZE = 100;
const PARALLEL_STARTS = 50;
/** BLOCK of one read, ms: how long a dead connection may go unnoticed, with the time-out of its answer. */
export const JOB_READ_BLOCK_MS = 2_000;
/** Between two attempts to reach what is away, ms. */
const OUTAGE_PAUSE_MS = 1_000;
/** Ids that one log line names. */
const MAX_IDS_LOGGED = 20;

export interface MobileStreamResources extends MobileIntakeResources {
  redis: Redis;
  /** A connection of its own for blocking reads, which breaks when Redis is silent for longer than a read may take. */
  openJobReader(): Redis;
  mobileStream: {
    stream: string;
    group: string;
    /** An entry that was delivered this long ago and not acknowledged is delivered again, ms. Also how often to look. */
    minIdleMs: number;
    maxDeliveries: number;
  };
}

/** Starts to consume. `stop` resolves when what was being taken is acknowledged or left to the others. */
export function consumeMobileJobs(resources: MobileStreamResources): { stop(): Promise<void> } {
  const { redis, log, metrics, openJobReader, mobileStream: settings } = resources;
  const { stream, group, minIdleMs, maxDeliveries } = settings;
  const intake = createMobileIntake(resources);
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
        log.warn({ stream, consumer, reason: reasonOf(error) }, 'consumer of mobile jobs starts anew');
        await pause();
      }
    }
    await leaveGroup().catch((error: unknown) => {
      log.debug({ stream, consumer, reason: reasonOf(error) }, 'consumer stays listed in its group');
    });
    log.info({ stream, consumer }, 'consumer of mobile jobs stopped');
  }

  async function consumeUntilItBreaks(): Promise<void> {
    const connection = openJobReader();
    const hangUp = () => connection.disconnect();
    stopping.signal.addEventListener('abort', hangUp);
    try {
      await joinGroup(connection);
      log.info({ stream, group, consumer }, 'consumer of mobile jobs started');
      for (let claimAt = performance.now(); !isStopping();) {
        if (performance.now() >= claimAt) {
          await claim(connection);
          claimAt = performance.now() + minIdleMs;
        }
        await take(await read(connection, claimAt - performance.now()), connection);
      }
    } finally {
      stopping.signal.removeEventListener('abort', hangUp);
      hangUp();
    }
  }

  /** From the beginning of the stream: jobs may be waiting since before the first start. */
  async function joinGroup(connection: Redis): Promise<void> {
    try {
      await connection.xgroup('CREATE', stream, group, '0', 'MKSTREAM');
    } catch (error) {
      if (!reasonOf(error).startsWith('BUSYGROUP')) throw error;
    }
  }

  async function read(connection: Redis, limitMs: number): Promise<StreamEntry[]> {
    const blockMs = Math.max(1, Math.floor(Math.min(JOB_READ_BLOCK_MS, limitMs)));
    const reply = await connection.xreadgroupBuffer(
      ...(['GROUP', group, consumer, 'COUNT', BATCH_SIZE, 'BLOCK', blockMs, 'STREAMS', stream, '>'] as const),
    );
    return entriesOf(reply?.[0]?.[1] ?? []);
  }

  /** Takes over what others, or this consumer itself, were given and did not acknowledge. */
  async function claim(connection: Redis): Promise<void> {
    for (let cursor = '0-0'; !isStopping();) {
      const command = [stream, group, consumer, minIdleMs, cursor, 'COUNT', BATCH_SIZE];
      const reply = await connection.callBuffer('XAUTOCLAIM', ...command);
      const [next, raw, deleted] = reply as [next: Buffer, entries: RawEntry[], deleted: Buffer[]];
      if (deleted.length > 0) await goOnWithout(deleted.map(String));
      const entries = entriesOf(raw);
      const deliveries = await deliveriesOf(connection, entries);
      await take(entries, connection, deliveries);
      cursor = next.toString();
      if (cursor === '0-0') return;
    }
  }

  /** Deliveries of each entry, the current one included. XAUTOCLAIM counts them and does not tell. */
  async function deliveriesOf(connection: Redis, entries: StreamEntry[]): Promise<Map<string, number>> {
    const pipeline = connection.pipeline();
    for (const { id } of entries) pipeline.xpending(stream, group, id, id, 1);
    const replies = (await pipeline.exec()) ?? [];
    return new Map(
      replies.map(([error, reply], index) => {
        if (error) throw error;
        const [pending] = reply as [id: string, consumer: string, idleMs: number, deliveries: number][];
        return [entries[index]!.id, pending?.[3] ?? 1];
      }),
    );
  }

  /**
   * Makes entries durable and acknowledges them. What fails though everything answers is left to be delivered again;
   * otherwise it waits here, and spends none of its deliveries.
   */
  async function take(
    entries: StreamEntry[],
    connection: Redis,
    deliveries: ReadonlyMap<string, number> = new Map(),
  ): Promise<void> {
    for (let left = await takeOnce(entries, deliveries); left.length > 0 && !isStopping();) {
      if (await intake.isReachable()) return;
      log.warn({ stream, entries: left.length }, 'PostgreSQL or Temporal is away; mobile jobs wait');
      do {
        await keep(connection, left);
        await pause();
      } while (!isStopping() && !(await intake.isReachable()));
      left = await takeOnce(left, deliveries);
    }
  }

  /** @returns the entries that could not be made durable. */
  async function takeOnce(
    entries: StreamEntry[],
    deliveries: ReadonlyMap<string, number>,
  ): Promise<StreamEntry[]> {
    const limit = pLimit(PARALLEL_STARTS);
    const results = await Promise.allSettled(
      entries.map((entry) =>
        limit(async () => {
          // What has not begun is left to the others.
          stopping.signal.throwIfAborted();
          const before = (deliveries.get(entry.id) ?? 1) - 1;
          return before < maxDeliveries ? intake.take(entry) : intake.giveUp(entry, before);
        }),
      ),
    );
    const durable = entries.filter((_, index) => results[index]?.status === 'fulfilled');
    if (durable.length > 0) await redis.xack(stream, group, ...durable.map(({ id }) => id));
    const failed = results.find((result) => result.status === 'rejected');
    if (failed && !isStopping()) {
      const fields = { stream, entries: entries.length - durable.length, reason: reasonOf(failed.reason) };
      log.warn(fields, 'mobile jobs not taken');
    }
    return entries.filter((_, index) => results[index]?.status === 'rejected');
  }

  /** Ours for another while. JUSTID does not count as a delivery. */
  async function keep(connection: Redis, entries: StreamEntry[]): Promise<void> {
    await connection.xclaim(stream, group, consumer, 0, ...entries.map(({ id }) => id), 'JUSTID');
  }

  /** Entries that were deleted while they were being taken: trimmed by their producer, perhaps. */
  async function goOnWithout(ids: string[]): Promise<void> {
    const lost = await intake.recover(ids).catch((error: unknown) => {
      log.warn({ stream, reason: reasonOf(error) }, 'deleted entries not looked for in the log');
      return ids;
    });
    if (lost.length === 0) return;
    metrics.mobileEntriesLost(lost.length);
    log.error(
      { stream, entries: lost.length, job_ids: lost.slice(0, MAX_IDS_LOGGED) },
      'stream entries were deleted before they were taken; their producers must publish them again',
    );
  }

  /** Consumers that are gone would be listed for ever. One that has entries stays, for them to be claimed. */
  async function leaveGroup(): Promise<void> {
    await redis.eval(LEAVE_GROUP, 1, stream, group, consumer);
  }

  async function pause(): Promise<void> {
    await sleep(pauseMs, undefined, { signal: stopping.signal }).catch(() => undefined);
  }
}

/** In one step: an entry that is delivered in between would be forgotten. KEYS: stream. ARGV: group, consumer. */
const LEAVE_GROUP = `
  if #redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 1, ARGV[2]) == 0 then
    redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], ARGV[2])
  end`;

type RawEntry = readonly [id: Buffer, fields: Buffer[] | null];

/** Entries that were deleted come without fields; nothing can be done with them. */
function entriesOf(raw: readonly RawEntry[]): StreamEntry[] {
  return raw.flatMap(([id, fields]) => (fields ? [{ id: id.toString(), fields: fieldsOf(fields) }] : []));
}
