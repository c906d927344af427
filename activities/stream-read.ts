/**
 * Reads of streams whose entries may be of any size: the only place that reads entries. Whatever is in a stream, one read
 * brings at most about a megabyte, and Redis copies at most a few for it, or one entry.
 *
 * What an entry weighs is known to Redis alone, so a script takes the entries one by one, and of one that is too large it
 * returns the first bytes and the size. Scripts cannot wait. Therefore the wait comes before the script, as an XREAD
 * whose reply Redis is told to skip: both are sent together, and the script runs once the wait is over.
 */
import type { Redis } from 'ioredis';
import { FIELDS_OF, LAST_ENTRY_ID, pairsOf } from '../api/stream-ids.ts';
import type { EntryFields, EntrySize } from '../api/text.ts';
import { MAX_ENTRY_FIELDS, SHOWN_FIELDS, SHOWN_VALUE_BYTES } from '../api/text.ts';

/** A read ends with the entry that reaches this, bytes. At 10 Mbit/s they take less than a second. */
const MAX_READ_BYTES = 1 << 20;
/** Redis serves no other client while a script runs: it ends with the entry that reaches this, bytes. */
const MAX_VISITED_BYTES = 4 << 20;
/** The id before the last possible one, which Redis takes for `>`: entries that are new. */
const LAST_ID = '18446744073709551615-18446744073709551614';
/** What a name or a value costs besides its bytes, in Redis and here. */
const OVERHEAD_BYTES = 64;

/** One entry of a stream. */
export interface StreamEntry {
  id: string;
  /** Of an entry that is too large the first ones, each cut. */
  fields: EntryFields;
  /** Of the entry in the stream. */
  size: EntrySize;
}

export interface DeliveredEntry extends StreamEntry {
  /** How often it was delivered, this time included. */
  deliveries: number;
}

export interface ReadLimits {
  stream: string;
  /** Names and values together. Of a larger entry, and of one of more than MAX_ENTRY_FIELDS, only the first bytes come. */
  maxEntryBytes: number;
  /** Entries per read. */
  batchSize: number;
}

/** KEYS[1]: stream. ARGV: bytes of an entry, entries at most, then those of the script. */
const LIMITED = `
  local maxBytes, maxEntries = tonumber(ARGV[1]), tonumber(ARGV[2])
  local entries, returned, visited = {}, 0, 0

  local function isFull()
    return #entries >= maxEntries or returned >= ${MAX_READ_BYTES} or visited >= ${MAX_VISITED_BYTES}
  end

  local function weigh(fields)
    local bytes, overhead = 0, ${OVERHEAD_BYTES} * #fields
    for i = 1, #fields do bytes = bytes + #fields[i] end
    visited = visited + bytes + overhead
    return bytes, overhead
  end

  local function add(id, fields, deliveries)
    local bytes, overhead = weigh(fields)
    if bytes <= maxBytes and #fields <= ${2 * MAX_ENTRY_FIELDS} then
      returned = returned + bytes + overhead
      entries[#entries + 1] = {id, deliveries, bytes, #fields / 2, fields}
      return
    end
    local first, lengths = {}, {}
    for i = 1, math.min(#fields, ${2 * SHOWN_FIELDS}) do
      -- One byte more than is shown, so that a character that is cut through is seen to be.
      first[i], lengths[i] = string.sub(fields[i], 1, ${SHOWN_VALUE_BYTES + 1}), #fields[i]
      returned = returned + #first[i] + ${OVERHEAD_BYTES}
    end
    entries[#entries + 1] = {id, deliveries, bytes, #fields / 2, first, lengths}
  end
`;

/**
 * KEYS: stream, offset. ARGV from 3: the last entry that was read. A replica reads as well as a master, and may have been
 * left behind: only a write, though of nothing, tells (the offset never expires anyway). Returns also whether a bound ended it.
 */
