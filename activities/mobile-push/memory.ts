/**
 * What FCM has taken, in Redis. The row of a send says it too, and so does Temporal once the activity has ended; while
 * PostgreSQL is away, a process that dies takes away what neither of them has heard. So it is written down here as soon
 * as FCM has answered, and looked for before FCM is asked. An entry is a push id and FCM's name of the message.
 */
import type { Redis } from 'ioredis';
import type { Logger } from 'pino';
import { reasonOf } from '../reason.ts';

/**
 * Until the row says so, PostgreSQL may be away for any time; what a process leaves behind that dies right after the row
 * was written goes in the end. And afterwards, for a PostgreSQL that is put back to a moment ago.
 */
const UNRECORDED_MS = 366 * 24 * 3_600_000;
const RECORDED_MS = 600_000;

const keyOf = (pushId: string): string => `notification:mobile_sends:${pushId}`;

export function createSendMemory({ redis, log }: { redis: Redis; log: Logger }) {
  return {
    /**
     * @returns FCM's name of the message if it has taken this push.
     * @throws the Redis client's error when Redis did not answer.
     */
    async recall(pushId: string): Promise<string | undefined> {
      return (await redis.get(keyOf(pushId))) ?? undefined;
    },

    /** Writes down that FCM has taken a push. Nobody waits for it: the row is written at the same time, and is enough. */
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
