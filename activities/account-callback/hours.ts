/**
 * Hours of account values: what is told about each, computed once and kept. Owns the SQL that writes hourly snapshots.
 *
 * Prices that come late, after the hour that they belong to was computed, count from the next hour on: what was told,
 * or may have been, stays as it is.
 *
 * Accounts are taken in batches, over ticks that are read once for all of them (ticks.ts). What one statement reads, and
 * what is in memory, is bounded, however many accounts, symbols and ticks there are.
 */
import type { Pool } from 'pg';
import type { Logger } from 'pino';
import type { ProcessingOutcome } from '../../workflows/account-callback/contract.ts';
import { HOUR_MS } from '../../workflows/account-callback/contract.ts';
import { searchableKey } from '../../api/ids.ts';
import { ANSWER, isForAnybody, query } from '../postgres.ts';
import { reasonOf } from '../reason.ts';
import type { InputWatch } from './completeness.ts';
import type { Extremes, HourBounds, Opening } from './hour.ts';
import { HOUR_BOUNDS, extremesOfHour } from './hour.ts';
import { setAside, takeUpDue } from './set-aside.ts';
import type { TickBounds } from './ticks.ts';
import { TICK_BOUNDS, Ticks } from './ticks.ts';

export interface ProcessingBounds extends HourBounds, TickBounds {
  /** Accounts of a batch. */
  users: number;
  /** Of what they hold at the beginning of an hour, characters together: some 10,000 symbols. */
  held: number;
}

export const PROCESSING_BOUNDS: ProcessingBounds = {
  ...HOUR_BOUNDS,
  ...TICK_BOUNDS,
  users: 1_000,
  held: 256 * 1024,
};

/** Callbacks of those who are computed go out before the next ones are, ms. */
const CALL_LIMIT_MS = 5_000;
/**
 * A price is published so long after its time at the latest, as far as anybody waits for it, ms. The clock of Redis and
 * those of producers may be as far apart.
 */
const PUBLICATION_MS = 10_000;

export interface HoursResources {
  db: Pool;
  log: Logger;
  inputs: InputWatch;
  callbacks: {
    /** How long after its end an hour waits for symbols without a later price. */
    priceGraceMs: number;
    /** A symbol that was silent for so long before the end of an hour is not waited for. */
    symbolSilenceMs: number;
    /** How long ago an hour may be that is still told about an account that was set aside. */
    snapshotRetentionMs: number;
  };
}

/** The time as the shard takes it: `nowMs` for it is `realMs` for everybody else. Epoch ms. */
export interface ShardTime {
  nowMs: number;
  realMs: number;
}

/**
 * Computes the extremes of hours that are complete, the oldest first, for some seconds.
 *
 * @param beat called now and then; what it throws ends the work.
 * @throws ApplicationFailure `PostgresUnavailable`; what was written stays.
 */
export async function processCompleteHours(
  resources: HoursResources,
  shard: number,
  time: ShardTime,
  beat: () => void,
  bounds: ProcessingBounds = PROCESSING_BOUNDS,
): Promise<ProcessingOutcome> {
  const { db, callbacks: settings } = resources;
  const began = performance.now();
  await takeUpDue(db, shard, time.nowMs, settings.snapshotRetentionMs);
  let oldestMs = await caughtUpTo(db, shard);
  const overMs = time.nowMs - (time.nowMs % HOUR_MS);
  if (oldestMs === undefined) return { computed: 0, isBehind: false, isWaiting: false };
  const untilMs = oldestMs < overMs ? await completeUntil(resources, overMs, time) : overMs;

  const ticks = new Ticks(db, beat, bounds);
  let computed = 0;
  while (oldestMs !== undefined && oldestMs < untilMs && performance.now() < began + CALL_LIMIT_MS) {
    const hour = { hourMs: oldestMs, nowMs: time.nowMs };
    computed += await computeBatch({ ...resources, ticks, bounds, beat }, shard, hour);
    beat();
    oldestMs = await caughtUpTo(db, shard);
  }
  return { computed, isBehind: (oldestMs ?? untilMs) < untilMs, isWaiting: untilMs < overMs };
}

