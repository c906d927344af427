/**
 * The consumer of `stream.account.extremes`, and its entries as they are kept. Of two entries about the same user and
 * period, or about who takes part, the later one by stream entry id is in force, in whatever order they come; the same one
 * again has no effect. Entries that were taken are removed from the stream a while later: if PostgreSQL falls back to an
 * earlier state, they are taken again. Owns the SQL of trackings, of refused entries, and of how snapshots come to be.
 */
import type { Redis } from 'ioredis';
import type { Pool } from 'pg';
import type { Logger } from 'pino';
import type {
  CallbackInput,
  MalformedInputCode,
  PeriodInput,
  TrackingInput,
} from '../../api/account-callback/input.ts';
import {
  DEFAULT_INPUT_STREAM,
  MAX_INPUT_BYTES,
  callbackOf,
  isPeriod,
  parseCallbackInput,
} from '../../api/account-callback/input.ts';
import { CONSUMER_GROUP, clockOfEntry } from '../../api/stream-ids.ts';
import { storableFields, wellFormedText } from '../../api/text.ts';
import { DAY_MS } from '../../workflows/account-callback/contract.ts';
import type { AccountCallbackMetrics } from './activities.ts';
import { columnsOf, isPostgresAway, query, saveIsolated } from '../postgres.ts';
import { reasonOf } from '../reason.ts';
import type { StreamConsumerOptions } from '../stream-consumer.ts';
import { consumeStream } from '../stream-consumer.ts';
import type { DeliveredEntry, StreamEntry } from '../stream-read.ts';

const BATCH_SIZE = 500;
/** Entries that another consumer got so long ago are taken over, ms; also how often to look for them. */
const MIN_IDLE_MS = 30_000;

/** How long entries stay in the stream after they were taken, ms. */
const KEPT_MS = 600_000;

/**
 * Acknowledges entries, and removes those that are older than the newest of them by the time that they are kept, up to the
 * first pending entry. KEYS: stream. ARGV: group, ms, ids in ascending order.
 */
const ACKNOWLEDGE = `
  redis.call('XACK', KEYS[1], ARGV[1], unpack(ARGV, 3))
  local function msOf(id) return tonumber(string.match(id, '^%d+')) end
  local upTo = msOf(ARGV[#ARGV]) - tonumber(ARGV[2])
  local oldest = redis.call('XPENDING', KEYS[1], ARGV[1])[2]
  if oldest then upTo = math.min(upTo, msOf(oldest)) end
  if upTo > 0 then redis.call('XTRIM', KEYS[1], 'MINID', '~', string.format('%.0f', upTo)) end`;

interface ValidEntry {
  id: string;
  entry: StreamEntry;
  input: CallbackInput;
}

interface RefusedEntry {
  entry: StreamEntry;
  code: MalformedInputCode;
  message: string;
}

export interface CallbackStreamResources {
  db: Pool;
  redis: Redis;
  log: Logger;
  metrics: AccountCallbackMetrics;
  openReader: StreamConsumerOptions['openReader'];
}

