/**
 * A consumer of a Redis Stream: one per process, all of one group. Redis hands each entry to one of them. An entry that
 * its consumer does not acknowledge is claimed by another one (or by the same one) and taken again, so `takeEntries` must be
 * safe to repeat.
 *
 * While Redis is away, the consumer opens a new connection until one works. While something else is away that `takeEntries`
 * needs, the consumer keeps the entries and tries again.
 */
import { hostname } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Redis } from 'ioredis';
import type { Logger } from 'pino';
import { FIELDS_OF, STREAM_START } from '../api/stream-ids.ts';
import { reasonOf } from './reason.ts';
import type { DeliveredEntry, ReadLimits } from './stream-read.ts';
import { openStream } from './stream-read.ts';

/** BLOCK of one read, ms: how long a dead connection may go unnoticed, with the time-out of its answer. */
const READ_BLOCK_MS = 2_000;
/** Between two attempts to reach what is away, ms. */
const OUTAGE_PAUSE_MS = 1_000;
/** A consumer shows that it is alive when it claims, and is never silent for so much longer, ms. */
const SILENCE_MS = 3 * READ_BLOCK_MS;

export interface StreamConsumerOptions {
  log: Logger;
  stream: string;
  group: string;
  /** What the entries are, for log lines: `mobile jobs`. */
  what: string;
  /** What one read may bring. */
  limits: Omit<ReadLimits, 'stream'>;
  /** An entry that was delivered this long ago and not acknowledged is delivered again, ms. Also how often to look. */
  minIdleMs: number;
  /** A connection for blocking reads of so long, which breaks when Redis is silent for longer than that and a time-out. */
  openReader(blockMs: number): Redis;
  /**
   * Takes entries and acknowledges them. For as long as it works, no other consumer claims them. An entry that it leaves is
   * delivered again; what it throws ends the connection.
   *
   * @param stopping aborted when the consumer stops. Entries that are left then go to the others.
   * @returns entries that wait for something that is away. They are this consumer's until then, and taken again in a moment.
   */
  takeEntries(entries: DeliveredEntry[], stopping: AbortSignal): Promise<DeliveredEntry[]>;
  /** Hears of entries that were deleted after their delivery: trimmed by their producer, perhaps. */
  onDeleted?(ids: string[]): Promise<void>;
}

/** Starts to consume. `stop` resolves when what was being taken is acknowledged or left to the others. */
export function consumeStream(options: StreamConsumerOptions): { stop(): Promise<void> } {
  const { log, stream, group, what, limits, minIdleMs } = options;
  const consumer = `${hostname()}-${process.pid}`;
  const member = { group, consumer };
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
    log.info({ stream, consumer }, `consumer of ${what} stopped`);
  }

  async function consumeUntilItBreaks(): Promise<void> {
    const connection = options.openReader(READ_BLOCK_MS);
    const hangUp = () => connection.disconnect();
    stopping.signal.addEventListener('abort', hangUp);
    try {
      await joinGroup(connection);
      const entries = await openStream(connection, { stream, ...limits });
      log.info({ stream, group, consumer }, `consumer of ${what} started`);
      let lastDelivered = STREAM_START;
      for (let claimAt = performance.now(); !isStopping();) {
        if (performance.now() >= claimAt) {
          await claimIdle(entries);
          await entries.showAlive(member);
          await connection.eval(REMOVE_DEAD, 1, stream, group, 2 * minIdleMs + SILENCE_MS);
          claimAt = performance.now() + minIdleMs;
        }
        const limitMs = Math.min(READ_BLOCK_MS, claimAt - performance.now());
        const read = await entries.readNew(member, lastDelivered, Math.max(1, Math.floor(limitMs)));
        lastDelivered = read.lastDelivered;
        await takeWithRenewal(read.entries, entries);
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

  /** Takes over what others, or this consumer itself, were given and did not acknowledge. */
  async function claimIdle(entries: Entries): Promise<void> {
    for (let cursor = STREAM_START; !isStopping();) {
      const claimed = await entries.claimIdle(member, minIdleMs, cursor);
      if (claimed.deleted.length > 0) await options.onDeleted?.(claimed.deleted);
      await takeWithRenewal(claimed.entries, entries);
      cursor = claimed.cursor;
      if (cursor === STREAM_START) return;
    }
  }

  async function takeWithRenewal(taken: DeliveredEntry[], entries: Entries): Promise<void> {
    if (taken.length === 0) return;
    const ids = taken.map(({ id }) => id);
    const renewal = setInterval(() => {
      // A connection that is lost is noticed by the next read.
      entries.renew(member, ids).catch((error: unknown) => {
        log.debug({ stream, consumer, reason: reasonOf(error) }, 'entries not renewed');
      });
    }, minIdleMs / 3);
    try {
      for (let left = taken; left.length > 0 && !isStopping();) {
        left = await options.takeEntries(left, stopping.signal);
        if (left.length > 0) await pause();
      }
    } finally {
      clearInterval(renewal);
    }
  }

  /** Ends early, and never throws, when the consumer stops. */
  async function pause(): Promise<void> {
    await sleep(pauseMs, undefined, { signal: stopping.signal }).catch(() => undefined);
  }
}

/**
 * Consumers that have stopped or died would be listed for ever. One that is only slow is listed again when it next reads. KEYS:
 * stream. ARGV: group, silence that tells a dead consumer, ms.
 */
const REMOVE_DEAD = `${FIELDS_OF}
  for _, reply in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])) do
    local info = fieldsOf(reply)
    if info.pending == 0 and info.idle > tonumber(ARGV[2]) then
      redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], info.name)
    end
  end`;

type Entries = Awaited<ReturnType<typeof openStream>>;