/**
 * Until when hours are complete: every symbol has a later price, or the grace is over; and all that was published before
 * their end, and a little after it, has been taken from the stream.
 *
 * @param overMs end of the last hour that is over.
 * @returns the end of an hour, epoch ms.
 */
async function completeUntil(
  { db, inputs, callbacks: settings }: HoursResources,
  overMs: number,
  { nowMs, realMs }: ShardTime,
): Promise<number> {
  const { priceGraceMs, symbolSilenceMs } = settings;
  const [row] = await query<{ is_complete: boolean }>(db, READ_COMPLETENESS, [overMs, symbolSilenceMs]);
  const pricedUntilMs = row!.is_complete || nowMs >= overMs + priceGraceMs ? overMs : overMs - HOUR_MS;
  const outstanding = await inputs.oldestOutstanding();
  if (outstanding === undefined) return pricedUntilMs;
  const takenUntilMs = outstanding + (nowMs - realMs) - PUBLICATION_MS;
  return Math.min(pricedUntilMs, takenUntilMs - (takenUntilMs % HOUR_MS));
}

async function caughtUpTo(db: Pool, shard: number): Promise<number | undefined> {
  const [row] = await query<{ caught_up_to_ms: string | null }>(db, READ_CAUGHT_UP, [shard]);
  return row?.caught_up_to_ms == null ? undefined : Number(row.caught_up_to_ms);
}

/** What a call works with, beside what the process has. */
interface Work extends HoursResources {
  ticks: Ticks;
  bounds: ProcessingBounds;
  beat: () => void;
}

interface Hour {
  hourMs: number;
  /** What the shard takes the time to be, epoch ms. */
  nowMs: number;
}

/**
 * Computes an hour of the next accounts of a shard. A batch that fails is halved. One account that fails alone, for its
 * own sake, is set aside: the others must not wait for it.
 *
 * @returns accounts whose hour is written.
 * @throws ApplicationFailure `PostgresUnavailable` or `PostgresUnusable`, when another account would fail as well.
 */
async function computeBatch(work: Work, shard: number, { hourMs, nowMs }: Hour): Promise<number> {
  const { db, log, bounds, beat } = work;
  for (let limit = bounds.users; ;) {
    const users = await loadUsers(db, shard, hourMs, { users: limit, held: bounds.held });
    if (users.length === 0) return 0;
    try {
      return await writeHour(db, hourMs, users, await extremesOfHour(work, hourMs, users, bounds));
    } catch (error) {
      // A stop, and an outage, are nobody's fault, and end it here.
      beat();
      await query(db, ANSWER, []);
      const reason = reasonOf(error);
      if (users.length > 1) {
        limit = Math.ceil(users.length / 2);
        log.warn({ shard, hour_start_ms: hourMs, users: users.length, reason }, 'hour of accounts is halved');
        continue;
      }
      // No account can help that, although PostgreSQL answers again, or still.
      if (isForAnybody(error)) throw error;
      const [{ userId } = { userId: '' }] = users;
      await setAside(db, { userId, hourMs, reason, nowMs });
      log.error(
        {
          event: 'callbacks.set_aside',
          shard,
          user_id: searchableKey(userId),
          hour_start_ms: hourMs,
          reason,
        },
        'account set aside; the others go on',
      );
      return 0;
    }
  }
}

async function loadUsers(
  db: Pool,
  shard: number,
  hourMs: number,
  { users, held }: Pick<ProcessingBounds, 'users' | 'held'>,
): Promise<Opening[]> {
  const rows = await query<UserRow>(db, LOAD_USERS, [shard, hourMs, users, held]);
  return rows.map(({ user_id: userId, cash, coefficients }) =>
    cash === null ? { userId } : { userId, held: { cash, coefficients } },
  );
}

async function writeHour(
  db: Pool,
  hourMs: number,
  users: readonly Opening[],
  extremes: readonly Extremes[],
): Promise<number> {
  const [row] = await query<{ users: number }>(db, WRITE_HOUR, [
    hourMs,
    users.map(({ userId }) => userId),
    extremes.map(({ userId }) => userId),
    extremes.map(({ peakValue }) => peakValue),
    extremes.map(({ peakAtMs }) => peakAtMs),
    extremes.map(({ bottomValue }) => bottomValue),
    extremes.map(({ bottomAtMs }) => bottomAtMs),
    extremes.map(({ closingValue }) => closingValue),
  ]);
  return row!.users;
}

