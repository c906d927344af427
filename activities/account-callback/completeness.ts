/**
 * What was published and is not taken yet. Consumers of a group overtake each other: what a dead one was given comes only
 * once another one claims it, after later entries.
 */
import type { Redis } from 'ioredis';
import type { Logger } from 'pino';
import { entryIdAfter } from '../../api/stream-ids.ts';
import { reasonOf } from '../reason.ts';

export interface InputWatch {
  /**
   * When the oldest entry was published that is not taken, and that is still waited for, by the clock of Redis, epoch ms;
   * undefined when there is none. Without Redis nothing is known: then it is the beginning of time.
   *
   * Unread entries are waited for while others are read, however many there are: hours are told late rather than wrong.
   * A reader that reads nothing for the grace, and entries that somebody holds for longer than that, are not waited for
   * any more.
   */
  oldestOutstanding(): Promise<number | undefined>;
}

interface InputWatchOptions {
  redis: Redis;
  log: Logger;
  stream: string;
  group: string;
  /** Longer than a dead consumer's entries take to be claimed, ms. */
  graceMs: number;
  /** A clock that never goes back, ms. */
  now?: () => number;
}

/** The id up to which entries were delivered at a time, ms. */
interface Mark {
  delivered: string;
  atMs: number;
}

export function watchInputs(options: InputWatchOptions): InputWatch {
  const { redis, log, stream, group, graceMs, now = () => performance.now() } = options;
  /** What is held since before it was delivered before it. */
  let mark: Mark | undefined;
  /** Entries up to here were held for too long. */
  let givenUp = '-';
  /** Since when there is something to read, and nobody reads. */
  let stalled: Mark | undefined;

  return {
    async oldestOutstanding() {
      try {
        const ids = await outstanding();
        return ids.length === 0 ? undefined : Math.min(...ids.map(timeOf));
      } catch (error) {
        log.warn({ stream, reason: reasonOf(error) }, 'hours of accounts wait: what is unread is not known');
        return 0;
      }
    },
  };

  async function outstanding(): Promise<string[]> {
    const delivered = await lastDelivered();
    if (delivered === undefined) return [];
    const [held, unread] = await Promise.all([oldestHeld(delivered), oldestUnread(delivered)]);
    return [held, unread].filter((id) => id !== undefined);
  }

  async function oldestHeld(delivered: string): Promise<string | undefined> {
    if (delivered === NOTHING) return undefined;
    if (mark !== undefined && now() >= mark.atMs + graceMs) {
      givenUp = `(${mark.delivered}`;
      mark = undefined;
    }
    mark ??= { delivered, atMs: now() };
    const [first] = (await redis.xpending(stream, group, givenUp, '+', 1)) as [id: string][];
    return first?.[0];
  }

  async function oldestUnread(delivered: string): Promise<string | undefined> {
    const first = await entryIdAfter(redis, stream, delivered);
    if (first === undefined) {
      stalled = undefined;
      return undefined;
    }
    if (stalled?.delivered !== delivered) stalled = { delivered, atMs: now() };
    if (now() < stalled.atMs + graceMs) return first;
    log.warn({ stream, entry_id: first }, 'inputs are not read; hours of accounts go on without them');
    return undefined;
  }

  /** Undefined without a stream. A group that is still to be made begins with the first entry. */
  async function lastDelivered(): Promise<string | undefined> {
    if ((await redis.exists(stream)) === 0) return undefined;
    const groups = (await redis.xinfo('GROUPS', stream)) as string[][];
    const own = groups.find((fields) => fieldOf(fields, 'name') === group);
    return own ? fieldOf(own, 'last-delivered-id') : NOTHING;
  }
}

/** Before every entry. */
const NOTHING = '0-0';

const fieldOf = (flat: readonly string[], name: string): string | undefined => flat[flat.indexOf(name) + 1];

/** Ids of entries begin with the time at which Redis took them, epoch ms. */
const timeOf = (entryId: string): number => Number(entryId.split('-')[0]);
