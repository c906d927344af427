/**
 * What FCM has taken, and which pushes are on their way to it, in Redis. The row of a send says the first too, and so does
 * Temporal once the activity has ended; while PostgreSQL is away, a process that dies takes away what neither of them has
 * heard. So it is written down here as soon as FCM has answered, and looked for before FCM is asked. An entry is a push id
 * and FCM's name of the message.
 *
 * The process that asks FCM holds the push's lease. Temporal gives an attempt to another process when the first has been silent for
 * some seconds, which a process does that gets no CPU: it may have asked FCM all the same.
 */
import { randomUUID } from 'node:crypto';
import type { Redis } from 'ioredis';
import type { Logger } from 'pino';
import { reasonOf } from '../reason.ts';

/**
 * Until the row says so, PostgreSQL may be away for any time; what a process leaves behind that dies right after the row
 * was written goes in the end. And afterwards, for a PostgreSQL that is put back to a moment ago.
 */
const UNRECORDED_MS = 366 * 24 * 3_600_000;
const RECORDED_MS = 600_000;

/** Lease of a push. If its process dies, the push waits this long. */
const LEASE_MS = 20_000;
/** A process that has not asked FCM by then gives up: FCM's answer, which takes up to 10 s, might come after the lease. */
const LATE_AFTER_MS = 5_000;

const keyOf = (pushId: string): string => `notification:mobile_sends:${pushId}`;
const leaseOf = (pushId: string): string => `${keyOf(pushId)}:lease`;

/** KEYS: memory, lease. ARGV: token, lease ms. Returns what FCM named the push, or how long another holds its lease, ms. */
const CLAIM = `
  local taken = redis.call('GET', KEYS[1])
  if taken then return {taken, 0} end
  if redis.call('SET', KEYS[2], ARGV[1], 'NX', 'PX', ARGV[2]) then return {'', 0} end
  return {'', math.max(1, redis.call('PTTL', KEYS[2]))}`;

/** KEYS: lease. ARGV: token. */
const RELEASE = `if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end`;

export interface SendLease {
  /** Whether it is too late to ask FCM. */
  isLate(): boolean;
  /** Gives the push back, without waiting for Redis: an unreleased lease expires by itself. */
  release(): void;
}

/** What an attempt finds: FCM has the push, another attempt is at it, or it has the push for itself. */
export type Claim = { messageId: string } | { leasedForMs: number } | { lease: SendLease };

export function createSendMemory({ redis, log }: { redis: Redis; log: Logger }) {
  return {
    /** @throws the Redis client's error when Redis did not answer. */
    async claim(pushId: string): Promise<Claim> {
      const token = randomUUID();
      const begunAt = performance.now();
      const [key, lease] = [keyOf(pushId), leaseOf(pushId)];
      const claimed = await redis.eval(CLAIM, 2, key, lease, token, LEASE_MS);
      const [messageId, leasedForMs] = claimed as [string, number];
      if (messageId !== '') return { messageId };
      // Never longer than our leases last, even if the key holds another expiry.
      if (leasedForMs > 0) return { leasedForMs: Math.min(LEASE_MS, leasedForMs) };
      return {
        lease: {
          isLate: () => performance.now() - begunAt > LATE_AFTER_MS,
          release: () => void redis.eval(RELEASE, 1, lease, token).catch(noteFailure),
        },
      };
    },

    /** Writes down that FCM has taken a push. The caller does not wait: the row is written at the same time, and is enough. */
    remember(pushId: string, messageId: string): void {
      redis.set(keyOf(pushId), messageId, 'PX', UNRECORDED_MS).catch(noteFailure);
    },

    /** The row says it now. */
    recorded(pushId: string): void {
      redis.pexpire(keyOf(pushId), RECORDED_MS).catch(noteFailure);
    },
  };

  function noteFailure(error: unknown): void {
    log.debug({ reason: reasonOf(error) }, 'Redis did not write down what FCM has taken');
  }
}
