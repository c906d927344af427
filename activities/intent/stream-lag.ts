/** How far reading is behind a stream. */
import type { Redis } from 'ioredis';

/**
 * Age of the oldest entry that the offset has not passed, ms; 0 when the stream is drained. The age is that of the
 * entry's id, so it depends on the clock of Redis.
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
  const [oldest] = await redis.xrange(stream, `(${offset}`, '+', 'COUNT', 1);
  return oldest ? Math.max(0, nowMs - Number(oldest[0].split('-')[0])) : 0;
}