/** Starts to consume. `stop` resolves when what was being taken is kept, or left to the others. */
export function consumeCallbackInputs(resources: CallbackStreamResources): { stop(): Promise<void> } {
  const { db, redis, log, metrics, openReader } = resources;
  const [stream, group] = [DEFAULT_INPUT_STREAM, CONSUMER_GROUP];
  return consumeStream({
    ...{ log, stream, group, openReader, takeEntries },
    what: 'account inputs',
    limits: { maxEntryBytes: MAX_INPUT_BYTES, batchSize: BATCH_SIZE },
    minIdleMs: MIN_IDLE_MS,
  });

  /** Keeps valid inputs, and the rest as malformed. @returns all of them while PostgreSQL is away. */
  async function takeEntries(entries: DeliveredEntry[]): Promise<DeliveredEntry[]> {
    const valid: ValidEntry[] = [];
    const refused: RefusedEntry[] = [];
    const nowMs = Date.now();
    for (const entry of entries) {
      // By the clock of Redis: the clock of the process that reads an input does not judge it.
      const parsed = parseCallbackInput(entry.fields, clockOfEntry(entry.id) ?? nowMs, entry.size);
      if (parsed.ok) valid.push({ id: entry.id, entry, input: parsed.input });
      else refused.push({ entry, code: parsed.code, message: parsed.message });
    }
    try {
      const unstorable = await saveIsolated(valid, async (some) =>
        noteUndelivered(await storeInputs(db, some)),
      );
      for (const { item, reason: message } of unstorable)
        refused.push({ entry: item.entry, code: 'unstorable', message });
      await recordRefused(refused);
    } catch (error) {
      if (!isPostgresAway(error)) throw error;
      log.warn({ stream, entries: entries.length, reason: reasonOf(error) }, 'account inputs wait');
      return entries;
    }
    const ids = entries.map(({ id }) => id);
    await redis.eval(ACKNOWLEDGE, 1, stream, group, KEPT_MS, ...ids);
    for (const { entry, input } of valid)
      if (!refused.some((one) => one.entry === entry)) metrics.callbackInput({ kind: input.kind });
    return [];
  }

  async function recordRefused(refused: readonly RefusedEntry[]): Promise<void> {
    if (refused.length === 0) return;
    const recorded = await recordMalformedInputs(db, refused);
    for (const { entry, code, message } of refused) {
      log.warn(
        { entry_id: entry.id, outcome: 'malformed', failure_code: code, reason: message },
        'malformed account input recorded',
      );
      if (recorded.has(entry.id)) metrics.callbackInputMalformed({ failure_code: code });
    }
  }

  function noteUndelivered({ late, untracked }: Undelivered): void {
    metrics.callbackInputLate(late);
    metrics.callbackInputUntracked(untracked);
    if (late > 0) log.warn({ stream, late }, 'account inputs of periods that were emitted before');
    if (untracked > 0) log.warn({ stream, untracked }, 'account inputs of users who take no part');
  }
}

/**
 * Keeps one row per entry, however often it comes.
 *
 * @returns the ids of those that are new.
 * @throws ApplicationFailure of PostgreSQL.
 */
async function recordMalformedInputs(db: Pool, refused: readonly RefusedEntry[]): Promise<Set<string>> {
  const rows = await query<{ stream_entry_id: string }>(db, RECORD_MALFORMED, [
    refused.map(({ entry }) => entry.id),
    refused.map(({ code }) => code),
    refused.map(({ message }) => wellFormedText(message)),
    refused.map(({ entry: { fields, size } }) => JSON.stringify(storableFields(fields, size))),
  ]);
  return new Set(rows.map((row) => row.stream_entry_id));
}

/** $1 ids, $2 codes, $3 messages, $4 fields. */
const RECORD_MALFORMED = {
  name: 'record_malformed_account_inputs',
  text: `
    INSERT INTO notification.malformed_account_inputs
      (stream_entry_id, failure_code, failure_message, raw_fields, recorded_at)
    SELECT *, clock_timestamp() FROM unnest($1::text[], $2::text[], $3::text[], $4::jsonb[])
    ON CONFLICT (stream_entry_id) DO NOTHING
    RETURNING stream_entry_id`,
};

// --- What is kept ------------------------------------------------------------------------------------------------------

export interface InputEntry<Input extends CallbackInput = CallbackInput> {
  id: string;
  input: Input;
}

/** Entries that are not delivered. */
export interface Undelivered {
  /** Entries about periods that were emitted before, of which nothing was known yet. */
  late: number;
  /** Entries about periods in which their users do not take part. */
  untracked: number;
}

/**
 * Keeps entries. A snapshot that was not emitted yet is replaced; after that the entry is noted as late.
 *
 * @throws ApplicationFailure of PostgreSQL; what was kept stays, and the same entries again have no further effect.
 */
