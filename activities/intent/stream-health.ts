/**
 * Whether an intent stream still holds what it must. Redis may lose entries
 * without a word: a producer trims too early, a failover picks a lagging replica, a backup is restored, memory runs
 * full. Compares what Redis says with where the reader is and with what was seen before; acts on nothing.
 *
 * Trimming leaves no trace but numbers: XTRIM and XADD MAXLEN do not move `max-deleted-entry-id`, only XDEL does.
 * Therefore the reader counts the entries that it passes. Of all that were ever added (`entries-added`), those that it
 * has neither passed nor before it were deleted unread.
 */
import type { Redis } from 'ioredis';
import { STREAM_START, compareEntryIds, idsAhead, timeOfEntry } from '../../api/stream-ids.ts';
import type { StreamFinding, StreamState } from '../../workflows/intent/reader-contract.ts';
import type { StreamPosition } from './entries.ts';

/** What Redis says at one moment. */
export interface Inspection {
  /** Undefined when the key does not exist. */
  stream: (StreamState & { length: number; firstEntryId?: string }) | undefined;
  /** Undefined when Redis does not tell. */
  maxmemoryPolicy: string | undefined;
  /** By the clock of Redis, epoch ms; undefined without a stream. */
  redisMs?: number;
  /** Bytes of entries that Redis copied to find this out; default 0. */
  effortBytes?: number;
}

export type Problem = Pick<StreamFinding, 'kind' | 'message'>;

export interface Diagnosis {
  problems: Problem[];
  /** The reader's count, put right: what was lost is passed too. */
  entriesPassed: number | undefined;
}

/** @throws what Redis fails with, e.g. when the key is no stream. */
export async function inspectStream(redis: Redis, stream: string): Promise<Inspection> {
  const [state, maxmemoryPolicy] = await Promise.all([stateOf(redis, stream), policyOf(redis)]);
  return { stream: undefined, ...state, maxmemoryPolicy };
}

/**
 * XINFO STREAM tells the first and the last entry whole, of whatever size. KEYS: stream. Returns their bytes together, the
 * rest and the time in seconds, or nothing when there is no such key.
 */
const READ_STATE = `
  if redis.call('EXISTS', KEYS[1]) == 0 then return false end
  local all, rest, bytes = redis.call('XINFO', 'STREAM', KEYS[1]), {}, 0
  for i = 1, #all, 2 do
    if type(all[i + 1]) ~= 'table' then
      rest[#rest + 1] = all[i]
      rest[#rest + 1] = all[i + 1]
    else
      for _, part in ipairs(all[i + 1][2]) do bytes = bytes + #part end
    end
  end
  return {bytes, rest, redis.call('TIME')[1]}`;

export async function stateOf(
  redis: Redis,
  stream: string,
): Promise<Pick<Inspection, 'stream' | 'redisMs' | 'effortBytes'> | undefined> {
  const found = (await redis.eval(READ_STATE, 1, stream)) as
    [bytes: number, reply: unknown[], seconds: string] | null;
  if (found === null) return undefined;
  const [effortBytes, reply, seconds] = found;
  const fields = new Map<unknown, unknown>();
  for (let i = 0; i + 1 < reply.length; i += 2) fields.set(reply[i], reply[i + 1]);
  const text = (name: string): string => String(fields.get(name));
  const state = {
    length: Number(fields.get('length')),
    lastGeneratedId: text('last-generated-id'),
    // Redis 7 and Valkey; older ones do not have these.
    ...(fields.has('recorded-first-entry-id') ? { firstEntryId: text('recorded-first-entry-id') } : {}),
    ...(fields.has('max-deleted-entry-id') ? { maxDeletedEntryId: text('max-deleted-entry-id') } : {}),
    ...(fields.has('entries-added') ? { entriesAdded: Number(fields.get('entries-added')) } : {}),
  };
  return { stream: state, redisMs: Number(seconds) * 1_000, effortBytes };
}

/** From INFO rather than CONFIG, which managed Redis forbids. Without either, the rest is still worth knowing. */
async function policyOf(redis: Redis): Promise<string | undefined> {
  const info = await redis.info('memory').catch(() => '');
  return /^maxmemory_policy:(\S+)/m.exec(info)?.[1];
}

/**
 * What is wrong with a stream. Pure.
 *
 * @param seen what an earlier check saw, of this reader or the one before.
 */
