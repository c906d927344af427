/**
 * The consumer of prices and positions, `stream.account.inputs`: one per process, all of one group. What it took is kept
 * in PostgreSQL, and then removed from the stream, which is a queue. Whatever comes twice has no effect, so entries of a
 * consumer that is gone are simply taken again.
 */
import { hostname } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Redis } from 'ioredis';
import type { Pool } from 'pg';
import type { Logger } from 'pino';
import type { CallbackInput } from '../../api/account-callback/input.ts';
import { parseCallbackInput } from '../../api/account-callback/input.ts';
import { storeInputs } from './inputs.ts';
import type { Metrics } from '../metrics.ts';
import { reasonOf } from '../reason.ts';
import type { StreamEntry } from '../stream-entry.ts';
import { fieldsOf } from '../stream-entry.ts';

const BATCH_SIZE = 500;
/** Entries that another consumer got so long ago are taken over, ms; also how often to look for them. */
const MIN_IDLE_MS = 30_000;
/** BLOCK of one read, ms: how long a dead connection may go unnoticed, with the time-out of its answer. */
const READ_BLOCK_MS = 2_000;
const OUTAGE_PAUSE_MS = 1_000;

export interface CallbackStreamResources {
  db: Pool;
  redis: Redis;
  log: Logger;
  metrics: Metrics;
  /** A connection of its own for blocking reads, which breaks when Redis is silent for longer than a read may take. */
  openJobReader(): Redis;
  callbackStream: {
    stream: string;
    group: string;
    /** How long before now a tracking may begin. */
    maxAgeMs: number;
  };
}

/** Starts to consume. `stop` resolves when what was being taken is kept, or left to the others. */
export function consumeCallbackInputs(resources: CallbackStreamResources): { stop(): Promise<void> } {
  const { db, log, metrics, openJobReader, callbackStream } = resources;
  const { stream, group, maxAgeMs } = callbackStream;
  const consumer = `${hostname()}-${process.pid}`;
  const stopping = new AbortController();
  const isStopping = () => stopping.signal.aborted;

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
        log.warn({ stream, consumer, reason: reasonOf(error) }, 'consumer of account inputs starts anew');
        await sleep(OUTAGE_PAUSE_MS, undefined, { signal: stopping.signal }).catch(() => undefined);
      }
    }
    log.info({ stream, consumer }, 'consumer of account inputs stopped');
  }

  async function consumeUntilItBreaks(): Promise<void> {
    const connection = openJobReader();
    const hangUp = () => connection.disconnect();
    stopping.signal.addEventListener('abort', hangUp);
    try {
      await joinGroup(connection);
      log.info({ stream, group, consumer }, 'consumer of account inputs started');
      for (let claimAt = performance.now(); !isStopping();) {
        if (performance.now() >= claimAt) {
          await claim(connection);
          claimAt = performance.now() + MIN_IDLE_MS;
        }
        await take(await read(connection));
      }
    } finally {
      stopping.signal.removeEventListener('abort', hangUp);
      hangUp();
    }
  }

  /** From the beginning of the stream: inputs may be waiting since before the first start. */
  async function joinGroup(connection: Redis): Promise<void> {
    try {
      await connection.xgroup('CREATE', stream, group, '0', 'MKSTREAM');
    } catch (error) {
      if (!reasonOf(error).startsWith('BUSYGROUP')) throw error;
    }
  }

  async function read(connection: Redis): Promise<StreamEntry[]> {
    const reply = await connection.xreadgroupBuffer(
      ...([
        'GROUP',
        group,
        consumer,
        'COUNT',
        BATCH_SIZE,
        'BLOCK',
        READ_BLOCK_MS,
        'STREAMS',
        stream,
      ] as const),
      '>',
    );
    return entriesOf(reply?.[0]?.[1] ?? []);
  }

  /** What a consumer left when it died, or could not keep. */
  async function claim(connection: Redis): Promise<void> {
    for (let cursor = '0-0'; !isStopping();) {
      const command = [stream, group, consumer, MIN_IDLE_MS, cursor, 'COUNT', BATCH_SIZE];
      const reply = await connection.callBuffer('XAUTOCLAIM', ...command);
      const [next, raw] = reply as [next: Buffer, entries: RawEntry[]];
      await take(entriesOf(raw));
      cursor = next.toString();
      if (cursor === '0-0') return;
    }
  }

  /** Keeps what can be read and passes the rest. While PostgreSQL is away, it waits here. */
  async function take(entries: readonly StreamEntry[]): Promise<void> {
    if (entries.length === 0) return;
    const inputs: CallbackInput[] = [];
    const nowMs = Date.now();
    for (const { id, fields } of entries) {
      const parsed = parseCallbackInput(fields, nowMs);
      if (parsed.ok) inputs.push(parsed.input);
      else {
        log.warn(
          { entry_id: id, outcome: 'malformed', failure_code: parsed.code, reason: parsed.message },
          'malformed account input passed',
        );
        metrics.callbackInputMalformed({ failure_code: parsed.code });
      }
    }
    await keep(inputs, nowMs);
    const ids = entries.map(({ id }) => id);
    await resources.redis
      .multi()
      .xack(stream, group, ...ids)
      .xdel(stream, ...ids)
      .exec();
    for (const { type } of inputs) metrics.callbackInput({ type });
  }

  async function keep(inputs: readonly CallbackInput[], nowMs: number): Promise<void> {
    for (;;) {
      try {
        return await storeInputs(db, inputs, { nowMs, maxAgeMs });
      } catch (error) {
        if (isStopping()) throw error;
        log.warn({ stream, entries: inputs.length, reason: reasonOf(error) }, 'account inputs wait');
        await sleep(OUTAGE_PAUSE_MS, undefined, { signal: stopping.signal });
      }
    }
  }
}

type RawEntry = readonly [id: Buffer, fields: Buffer[] | null];

/** Entries that were deleted come without fields; nothing can be done with them. */
function entriesOf(raw: readonly RawEntry[]): StreamEntry[] {
  return raw.flatMap(([id, fields]) => (fields ? [{ id: id.toString(), fields: fieldsOf(fields) }] : []));
}