interface UserRow {
  user_id: string;
  /** null: the account holds nothing yet. */
  cash: string | null;
  coefficients: string | null;
}

/** $1 shard. */
const READ_CAUGHT_UP = {
  name: 'read_callback_processing',
  text: `
    SELECT min(caught_up_to_ms) AS caught_up_to_ms FROM notification.callback_trackings WHERE shard = $1`,
};

/** $1 end of an hour, $2 silence after which a symbol is not waited for, ms. */
const READ_COMPLETENESS = {
  name: 'read_callback_completeness',
  text: `
    SELECT NOT EXISTS (SELECT FROM notification.callback_symbols
                        WHERE last_at_ms < $1::bigint AND last_at_ms >= $1::bigint - $2::bigint
                          AND forgotten_at IS NULL) AS is_complete`,
};

/** $1 shard, $2 start of the hour, $3 users at most, $4 characters of what they hold, at most; one user in any case. */
const LOAD_USERS = {
  name: 'load_callback_users',
  text: `
    SELECT user_id, cash, coefficients
      FROM (
        SELECT user_id, cash, coefficients, row_number() OVER in_order AS number,
               sum(length(coefficients)) OVER in_order AS held
          FROM (
            SELECT tracking.user_id, positions.cash::text, positions.coefficients::text
              FROM (
                SELECT user_id
                  FROM notification.callback_trackings
                 WHERE shard = $1 AND caught_up_to_ms = $2::bigint
                 ORDER BY user_id
                 LIMIT $3
              ) AS tracking
              LEFT JOIN LATERAL (
                SELECT cash, coefficients
                  FROM notification.callback_positions
                 WHERE user_id = tracking.user_id AND at_ms <= $2::bigint
                 ORDER BY at_ms DESC
                 LIMIT 1
              ) AS positions ON true
          ) AS next
        WINDOW in_order AS (ORDER BY user_id)
      ) AS counted
     WHERE number = 1 OR coalesce(held, 0) <= $4
     ORDER BY user_id`,
};

/**
 * $1 start of the hour, $2 users of the batch; of those who had a value, $3 users, $4 and $5 peaks and their times, $6
 * and $7 bottoms and theirs, $8 closing values. Who was moved to another shard meanwhile has the callback there, and who
 * was computed by somebody else stays as it is.
 */
const WRITE_HOUR = {
  name: 'write_callback_hour',
  text: `
    WITH batch AS MATERIALIZED (
      SELECT user_id, shard
        FROM notification.callback_trackings
       WHERE user_id = ANY($2::text[]) AND caught_up_to_ms = $1::bigint AND shard >= 0
       ORDER BY user_id
         FOR UPDATE
    ), written AS (
      INSERT INTO notification.callback_snapshots
        (kind, user_id, period_start_ms, shard, peak_value, peak_at_ms, bottom_value, bottom_at_ms, closing_value,
         created_at)
      SELECT 'hourly', user_id, $1::bigint, shard, peak_value, peak_at_ms, bottom_value, bottom_at_ms, closing_value,
             clock_timestamp()
        FROM batch
        JOIN unnest($3::text[], $4::numeric[], $5::bigint[], $6::numeric[], $7::bigint[], $8::numeric[])
               AS given (user_id, peak_value, peak_at_ms, bottom_value, bottom_at_ms, closing_value) USING (user_id)
       ORDER BY user_id
      ON CONFLICT DO NOTHING
    ), cleared AS (
      DELETE FROM notification.callback_set_aside AS aside USING batch WHERE aside.user_id = batch.user_id
    ), moved AS (
      UPDATE notification.callback_trackings AS tracking
         SET caught_up_to_ms = $1::bigint + ${HOUR_MS}
        FROM batch
       WHERE tracking.user_id = batch.user_id
    )
    SELECT count(*)::int AS users FROM batch`,
};
