/** A producer who hears what becomes of intents: reads the stream of outcomes as it grows, and asks whether it is true. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Redis } from 'ioredis';
import type { ToldOutcome } from './ledger/outcomes.ts';
import type { Arena } from './work.ts';

export const OUTCOMES = 'notification:outcomes';
const PAGE = 500;

export interface Listener {
  /** Each entry once, in the order in which it was read. */
  told(): ToldOutcome[];
  /** Reads whatever the stream holds by now. */
  catchUp(): Promise<void>;
  stop(): Promise<void>;
}

export function openListener({ openRedis, db, redis }: Pick<Arena, 'openRedis' | 'db' | 'redis'>): Listener {
  const seen = new Map<string, ToldOutcome>();
  let isStopping = false;
  const running = follow(openRedis());

  return {
    told: () => [...seen.values()],
    async catchUp() {
      for (let from = '-'; ;) {
        const page = await redis.xrange(OUTCOMES, from, '+', 'COUNT', PAGE);
        await record(page);
        if (page.length < PAGE) return;
        from = `(${page.at(-1)![0]}`;
      }
    },
    async stop() {
      isStopping = true;
      await running;
    },
  };

  async function follow(blocking: Redis): Promise<void> {
    for (let last = '0-0'; !isStopping;) {
      const reply = await blocking
        .xread('COUNT', PAGE, 'BLOCK', 500, 'STREAMS', OUTCOMES, last)
        .catch(() => null);
      if (!reply && blocking.status !== 'ready') await sleep(50);
      const [[, entries] = [null, []]] = reply ?? [];
      await record(entries);
      last = entries.at(-1)?.[0] ?? last;
    }
    blocking.disconnect();
  }

  async function record(entries: readonly [id: string, list: string[]][]): Promise<void> {
    // One that comes again after a loss has another id, or the same with other content.
    const fresh = entries
      .map(([entryId, list]): ToldOutcome => ({ entryId, fields: fieldsOf(list) }))
      .filter((one) => !seen.has(keyOf(one)));
    const untrue = await untrueOf(fresh).catch(() => undefined);
    for (const one of fresh)
      seen.set(keyOf(one), untrue ? { ...one, wasTrue: !untrue.has(one.fields['notification_id']!) } : one);
  }

  /** @returns notifications whose end is told although a route was never closed, or nothing of them is written. */
  async function untrueOf(fresh: readonly ToldOutcome[]): Promise<Set<string>> {
    const ids = fresh.flatMap(({ fields }) =>
      fields['event_id']!.endsWith('/end') ? [fields['notification_id']!] : [],
    );
    if (ids.length === 0) return new Set();
    const { rows } = await db.query<{ id: string }>(
      `SELECT id
         FROM unnest($1::text[]) AS told (id)
        WHERE EXISTS (SELECT FROM notification.routes AS route
                       WHERE notification_id = id AND status IN ('pending', 'failed')
                         AND NOT EXISTS (SELECT FROM notification.replays
                                          WHERE (replays.notification_id, replays.route_id) = (id, route.route_id)))
           OR NOT EXISTS (SELECT FROM notification.records WHERE notification_id = id)
              AND NOT EXISTS (SELECT FROM notification.intents
                               WHERE notification_id = id AND status IN ('duplicate', 'cancelled'))
              AND NOT EXISTS (SELECT FROM notification.malformed_intents WHERE stream_entry_id = id)`,
      [ids],
    );
    return new Set(rows.map(({ id }) => id));
  }
}

const keyOf = ({ entryId, fields }: ToldOutcome): string => `${entryId} ${fields['event_id']}`;

function fieldsOf(list: readonly string[]): Record<string, string> {
  return Object.fromEntries(
    list.flatMap((name, at) => (at % 2 === 0 ? [[name, list[at + 1]!] as const] : [])),
  );
}