const READ_AFTER = `${LIMITED}
  redis.call('PERSIST', KEYS[2])
  local last = ARGV[3]
  while last ~= '${LAST_ENTRY_ID}' and not isFull() do
    local found = redis.call('XRANGE', KEYS[1], '(' .. last, '+', 'COUNT', 1)[1]
    if not found then break end
    add(found[1], found[2], 1)
    last = found[1]
  end
  return {isFull() and 1 or 0, entries}`;

/** KEYS: stream. ARGV from 3: group, consumer. Returns also the last entry that the group was given. */
const READ_NEW = `${FIELDS_OF}${LIMITED}
  while not isFull() do
    local reply = redis.call('XREADGROUP', 'GROUP', ARGV[3], ARGV[4], 'COUNT', 1, 'STREAMS', KEYS[1], '>')
    local found = reply and reply[1] and reply[1][2][1]
    if not found then break end
    add(found[1], found[2], 1)
  end
  for _, reply in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
    local info = fieldsOf(reply)
    if info.name == ARGV[3] then return {info['last-delivered-id'], entries} end
  end
  return redis.error_reply('NOGROUP there is no consumer group ' .. ARGV[3])`;

/** KEYS: stream. ARGV from 3: group, consumer, idle ms, cursor. XAUTOCLAIM counts deliveries and does not tell. */
const CLAIM_IDLE = `${LIMITED}
  local cursor, deleted, looks = ARGV[6], {}, 0
  repeat
    local reply = redis.call('XAUTOCLAIM', KEYS[1], ARGV[3], ARGV[4], ARGV[5], cursor, 'COUNT', 1)
    cursor = reply[1]
    for _, found in ipairs(reply[2]) do
      local pending = redis.call('XPENDING', KEYS[1], ARGV[3], found[1], found[1], 1)[1]
      add(found[1], found[2], pending and pending[4] or 1)
    end
    for _, id in ipairs(reply[3]) do deleted[#deleted + 1] = id end
    looks = looks + 1
  until cursor == '0-0' or looks >= maxEntries or isFull()
  return {cursor, entries, deleted}`;

/** KEYS: stream. ARGV: group, consumer, ids. What another consumer has claimed meanwhile stays with it. */
const RENEW = `
  for i = 3, #ARGV do
    if redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[i], ARGV[i], 1, ARGV[2])[1] then
      redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, ARGV[i], 'JUSTID')
    end
  end`;

type RawEntry = readonly [
  id: Buffer,
  deliveries: number,
  bytes: number,
  fieldCount: number,
  fields: Buffer[],
  lengths?: number[],
];

interface ReadCommands {
  readEntriesAfterBuffer(...args: (string | number)[]): Promise<[isFull: 0 | 1, entries: RawEntry[]]>;
  readNewEntriesBuffer(...args: (string | number)[]): Promise<[lastDelivered: Buffer, entries: RawEntry[]]>;
  claimIdleEntriesBuffer(
    ...args: (string | number)[]
  ): Promise<[cursor: Buffer, entries: RawEntry[], deleted: Buffer[]]>;
  renewEntries(...args: (string | number)[]): Promise<unknown>;
}

/**
 * Prepares a connection, which is used for reading alone, for bounded reads of one stream.
 *
 * @throws the client's error when Redis is not there, or forbids `CLIENT REPLY`.
 */
