/** Stand in for Gateway and Mail Service: they read both streams as these grow, and keep each entry as it came. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Redis } from 'ioredis';
import type { Sighting } from './ledger/deliveries.ts';
import type { Channel } from './ledger/notification-types.ts';

const STREAMS: Record<Channel, string> = { push: 'gateway:client-events', email: 'mail:delivery_commands' };
const PAGE = 500;

export interface Consumers {
  /** Each entry once, in the order in which it was read. */
  sightings(): Sighting[];
  /** Reads whatever the streams hold by now. @returns entries that were read, and that the streams do not have any more. */
  catchUp(): Promise<string[]>;
  stop(): Promise<void>;
}

/** @param onArrival is called for each entry. */
export function openConsumers(openRedis: () => Redis, onArrival: (at: number) => void): Consumers {
  const seen = new Map<string, Sighting>();
  let isStopping = false;
  const redis = openRedis();
  const running = Promise.all((['push', 'email'] as const).map(follow));

  return {
    sightings: () => [...seen.values()],
    async catchUp() {
      const gone = new Set(seen.keys());
      for (const channel of ['push', 'email'] as const) {
        for (let from = '-'; ;) {
          const page = await redis.xrangeBuffer(STREAMS[channel], from, '+', 'COUNT', PAGE);
          for (const entry of page) gone.delete(record(channel, entry));
          if (page.length < PAGE) break;
          from = `(${page.at(-1)![0].toString()}`;
        }
      }
      return [...gone];
    },
    async stop() {
      isStopping = true;
      await running;
      redis.disconnect();
    },
  };

  async function follow(channel: Channel): Promise<void> {
    const blocking = openRedis();
    for (let last = '0-0'; !isStopping;) {
      const reply = await blocking
        .xreadBuffer('COUNT', PAGE, 'BLOCK', 500, 'STREAMS', STREAMS[channel], last)
        .catch(() => null);
      if (!reply && blocking.status !== 'ready') await sleep(50);
      const [[, entries] = [null, []]] = (reply ?? []) as [Buffer, [Buffer, Buffer[]][]][];
      for (const entry of entries) {
        record(channel, entry);
        last = entry[0].toString();
      }
    }
    blocking.disconnect();
  }

  /** @returns the key of the entry. */
  function record(channel: Channel, [idBytes, flat]: [Buffer, Buffer[]]): string {
    const entryId = idBytes.toString();
    const key = `${channel} ${entryId}`;
    if (seen.has(key)) return key;
    const seenAt = Date.now();
    const fields = Array.from(
      { length: flat.length / 2 },
      (_, index) => [flat[2 * index]!.toString(), flat[2 * index + 1]!] as const,
    );
    seen.set(key, { channel, entryId, fields, seenAt });
    onArrival(seenAt);
    return key;
  }
}
