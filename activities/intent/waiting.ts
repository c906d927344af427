/**
 * The table of intents that are not decided yet although somebody has tried. It is how operators see them: their entries
 * have passed the offset, and they have no record. One that is cancelled instead leaves a row in another table.
 */
import type { Pool } from 'pg';
import type { Intent } from '../../api/intent/entry.ts';
import { forgottenKeySql } from '../../api/intent/forgotten.ts';
import { cutText, wellFormedText } from '../../api/text.ts';
import type { IntentIdentity } from '../../workflows/intent/contract.ts';
import { query } from '../postgres.ts';
import type { Outcomes } from './outcomes.ts';
import { refusal } from './outcomes.ts';

/** Longer reasons are cut: a person reads them in a table. */
const MAX_REASON_LENGTH = 500;

export interface Trouble {
  /** Of the activity; 0 for the first try within the workflow task. */
  attempt: number;
  /** Left as it is when undefined. */
  reason?: string;
  /** The attempt found everybody but users for whom there is no usable answer. */
  isUnusableOnly?: boolean;
}

/**
 * Says that an intent waits.
 *
 * @returns how many of its attempts nothing spoilt but recipients without a usable answer, this one included.
 * @throws ApplicationFailure of PostgreSQL.
 */
export async function noteWaiting(
  db: Pool,
  intent: Intent,
  { attempt, reason, isUnusableOnly = false }: Trouble,
): Promise<number> {
  const [row] = await query<{ unusable_attempts: number }>(db, NOTE_WAITING, [
    intent.notificationId,
    intent.notificationType,
    intent.producer,
    intent.idempotencyKey,
    attempt,
    isUnusableOnly ? 1 : 0,
    reason === undefined ? null : cutText(wellFormedText(reason), MAX_REASON_LENGTH),
    JSON.stringify(intent),
  ]);
  return row!.unusable_attempts;
}

/**
 * Says that an intent waits whose acceptance is under way somewhere, unless it is decided.
 *
 * @throws ApplicationFailure of PostgreSQL.
 */
export async function noteUndecided(db: Pool, intent: Intent, reason: string): Promise<void> {
  await noteWaiting(db, intent, { attempt: 0, reason });
  await query(db, FORGET_IF_DECIDED, [intent.notificationId]);
}

/** Says that intents wait no more. @throws ApplicationFailure of PostgreSQL. */
export async function forgetWaiting(db: Pool, notificationIds: readonly string[]): Promise<void> {
  if (notificationIds.length > 0) await query(db, FORGET_WAITING, [notificationIds]);
}

/**
 * Says that an intent waits no more and, unless it was decided, that it never will be accepted: whoever begins it finds it
 * cancelled.
 *
 * @param identity that of its entry, with what else is known of it.
 * @throws ApplicationFailure of PostgreSQL.
 */
export async function giveUpWaiting(
  db: Pool,
  outcomes: Outcomes,
  notificationId: string,
  identity: IntentIdentity & Partial<Pick<Intent, 'notificationType' | 'recipientUserIds'>>,
): Promise<void> {
  const { producer, idempotencyKey, notificationType, recipientUserIds } = identity;
  await outcomes.run(db, GIVE_UP_WAITING, [
    ...[notificationId, producer, idempotencyKey, notificationType ?? null],
    recipientUserIds === undefined ? null : JSON.stringify(recipientUserIds),
  ]);
}

const NOTE_WAITING = {
  name: 'note_waiting_intent',
  text: `
    INSERT INTO notification.waiting_intents AS waiting
      (notification_id, notification_type, producer, idempotency_key, waiting_since, attempt, unusable_attempts, reason,
       updated_at, intent)
    VALUES ($1, $2, $3, $4, now(), $5, $6, coalesce($7, 'its recipients are being looked up'), now(), $8::jsonb)
    ON CONFLICT (notification_id) DO UPDATE
       SET attempt = excluded.attempt, unusable_attempts = waiting.unusable_attempts + excluded.unusable_attempts,
           reason = coalesce($7, waiting.reason), updated_at = excluded.updated_at
    RETURNING unusable_attempts`,
};

const FORGET_WAITING = {
  name: 'forget_waiting_intents',
  text: 'DELETE FROM notification.waiting_intents WHERE notification_id = ANY ($1::text[])',
};

/** $1 notification, $2 its producer, $3 idempotency key, and as far as they are known $4 type, $5 users. */
const GIVE_UP_WAITING = refusal({
  name: 'give_up_waiting_intent',
  inserts: `
    WITH waits_no_more AS (
      DELETE FROM notification.waiting_intents WHERE notification_id = $1
      RETURNING notification_type, intent -> 'recipientUserIds' AS users
    ), cancelled AS (
      INSERT INTO notification.cancelled_intents
        (notification_id, producer, idempotency_key, cancelled_at, recipient_user_ids)
      SELECT $1, $2, $3, now(), coalesce((SELECT users FROM waits_no_more), $5::jsonb)
       WHERE NOT EXISTS (SELECT FROM notification.records WHERE notification_id = $1)
         AND NOT EXISTS (SELECT FROM notification.duplicates WHERE notification_id = $1)
         AND NOT EXISTS (
             SELECT FROM notification.malformed_intents
              WHERE stream_entry_id = $1 AND producer = $2 AND idempotency_key IN ($3, ${forgottenKeySql('$3')}))
      ON CONFLICT DO NOTHING
      RETURNING notification_id, producer, idempotency_key,
                coalesce((SELECT notification_type FROM waits_no_more), $4::text) AS notification_type,
                NULL AS request_id, NULL AS trace_id
    )`,
  // Whoever accepts it in the same instant meets it there.
  and: `, refused AS (
      INSERT INTO notification.outcome_tallies
        (notification_id, open, routes, published, skipped, dead_lettered, ending, counted_at)
      SELECT notification_id, 0, 0, 0, 0, 0, 'cancelled', statement_timestamp()
        FROM cancelled
      ON CONFLICT (notification_id) DO NOTHING
      RETURNING notification_id
    )`,
  result: 'SELECT FROM cancelled WHERE false',
  parameters: 5,
  kind: "'cancelled'",
  details: "json_build_object('published', 0, 'skipped', 0, 'dead_lettered', 0)",
  subjects: 'cancelled',
});

/** It was decided while the row was written. $1 notification. */
const FORGET_IF_DECIDED = {
  name: 'forget_waiting_if_decided',
  text: `
    DELETE FROM notification.waiting_intents
     WHERE notification_id = $1
       AND (EXISTS (SELECT FROM notification.records WHERE notification_id = $1)
            OR EXISTS (SELECT FROM notification.duplicates WHERE notification_id = $1)
            OR EXISTS (SELECT FROM notification.cancelled_intents WHERE notification_id = $1)
            OR EXISTS (SELECT FROM notification.malformed_intents WHERE stream_entry_id = $1))`,
};
