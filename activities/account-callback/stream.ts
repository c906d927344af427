/**
 * The consumer of `stream.account.extremes`. Entries that it took are kept in PostgreSQL, and removed from the stream a
 * while later: if PostgreSQL falls back to an earlier state, they are taken again.
 */
import type { Redis } from 'ioredis';
import type { Pool } from 'pg';
import type { Logger } from 'pino';
import type { CallbackInput, MalformedInputCode } from '../../api/account-callback/input.ts';
import {
  DEFAULT_INPUT_STREAM,
  MAX_INPUT_BYTES,
  parseCallbackInput,
} from '../../api/account-callback/input.ts';
import { CONSUMER_GROUP } from '../../api/stream-ids.ts';
import { storableFields, wellFormedText } from '../../api/text.ts';
import type { Undelivered } from './inputs.ts';
import { storeInputs } from './inputs.ts';
import type { AccountCallbackMetrics } from './metrics.ts';
import { isPostgresRefusal, query, saveIsolated } from '../postgres.ts';
import { reasonOf } from '../reason.ts';
import type { StreamConsumerOptions, TakingConsumer } from '../stream-consumer.ts';
import { consumeStream } from '../stream-consumer.ts';
import type { StreamEntry } from '../stream-read.ts';

const BATCH_SIZE = 500;
/** Entries that another consumer got so long ago are taken over, ms; also how often to look for them. */
const MIN_IDLE_MS = 30_000;

/** 2001-09-09 in epoch ms: an id below it was made by hand, and is no time. */
const FIRST_CLOCK_MS = 1_000_000_000_000;

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
    ...{ redis, log, stream, group, openReader, takeEntries },
    what: 'account inputs',
    limits: { maxEntryBytes: MAX_INPUT_BYTES, batchSize: BATCH_SIZE },
    minIdleMs: MIN_IDLE_MS,
  });

  /** Keeps valid inputs, and the rest as malformed. While PostgreSQL is away, it waits here. */
  async function takeEntries(entries: readonly StreamEntry[], consumer: TakingConsumer): Promise<void> {
    const valid: ValidEntry[] = [];
    const refused: RefusedEntry[] = [];
    const nowMs = Date.now();
    for (const entry of entries) {
      const parsed = parseCallbackInput(entry.fields, sentAtMs(entry, nowMs), entry.size);
      if (parsed.ok) valid.push({ id: entry.id, entry, input: parsed.input });
      else refused.push({ entry, code: parsed.code, message: parsed.message });
    }
    const unstorable = await saveIsolated(valid, async (some) =>
      noteUndelivered(await whenReachable(some.length, consumer, () => storeInputs(db, some))),
    );
    for (const { item, reason: message } of unstorable)
      refused.push({ entry: item.entry, code: 'unstorable', message });
    await recordRefused(refused, consumer);
    const ids = entries.map(({ id }) => id);
    await redis.eval(ACKNOWLEDGE, 1, stream, group, KEPT_MS, ...ids);
    for (const { id, input } of valid)
      if (!unstorable.some(({ item }) => item.id === id)) metrics.callbackInput({ kind: input.kind });
  }

  async function recordRefused(refused: readonly RefusedEntry[], consumer: TakingConsumer): Promise<void> {
    if (refused.length === 0) return;
    const recorded = await whenReachable(refused.length, consumer, () => recordMalformedInputs(db, refused));
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

  /** @throws what PostgreSQL refuses; anything when the consumer stops. */
  async function whenReachable<T>(
    count: number,
    { stopping, pause }: TakingConsumer,
    attempt: () => Promise<T>,
  ): Promise<T> {
    for (;;) {
      try {
        return await attempt();
      } catch (error) {
        if (stopping.aborted || isPostgresRefusal(error)) throw error;
        log.warn({ stream, entries: count, reason: reasonOf(error) }, 'account inputs wait');
        await pause();
      }
    }
  }
}

/** By the clock of Redis: the clock of the process that reads an input does not judge it. */
function sentAtMs({ id }: StreamEntry, nowMs: number): number {
  const ms = Number(id.split('-')[0]);
  return ms >= FIRST_CLOCK_MS ? ms : nowMs;
}

/**
 * Keeps one row per entry, however often it comes; one whose fields PostgreSQL does not take without them.
 *
 * @returns the ids of those that are new.
 * @throws ApplicationFailure of PostgreSQL.
 */
async function recordMalformedInputs(db: Pool, refused: readonly RefusedEntry[]): Promise<Set<string>> {
  const insert = (fieldsOf: (entry: StreamEntry) => Record<string, string>) =>
    query<{ stream_entry_id: string }>(db, RECORD_MALFORMED, [
      refused.map(({ entry }) => entry.id),
      refused.map(({ code }) => code),
      refused.map(({ message }) => wellFormedText(message)),
      refused.map(({ entry }) => JSON.stringify(fieldsOf(entry))),
    ]);
  const rows = await insert(({ fields, size }) => storableFields(fields, size)).catch((error: unknown) => {
    if (!isPostgresRefusal(error)) throw error;
    return insert(() => ({}));
  });
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
