/**
 * How a stream stands, and of one that others read, what is suspicious about it and the row that remembers it. A Redis that falls back
 * does not know that it did; PostgreSQL says it.
 */
import type { Redis } from 'ioredis';
import type { Pool } from 'pg';
import { FIELDS_OF, STREAM_START, compareEntryIds, later } from '../api/stream-ids.ts';
import { query } from './postgres.ts';

/** Empty streams and those that do not exist stand at the start. */
export interface OutboundState {
  /** Another one means that Redis was restarted, or that it is another server. Empty when Redis does not tell. */
  serverRunId: string;
  lastEntryId: string;
  entriesAdded: number;
  /** Entries below are gone, or were given to every consumer group. */
  wantedFrom: string;
  /** Entries below that a group was given and has not acknowledged. */
  pending: string[];
  /** The logical database of Redis that the stream is in. */
  database: number;
}

/** What a look finds besides. */
export interface OutboundLook extends OutboundState {
  /** Of the oldest entry; without entries, the id after the last one. */
  firstEntryId: string;
  /** Entries that were trimmed or deleted so far. */
  entriesRemoved: number;
}

/** Pending entries of a group that are told one by one. Of more, all since the oldest count as unread. */
const MOST_PENDING = 1_000;

/**
 * KEYS: stream. ARGV: pending entries at most. Of XINFO STREAM what is no entry, since those may have any size; the time; and of each
 * consumer group what it was given last, and the entries that it has not acknowledged. Nothing when there is no such key.
 */
const READ_STREAM = `${FIELDS_OF}
  if redis.call('EXISTS', KEYS[1]) == 0 then return false end
  local info, groups = fieldsOf(redis.call('XINFO', 'STREAM', KEYS[1])), {}
  for _, reply in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
    local group, pending = fieldsOf(reply), {}
    for i, entry in ipairs(redis.call('XPENDING', KEYS[1], group['name'], '-', '+', ARGV[1])) do pending[i] = entry[1] end
    groups[#groups + 1] = {group['last-delivered-id'], pending}
  end
  return {info['length'], info['last-generated-id'], info['recorded-first-entry-id'], info['max-deleted-entry-id'],
          info['entries-added'], redis.call('TIME')[1], groups}`;

type StreamReply = [
  ...[length: number, lastGeneratedId: string, firstEntryId: string, maxDeletedEntryId: string],
  ...[entriesAdded: number, seconds: string, groups: [lastDelivered: string, pending: string[]][]],
];

/** @returns undefined when there is no such key. @throws what Redis fails with, e.g. when the key is no stream. */
export async function readStream(redis: Redis, stream: string) {
  const reply = (await redis.eval(READ_STREAM, 1, stream, MOST_PENDING)) as StreamReply | null;
  if (reply === null) return undefined;
  const [length, lastGeneratedId, firstEntryId, maxDeletedEntryId, entriesAdded, seconds, groups] = reply;
  const state = { length, lastGeneratedId, firstEntryId, maxDeletedEntryId, entriesAdded };
  return { state, redisMs: Number(seconds) * 1_000, groups };
}

/** @throws as {@link readStream}. */
export async function lookAtOutbound(redis: Redis, stream: string): Promise<OutboundLook> {
  const [found, info] = await Promise.all([readStream(redis, stream), redis.info('server')]);
  const serverRunId = /^run_id:(\S+)/m.exec(info)?.[1] ?? '';
  const database = databaseOf(redis);
  if (!found) {
    return {
      ...{ serverRunId, lastEntryId: STREAM_START, entriesAdded: 0, wantedFrom: STREAM_START },
      ...{ firstEntryId: after(STREAM_START), entriesRemoved: 0, pending: [], database },
    };
  }
  const { groups, state } = found;
  const { length, lastGeneratedId: lastEntryId, entriesAdded } = state;
  const firstEntryId = length === 0 ? after(lastEntryId) : state.firstEntryId;
  const unread = groups.map(([delivered, pending]) =>
    pending.length < MOST_PENDING ? after(delivered) : pending[0]!,
  );
  const oldestUnread = unread.sort(compareEntryIds)[0] ?? STREAM_START;
  return {
    ...{ serverRunId, lastEntryId, firstEntryId, database },
    ...{ entriesAdded, entriesRemoved: entriesAdded - length },
    wantedFrom: later(firstEntryId, oldestUnread),
    pending: [...new Set(groups.flatMap(([, pending]) => pending))].filter(
      (id) => compareEntryIds(id, oldestUnread) < 0,
    ),
  };
}

export const databaseOf = (redis: Redis): number => redis.options.db ?? 0;

/** The smallest id above this one that an entry can have. */
function after(id: string): string {
  const [ms, sequence] = id.split('-') as [string, string];
  return `${ms}-${BigInt(sequence) + 1n}`;
}

/** @returns why entries may be missing that were there; undefined when nothing speaks for it. Pure. */
export function suspicionOf(seen: OutboundState, now: OutboundLook): string | undefined {
  return (
    regressionOf(seen, now) ??
    (seen.serverRunId === now.serverRunId ? undefined : 'Redis was restarted or replaced')
  );
}

