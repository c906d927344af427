/**
 * Accounts whose hour cannot be computed. They are set aside, so that the others of their shard go on: their trackings
 * have a shard that nobody serves. They are taken up again after a while, a few times, and then by an operator
 * (client/account-callback/callbacks.ts). Owns the SQL of `callback_set_aside`.
 */
import type { Pool } from 'pg';
import { cutText } from '../../api/text.ts';
import { HOUR_MS, SET_ASIDE_SHARD } from '../../workflows/account-callback/contract.ts';
import { query } from '../postgres.ts';

/** How long an account rests after each failure in a row, ms; after these an operator says when. */
const RESTS_MS = [10 * 60_000, HOUR_MS, 6 * HOUR_MS];
/** Taken up at once. */
const BATCH_SIZE = 100;
/** Longest reason that is kept, characters. */
const MAX_REASON_LENGTH = 500;

export interface FailedHour {
  userId: string;
  /** Start of the hour, epoch ms. */
  hourMs: number;
  reason: string;
  nowMs: number;
}

export async function setAside(db: Pool, { userId, hourMs, reason, nowMs }: FailedHour): Promise<void> {
  await query(db, SET_ASIDE, [userId, hourMs, cutText(reason, MAX_REASON_LENGTH), nowMs, RESTS_MS]);
}

/**
 * Takes accounts of a shard up again that have rested.
 *
 * @param nowMs epoch ms.
 * @param maxAgeMs hours that are older are not told any more: what they are made of may be gone.
 */
export async function takeUpDue(db: Pool, shard: number, nowMs: number, maxAgeMs: number): Promise<void> {
  await query(db, TAKE_UP, [shard, nowMs, nowMs - maxAgeMs, BATCH_SIZE]);
}

/** $1 user, $2 start of the hour, $3 reason, $4 now, $5 rests. An account that has gone on meanwhile is left alone. */
const SET_ASIDE = {
  name: 'set_account_aside',
  text: `
    WITH stopped AS (
      UPDATE notification.callback_trackings
         SET shard = ${SET_ASIDE_SHARD}
       WHERE user_id = $1 AND caught_up_to_ms = $2::bigint
      RETURNING user_id
    )
    INSERT INTO notification.callback_set_aside AS aside
      (user_id, hour_start_ms, failures, reason, set_aside_at, next_try_at)
    SELECT user_id, $2::bigint, 1, $3, to_timestamp($4::bigint / 1000.0),
           to_timestamp(($4::bigint + ($5::bigint[])[1]) / 1000.0)
      FROM stopped
    ON CONFLICT (user_id) DO UPDATE
       SET hour_start_ms = excluded.hour_start_ms, failures = aside.failures + 1, reason = excluded.reason,
           set_aside_at = excluded.set_aside_at,
           next_try_at = to_timestamp(($4::bigint + ($5::bigint[])[aside.failures + 1]) / 1000.0)`,
};

/** $1 shard, $2 now, $3 the earliest hour that is told, epoch ms, $4 accounts at most. */
const TAKE_UP = {
  name: 'take_accounts_up',
  text: `
    WITH due AS (
      SELECT user_id
        FROM notification.callback_set_aside
       WHERE next_try_at <= to_timestamp($2::bigint / 1000.0) AND notification.callback_shard(user_id) = $1
       ORDER BY next_try_at
       LIMIT $4
         FOR UPDATE SKIP LOCKED
    ), taken AS (
      UPDATE notification.callback_set_aside AS aside SET next_try_at = NULL FROM due WHERE aside.user_id = due.user_id
    )
    UPDATE notification.callback_trackings AS tracking
       SET shard = $1, caught_up_to_ms = greatest(caught_up_to_ms, $3::bigint / ${HOUR_MS} * ${HOUR_MS})
      FROM due
     WHERE tracking.user_id = due.user_id AND tracking.shard = ${SET_ASIDE_SHARD}`,
};