export async function openStream(connection: Redis, { stream, maxEntryBytes, batchSize }: ReadLimits) {
  connection.defineCommand('readEntriesAfter', { numberOfKeys: 2, lua: READ_AFTER });
  connection.defineCommand('readNewEntries', { numberOfKeys: 1, lua: READ_NEW });
  connection.defineCommand('claimIdleEntries', { numberOfKeys: 1, lua: CLAIM_IDLE });
  connection.defineCommand('renewEntries', { numberOfKeys: 1, lua: RENEW });
  const commands = connection as unknown as ReadCommands;
  const limits = [maxEntryBytes, batchSize] as const;
  // A user without the right to this command must fail here: the reply to the skipped one would be taken for that of the next command.
  await connection.client('REPLY', 'ON');

  /** The next command waits until there is an entry behind this one, or the time is over. */
  function waitForEntryAfter(id: string, blockMs: number): void {
    connection.stream.write(
      Buffer.concat([
        encoded('CLIENT', 'REPLY', 'SKIP'),
        encoded('XREAD', 'COUNT', '1', 'BLOCK', String(blockMs), 'STREAMS', stream, id),
      ]),
    );
  }

  return {
    /**
     * The entries after an offset. Waits for one for at most `blockMs`.
     *
     * @param offsetKey where the offset is kept: on a replica, the read fails as the next change of it would.
     * @returns besides, whether a bound ended the read: otherwise there were no more.
     */
    async readAfter(
      id: string,
      offsetKey: string,
      blockMs: number,
    ): Promise<{ entries: StreamEntry[]; isFull: boolean }> {
      waitForEntryAfter(id, blockMs);
      const [isFull, raw] = await commands.readEntriesAfterBuffer(stream, offsetKey, ...limits, id);
      return { entries: raw.map(entryOf), isFull: isFull === 1 };
    },

    /**
     * Entries that the group was not given yet; they are this consumer's then. Waits for one behind `lastDelivered` for
     * at most `blockMs`.
     *
     * @returns besides, what the next read waits behind.
     */
    async readNew(
      { group, consumer }: Membership,
      lastDelivered: string,
      blockMs: number,
    ): Promise<{ entries: DeliveredEntry[]; lastDelivered: string }> {
      waitForEntryAfter(lastDelivered, blockMs);
      const [last, raw] = await commands.readNewEntriesBuffer(stream, ...limits, group, consumer);
      return { entries: raw.map(entryOf), lastDelivered: last.toString() };
    },

    /**
     * Takes over some of the entries that were delivered so long ago and not acknowledged.
     *
     * @param cursor where to look on; `0-0` to begin.
     * @returns besides, the next cursor, `0-0` at the end, and the ids of entries that are not in the stream any more.
     */
    async claimIdle(
      { group, consumer }: Membership,
      minIdleMs: number,
      cursor: string,
    ): Promise<{ entries: DeliveredEntry[]; cursor: string; deleted: string[] }> {
      const [next, raw, deleted] = await commands.claimIdleEntriesBuffer(
        ...[stream, ...limits, group, consumer, minIdleMs, cursor],
      );
      return { entries: raw.map(entryOf), cursor: next.toString(), deleted: deleted.map(String) };
    },

    /**
     * Redis before 7.2 does not count a read that finds nothing as a sign of life. A read of what this consumer was given
     * after LAST_ID is one, and finds nothing.
     */
    async showAlive({ group, consumer }: Membership): Promise<void> {
      await connection.xreadgroup('GROUP', group, consumer, 'STREAMS', stream, LAST_ID);
    },

    /** Keeps entries that are still this consumer's from being claimed, as if they were delivered now; not counted. */
    async renew({ group, consumer }: Membership, ids: readonly string[]): Promise<void> {
      await commands.renewEntries(stream, group, consumer, ...ids);
    },
  };
}

export interface Membership {
  group: string;
  consumer: string;
}

function entryOf([id, deliveries, bytes, fieldCount, flat, lengths]: RawEntry): DeliveredEntry {
  return {
    id: id.toString(),
    deliveries,
    fields: pairsOf(flat),
    size: { bytes, fields: fieldCount, ...(lengths ? { lengths: pairsOf(lengths) } : {}) },
  };
}

/** A command as Redis reads it: the client knows none that has no reply. */
const encoded = (...words: string[]): Buffer =>
  Buffer.from(
    `*${words.length}\r\n${words.map((word) => `$${Buffer.byteLength(word)}\r\n${word}\r\n`).join('')}`,
  );