export async function storeInputs(db: Pool, entries: readonly InputEntry[]): Promise<Undelivered> {
  const isOfPeriod = (entry: InputEntry): entry is InputEntry<PeriodInput> => isPeriod(entry.input);
  const isOfTracking = (entry: InputEntry): entry is InputEntry<TrackingInput> => !isPeriod(entry.input);
  await storeTrackings(db, entries.filter(isOfTracking));
  const periods = entries.filter(isOfPeriod);
  const undelivered = await storePeriods(db, periods);
  await catchUp(db, periods);
  return undelivered;
}

async function storeTrackings(db: Pool, entries: readonly InputEntry<TrackingInput>[]): Promise<void> {
  if (entries.length === 0) return;
  const rows = entries.map(({ id, input }) => ({ id, from_ms: undefined, until_ms: undefined, ...input }));
  await query(db, STORE_TRACKINGS, columnsOf(rows, 'user_id', 'id', 'from_ms', 'until_ms'));
}

async function storePeriods(db: Pool, entries: readonly InputEntry<PeriodInput>[]): Promise<Undelivered> {
  if (entries.length === 0) return { late: 0, untracked: 0 };
  const callbacks = entries.map(({ id, input }) => ({ ...callbackOf(input), id }));
  const [undelivered] = await query<Undelivered>(db, STORE_PERIODS, [
    ...columnsOf(callbacks, 'kind', 'userId', 'periodStartMs', 'id'),
    ...columnsOf(callbacks, 'peakValue', 'peakAtMs', 'bottomValue', 'bottomAtMs', 'closingValue'),
  ]);
  return undelivered!;
}

async function catchUp(db: Pool, entries: readonly InputEntry<PeriodInput>[]): Promise<void> {
  const days = entries.flatMap(({ input }) => (input.kind === 'day' ? [input] : []));
  if (days.length > 0) await query(db, CATCH_UP, columnsOf(days, 'user_id', 'day'));
}

const ORDER_OF = (entryId: string) => `notification.entry_order(${entryId})`;

/**
 * $1 users, $2 entry ids, $3 epoch ms from which on they are tracked or null, $4 epoch ms until which or null. Rows are
 * locked in one order here and below: two processes cannot lock each other out. The latest of several entries counts.
 */
const STORE_TRACKINGS = {
  name: 'store_callback_trackings',
  text: `
    INSERT INTO notification.callback_trackings AS known
      (user_id, shard, entry_id, until_ms, is_waited_for, caught_up_date, daily_date, changed_at)
    SELECT DISTINCT ON (user_id)
           user_id, notification.callback_shard(user_id), entry_id, until_ms, until_ms IS NULL, day_before, day_before,
           clock_timestamp()
      FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[]) AS given (user_id, entry_id, from_ms, until_ms)
     CROSS JOIN LATERAL (
       SELECT date '1970-01-01' + (coalesce(from_ms, until_ms) / ${DAY_MS})::int - 1 AS day_before
     ) AS bounds
     ORDER BY user_id, ${ORDER_OF('entry_id')} DESC
    ON CONFLICT (user_id) DO UPDATE
       SET entry_id = excluded.entry_id, until_ms = excluded.until_ms, is_waited_for = excluded.is_waited_for,
           caught_up_date = greatest(known.caught_up_date, CASE WHEN excluded.until_ms IS NULL THEN excluded.caught_up_date END),
           changed_at = excluded.changed_at
     WHERE ${ORDER_OF('excluded.entry_id')} > ${ORDER_OF('known.entry_id')}`,
};

/** SQL of a snapshot that an entry meets: the value of the entry, until it is emitted. */
const unlessEmitted = (...columns: string[]): string =>
  columns
    .map(
      (name) => `${name} = CASE WHEN known.emitted_at IS NULL THEN excluded.${name} ELSE known.${name} END`,
    )
    .join(`, `);

const VALUES = ['peak_value', 'peak_at_ms', 'bottom_value', 'bottom_at_ms', 'closing_value'];
const valuesIn = (row: string): string => VALUES.map((name) => `${row}.${name}`).join(', ');

/**
 * $1 kinds, $2 users, $3 starts of periods, $4 entry ids, $5 to $9 values. An entry with other values than a snapshot that was
 * emitted is late; a repeat is not.
 */
