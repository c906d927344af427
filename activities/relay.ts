/**
 * From an outbox to its stream: rows that were written together with what they are about are appended to a Redis stream
 * after that, oldest first. A relay that was cut off is repeated, and so are its entries, with the same ids in them.
 */
import type { Redis } from 'ioredis';
import type { Pool, PoolClient } from 'pg';
import type { Logger } from 'pino';
import { STREAM_START } from '../api/stream-ids.ts';
import type { OutboundRow } from './outbound-state.ts';
import { LOAD_OUTBOUND, SUSPECT_OUTBOUND } from './outbound-state.ts';
import type { Statement } from './postgres.ts';
import { query } from './postgres.ts';
import { inTransaction, run } from './transactions.ts';

/** What is relayed, and by which statements. */
export interface Outbox {
  stream: string;
  /** Approximate length to which the stream is trimmed. */
  maxLen: number;
  /** Returns `is_ours`: at most one process at a time relays, and its transaction holds the lock. */
  lock: Statement;
  /** Returns the rows to relay next, the oldest first, with `id`. */
  load: Statement;
  loadValues: unknown[];
  /** The entries of a row, at least one, each as names and values of its fields. */
  entriesOf(row: OutboxRow): string[][];
  /** $1 ids of rows, $2 the last entry of each. */
  mark: Statement;
  /** Returns `is_any`. */
  areLeft: Statement;
  /** $1 time and $2 id of the oldest row of the page before, $3 when the stream was last seen whole, $4 rows at most. */
  listRelayed: Statement;
  /** $1 ids of rows, $2 the entries as which they were relayed; returns those that are put back. */
  putBack: Statement;
  /**
   * Entries keep the order of rows even when Redis has lost some: nothing is appended behind a loss that nobody has mended,
   * nor before the watch has seen the stream for the first time.
   */
  isOrdered: boolean;
  /** How log lines call its rows. */
  what: string;
  /** After rows are marked, in their transaction. */
  afterwards?(client: PoolClient, rows: readonly OutboxRow[]): Promise<void>;
}

export interface OutboxRow {
  id: string;
  [column: string]: unknown;
}

export interface RelayResources {
  db: Pool;
  redis: Redis;
  log: Logger;
}

interface RelayOptions {
  /** What the stream has lost was put back, and goes first. */
  isMending?: boolean;
}

/**
 * KEYS: stream. ARGV: an id that the stream has come to, its length, and of each entry the number of its fields' names and
 * values, and these. Returns the ids, or nothing at all when the stream is behind that id: then it has lost something.
 */
const APPEND = `
  local function parts(id)
    local ms, sequence = string.match(id, '^(%d+)-(%d+)$')
    return tonumber(ms), tonumber(sequence)
  end
  if ARGV[1] ~= '${STREAM_START}' then
    local last = '${STREAM_START}'
    if redis.call('EXISTS', KEYS[1]) == 1 then
      local info = redis.call('XINFO', 'STREAM', KEYS[1])
      for i = 1, #info, 2 do
        if info[i] == 'last-generated-id' then last = info[i + 1] end
      end
    end
    local ms, sequence = parts(last)
    local seenMs, seenSequence = parts(ARGV[1])
    if ms < seenMs or (ms == seenMs and sequence < seenSequence) then return false end
  end
  local ids, at = {}, 3
  while at <= #ARGV do
    local count = tonumber(ARGV[at])
    ids[#ids + 1] = redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[2], '*', unpack(ARGV, at + 1, at + count))
    at = at + count + 1
  end
  return ids`;

/**
 * Appends rows that wait, oldest first. One process at a time does; any other returns immediately. The one that does looks
 * again after it has let go: whoever was turned away in the meantime relies on that.
 *
 * @returns how many rows. @throws when Redis or PostgreSQL do not answer.
 */
export async function relay(
  { db, redis, log }: RelayResources,
  outbox: Outbox,
  { isMending = false }: RelayOptions = {},
): Promise<number> {
  let relayed = 0;
  for (;;) {
    const batch = await inTransaction(db, (client) => relayBatch(client, redis, outbox, isMending));
    if (batch === 'behind') {
      const reason = 'the stream is behind what was relayed last';
      const [isNew] = await query(db, SUSPECT_OUTBOUND, [outbox.stream, reason]);
      if (isNew) log.warn({ stream: outbox.stream, reason }, `stream of ${outbox.what} may have lost some`);
      return relayed;
    }
    relayed += batch ?? 0;
    if (batch === undefined) return relayed;
    const [left] = await query<{ is_any: boolean }>(db, outbox.areLeft, []);
    if (!left?.is_any) return relayed;
  }
}

/** @returns how many rows were relayed; undefined when it is not ours to do so, or not now. */
async function relayBatch(
  client: PoolClient,
  redis: Redis,
  outbox: Outbox,
  isMending: boolean,
): Promise<number | undefined | 'behind'> {
  const { stream, maxLen, isOrdered } = outbox;
  const [lock] = await run<{ is_ours: boolean }>(client, outbox.lock, []);
  if (!lock?.is_ours) return undefined;
  let cameTo = STREAM_START;
  if (isOrdered && !isMending) {
    const [seen] = await run<OutboundRow>(client, LOAD_OUTBOUND, [stream]);
    if (!seen || seen.suspect_since !== null) return undefined;
    cameTo = seen.last_entry_id;
  }
  const rows = await run<OutboxRow>(client, outbox.load, outbox.loadValues);
  if (rows.length === 0) return 0;
  const entries = rows.map((row) => outbox.entriesOf(row));
  const fields = entries.flat().flatMap((entry) => [entry.length, ...entry]);
  const ids = (await redis.eval(APPEND, 1, stream, cameTo, maxLen, ...fields)) as string[] | null;
  if (ids === null) return 'behind';
  let last = -1;
  const lastOfEach = entries.map(({ length }) => ids[(last += length)]!);
  await run(client, outbox.mark, [rows.map(({ id }) => id), lastOfEach]);
  if (isOrdered) await run(client, COME_TO, [stream, lastOfEach.at(-1)]);
  await outbox.afterwards?.(client, rows);
  return rows.length;
}

/** $1 stream, $2 its last entry. */
const COME_TO = {
  name: 'come_to_in_outbound_stream',
  text: 'UPDATE notification.outbound_streams SET last_entry_id = $2 WHERE stream = $1 AND suspect_since IS NULL',
};
