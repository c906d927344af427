/**
 * From the outbox of outcomes to their stream: rows that were written together with what they are about are appended to a
 * Redis stream after that, oldest first. A relay that was cut off is repeated, and so are its entries, with the same ids in
 * them. Entries keep the order of rows even when Redis has lost some: nothing is appended behind a loss that nobody has
 * mended (outcome-watch.ts), nor before the watch has seen the stream for the first time.
 */
import type { Redis } from 'ioredis';
import type { Pool, PoolClient } from 'pg';
import type { Logger } from 'pino';
import type { OutcomeKind, OutcomeRow } from '../../api/intent/outcome.ts';
import { fieldsOfOutcome } from '../../api/intent/outcome.ts';
import { STREAM_START } from '../../api/stream-ids.ts';
import type { OutboundRow } from '../outbound-state.ts';
import { LOAD_OUTBOUND, databaseOf } from '../outbound-state.ts';
import { query } from '../postgres.ts';
import { inTransaction, run } from '../transactions.ts';
import { watchEvery } from '../watch.ts';
import type { IntentMetrics } from './metrics.ts';

/** Between two looks for rows to relay: an event is late by as much at most, if nothing is in its way. */
const RELAY_INTERVAL_MS = 200;
/** Rows that are relayed together, and their events unless there is one row only. */
const ROWS_TOGETHER = 200;
const EVENTS_TOGETHER = 500;
/** Kinds by which an intent ends that had a tally. */
const ENDS_OF_TALLIES: readonly OutcomeKind[] = ['settled', 'cancelled', 'expired'];

export interface OutcomeStream {
  stream: string;
  /** Approximate length to which it is trimmed. */
  maxLen: number;
}

interface OutcomeRelayResources {
  db: Pool;
  redis: Redis;
  log: Logger;
  metrics: IntentMetrics;
  outcomeStream: OutcomeStream;
}

