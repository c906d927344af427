/**
 * The statements of mobile push: the job's row, its sends, how long they are kept, and `public.device_token`, which belongs to another
 * service. That service decides the types of its ids: a parameter takes the type of the column that it is compared
 * with, so that its indexes serve.
 */
import type { MobileJobContent } from '../../api/mobile-push/job.ts';
import type { MobilePushResult, SendKey } from '../../workflows/mobile-push/contract.ts';
import type { Kept } from '../retention.ts';

/** The code of a send that was not made in time. */
export const EXPIRED = 'expired';

/** $1 job id, $2 token id. */
const KEY = 'job_id = $1 AND device_token_id = $2';

/**
 * $1 job id, $2 who opens it, $3 rows at most. Opening gives sends that failed a fresh budget; the same opener opens once.
 * A batch that is full leaves the job as it was: call it again until it is not. Returns nothing for a job that is not
 * there or was malformed.
 */
export const OPEN_JOB = {
  name: 'open_mobile_job',
  text: `
    WITH afresh AS (
      UPDATE notifications.notification_sends AS send
         SET status = 'pending', attempts = 0, due_at = NULL, updated_at = clock_timestamp()
        FROM (
          SELECT job_id, device_token_id
            FROM notifications.notification_log
            JOIN notifications.notification_sends AS failed USING (job_id)
           WHERE job_id = $1 AND opened_by IS DISTINCT FROM $2 AND content IS NOT NULL
             AND failed.status = 'failed'
           LIMIT $3
        ) AS failed
       WHERE send.job_id = failed.job_id AND send.device_token_id = failed.device_token_id
      RETURNING 1
    ), opened AS (
      UPDATE notifications.notification_log
         SET status = 'pending', opened_by = $2, error_code = NULL, error_message = NULL,
             updated_at = clock_timestamp()
       WHERE job_id = $1 AND opened_by IS DISTINCT FROM $2 AND content IS NOT NULL
         AND (SELECT count(*) FROM afresh) < $3
    )
    SELECT user_id, content IS NOT NULL AS has_content, (SELECT count(*)::int FROM afresh) AS afresh
      FROM notifications.notification_log
     WHERE job_id = $1 AND status <> 'malformed'`,
};

export interface OpenedRow {
  user_id: string;
  has_content: boolean;
  /** Rows of this batch. */
  afresh: number;
}

/**
 * $1 job id, $2 user id, $3 devices at most, $4 sends at most. Adds devices of the user that the job does not have yet, one row
 * for each token, and says what the job has to send by then. With as many devices as it may take there may be more.
 */
export const LIST_SENDS = {
  name: 'list_mobile_sends',
  text: `
    WITH page AS (
      SELECT id
        FROM (
          SELECT DISTINCT ON (token) id, job_id
            FROM public.device_token
            LEFT JOIN notifications.notification_sends ON job_id = $1 AND device_token_id = id::text
           WHERE "userId" = $2
           ORDER BY token, job_id, id
        ) AS own
       WHERE job_id IS NULL
       ORDER BY id LIMIT $3
    ), added AS (
      INSERT INTO notifications.notification_sends (job_id, device_token_id)
      SELECT $1, id::text FROM page
      ON CONFLICT DO NOTHING
      RETURNING device_token_id
    )
    SELECT (SELECT count(*)::int FROM page) AS devices,
           ARRAY(
             SELECT device_token_id FROM added
             UNION
             SELECT device_token_id
               FROM notifications.notification_sends
              WHERE job_id = $1 AND status = 'pending'
              ORDER BY device_token_id
              LIMIT $4
           ) AS pending`,
};

export interface ListedRow {
  devices: number;
  pending: string[];
}

/** $1 job id, $2 token id. */
export const LOAD_SEND = {
  name: 'load_mobile_send',
  text: `
    SELECT job_id AS "jobId", device_token_id AS "deviceTokenId", push_id AS "pushId", send.status, attempts,
           message_id AS "messageId", user_id AS "userId", content,
           (extract(epoch FROM clock_timestamp()) * 1000)::float8 AS "nowMs"
      FROM notifications.notification_sends AS send
      JOIN notifications.notification_log AS log USING (job_id)
     WHERE ${KEY}`,
};

/** A send that is to be made. */
export interface PendingSend extends SendKey {
  pushId: string;
  attempts: number;
}

/** `nowMs` is by the clock of PostgreSQL, ms since the epoch. */
export type SendRow = PendingSend & { userId: string; content: MobileJobContent; nowMs: number } & (
    { status: 'sent'; messageId: string } | { status: 'pending' | 'removed' | 'failed' }
  );

/** $1 token id, $2 user id. A token that has gone to another user is not this job's any more. */
export const FIND_TOKEN = {
  name: 'find_device_token',
  text: 'SELECT token FROM public.device_token WHERE id = $1 AND "userId" = $2',
};

/**
 * $1 job id, $2 token id, $3 FCM's name of the message. Whatever was written meanwhile: FCM has it. Returns the push id,
 * nothing when the row says it already.
 */
export const MARK_SENT = {
  name: 'mark_mobile_send_sent',
  text: `
    UPDATE notifications.notification_sends
       SET status = 'sent', attempts = attempts + 1, last_code = NULL, message_id = $3, due_at = NULL,
           updated_at = clock_timestamp()
     WHERE ${KEY} AND status <> 'sent'
    RETURNING push_id AS "pushId"`,
};

