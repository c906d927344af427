/** How an outbound stream stands, what is suspicious about it, and the row that remembers it. */
import type { Redis } from 'ioredis';
import { compareEntryIds } from '../../api/intent/stream.ts';
import { STREAM_START } from '../../api/stream-ids.ts';
import { stateOf } from './stream-health.ts';

/** Empty streams and those that do not exist stand at the start. */
export interface OutboundState {
  /** Another one means that Redis was restarted, or that it is another server. Empty when Redis does not tell. */
  serverRunId: string;
  lastEntryId: string;
  /** Unknown before Redis 7. */
  entriesAdded?: number;
  /** Entries below are gone, or were read by every consumer group. */
  wantedFrom: string;
}

/** KEYS: stream. Returns of each consumer group the oldest entry that it has not acknowledged, or what it read last. */
const READ_GROUPS = `
  local found = {}
  if redis.call('EXISTS', KEYS[1]) == 0 then return found end
  for _, group in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
    local fields = {}
    for i = 1, #group, 2 do fields[group[i]] = group[i + 1] end
    local oldest = redis.call('XPENDING', KEYS[1], fields['name'])[2]
    found[#found + 1] = {oldest or '', fields['last-delivered-id']}
  end
  return found`;

/** @throws what Redis fails with, e.g. when the key is no stream. */
export async function lookAtOutbound(redis: Redis, stream: string): Promise<OutboundState> {
  const [found, groups, info] = await Promise.all([
    stateOf(redis, stream),
    redis.eval(READ_GROUPS, 1, stream) as Promise<[oldestPending: string, lastDelivered: string][]>,
    redis.info('server'),
  ]);
  const serverRunId = /^run_id:(\S+)/m.exec(info)?.[1] ?? '';
  const state = found?.stream;
  if (state === undefined)
    return { serverRunId, lastEntryId: STREAM_START, entriesAdded: 0, wantedFrom: STREAM_START };
  const { lastGeneratedId, entriesAdded, firstEntryId = STREAM_START, length } = state;
  const first = length === 0 ? after(lastGeneratedId) : firstEntryId;
  const unread = groups.map(([pending, delivered]) => (pending === '' ? after(delivered) : pending));
  const oldestUnread = unread.sort(compareEntryIds)[0] ?? STREAM_START;
  return {
    serverRunId,
    lastEntryId: lastGeneratedId,
    ...(entriesAdded === undefined ? {} : { entriesAdded }),
    wantedFrom: later(first, oldestUnread),
  };
}

/** The smallest id above this one that an entry can have. */
function after(id: string): string {
  const [ms, sequence] = id.split('-') as [string, string];
  return `${ms}-${BigInt(sequence) + 1n}`;
}

export const later = (one: string, other: string): string => (compareEntryIds(one, other) < 0 ? other : one);

/** @returns why entries may be missing that were there; undefined when nothing speaks for it. Pure. */
export function suspicionOf(seen: OutboundState, now: OutboundState): string | undefined {
  return (
    regressionOf(seen, now) ??
    (seen.serverRunId === now.serverRunId ? undefined : 'Redis was restarted or replaced')
  );
}

/** @returns in what way the stream is behind what was seen. Pure. */
export function regressionOf(seen: OutboundState, now: OutboundState): string | undefined {
  if (compareEntryIds(now.lastEntryId, seen.lastEntryId) < 0) {
    return now.lastEntryId === STREAM_START
      ? 'the stream is gone'
      : `the last id went back from ${seen.lastEntryId} to ${now.lastEntryId}`;
  }
  if (
    now.entriesAdded !== undefined &&
    seen.entriesAdded !== undefined &&
    now.entriesAdded < seen.entriesAdded
  ) {
    return `the number of entries ever added went back from ${seen.entriesAdded} to ${now.entriesAdded}`;
  }
  return undefined;
}

/** A row of notification.outbound_streams. */
export interface OutboundRow {
  server_run_id: string;
  last_entry_id: string;
  entries_added: string | null;
  wanted_from: string;
  /** To the microsecond. */
  seen_at: string;
  suspect_since: string | null;
  suspect_reason: string | null;
}

export const seenOf = (row: OutboundRow): OutboundState => ({
  serverRunId: row.server_run_id,
  lastEntryId: row.last_entry_id,
  ...(row.entries_added === null ? {} : { entriesAdded: Number(row.entries_added) }),
  wantedFrom: row.wanted_from,
});

/** The values of a state, in the order of the columns. */
export const valuesOf = ({ serverRunId, lastEntryId, entriesAdded, wantedFrom }: OutboundState) => [
  serverRunId,
  lastEntryId,
  entriesAdded ?? null,
  wantedFrom,
];

/** $1 stream. */
export const LOAD_OUTBOUND = {
  name: 'load_outbound_stream',
  text: `
    SELECT server_run_id, last_entry_id, entries_added, wanted_from, seen_at::text, suspect_since::text, suspect_reason
      FROM notification.outbound_streams
     WHERE stream = $1`,
};

/** Leaves a suspect as it was seen before. $1 stream, $2 to $5 its state. */
export const SAVE_OUTBOUND = {
  name: 'save_outbound_stream',
  text: `
    INSERT INTO notification.outbound_streams AS old
      (stream, server_run_id, last_entry_id, entries_added, wanted_from, seen_at)
    VALUES ($1, $2, $3, $4, $5, clock_timestamp())
    ON CONFLICT (stream) DO UPDATE
       SET server_run_id = EXCLUDED.server_run_id, last_entry_id = EXCLUDED.last_entry_id,
           entries_added = EXCLUDED.entries_added, wanted_from = EXCLUDED.wanted_from, seen_at = EXCLUDED.seen_at
     WHERE old.suspect_since IS NULL`,
};

/** $1 stream, $2 why. */
export const SUSPECT_OUTBOUND = {
  name: 'suspect_outbound_stream',
  text: `
    UPDATE notification.outbound_streams
       SET suspect_since = clock_timestamp(), suspect_reason = $2
     WHERE stream = $1 AND suspect_since IS NULL
    RETURNING 1`,
};

/** Ends a suspicion. $1 stream, $2 to $5 its state when the repair began, $6 that time, $7 since when it was suspected. */
export const CLEAR_OUTBOUND = {
  name: 'clear_outbound_stream',
  text: `
    UPDATE notification.outbound_streams
       SET server_run_id = $2, last_entry_id = $3, entries_added = $4, wanted_from = $5, seen_at = $6::timestamptz,
           suspect_since = NULL, suspect_reason = NULL
     WHERE stream = $1 AND suspect_since = $7::timestamptz`,
};
