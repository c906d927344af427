/**
 * What the stores know of each other. Each of them may fall back to an earlier state, by a failover or a restored backup,
 * and does not notice. A row in PostgreSQL remembers how far an inbound stream was read; a key in Redis remembers which
 * version of that row it has seen.
 *
 * The watches make good what a store forgot. Acknowledged entries of a consumer group are not read again, and a PostgreSQL that
 * falls back has forgotten some of their rows: the group is given the entries of the last while again, and a reader skips those
 * that have their row. A Redis that falls back soon after that may have forgotten that it gave them, so it gives them once more.
 */
import type { Redis } from 'ioredis';
import type { Pool } from 'pg';
import type { Logger } from 'pino';
import { beatKey } from '../api/intent/stream.ts';
import { STREAM_START, compareEntryIds, fieldsOf } from '../api/stream-ids.ts';
import { watchEvery } from '../api/watch.ts';
import type { StreamState } from '../workflows/intent/contract.ts';
import { query } from './postgres.ts';
import { reasonOf } from './reason.ts';

/** How PostgreSQL stands to what Redis remembers of it. */
type PostgresState =
  | 'as it was'
  /** Perhaps with the loss of its last moment. */
  | 'restarted'
  /** It has forgotten what it knew. */
  | 'regressed';

export interface StreamMemory {
  postgres: PostgresState;
  /** Redis has forgotten what it knew, and with it what was made good in it. */
  isRedisBehind: boolean;
  /** How far the stream was read; undefined before it ever was. */
  passedId?: string;
  /** How it looked. */
  seen?: StreamState;
  /** Entry from which an operator asked the reader to read again. */
  rewindTo?: string;
  /** Of the row, and of what Redis has seen of it; 0 before the first. */
  beats: { inRow: number; inRedis: number };
  postgresStart: string;
}

/**
 * The key is written after the row, so that it may be one behind, or a few when several processes look. More than these it
 * is only in a Redis that was put back.
 */
const BEATS_BEHIND = 3;

interface MemoryRow extends Pick<StreamMemory, 'postgresStart'> {
  /** 0 without a row. */
  beat: number;
  known: Pick<StreamMemory, 'passedId' | 'seen' | 'rewindTo'>;
}

/** What is remembered under the name of a stream, and by which role. */
export interface MemoryOwner {
  db: Pool;
  redis: Redis;
  role: string;
  stream: string;
}

/** @throws ApplicationFailure of PostgreSQL; what Redis fails with. */
export async function recall({ db, redis, role, stream }: MemoryOwner): Promise<StreamMemory> {
  // Redis first: the row may only be newer then.
  const [beatInRedis, startInRedis] = (await redis.get(beatKey(role, stream)))?.split(' ') ?? [];
  const [row] = (await query<MemoryRow>(db, RECALL_STREAM, [stream])) as [MemoryRow];
  const { beat: inRow, known, postgresStart } = row;
  const inRedis = Number(beatInRedis ?? 0);
  const isRestarted = startInRedis !== undefined && startInRedis !== postgresStart;
  return {
    postgres: inRow < inRedis ? 'regressed' : isRestarted ? 'restarted' : 'as it was',
    isRedisBehind: inRedis + BEATS_BEHIND < inRow,
    ...known,
    beats: { inRow, inRedis },
    postgresStart,
  };
}

export interface ToRemember {
  /** Undefined: as it is, since another process moves it. */
  passedId: string | undefined;
  seen: StreamState | undefined;
}

/**
 * Writes down how it is now. A store that has fallen back since it was recalled is left as it is: the next look must
 * find that.
 *
 * @param known what was recalled: the request to rewind in it is met.
 * @throws Error when that is PostgreSQL; ApplicationFailure of PostgreSQL; what Redis fails with.
 */
export async function remember(
  { db, redis, role, stream }: MemoryOwner,
  { passedId, seen }: ToRemember,
  { beats, postgresStart, rewindTo }: StreamMemory,
): Promise<void> {
  const nextBeat = Math.max(beats.inRow, beats.inRedis) + 1;
  const [row] = await query<{ has_fallen_back: boolean }>(db, REMEMBER_STREAM, [
    stream,
    nextBeat,
    passedId ?? null,
    seen?.lastGeneratedId ?? null,
    seen?.maxDeletedEntryId ?? null,
    seen?.entriesAdded ?? null,
    rewindTo ?? null,
    beats.inRow,
  ]);
  if (row!.has_fallen_back) throw new Error('PostgreSQL fell back to an earlier state during a look');
  // Only now: it must not know of a row that is not there.
  await redis.eval(REMEMBER_BEAT, 1, beatKey(role, stream), nextBeat, postgresStart, beats.inRedis);
}

/** Unless Redis has fallen back since the beat was read. KEYS: beat. ARGV: next beat, PostgreSQL's start, beat that was read. */
const REMEMBER_BEAT = `
  local seen = redis.call('GET', KEYS[1])
  if tonumber(string.match(seen or '0', '^%d+') or 0) < tonumber(ARGV[3]) then return end
  redis.call('SET', KEYS[1], ARGV[1] .. ' ' .. ARGV[2])`;

/** Always one row. $1 stream. */
const RECALL_STREAM = {
  name: 'recall_inbound_stream',
  text: `
    SELECT coalesce(beat, 0)::float8 AS beat, extract(epoch FROM pg_postmaster_start_time())::text AS "postgresStart",
           json_strip_nulls(json_build_object(
             'passedId', passed_id, 'rewindTo', rewind_to,
             'seen', CASE WHEN last_entry_id IS NOT NULL
                          THEN json_build_object('lastGeneratedId', last_entry_id,
                                                 'maxDeletedEntryId', coalesce(max_deleted_entry_id, '${STREAM_START}'),
                                                 'entriesAdded', coalesce(entries_added, 0)) END)) AS known
      FROM (SELECT) AS one
      LEFT JOIN notification.inbound_streams ON stream = $1`,
};

