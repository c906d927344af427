/**
 * Intents that nobody has accepted, refused or tried yet: their entries are in the stream, unread, or read and waiting in
 * Temporal for their turn. No row knows of them.
 */
import type { Redis } from 'ioredis';
import type { Pool } from 'pg';
import { isNotificationType } from '../../api/intent/catalog.ts';
import { loadOffset } from '../../api/intent/stream.ts';
import type { OpenFilter } from './open-filter.ts';

/** Entries and bytes of one look: Redis serves nobody else meanwhile, for some ten milliseconds. */
const ENTRIES_PER_LOOK = 500;
const BYTES_PER_LOOK = 4 * 1024 * 1024;
/** Entries that are looked at, the newest first: some seconds. */
const MOST_LOOKED = 500_000;
/** Of those that the reader has passed, ms: nobody waits longer for a first try, and rows are forgotten some day. */
const DAY_MS = 86_400_000;
/** Of one statement. */
const IDS_PER_STATEMENT = 5_000;

export interface UnacceptedIntent {
  notificationId: string;
  type: string;
  producer: string;
}

interface Resources {
  db: Pick<Pool, 'query'>;
  redis: Redis;
  intentsStream: string;
}

/**
 * @param filter bounds of time are those of entries.
 * @param most of them, the oldest.
 * @returns the oldest first. Of a longer stream only the last half a million of entries are looked at.
 * @throws what Redis and PostgreSQL fail with.
 */
export async function findUnaccepted(
  resources: Resources,
  filter: OpenFilter,
  most: number,
): Promise<UnacceptedIntent[]> {
  const found = await entriesOf(resources, filter);
  const open: UnacceptedIntent[] = [];
  for (let from = 0; from < found.length && open.length < most; from += IDS_PER_STATEMENT) {
    const some = found.slice(from, from + IDS_PER_STATEMENT);
    const ids = some.map(({ notificationId }) => notificationId);
    const { rows } = await resources.db.query<{ id: string }>(WITHOUT_ROW, [ids]);
    const without = new Set(rows.map(({ id }) => id));
    open.push(...some.filter(({ notificationId }) => without.has(notificationId)));
  }
  return open.slice(0, most);
}

/** What the entries are, the oldest first. */
async function entriesOf(
  { redis, intentsStream }: Resources,
  { type = '', producer = '', since, until }: OpenFilter,
): Promise<UnacceptedIntent[]> {
  const oldest = oldestOf(await loadOffset(redis, intentsStream), since);
  const found: UnacceptedIntent[] = [];
  // Ids ahead of the clock belong to entries that were appended by now.
  let newest = until && until.getTime() < Date.now() ? String(until.getTime()) : '+';
  for (let looked = 0; looked < MOST_LOOKED;) {
    const [last, count, ...flat] = (await redis.eval_ro(
      LOOK_BACK,
      1,
      ...[intentsStream, newest, oldest, ENTRIES_PER_LOOK, BYTES_PER_LOOK, type, producer],
    )) as [last: string, count: number, ...string[]];
    if (count === 0) break;
    for (let i = 0; i + 2 < flat.length; i += 3) {
      const [notificationId, of, by] = flat.slice(i, i + 3) as [string, string, string];
      // Others become malformed.
      if (isNotificationType(of)) found.push({ notificationId, type: of, producer: by });
    }
    looked += count;
    newest = `(${last}`;
  }
  return found.reverse();
}

/** @returns the bound of ids. */
function oldestOf(offset: string, since: Date | undefined): string {
  const dayAgoMs = Date.now() - DAY_MS;
  const passedMs = Number(offset.split('-')[0]);
  const sinceMs = since?.getTime() ?? 0;
  if (sinceMs > Math.min(passedMs, dayAgoMs)) return String(sinceMs);
  return passedMs < dayAgoMs ? `(${offset}` : String(dayAgoMs);
}

/**
 * KEYS: stream. ARGV: bounds of ids, the newer one first; entries and bytes to look at; type and producer, or ''. What
 * else entries hold stays in Redis, since one may have any size.
 *
 * @returns the last one that was looked at, how many there were, and of those that match id, type and producer.
 */
const LOOK_BACK = `
  local answer, bytes = {'', 0}, 0
  local newest, wantedKind, wantedProducer = ARGV[1], ARGV[5], ARGV[6]
  while answer[2] < tonumber(ARGV[3]) and bytes < tonumber(ARGV[4]) do
    local entry = redis.call('XREVRANGE', KEYS[1], newest, ARGV[2], 'COUNT', 1)[1]
    if not entry then break end
    local id, fields = entry[1], entry[2]
    newest = '(' .. id
    answer[1], answer[2] = id, answer[2] + 1
    local kind, producer = '', ''
    for i = 1, #fields, 2 do
      if fields[i] == 'notification_type' then kind = fields[i + 1] end
      if fields[i] == 'producer' then producer = fields[i + 1] end
      bytes = bytes + #fields[i] + #fields[i + 1]
    end
    local isWanted = (wantedKind == '' or kind == wantedKind) and (wantedProducer == '' or producer == wantedProducer)
    if isWanted and #kind <= 100 and #producer <= 100 then
      for _, value in ipairs({id, kind, producer}) do answer[#answer + 1] = value end
    end
  end
  return answer`;

/** $1 notifications. */
const WITHOUT_ROW = `
  SELECT entry.id
    FROM unnest($1::text[]) AS entry (id)
   WHERE NOT EXISTS (SELECT FROM notification.records WHERE notification_id = entry.id)
     AND NOT EXISTS (SELECT FROM notification.waiting_intents WHERE notification_id = entry.id)
     AND NOT EXISTS (SELECT FROM notification.duplicates WHERE notification_id = entry.id)
     AND NOT EXISTS (SELECT FROM notification.malformed_intents WHERE stream_entry_id = entry.id)
     AND NOT EXISTS (SELECT FROM notification.cancelled_intents WHERE notification_id = entry.id)`;