/**
 * A stream that was created again may have grown past what was seen of it. It shows all the same: what was seen is not
 * there, and not as many entries were removed as had been added by then.
 *
 * @returns in what way the stream is behind what was seen. Pure.
 */
export function regressionOf(seen: OutboundState, now: OutboundLook): string | undefined {
  if (compareEntryIds(now.lastEntryId, seen.lastEntryId) < 0) {
    return now.lastEntryId === STREAM_START
      ? 'the stream is gone'
      : `the last id went back from ${seen.lastEntryId} to ${now.lastEntryId}`;
  }
  if (now.entriesAdded < seen.entriesAdded) {
    return `the number of entries ever added went back from ${seen.entriesAdded} to ${now.entriesAdded}`;
  }
  const [added, removed] = [seen.entriesAdded, now.entriesRemoved];
  if (removed < added && compareEntryIds(now.firstEntryId, seen.lastEntryId) > 0) {
    return `none of the first ${added} entries is there, and only ${removed} were removed`;
  }
  return undefined;
}

/** @returns whether a stream, now, does not tell what it has trimmed since it was seen: it may have been begun again. Pure. */
export const hasFallenBack = (seen: SeenOutbound, now: OutboundLook): boolean =>
  seen.hasFallenBack || seen.lastEntryId === STREAM_START || regressionOf(seen, now) !== undefined;

/**
 * What a group had acknowledged is not missed, whatever became of it; nor what a stream has trimmed that did not fall back.
 * What groups have read since does not count: they may have read on beyond a gap.
 *
 * @param now as the stream is when its rows are checked: it is trimmed all the time.
 * @returns whether an entry should be there. Pure.
 */
export function wantedIn(seen: SeenOutbound, now: OutboundLook): (entryId: string) => boolean {
  const trimmedBelow = hasFallenBack(seen, now) ? STREAM_START : now.firstEntryId;
  const pending = new Set(seen.pending);
  return (id) =>
    compareEntryIds(id, trimmedBelow) >= 0 && (compareEntryIds(id, seen.wantedFrom) >= 0 || pending.has(id));
}

/** KEYS: stream. ARGV: ids. Returns the positions of those that it does not have. */
const FIND_MISSING = `
  local missing = {}
  for i, id in ipairs(ARGV) do
    if #redis.call('XRANGE', KEYS[1], id, id) == 0 then missing[#missing + 1] = i end
  end
  return missing`;

/** @returns those whose entry should be in the stream and is not. @throws what Redis fails with. */
export async function missingIn<Row extends { entry_id: string | null }>(
  redis: Redis,
  stream: string,
  suspect: OutboundRow,
  rows: readonly Row[],
  isAsked: (entryId: string, now: OutboundLook) => boolean = () => true,
): Promise<{ wanted: Row[]; missing: Row[] }> {
  const now = await lookAtOutbound(redis, stream);
  const isWanted = wantedIn(suspect, now);
  const wanted = rows.filter(
    ({ entry_id }) => entry_id !== null && isWanted(entry_id) && isAsked(entry_id, now),
  );
  if (wanted.length === 0) return { wanted, missing: [] };
  const ids = wanted.map(({ entry_id }) => entry_id!);
  const positions = (await redis.eval(FIND_MISSING, 1, stream, ...ids)) as number[];
  return { wanted, missing: positions.map((position) => wanted[position - 1]!) };
}

/**
 * A row of notification.outbound_streams. While the stream is suspected, the state is the one that was suspicious, so that
 * a further loss shows; from where on entries are wanted, and when it was seen whole, stay as they were.
 */
export interface OutboundRow extends SeenOutbound {
  /** To the microsecond. */
  seen_at: string;
  /** What left earlier is in another stream, or is older than any repair looks. */
  wanted_since: string;
  suspect_since: string | null;
  suspect_reason: string | null;
  /** For how long it has been suspected, ms. */
  suspect_ms: number | null;
  /** The time of PostgreSQL's clock at which the row was read. */
  now: string;
}

export type SeenOutbound = OutboundState & { hasFallenBack: boolean };

/** The values of a state, in the order of the columns. */
export const valuesOf = (state: OutboundState) => [
  state.serverRunId,
  state.lastEntryId,
  state.entriesAdded,
  state.wantedFrom,
  state.pending,
  state.database,
];

/**
 * Looks at a stream, and remembers how it stands or that it is suspicious.
 *
 * @param onSuspicion hears of each suspicion once, over all processes.
 * @returns the row of a stream that an earlier look has found suspicious, and that is to be repaired.
 * @throws what Redis and PostgreSQL fail with.
 */
