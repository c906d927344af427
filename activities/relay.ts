/**
 * The relay of an outbox, and the watch over its stream. Rows that were written together with what they are about are
 * appended to a Redis stream after that, oldest first. A relay that was cut off is repeated, and so are its entries, with
 * the same ids in them.
 *
 * A Redis that was restarted, switched or restored may have lost entries that it had acknowledged. The watch puts their rows
 * back to those that wait. The relay appends nothing behind a loss that is not repaired, nor before the watch has seen the
 * stream for the first time, so entries keep the order of rows.
 */
import type { Redis } from 'ioredis';
import type { Pool } from 'pg';
import type { Logger } from 'pino';
import { FIELDS_OF, STREAM_START } from '../api/stream-ids.ts';
import { watchEvery } from '../api/watch.ts';
import type { OutboundRow } from './outbound-state.ts';
import {
  CLEAR_OUTBOUND,
  LOAD_OUTBOUND,
  checkOutbound,
  databaseOf,
  lookAtOutbound,
  missingIn,
  suspicionOf,
  valuesOf,
} from './outbound-state.ts';
import type { Statement } from './postgres.ts';
import { query, inTransaction, run } from './postgres.ts';
import { reasonOf } from './reason.ts';

/** Between two looks for rows to relay: an entry is late by as much at most, if nothing is in its way. */
const RELAY_INTERVAL_MS = 200;
const LOOK_INTERVAL_MS = 2_000;
/** Rows that are relayed together, and their entries unless there is one row only. */
const ROWS_TOGETHER = 200;
const ENTRIES_TOGETHER = 500;
/** Relayed rows that are looked for together. */
const PAGE_SIZE = 500;

interface Outbox<Row> {
  /** In names of statements. */
  name: string;
  /** It has `relayed_at`, and `entry_id`: as which entry the last one of a row was relayed. */
  table: string;
  /** The column that numbers its rows. */
  key: string;
  /** Columns that entries are made of. */
  columns: string;
  /** SQL of how many entries a row is. */
  size: string;
  /** Of the advisory lock of the process that relays; no other lock has this number. */
  lock: number;
  /** The fields of each entry: names and values in turn. */
  entriesOf(row: Row & { id: string }): (string | number)[][];
}

/** An outbox with its statements. */
export interface RelayedTable<Row> extends Outbox<Row> {
  statements: Record<'areLeft' | 'load' | 'markRelayed' | 'listRelayed' | 'putBack', Statement>;
}

interface RelayResources {
  db: Pool;
  redis: Redis;
  log: Logger;
  /** Until every relay from before a suspicion has its rows written, ms. */
  settlingMs: number;
}

interface RelayOptions<Row> {
  stream: string;
  /** Approximate length to which the stream is trimmed. */
  maxLen: number;
  onRelayed?: (rows: readonly Row[]) => void;
}

interface RelayedRow {
  id: string;
  relayed_at: string;
  entry_id: string | null;
  /** Relayed when the stream had perhaps not been seen whole. */
  is_recent: boolean;
}

/**
 * KEYS: stream. ARGV: an id that the stream has come to, its length, and of each entry the number of its fields' names and
 * values, and these. Returns the ids, or nothing at all when the stream is behind that id: then it has lost something.
 */
const APPEND = `${FIELDS_OF}
  local function parts(id)
    local ms, sequence = string.match(id, '^(%d+)-(%d+)$')
    return tonumber(ms), tonumber(sequence)
  end
  local last = '${STREAM_START}'
  if redis.call('EXISTS', KEYS[1]) == 1 then
    last = fieldsOf(redis.call('XINFO', 'STREAM', KEYS[1]))['last-generated-id']
  end
  local ms, sequence = parts(last)
  local seenMs, seenSequence = parts(ARGV[1])
  if ms < seenMs or (ms == seenMs and sequence < seenSequence) then return false end
  local ids, at = {}, 3
  while at <= #ARGV do
    local count = tonumber(ARGV[at])
    ids[#ids + 1] = redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[2], '*', unpack(ARGV, at + 1, at + count))
    at = at + count + 1
  end
  return ids`;

