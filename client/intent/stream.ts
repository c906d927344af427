/** Where the reader is in the intent stream. */
import type { Redis } from 'ioredis';

/** The key that activities/intent/stream-position.ts writes (seed "Redis runtime-coordination state"). */
const offsetKey = (stream: string): string =>
  `notification:stream_offsets:${Buffer.from(stream, 'utf8').toString('base64url')}`;

/** Id of the last entry that is durably started or recorded; `0-0` before the first. */
export async function readOffset(redis: Redis, stream: string): Promise<string> {
  return (await redis.get(offsetKey(stream))) ?? '0-0';
}

/** Orders entry ids: `<ms>-<sequence>`, both unsigned 64 bit, so compared as big integers. */
export function isAfter(left: string, right: string): boolean {
  const [leftMs = 0n, leftSequence = 0n] = left.split('-').map(BigInt);
  const [rightMs = 0n, rightSequence = 0n] = right.split('-').map(BigInt);
  return leftMs === rightMs ? leftSequence > rightSequence : leftMs > rightMs;
}

/** Whether an entry is in the stream and the reader has not come to it yet. */
export async function isUnread(redis: Redis, stream: string, entryId: string): Promise<boolean> {
  const [entries, offset] = await Promise.all([
    redis.xrange(stream, entryId, entryId, 'COUNT', 1),
    readOffset(redis, stream),
  ]);
  return entries.length > 0 && isAfter(entryId, offset);
}
