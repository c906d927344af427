/** The intent stream, as its reader and operators see it: where progress is saved, and the order of entries. */
import { createHash } from 'node:crypto';
import type { Redis } from 'ioredis';
import { STREAM_START, entryIdAfter } from '../stream-ids.ts';

/** A value as one segment of a Redis key: base64url, so that no value can end its segment. */
export const keySegment = (value: string): string => Buffer.from(value, 'utf8').toString('base64url');

/** Holds the id of the last entry that is durably started or recorded. */
export const offsetKey = (stream: string): string => `notification:stream_offsets:${keySegment(stream)}`;

/** Holds `<offset> <entries passed>`: naming its offset, it says nothing once somebody sets the offset by hand. */
export const countKey = (stream: string): string => `notification:stream_counts:${keySegment(stream)}`;

/** Holds the last notification that was started before the offset was saved. */
export const startedKey = (stream: string): string => `notification:stream_started:${keySegment(stream)}`;

/** Holds `<beat> <start of PostgreSQL>`: by it, a PostgreSQL is known that was put back to an earlier state. */
export const beatKey = (stream: string): string => `notification:stream_beats:${keySegment(stream)}`;

/** Holds `<attempt> <when it was scheduled> <count>`: the sign of life of the stream's reader, which grows each second. */
export const readerKey = (stream: string): string => `notification:stream_readers:${keySegment(stream)}`;

/** Holds the id under which an operation has published a refused entry again. */
export const republishedKey = (operationId: string, entryId: string): string =>
  `notification:stream_republished:${keySegment(operationId)}:${keySegment(entryId)}`;

/** Holds when an event happened, epoch ms, whose intent was published by hand without saying so: a repeat says the same. */
export const occurredKey = (producer: string, idempotencyKey: string): string =>
  `notification:stream_occurred:${createHash('sha256')
    .update(JSON.stringify([producer, idempotencyKey]))
    .digest('hex')}`;

/** @returns the saved offset, or STREAM_START before the first entry. */
export async function loadOffset(
  redis: { get(key: string): Promise<string | null> },
  stream: string,
): Promise<string> {
  return (await redis.get(offsetKey(stream))) ?? STREAM_START;
}

/**
 * How long the oldest entry waits that the offset has not passed. Its id tells, by the clock of Redis. A producer may have
 * chosen an id that is ahead of the clock: from when on this object has seen the entry wait counts as well.
 */
export class UnreadAge {
  #oldest: string | undefined;
  #sinceMs = 0;
  readonly #redis: Redis;
  readonly #stream: string;

  constructor(redis: Redis, stream: string) {
    this.#redis = redis;
    this.#stream = stream;
  }

  /** @returns ms; 0 when the stream is drained. @throws what Redis fails with. */
  async since(offset: string): Promise<number> {
    const oldest = await entryIdAfter(this.#redis, this.#stream, offset);
    if (oldest !== this.#oldest) [this.#oldest, this.#sinceMs] = [oldest, performance.now()];
    if (oldest === undefined) return 0;
    const seenMs = Math.round(performance.now() - this.#sinceMs);
    return Math.max(seenMs, Date.now() - Number(oldest.split('-')[0]));
  }
}