/**
 * Relays the rows of a table, and watches over its stream, for as long as the process runs. Any number of processes may:
 * one at a time relays.
 */
export function relayRows<Row>(
  { db, redis, log, settlingMs }: RelayResources,
  { statements, lock, entriesOf }: RelayedTable<Row>,
  { stream, maxLen, onRelayed }: RelayOptions<Row>,
): { stop(): Promise<void> } {
  let entriesTogether = ENTRIES_TOGETHER;
  const running = [
    watchEvery(RELAY_INTERVAL_MS, relayAll, (error) =>
      log.warn({ stream, reason: reasonOf(error) }, 'rows are not relayed, and wait'),
    ),
    watchEvery(LOOK_INTERVAL_MS, lookAtStream, (error) =>
      log.warn({ stream, reason: reasonOf(error) }, 'stream not looked at'),
    ),
  ];
  return {
    async stop() {
      await Promise.all(running.map((one) => one.stop()));
    },
  };

  async function relayAll(stopping: AbortSignal): Promise<void> {
    while (!stopping.aborted) {
      const [left] = await query<{ is_any: boolean }>(db, statements.areLeft, []);
      if (!left?.is_any) return;
      try {
        if (!(await relayBatch())) return;
      } catch (error) {
        // What was not answered in time comes again: less of it, so that a slow Redis does not get the same forever.
        entriesTogether = Math.ceil(entriesTogether / 2);
        throw error;
      }
      entriesTogether = Math.min(ENTRIES_TOGETHER, 2 * entriesTogether);
    }
  }

  /** Relays the oldest rows. @returns false when it is not ours to relay, or not now. */
  async function relayBatch(): Promise<boolean> {
    const relayed = await inTransaction(db, async (client) => {
      const [held] = await run<{ is_ours: boolean }>(client, LOCK_RELAY, [lock]);
      if (!held?.is_ours) return undefined;
      const [seen] = await run<OutboundRow>(client, LOAD_OUTBOUND, [stream, databaseOf(redis)]);
      if (!seen || seen.suspect_since !== null) return undefined;
      const rows = await run<Row & { id: string }>(client, statements.load, [ROWS_TOGETHER, entriesTogether]);
      if (rows.length === 0) return rows;
      const entries = rows.map((row) => entriesOf(row));
      const fields = entries.flat().flatMap((entry) => [entry.length, ...entry]);
      const values = [seen.lastEntryId, maxLen, ...fields];
      const ids = (await redis.eval(APPEND, 1, stream, ...values)) as string[] | null;
      // The watch sees it, too, and repairs it.
      if (ids === null) return undefined;
      let last = -1;
      const lastOfEach = entries.map(({ length }) => ids[(last += length)]!);
      await run(client, statements.markRelayed, [rows.map(({ id }) => id), lastOfEach]);
      await run(client, COME_TO, [stream, lastOfEach.at(-1)]);
      return rows;
    });
    if (relayed) onRelayed?.(relayed);
    return relayed !== undefined;
  }

  async function lookAtStream(stopping: AbortSignal): Promise<void> {
    const suspect = await checkOutbound({ db, redis }, stream, (reason) =>
      log.warn({ stream, reason }, 'stream may have lost entries, its rows are checked'),
    );
    if (suspect) await restore(suspect, stopping);
  }

  async function restore(suspect: OutboundRow, stopping: AbortSignal): Promise<void> {
    if (suspect.suspect_ms! < settlingMs) return;
    const restored = await putBackLost(suspect, stopping);
    // What was lost, or written down of a relay from before, while it was looked for: then all of it is done again.
    const [row] = await query<OutboundRow>(db, LOAD_OUTBOUND, [stream, databaseOf(redis)]);
    const now = await lookAtOutbound(redis, stream);
    if (!row || suspicionOf(row, now) !== undefined) return;
    const values = [stream, ...valuesOf(now), suspect.now, suspect.suspect_since];
    const [cleared] = await query(db, CLEAR_OUTBOUND, values);
    if (cleared) log.warn({ stream, restored }, 'lost entries are relayed again');
  }

  /** From the newest rows to older ones. Two processes that do this find the same. @returns how many were put back. */
  async function putBackLost(suspect: OutboundRow, stopping: AbortSignal): Promise<number> {
    let count = 0;
    let before = { relayed_at: 'infinity', id: '0' };
    for (let goesOn = true; goesOn;) {
      stopping.throwIfAborted();
      const page = await query<RelayedRow>(db, statements.listRelayed, [
        ...[before.relayed_at, before.id],
        ...[suspect.seen_at, PAGE_SIZE, suspect.wanted_since],
      ]);
      const { missing } = await missingIn(redis, stream, suspect, page);
      const put = await query(db, statements.putBack, [
        missing.map(({ id }) => id),
        missing.map(({ entry_id }) => entry_id),
      ]);
      count += put.length;
      before = page.at(-1) ?? before;
      goesOn = page.length === PAGE_SIZE && (page.at(-1)!.is_recent || missing.length > 0);
    }
    return count;
  }
}