/** $1 job id, $2 token id, $3 code, $4 ms until its next attempt, for operators. */
export const COUNT_FAILURE = {
  name: 'count_mobile_send_failure',
  text: `
    UPDATE notifications.notification_sends
       SET attempts = attempts + 1, last_code = $3, due_at = clock_timestamp() + $4::bigint * interval '1 millisecond',
           updated_at = clock_timestamp()
     WHERE ${KEY} AND status = 'pending'`,
};

/** $1 job id, $2 token id, $3 status, $4 code. What ended before stays as it is. */
export const END_SEND = {
  name: 'end_mobile_send',
  text: `
    UPDATE notifications.notification_sends
       SET status = $3, attempts = attempts + 1, last_code = $4, due_at = NULL,
           updated_at = clock_timestamp()
     WHERE ${KEY} AND status = 'pending'`,
};

/** $1 token id, $2 the token as it was sent to. Says whether the row is there with another token now. */
export const DELETE_TOKEN = {
  name: 'delete_device_token',
  text: `
    WITH deleted AS (
      DELETE FROM public.device_token WHERE id = $1 AND token = $2 RETURNING id
    )
    SELECT NOT EXISTS (SELECT 1 FROM deleted) AS is_changed FROM public.device_token WHERE id = $1`,
};

/**
 * $1 job id, $2 why the sends that are still pending were not made, $3 rows at most, $4 sends that the job has listed at
 * least. A batch that is full leaves others: call it again until it is not. The content goes when nothing is left to show
 * it to: it is personal. No row for a job of which PostgreSQL has forgotten something: it lacks sends, or has some that are
 * pending for no reason.
 */
export const SETTLE_JOB = {
  name: 'settle_mobile_job',
  text: `
    WITH not_made AS (
      UPDATE notifications.notification_sends
         SET status = 'failed', last_code = $2, due_at = NULL, updated_at = clock_timestamp()
       WHERE job_id = $1 AND device_token_id IN (
               SELECT device_token_id FROM notifications.notification_sends
                WHERE job_id = $1 AND status = 'pending' AND $2::text IS NOT NULL
                LIMIT $3
             )
      RETURNING 1
    ), sends AS (
      SELECT CASE status WHEN 'pending' THEN 'failed' ELSE status END AS status,
             CASE status WHEN 'pending' THEN coalesce($2, last_code) ELSE last_code END AS code, updated_at,
             status = 'pending' AS is_pending
        FROM notifications.notification_sends
       WHERE job_id = $1
    ), totals AS (
      SELECT count(*)::int AS tokens,
             (count(*) FILTER (WHERE status = 'sent'))::int AS sent,
             (count(*) FILTER (WHERE status = 'removed'))::int AS removed,
             (count(*) FILTER (WHERE status = 'failed'))::int AS failed,
             count(*) FILTER (WHERE is_pending) AS pending,
             count(*) FILTER (WHERE status = 'failed' AND code = '${EXPIRED}') AS expired,
             (SELECT code FROM sends WHERE status = 'failed' ORDER BY updated_at DESC LIMIT 1) AS code
        FROM sends
    )
    UPDATE notifications.notification_log
       SET status = CASE
             WHEN tokens = 0 AND $2 IS NULL THEN 'no_tokens'
             WHEN sent = tokens AND tokens > 0 THEN 'sent'
             WHEN sent > 0 THEN 'partial'
             ELSE 'failed'
           END,
           token_count = tokens, sent_count = sent, removed_count = removed, failed_count = failed,
           content = CASE WHEN failed > expired OR $2 IS NOT NULL THEN content END,
           error_code = coalesce(code, $2),
           error_message = CASE
             WHEN $2 = 'user_id_refused' THEN 'the column "userId" of public.device_token takes no such user id'
             WHEN failed > 0 THEN format('%s of %s devices were not reached', failed, tokens)
           END,
           updated_at = clock_timestamp()
      FROM totals
     WHERE job_id = $1 AND ($2::text IS NOT NULL OR tokens >= $4::int AND pending = 0)
    RETURNING status, tokens, sent, removed, failed, error_code AS code,
              (SELECT count(*)::int FROM not_made) AS not_made`,
};

export type SettledRow = Omit<MobilePushResult, 'code'> & { code: string | null; not_made: number };

// --- Retention --------------------------------------------------------------------------------------------------------

/**
 * Which jobs are deleted, and when: a failed one keeps its content for a replay, and that is personal.
 *
 * @returns the tables in the order in which they are deleted from.
 */
export function mobileTables(recordsKeptMs: number, malformedKeptMs: number): Kept[] {
  const jobs = { table: 'notifications.notification_log', since: 'created_at', keepMs: recordsKeptMs };
  return [
    { ...jobs, name: 'mobile_jobs', condition: "status NOT IN ('pending', 'malformed')" },
    {
      ...jobs,
      // A pending job that nothing happens to has lost its workflow, or waits for what does not come. The newest of its sends
      // is asked for, and not whether there is a new one: PostgreSQL might read the new ones of all jobs for that.
      name: 'stuck_mobile_jobs',
      condition: "status = 'pending' AND updated_at < now() - interval '1 day'",
      keptBy: [
        `FROM (SELECT max(send.updated_at) AS updated_at FROM notifications.notification_sends AS send
                WHERE send.job_id = notification_log.job_id) AS newest
          WHERE newest.updated_at >= now() - interval '1 day'`,
      ],
    },
    { ...jobs, name: 'malformed_mobile_jobs', condition: "status = 'malformed'", keepMs: malformedKeptMs },
  ];
}