/**
 * $1 stream, $2 beat, $3 how far it was read, or null, $4 to $6 how it looks, $7 the request that is met, $8 the beat of the
 * row that was recalled: an older row, or none, is not written over.
 */
const REMEMBER_STREAM = {
  name: 'remember_inbound_stream',
  text: `
    WITH one AS (
      SELECT coalesce((SELECT beat FROM notification.inbound_streams WHERE stream = $1), 0) < $8::bigint AS has_fallen_back
    ), written AS (
      INSERT INTO notification.inbound_streams AS old
        (stream, beat, passed_id, last_entry_id, max_deleted_entry_id, entries_added, seen_at)
      SELECT $1, $2::bigint, coalesce($3, '${STREAM_START}'), $4, $5, $6::bigint, clock_timestamp()
        FROM one WHERE NOT has_fallen_back
      ON CONFLICT (stream) DO UPDATE
         SET beat = excluded.beat, passed_id = coalesce($3, old.passed_id), last_entry_id = excluded.last_entry_id,
             max_deleted_entry_id = excluded.max_deleted_entry_id, entries_added = excluded.entries_added,
             seen_at = excluded.seen_at, rewind_to = nullif(old.rewind_to, $7)
       WHERE old.beat < excluded.beat AND old.beat >= $8::bigint
    )
    SELECT has_fallen_back FROM one`,
};

// --- Watches.

const LOOK_INTERVAL_MS = 1_000;
const AFTER_A_LOSS_MS = 3_600_000;
/** A restart may hide the loss of the last moment. */
const AFTER_A_RESTART_MS = 300_000;

type Watched = MemoryOwner & { log: Logger };

interface Group {
  redis: Redis;
  stream: string;
  group: string;
}

/** Gives a group its entries again after a loss. Looks each second, in every process of the role. `stop` ends it. */
export function watchGroup({ group, ...watched }: Watched & { group: string }): { stop(): Promise<void> } {
  const { redis, stream, log } = watched;
  return watchMemory(watched, async (memory) => {
    const delivered = await lastDelivered({ redis, stream, group });
    // The group is there once a consumer has joined.
    const loss = delivered === undefined ? undefined : lossOf(memory);
    if (loss) {
      const from = await giveAgain({ redis, stream, group }, loss.marginMs);
      const fields = { stream, group, read_from: from, reason: loss.reason };
      if (from !== undefined) log[loss.level](fields, 'entries are given to the group again');
    }
    return delivered;
  });
}

/**
 * Notices that PostgreSQL fell back, for work that reads no stream. Looks each second, in every process of the role. `stop`
 * ends it.
 *
 * @param watched its `stream` is what row and key are kept under; no watched stream has this name.
 * @param onFallback makes good what was forgotten. What it throws is logged, and it is asked again.
 */
export function watchPostgres(watched: Watched, onFallback: () => Promise<void>): { stop(): Promise<void> } {
  return watchMemory(watched, async ({ postgres }) => {
    if (postgres === 'regressed') await onFallback();
    return STREAM_START;
  });
}

/** @param look returns how far the stream was read; undefined: nothing is to be remembered. */
function watchMemory(
  { log, ...owner }: Watched,
  look: (memory: StreamMemory) => Promise<string | undefined>,
): { stop(): Promise<void> } {
  return watchEvery(LOOK_INTERVAL_MS, lookAtStores, (error) =>
    log.warn({ stream: owner.stream, reason: reasonOf(error) }, 'stores not looked at'),
  );

  async function lookAtStores(): Promise<void> {
    const memory = await recall(owner);
    const passedId = await look(memory);
    // Only now: had that failed, the next look must find it again.
    if (passedId !== undefined) await remember(owner, { passedId, seen: undefined }, memory);
  }
}

function lossOf({ postgres, isRedisBehind }: StreamMemory) {
  const reason = (store: string) => `${store} fell back to an earlier state`;
  if (postgres === 'regressed')
    return { marginMs: AFTER_A_LOSS_MS, level: 'error', reason: reason('PostgreSQL') } as const;
  // It may hide a loss that was made good in it, however long ago PostgreSQL was started.
  if (isRedisBehind) return { marginMs: AFTER_A_LOSS_MS, level: 'error', reason: reason('Redis') } as const;
  if (postgres !== 'restarted') return undefined;
  return { marginMs: AFTER_A_RESTART_MS, level: 'warn', reason: 'PostgreSQL was started' } as const;
}

/**
 * Gives the group its entries of the last while again, by the clock of Redis, which gives them their ids.
 *
 * @returns from where on; undefined when there is no group, or nothing of that time was delivered to it.
 * @throws what Redis fails with.
 */
export async function giveAgain(of: Group, sinceMs: number): Promise<string | undefined> {
  const delivered = await lastDelivered(of);
  const [seconds] = await of.redis.time();
  const from = `${Math.max(0, Number(seconds) * 1_000 - sinceMs)}-0`;
  if (delivered === undefined || compareEntryIds(from, delivered) >= 0) return undefined;
  await of.redis.xgroup('SETID', of.stream, of.group, from);
  return from;
}

/** @returns undefined before there is such a group. */
async function lastDelivered({ redis, stream, group }: Group): Promise<string | undefined> {
  if ((await redis.exists(stream)) === 0) return undefined;
  const groups = (await redis.xinfo('GROUPS', stream)) as (string | number)[][];
  const ours = groups.map(fieldsOf).find(({ name }) => name === group);
  return ours && String(ours['last-delivered-id']);
}
