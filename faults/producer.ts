/**
 * A producer with an outbox: it puts an entry in until it is told that the stream has it, and keeps account of each
 * attempt. The client does not send anything twice by itself: the account would miss that attempt.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis, ReplyError } from 'ioredis';
import type { Posting, Told } from './ledger/account.ts';

type Fields = readonly (readonly [name: string, value: string | Buffer])[];
/** The fields of an attempt, the first being 0. */
type FieldsOf<Content> = (content: Content, attempt: number) => Fields;

export interface Producer<Content> {
  readonly postings: Posting<Content>[];
  /** Resolves when it is acknowledged. @throws Error when it is not for too long. */
  post(content: Content): Promise<void>;
  /** Puts in again what was acknowledged and the stream does not have. @returns how many. */
  repeatLost(): Promise<number>;
  stop(): void;
}

const PAUSE_MS = 100;
const LIMIT_MS = 180_000;
const CALL_LIMIT_MS = 5_000;

export function openProducer<Content>(
  address: { host: string; port: number },
  stream: string,
  fieldsOf: FieldsOf<Content>,
): Producer<Content> {
  const redis = new Redis({
    ...address,
    autoResendUnfulfilledCommands: false,
    maxRetriesPerRequest: 0,
    enableOfflineQueue: false,
    commandTimeout: CALL_LIMIT_MS,
    retryStrategy: () => PAUSE_MS,
  });
  redis.on('error', () => undefined);
  const postings: Posting<Content>[] = [];

  return {
    postings,
    async post(content) {
      const posting: Posting<Content> = { content, attempts: [] };
      postings.push(posting);
      await putIn(posting);
    },
    async repeatLost() {
      let count = 0;
      for (const posting of postings) {
        const { told } = posting.attempts.at(-1)!;
        if (told.kind === 'acknowledged' && (await isThere(told.id))) continue;
        await putIn(posting);
        count += 1;
      }
      return count;
    },
    stop: () => redis.disconnect(),
  };

  async function putIn(posting: Posting<Content>): Promise<void> {
    const deadline = Date.now() + LIMIT_MS;
    for (;;) {
      const beganAt = Date.now();
      const fields = fieldsOf(posting.content, posting.attempts.length);
      // What is not connected sends nothing.
      if (redis.status === 'ready') {
        const told = await append(fields);
        posting.attempts.push({ beganAt, toldAt: Date.now(), told });
        if (told.kind === 'acknowledged') return;
      }
      if (Date.now() > deadline) throw new Error(`${stream} did not take an entry for ${LIMIT_MS / 1_000} s`);
      await sleep(PAUSE_MS);
    }
  }

  async function append(fields: Fields): Promise<Told> {
    try {
      const id = await redis.xadd(stream, '*', ...fields.flat());
      return { kind: 'acknowledged', id: id! };
    } catch (error) {
      return error instanceof ReplyError
        ? { kind: 'refused', reason: (error as Error).message }
        : { kind: 'unknown' };
    }
  }

  async function isThere(id: string): Promise<boolean> {
    for (const deadline = Date.now() + LIMIT_MS; ;) {
      try {
        return (await redis.xrange(stream, id, id)).length > 0;
      } catch (error) {
        if (Date.now() > deadline) throw error;
        await sleep(PAUSE_MS);
      }
    }
  }
}