export async function checkOutbound(
  { db, redis }: { db: Pool; redis: Redis },
  stream: string,
  onSuspicion: (reason: string) => void,
): Promise<OutboundRow | undefined> {
  // The row before the stream: an entry that a relay appends in between is in neither, or in the stream alone.
  const [row] = await query<OutboundRow>(db, LOAD_OUTBOUND, [stream, databaseOf(redis)]);
  const now = await lookAtOutbound(redis, stream);
  const suspicion = row && suspicionOf(row, now);
  if (row && suspicion !== undefined) {
    const [isNew] = await query(db, SUSPECT_OUTBOUND, [
      ...[stream, now.serverRunId, now.lastEntryId, now.entriesAdded, hasFallenBack(row, now)],
      ...[suspicion, row.serverRunId, row.lastEntryId],
    ]);
    if (isNew) onSuspicion(suspicion);
    return undefined;
  }
  if (row?.suspect_since) return row;
  if (!row || valuesOf(row).join(' ') !== valuesOf(now).join(' '))
    await query(db, SAVE_OUTBOUND, [stream, ...valuesOf(now), row?.lastEntryId ?? null]);
  return undefined;
}

/** $1 stream, $2 logical database of Redis: what is known of the stream in another one says nothing of this. */
export const LOAD_OUTBOUND = {
  name: 'load_outbound_stream',
  text: `
    SELECT server_run_id AS "serverRunId", last_entry_id AS "lastEntryId", entries_added::float8 AS "entriesAdded",
           wanted_from AS "wantedFrom", pending, redis_db AS database, has_fallen_back AS "hasFallenBack", seen_at::text,
           greatest(seen_at - interval '1 day', empty_at)::text AS wanted_since, suspect_since::text, suspect_reason,
           (extract(epoch FROM clock_timestamp() - suspect_since) * 1000)::float8 AS suspect_ms, clock_timestamp()::text AS now
      FROM notification.outbound_streams
     WHERE stream = $1 AND redis_db = $2`,
};

/**
 * Saves a state, unless a relay has moved it on since it was loaded, and leaves a suspect as it was seen before. A stream in
 * another logical database is a new one. $1 stream, $2 to $7 its state, $8 its last entry as it was loaded; null for a new row.
 */
const SAVE_OUTBOUND = {
  name: 'save_outbound_stream',
  text: `
    INSERT INTO notification.outbound_streams AS old
      (stream, server_run_id, last_entry_id, entries_added, wanted_from, pending, redis_db, seen_at, empty_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, clock_timestamp(),
            CASE WHEN $3 = '0-0' THEN clock_timestamp() - interval '1 second' ELSE '-infinity' END)
    ON CONFLICT (stream) DO UPDATE
       SET server_run_id = EXCLUDED.server_run_id, last_entry_id = EXCLUDED.last_entry_id,
           entries_added = EXCLUDED.entries_added, wanted_from = EXCLUDED.wanted_from, seen_at = EXCLUDED.seen_at,
           pending = EXCLUDED.pending, redis_db = EXCLUDED.redis_db, has_fallen_back = false, suspect_since = NULL,
           suspect_reason = NULL,
           empty_at = CASE WHEN old.redis_db = EXCLUDED.redis_db THEN old.empty_at ELSE EXCLUDED.empty_at END
     WHERE (old.suspect_since IS NULL AND old.last_entry_id = $8) OR old.redis_db <> EXCLUDED.redis_db`,
};

/**
 * Begins a suspicion, or begins it again when it was suspected of less: attempts that were being made at the time of this
 * loss end later than those of the loss before. $1 stream, $2 to $4 its state, $5 whether it has fallen back, $6 why, $7 and
 * $8 the server and the last entry that were seen before.
 */
const SUSPECT_OUTBOUND = {
  name: 'suspect_outbound_stream',
  text: `
    UPDATE notification.outbound_streams
       SET server_run_id = $2, last_entry_id = $3, entries_added = $4, has_fallen_back = $5,
           suspect_since = clock_timestamp(), suspect_reason = $6
     WHERE stream = $1 AND server_run_id = $7 AND last_entry_id = $8
    RETURNING 1`,
};

/**
 * Leaves a stream suspected that has lost entries again while those of before were put back. What was put back may be gone
 * as well: it counts as published since the stream was seen whole. $1 stream, $2 the oldest time of publication that was
 * looked at.
 */
export const KEEP_SUSPECTING_OUTBOUND = {
  name: 'keep_suspecting_outbound_stream',
  text: `
    UPDATE notification.outbound_streams
       SET seen_at = least(seen_at, $2::timestamptz)
     WHERE stream = $1 AND suspect_since IS NOT NULL`,
};

/** Ends a suspicion. $1 stream, $2 to $7 its state when the repair began, $8 that time, $9 since when it was suspected. */
export const CLEAR_OUTBOUND = {
  name: 'clear_outbound_stream',
  text: `
    UPDATE notification.outbound_streams
       SET server_run_id = $2, last_entry_id = $3, entries_added = $4, wanted_from = $5, pending = $6,
           redis_db = $7, seen_at = $8::timestamptz, has_fallen_back = false, suspect_since = NULL, suspect_reason = NULL
     WHERE stream = $1 AND suspect_since = $9::timestamptz
    RETURNING 1`,
};