interface StoredRow {
  outcome_id: string;
  events: OutcomeRow[];
  written_at: Date;
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
  local ids, at = {}, 3
  while at <= #ARGV do
    local count = tonumber(ARGV[at])
    ids[#ids + 1] = redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[2], '*', unpack(ARGV, at + 1, at + count))
    at = at + count + 1
  end
  return ids`;

/** Relays outcomes for as long as the process runs. Any number of processes may: one at a time does. */
export function relayOutcomes(resources: OutcomeRelayResources): { stop(): Promise<void> } {
  const { db, log } = resources;
  const { stream } = resources.outcomeStream;
  let isStopping = false;
  let eventsTogether = EVENTS_TOGETHER;
  const running = watchEvery(RELAY_INTERVAL_MS, relay, (reason) =>
    log.warn({ stream, reason }, 'outcomes are not relayed, and wait'),
  );
  return {
    async stop() {
      isStopping = true;
      await running.stop();
    },
  };

  async function relay(): Promise<void> {
    while (!isStopping && (await areLeft())) {
      try {
        if (!(await relayBatch(resources, eventsTogether))) return;
      } catch (error) {
        // What was not answered in time comes again: less of it, so that a slow Redis does not get the same forever.
        eventsTogether = Math.ceil(eventsTogether / 2);
        throw error;
      }
      eventsTogether = Math.min(EVENTS_TOGETHER, 2 * eventsTogether);
    }
  }

  async function areLeft(): Promise<boolean> {
    const [left] = await query<{ is_any: boolean }>(db, ARE_OUTCOMES_LEFT, []);
    return left?.is_any === true;
  }
}

/**
 * Relays the oldest rows.
 *
 * @param eventsTogether how many events they have at most, unless the oldest has more.
 * @returns false when it is not ours to relay, or not now.
 * @throws when Redis or PostgreSQL do not answer.
 */
async function relayBatch(
  { db, redis, metrics, outcomeStream }: OutcomeRelayResources,
  eventsTogether: number,
): Promise<boolean> {
  const { stream, maxLen } = outcomeStream;
  const events = await inTransaction(db, async (client) => {
    const [lock] = await run<{ is_ours: boolean }>(client, LOCK_RELAY, []);
    if (!lock?.is_ours) return undefined;
    const [seen] = await run<OutboundRow>(client, LOAD_OUTBOUND, [stream, databaseOf(redis)]);
    if (!seen || seen.suspect_since !== null) return undefined;
    const rows = await run<StoredRow>(client, LOAD_OUTCOMES, [ROWS_TOGETHER, eventsTogether]);
    const entries = rows.map((row) =>
      row.events.map((event) => fieldsOfOutcome(event, row.written_at.getTime())),
    );
    const fields = entries.flat().flatMap((entry) => [entry.length, ...entry]);
    const values = [seen.last_entry_id, maxLen, ...fields];
    const ids = (await redis.eval(APPEND, 1, stream, ...values)) as string[] | null;
    // The watch sees it, too, and mends it.
    if (ids === null) return undefined;
    await markRelayed(client, stream, rows, ids);
    return rows.flatMap((row) => row.events);
  });
  for (const [, kind] of events ?? []) metrics.outcomeRelayed({ kind });
  return events !== undefined;
}

/** @param ids of the entries of all events, in their order. */
async function markRelayed(client: PoolClient, stream: string, rows: readonly StoredRow[], ids: string[]) {
  if (rows.length === 0) return;
  let last = -1;
  const lastOfEach = rows.map(({ events }) => ids[(last += events.length)]!);
  await run(client, MARK_RELAYED, [rows.map(({ outcome_id }) => outcome_id), lastOfEach]);
  await run(client, COME_TO, [stream, lastOfEach.at(-1)]);
  const events = rows.flatMap((row) => row.events);
  const ended = events.flatMap(([, kind, id]) => (ENDS_OF_TALLIES.includes(kind) ? [id] : []));
  if (ended.length > 0) await run(client, FORGET_TALLIES, [ended]);
}

/** A tally whose end is told. A cancellation before acceptance stays for ten minutes, in case that it is being accepted. */
export const IS_ENDED_TALLY = `open < 1 AND (routes > 0 OR counted_at < now() - interval '10 minutes')`;

/** $1 notifications. */
const FORGET_TALLIES = {
  name: 'forget_outcome_tallies',
  text: `DELETE FROM notification.outcome_tallies WHERE notification_id = ANY ($1::text[]) AND ${IS_ENDED_TALLY}`,
};

/** No other lock has this number; the lock ends with the transaction. */
const LOCK_RELAY = {
  name: 'lock_outcome_relay',
  text: 'SELECT pg_try_advisory_xact_lock(4207716002) AS is_ours',
};

/** $1 rows at most, $2 events at most, unless the first row has more. */
const LOAD_OUTCOMES = {
  name: 'load_outcomes',
  text: `
    SELECT outcome_id::text, events, written_at
      FROM (SELECT outcome_id, events, written_at, event_count,
                   sum(event_count) OVER (ORDER BY page.outcome_id) AS total
              FROM (SELECT outcome_id, events, written_at, event_count
                      FROM notification.outcomes
                     WHERE relayed_at IS NULL
                     ORDER BY outcome_id
                     LIMIT $1) AS page
             ORDER BY page.outcome_id) AS summed
     WHERE total <= $2::int OR total = event_count
     ORDER BY summed.outcome_id`,
};

const ARE_OUTCOMES_LEFT = {
  name: 'are_outcomes_left',
  text: 'SELECT min(outcome_id) IS NOT NULL AS is_any FROM notification.outcomes WHERE relayed_at IS NULL',
};

/** $1 rows, $2 their last entries. */
const MARK_RELAYED = {
  name: 'mark_outcomes_relayed',
  text: `
    UPDATE notification.outcomes AS outcome
       SET relayed_at = clock_timestamp(), entry_id = relayed.entry_id
      FROM unnest($1::bigint[], $2::text[]) AS relayed (outcome_id, entry_id)
     WHERE outcome.outcome_id = relayed.outcome_id`,
};

/**
 * Also while the stream is suspected: who looks for what is lost learns of entries that were written down in the meantime.
 * $1 stream, $2 its last entry.
 */
const COME_TO = {
  name: 'come_to_in_outbound_stream',
  text: 'UPDATE notification.outbound_streams SET last_entry_id = $2 WHERE stream = $1',
};
