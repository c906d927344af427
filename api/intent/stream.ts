/** The intent stream, as its reader and operators see it: where progress is saved, and the order of entries. */
import type { Redis } from 'ioredis';
import { STREAM_START, entryIdAfter, timeOfEntry } from '../stream-ids.ts';

/** A value as one segment of a Redis key: base64url, so that no value can end its segment. */
export const keySegment = (value: string): string => Buffer.from(value, 'utf8').toString('base64url');

/** Holds the id of the last entry that has a row in PostgreSQL: a copy of the offset there, for producers and operators. */
export const offsetKey = (stream: string): string => `notification:stream_offsets:${keySegment(stream)}`;

/**
 * Holds `<beat> <start of PostgreSQL>`: by it, a PostgreSQL is known that was put back to an earlier state. The role is in
 * the key, so that a rule of Redis keeps each role from the keys of the others.
 */
export const beatKey = (role: string, stream: string): string =>
  `notification:stream_beats:${role}:${keySegment(stream)}`;

/** Holds the id under which an operation has published a refused entry again. */
export const republishedKey = (operationId: string, entryId: string): string =>
  `notification:stream_republished:${keySegment(operationId)}:${keySegment(entryId)}`;

/** @returns the saved offset, or STREAM_START before the first entry. */
export async function loadOffset(
  redis: { get(key: string): Promise<string | null> },
  stream: string,
): Promise<string> {
  return (await redis.get(offsetKey(stream))) ?? STREAM_START;
}

/** The oldest unread entry of each connection's last look, and when this process first saw it. */
const firstSeen = new WeakMap<Redis, { id: string; atMs: number }>();

/**
 * Age of the oldest entry that the offset has not passed, ms; 0 when the stream is drained. Producers choose ids: an entry
 * whose id is ahead of the clock is as old as the time since this process first saw it.
 *
 * @param nowMs epoch ms.
 * @throws what Redis fails with.
 */
export async function oldestUnprocessedAgeMs(
  redis: Redis,
  stream: string,
  offset: string,
  nowMs: number,
): Promise<number> {
  const id = await entryIdAfter(redis, stream, offset);
  if (id === undefined) return 0;
  const before = firstSeen.get(redis);
  const seen = before?.id === id ? before : { id, atMs: nowMs };
  firstSeen.set(redis, seen);
  return nowMs - Math.min(seen.atMs, timeOfEntry(id, nowMs).getTime());
}

/**
 * Intents that are to be decided and are not for later, as SQL of a table with `read_at`. Each part of it has its index.
 *
 * @param most rows of each part.
 */
export const undecided = (most: number): string => `(
        (SELECT read_at FROM notification.intents
          WHERE status = 'open' AND dispatched_at IS NULL AND due_at IS NULL
          LIMIT ${most})
         UNION ALL
        (SELECT read_at FROM notification.intents
          WHERE status = 'open' AND dispatched_at IS NOT NULL
          LIMIT ${most})) AS undecided`;
