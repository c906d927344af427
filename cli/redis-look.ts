/** A client of Redis that is asked once, by a check: it tries one connection, and says why it got none. */
import { Redis } from 'ioredis';
import type { redisConnection, sentinelConnection } from '../config/redis.ts';
import { reasonsOf } from '../config/redis.ts';

/**
 * @param server options that lead to it. @param timeoutMs of the connection and of each command.
 * @returns the client, which its caller disconnects, and what kept it from connecting so far.
 */
export function redisForOneLook(
  server: ReturnType<typeof redisConnection | typeof sentinelConnection>,
  timeoutMs: number,
): { redis: Redis; reason: () => Error | undefined } {
  const redis = new Redis({
    ...server,
    connectTimeout: timeoutMs,
    commandTimeout: timeoutMs,
    lazyConnect: true,
    // A server that still loads its data says so in its answer, and a sentinel has none.
    enableReadyCheck: false,
    retryStrategy: () => null,
    maxRetriesPerRequest: 0,
  });
  return { redis, reason: reasonsOf(redis) };
}