/** Makes the statements by which the rows of an outbox are relayed and put back. */
export function relayedTable<Row>(outbox: Outbox<Row>): RelayedTable<Row> {
  const { name, table, key, columns, size } = outbox;
  return {
    ...outbox,
    statements: {
      areLeft: {
        name: `are_${name}_left`,
        text: `SELECT min(${key}) IS NOT NULL AS is_any FROM ${table} WHERE relayed_at IS NULL`,
      },
      /** $1 rows at most, $2 entries at most, unless the first row has more. */
      load: {
        name: `load_${name}`,
        text: `
    SELECT ${key}::text AS id, ${columns}
      FROM (SELECT *, ${size} AS size, sum(${size}) OVER (ORDER BY page.${key}) AS total
              FROM (SELECT * FROM ${table} WHERE relayed_at IS NULL ORDER BY ${key} LIMIT $1) AS page) AS summed
     WHERE total <= $2::int OR total = size
     ORDER BY summed.${key}`,
      },
      /** $1 rows, $2 their last entries. */
      markRelayed: {
        name: `mark_${name}_relayed`,
        text: `
    UPDATE ${table} AS outbox
       SET relayed_at = clock_timestamp(), entry_id = relayed.entry_id
      FROM unnest($1::bigint[], $2::text[]) AS relayed (${key}, entry_id)
     WHERE outbox.${key} = relayed.${key}`,
      },
      /**
       * The next older rows that were relayed. $1 and $2 the last one of the page before, $3 when the stream was last seen
       * whole, $4 rows at most, $5 from when on they are wanted.
       */
      listRelayed: {
        name: `list_relayed_${name}`,
        text: `
    SELECT ${key}::text AS id, relayed_at::text, entry_id,
           relayed_at >= $3::timestamptz - interval '1 minute' AS is_recent
      FROM ${table} AS outbox
     WHERE relayed_at <= $1::timestamptz AND relayed_at >= $5::timestamptz
       AND (relayed_at, ${key}) < ($1::timestamptz, $2::bigint)
     ORDER BY outbox.relayed_at DESC, outbox.${key} DESC
     LIMIT $4`,
      },
      /** $1 rows, $2 the entries as which they were relayed. */
      putBack: {
        name: `put_back_${name}`,
        text: `
    UPDATE ${table} AS outbox
       SET relayed_at = NULL, entry_id = NULL
      FROM unnest($1::bigint[], $2::text[]) AS lost (${key}, entry_id)
     WHERE outbox.${key} = lost.${key} AND outbox.entry_id = lost.entry_id
    RETURNING 1`,
      },
    },
  };
}

/** $1 the number of the lock, which ends with the transaction. */
const LOCK_RELAY = {
  name: 'lock_relay',
  text: 'SELECT pg_try_advisory_xact_lock($1) AS is_ours',
};

/**
 * Also while the stream is suspected: who looks for what is lost learns of entries that were written down in the meantime.
 * $1 stream, $2 its last entry.
 */
const COME_TO = {
  name: 'come_to_in_outbound_stream',
  text: 'UPDATE notification.outbound_streams SET last_entry_id = $2 WHERE stream = $1',
};