const STORE_PERIODS = {
  name: 'store_callback_snapshots',
  text: `
    WITH given AS MATERIALIZED (
      SELECT DISTINCT ON (kind, user_id, period_start_ms) *
        FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::text[], $6::bigint[], $7::text[], $8::bigint[],
                    $9::text[])
               AS given (kind, user_id, period_start_ms, entry_id, ${VALUES.join(', ')})
       ORDER BY kind, user_id, period_start_ms, ${ORDER_OF('entry_id')} DESC
    ), wanted AS MATERIALIZED (
      SELECT * FROM given
       WHERE NOT EXISTS (SELECT FROM notification.callback_trackings AS tracking
                          WHERE tracking.user_id = given.user_id AND given.period_start_ms >= until_ms)
    ), stored AS (
      INSERT INTO notification.callback_snapshots AS known
        (kind, user_id, period_start_ms, shard, entry_id, ${VALUES.join(', ')}, created_at)
      SELECT kind, user_id, period_start_ms, notification.callback_shard(user_id), entry_id, ${VALUES.join(', ')},
             clock_timestamp()
        FROM wanted
       ORDER BY kind, user_id, period_start_ms
      ON CONFLICT (kind, user_id, period_start_ms) DO UPDATE
         SET ${unlessEmitted('entry_id', ...VALUES, 'created_at')},
             late_entries = known.late_entries + (known.emitted_at IS NOT NULL)::int,
             late_entry_id = CASE WHEN known.emitted_at IS NOT NULL THEN excluded.entry_id END,
             late_values = CASE WHEN known.emitted_at IS NOT NULL THEN
               jsonb_build_object(${VALUES.map((name) => `'${name}', excluded.${name}`).join(', ')}) END
       WHERE ${ORDER_OF('excluded.entry_id')} > ${ORDER_OF('coalesce(known.late_entry_id, known.entry_id)')}
         AND (known.emitted_at IS NULL OR (${valuesIn('excluded')}) <> (${valuesIn('known')}))
      RETURNING emitted_at
    )
    SELECT (SELECT count(emitted_at)::int FROM stored) AS late,
           (SELECT count(*)::int FROM given) - (SELECT count(*)::int FROM wanted) AS untracked`,
};

/**
 * $1 users, $2 days of theirs, of which the latest counts. Runs after the snapshots, which exist once no user is waited for. A user who was
 * released is waited for again. A user who was never tracked is not.
 */
const CATCH_UP = {
  name: 'catch_up_callback_trackings',
  text: `
    INSERT INTO notification.callback_trackings AS known
      (user_id, shard, entry_id, is_waited_for, caught_up_date, daily_date, changed_at)
    SELECT user_id, notification.callback_shard(user_id), '0-0', false, max(day), max(day) - 1, clock_timestamp()
      FROM unnest($1::text[], $2::date[]) AS given (user_id, day)
     GROUP BY user_id
     ORDER BY user_id
    ON CONFLICT (user_id) DO UPDATE
       SET caught_up_date = excluded.caught_up_date, is_waited_for = known.entry_id <> '0-0',
           changed_at = excluded.changed_at
     WHERE known.until_ms IS NULL AND known.caught_up_date < excluded.caught_up_date`,
};

/**
 * Users are spread over shards. As of the history shards of Temporal, there are as many as at the beginning.
 *
 * @returns how many there are: as many as asked for while there are no users, and as before afterwards.
 */
export async function fixShards(db: Pool, shards: number): Promise<number> {
  const [settings] = await query<{ shards: number }>(db, FIX_SHARDS, [shards]);
  return settings!.shards;
}

const FIX_SHARDS = {
  name: 'fix_callback_shards',
  text: `
    UPDATE notification.callback_settings
       SET shards = CASE WHEN (SELECT user_id FROM notification.callback_trackings ORDER BY user_id LIMIT 1) IS NULL
                          AND (SELECT user_id FROM notification.callback_snapshots
                                ORDER BY kind, user_id, period_start_ms LIMIT 1) IS NULL
                         THEN $1 ELSE shards END
    RETURNING shards`,
};
