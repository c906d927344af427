/** What happens to the row of an intent while it is open: trouble is noted, and it may be given up. */
import type { Pool } from 'pg';
import { cutText, wellFormedText } from '../../api/text.ts';
import { query } from '../postgres.ts';

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
 * Says why an intent is not decided yet.
 *
 * @returns how many of its attempts nothing spoilt but recipients without a usable answer, this one included.
 * @throws ApplicationFailure of PostgreSQL.
 */
export async function noteTrouble(
  db: Pool,
  notificationId: string,
  { attempt, reason, isUnusableOnly = false }: Trouble,
): Promise<number> {
  const [row] = await query<{ unusable_attempts: number }>(db, NOTE_TROUBLE, [
    notificationId,
    attempt,
    isUnusableOnly ? 1 : 0,
    reason === undefined ? null : cutText(wellFormedText(reason), MAX_REASON_LENGTH),
  ]);
  return row?.unusable_attempts ?? 0;
}

/**
 * Whether nobody will decide an intent that is open, because somebody has ended its workflow. One that has completed or failed
 * without a decision wrote it into a PostgreSQL that has fallen back since, and is begun again.
 *
 * @param status of its workflow; undefined when Temporal does not know it.
 */
export const isGivenUp = (status: string | undefined): boolean =>
  status !== undefined && !['RUNNING', 'COMPLETED', 'FAILED', 'STUCK', 'CONTINUED_AS_NEW'].includes(status);

/**
 * Cancels an intent that is open: it never will be accepted.
 *
 * @returns whether it was open. @throws ApplicationFailure of PostgreSQL.
 */
export async function giveUp(db: Pool, notificationId: string): Promise<boolean> {
  const cancelled = await query(db, GIVE_UP, [notificationId]);
  return cancelled.length > 0;
}

/** $1 notification, $2 attempt, $3 whether only users without a usable answer spoilt it, $4 why or null. */
const NOTE_TROUBLE = {
  name: 'note_trouble_of_intent',
  text: `
    UPDATE notification.intents
       SET attempts = $2, unusable_attempts = unusable_attempts + $3,
           reason = coalesce($4, reason, 'its recipients are being looked up'), updated_at = statement_timestamp()
     WHERE notification_id = $1 AND status = 'open'
    RETURNING unusable_attempts`,
};

/** $1 notification. */
const GIVE_UP = {
  name: 'give_up_intent',
  text: `
    WITH open AS (
      SELECT notification_id, entry FROM notification.intents WHERE notification_id = $1 AND status = 'open' FOR UPDATE
    ), cancelled AS (
      UPDATE notification.intents AS intent
         SET status = 'cancelled', recipient_user_ids = open.entry -> 'recipientUserIds', entry = NULL, reason = NULL,
             updated_at = statement_timestamp()
        FROM open
       WHERE intent.notification_id = open.notification_id
      RETURNING intent.notification_id, notification_type, producer, idempotency_key,
                open.entry ->> 'requestId' AS request_id, open.entry ->> 'traceId' AS trace_id
    )
    SELECT notification.tell_refusal(notification_id, 'cancelled',
                                     json_build_object('published', 0, 'skipped', 0, 'dead_lettered', 0),
                                     notification_type, producer, idempotency_key, request_id, trace_id)
      FROM cancelled`,
};