export function diagnose(inspection: Inspection, position: StreamPosition, seen?: StreamState): Diagnosis {
  const { stream, redisMs, maxmemoryPolicy = 'noeviction' } = inspection;
  const problems: Problem[] = [];
  if (maxmemoryPolicy !== 'noeviction') {
    problems.push({
      kind: 'eviction_enabled',
      message: `Redis may drop the stream when its memory is full: set maxmemory-policy to noeviction, it is ${maxmemoryPolicy}`,
    });
  }
  if (stream === undefined) {
    const wasThere = position.offset !== STREAM_START || seen !== undefined;
    if (wasThere) problems.push(missing(position.offset));
    return { problems, entriesPassed: wasThere ? undefined : position.entriesPassed };
  }
  const ahead = redisMs === undefined ? undefined : idsAhead(stream.lastGeneratedId, redisMs);
  if (ahead !== undefined) {
    problems.push({
      kind: 'stream_ids_ahead',
      message: `${ahead}; set it back: NotificationStreamIdsAhead in the runbook`,
    });
  }
  const regression = regressionOf(stream, position.offset, seen);
  if (regression !== undefined) {
    problems.push({
      kind: 'stream_regressed',
      message: `Redis lost data: ${regression}. The stream is read anew; what Redis lost must be published again, and consumers may miss entries too`,
    });
    return { problems, entriesPassed: undefined };
  }
  const { lost, entriesPassed } = lossOf(stream, position, seen);
  if (lost !== undefined) {
    problems.push({
      kind: 'entries_lost',
      message: `${lost} deleted behind offset ${position.offset} before being read: their producers must publish them again; trim only what the offset has passed`,
    });
  }
  return { problems, entriesPassed };
}

function missing(offset: string): Problem {
  return {
    kind: 'stream_missing',
    message: `the stream does not exist although it was read up to ${offset}: find out who deleted or evicted it; entries that were not read must be published again`,
  };
}

function regressionOf(stream: StreamState, offset: string, seen?: StreamState): string | undefined {
  const { lastGeneratedId, entriesAdded } = stream;
  if (compareEntryIds(lastGeneratedId, offset) < 0) {
    return `the last id ${lastGeneratedId} is below the offset ${offset}`;
  }
  if (seen && compareEntryIds(lastGeneratedId, seen.lastGeneratedId) < 0) {
    return `the last id went back from ${seen.lastGeneratedId} to ${lastGeneratedId}`;
  }
  if (seen?.entriesAdded !== undefined && entriesAdded !== undefined && entriesAdded < seen.entriesAdded) {
    return `the number of entries ever added went back from ${seen.entriesAdded} to ${entriesAdded}`;
  }
  return undefined;
}

type Loss = { lost: string | undefined; entriesPassed: number | undefined };

function lossOf(
  stream: NonNullable<Inspection['stream']>,
  position: StreamPosition,
  seen?: StreamState,
): Loss {
  const { entriesAdded, maxDeletedEntryId = STREAM_START } = stream;
  const unread = unreadOf(stream, position.offset);
  const behind = entriesAdded === undefined || unread === undefined ? undefined : entriesAdded - unread;
  if (behind !== undefined && position.entriesPassed !== undefined) {
    const lost = behind - position.entriesPassed;
    return { lost: lost > 0 ? countOf(lost) : undefined, entriesPassed: behind };
  }
  const isNew = compareEntryIds(maxDeletedEntryId, seen?.maxDeletedEntryId ?? STREAM_START) > 0;
  if (isNew && compareEntryIds(maxDeletedEntryId, position.offset) > 0) {
    // Without an exact count now, these must not be counted as another loss later.
    return { lost: `entries up to ${maxDeletedEntryId} were`, entriesPassed: behind };
  }
  return { lost: undefined, entriesPassed: behind ?? position.entriesPassed };
}

const countOf = (lost: number): string => (lost === 1 ? '1 entry was' : `${lost} entries were`);

/** How many entries lie beyond the offset; undefined when only counting them one by one would tell. */
function unreadOf(stream: NonNullable<Inspection['stream']>, offset: string): number | undefined {
  const { length, firstEntryId, lastGeneratedId } = stream;
  if (length === 0 || compareEntryIds(offset, lastGeneratedId) >= 0) return 0;
  if (firstEntryId !== undefined && compareEntryIds(firstEntryId, offset) > 0) return length;
  return undefined;
}

/** 2001-09-09 in epoch ms: ids from here on are taken for times, as XADD gives them; below, they were made by hand. */
const FIRST_CLOCK_MS = 1_000_000_000_000n;
/** Records are kept so long at least by anybody's clock: an entry from before could be delivered a second time. */
const SHARE_OF_RETENTION = 0.9;

/**
 * Where reading begins again so long before an entry. Reading an entry again is harmless because of its row, and
 * retention deletes rows. Ids that are no times do not tell their age; those streams are read from 0-0.
 *
 * @param id of an entry. @param marginMs how long before it. @param newestId that was ever seen. Ids ahead of `nowMs`,
 * epoch ms, count as of now: a producer chose them.
 */
export function rewindPoint(
  id: string,
  marginMs: number,
  newestId: string,
  recordRetentionMs: number,
  nowMs: number,
): string {
  const [ms, newestMs] = [id, newestId].map((entryId) => BigInt(timeOfEntry(entryId, nowMs).getTime())) as [
    bigint,
    bigint,
  ];
  if (ms < FIRST_CLOCK_MS) return STREAM_START;
  const wantedMs = ms - BigInt(marginMs);
  const recordedMs = newestMs - BigInt(Math.floor(SHARE_OF_RETENTION * recordRetentionMs));
  const fromMs = wantedMs > recordedMs ? wantedMs : recordedMs;
  return `${fromMs < ms ? fromMs : ms}-0`;
}
