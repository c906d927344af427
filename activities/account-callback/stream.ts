/**
 * The consumer of prices and positions, `stream.account.inputs`. What it took is kept in PostgreSQL, and then removed
 * from the stream, which is a queue.
 */
import type { Redis } from 'ioredis';
import type { Pool } from 'pg';
import type { Logger } from 'pino';
import type { CallbackInput, MalformedInputCode } from '../../api/account-callback/input.ts';
import { MAX_INPUT_BYTES, parseCallbackInput } from '../../api/account-callback/input.ts';
import { storeInputs } from './inputs.ts';
import type { AccountCallbackMetrics } from './metrics.ts';
import { isPostgresRefusal } from '../postgres.ts';
import { reasonOf } from '../reason.ts';
import type { TakingConsumer } from '../stream-consumer.ts';
import { consumeStream } from '../stream-consumer.ts';
import type { StreamEntry } from '../stream-read.ts';

const BATCH_SIZE = 500;
/** Entries that another consumer got so long ago are taken over, ms; also how often to look for them. */
const MIN_IDLE_MS = 30_000;

interface ValidEntry {
  id: string;
  input: CallbackInput;
}

export interface CallbackStreamResources {
  db: Pool;
  redis: Redis;
  log: Logger;
  metrics: AccountCallbackMetrics;
  /** See {@link consumeStream}. */
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
  const { db, redis, log, metrics, openJobReader, callbackStream } = resources;
  const { stream, group, maxAgeMs } = callbackStream;
  return consumeStream({
    ...{ redis, log, stream, group, take },
    what: 'account inputs',
    limits: { maxEntryBytes: MAX_INPUT_BYTES, batchSize: BATCH_SIZE },
    minIdleMs: MIN_IDLE_MS,
    openReader: openJobReader,
  });

  /** Keeps valid inputs and drops the rest. While PostgreSQL is away, it waits here. */
  async function take(entries: readonly StreamEntry[], consumer: TakingConsumer): Promise<void> {
    const valid: ValidEntry[] = [];
    const nowMs = Date.now();
    for (const { id, fields } of entries) {
      const parsed = parseCallbackInput(fields, nowMs);
      if (parsed.ok) valid.push({ id, input: parsed.input });
      else pass(id, parsed.code, parsed.message);
    }
    const stored = await storeEach(valid, nowMs, consumer);
    const ids = entries.map(({ id }) => id);
    await redis
      .multi()
      .xack(stream, group, ...ids)
      .xdel(stream, ...ids)
      .exec();
    for (const { input } of stored) metrics.callbackInput({ type: input.type });
  }

  function pass(id: string, code: MalformedInputCode, reason: string): void {
    log.warn(
      { entry_id: id, outcome: 'malformed', failure_code: code, reason },
      'malformed account input passed',
    );
    metrics.callbackInputMalformed({ failure_code: code });
  }

  /**
   * Stores all together; if PostgreSQL does not take them, by halves, so that one that it refuses holds up no other.
   *
   * @returns those that are stored.
   */
  async function storeEach(
    entries: readonly ValidEntry[],
    nowMs: number,
    consumer: TakingConsumer,
  ): Promise<readonly ValidEntry[]> {
    if (entries.length === 0) return [];
    try {
      await storeWhenReachable(
        entries.map(({ input }) => input),
        nowMs,
        consumer,
      );
      return entries;
    } catch (error) {
      if (!isPostgresRefusal(error)) throw error;
      if (entries.length === 1) {
        pass(entries[0]!.id, 'unstorable', error.message);
        return [];
      }
      const middle = Math.ceil(entries.length / 2);
      const first = await storeEach(entries.slice(0, middle), nowMs, consumer);
      return [...first, ...(await storeEach(entries.slice(middle), nowMs, consumer))];
    }
  }

  async function storeWhenReachable(
    inputs: readonly CallbackInput[],
    nowMs: number,
    { stopping, pause }: TakingConsumer,
  ): Promise<void> {
    for (;;) {
      try {
        return await storeInputs(db, inputs, { nowMs, maxAgeMs });
      } catch (error) {
        if (stopping.aborted || isPostgresRefusal(error)) throw error;
        log.warn({ stream, entries: inputs.length, reason: reasonOf(error) }, 'account inputs wait');
        await pause();
      }
    }
  }
}
