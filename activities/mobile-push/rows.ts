/**
 * The statements of mobile push: the job's row, its sends, and `public.device_token`, which belongs to another
 * service. That service decides the types of its ids: a parameter takes the type of the column that it is compared
 * with, so that its indexes serve.
 */

import type { MobileJobContent } from '../../api/mobile-push/job.ts';
import type { MobilePushOutcome } from '../../workflows/mobile-push/contract.ts';

/** $1 job id, $2 token id. */
const KEY = 'job_id = $1 AND device_token_id = $2';

/**
 * $1 job id, $2 who opens it. Opening gives sends that failed a fresh budget; the same opener opens once. Returns
 * nothing for a job that is not there or was malformed.
 */
export const OPEN_JOB = {
  name: 'open_mobile_job',
  text: `
    WITH opened AS (
      UPDATE notifications.notification_log
         SET status = 'pending', opened_by = $2, error_code = NULL, error_message = NULL,
             updated_at = clock_timestamp()
       WHERE job_id = $1 AND opened_by IS DISTINCT FROM $2 AND content IS NOT NULL
      RETURNING job_id
    ), afresh AS (
      UPDATE notifications.notification_sends AS send
         SET status = 'pending', attempts = 0, token_sha256 = NULL, updated_at = clock_timestamp()
        FROM opened
       WHERE send.job_id = opened.job_id AND send.status IN ('failed', 'suspect')
    )
    SELECT user_id, content IS NOT NULL AS has_content,
           NOT EXISTS (SELECT 1 FROM opened) AND EXISTS (
             SELECT 1 FROM notifications.notification_sends WHERE job_id = $1 AND status = 'suspect'
           ) AS has_suspects
      FROM notifications.notification_log
     WHERE job_id = $1 AND status <> 'malformed'`,
};

export interface OpenedRow {
  user_id: string;
  has_content: boolean;
  /** Suspects of a run of this opener that did not come to judge them. */
  has_suspects: boolean;
}

/** $1 job id, $2 user id, $3 how many. Devices that registered since an earlier run get the push too. */
export const LIST_SENDS = {
  name: 'list_mobile_sends',
  text: `
    WITH added AS (
      INSERT INTO notifications.notification_sends (job_id, device_token_id)
      SELECT $1, id::text FROM public.device_token WHERE "userId" = $2
      ON CONFLICT DO NOTHING
      RETURNING device_token_id
    )
    SELECT device_token_id FROM added
    UNION
    SELECT device_token_id
      FROM notifications.notification_sends
     WHERE job_id = $1 AND status = 'pending'
     ORDER BY device_token_id
     LIMIT $3`,
};

/** $1 job id, $2 and $3 the token's id. A token that has gone to another user is not this job's any more. */
export const LOAD_SEND = {
  name: 'load_mobile_send',
  text: `
    SELECT send.job_id, send.device_token_id, send.push_id, send.status, send.attempts, send.message_id, log.content,
           device.token
      FROM notifications.notification_sends AS send
      JOIN notifications.notification_log AS log USING (job_id)
      LEFT JOIN public.device_token AS device ON device.id = $3 AND device."userId"::text = log.user_id
     WHERE send.job_id = $1 AND send.device_token_id = $2`,
};

/** A send that is to be made. */
export interface PendingSend {
  job_id: string;
  device_token_id: string;
  push_id: string;
  attempts: number;
}

export type SendRow = PendingSend & {
  content: MobileJobContent;
  /** Null when the device is not the user's any more. */
  token: string | null;
} & ({ status: 'sent'; message_id: string } | { status: 'pending' | 'removed' | 'failed' | 'suspect' });

/** $1 job id, $2 token id, $3 FCM's name of the message. Whatever was written meanwhile: FCM has it. */
export const MARK_SENT = {
  name: 'mark_mobile_send_sent',
  text: `
    UPDATE notifications.notification_sends
       SET status = 'sent', attempts = attempts + 1, last_code = NULL, message_id = $3, token_sha256 = NULL,
           updated_at = clock_timestamp()
     WHERE ${KEY} AND status <> 'sent'`,
};

/** $1 job id, $2 token id, $3 code. */
export const COUNT_FAILURE = {
  name: 'count_mobile_send_failure',
  text: `
    UPDATE notifications.notification_sends
       SET attempts = attempts + 1, last_code = $3, updated_at = clock_timestamp()
     WHERE ${KEY} AND status = 'pending'`,
};

/** $1 job id, $2 token id, $3 status, $4 code, $5 hash of a suspected token. What ended before stays as it is. */
export const END_SEND = {
  name: 'end_mobile_send',
  text: `
    UPDATE notifications.notification_sends
       SET status = $3, attempts = attempts + CASE status WHEN 'pending' THEN 1 ELSE 0 END, last_code = $4,
           token_sha256 = $5, updated_at = clock_timestamp()
     WHERE ${KEY} AND status IN ('pending', 'suspect')`,
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

/** $1 token id, $2 hash of the token as it was sent to. Says the same as DELETE_TOKEN. */
export const DELETE_SUSPECTED_TOKEN = {
  name: 'delete_suspected_device_token',
  text: `
    WITH deleted AS (
      DELETE FROM public.device_token
       WHERE id = $1 AND encode(sha256(convert_to(token, 'UTF8')), 'hex') = $2
      RETURNING 1
    )
    SELECT NOT EXISTS (SELECT 1 FROM deleted) AS is_changed FROM public.device_token WHERE id = $1`,
};

/** $1 job id. */
export const LIST_SUSPECTS = {
  name: 'list_mobile_suspects',
  text: `
    SELECT device_token_id, last_code, token_sha256,
           EXISTS (
             SELECT 1 FROM notifications.notification_sends WHERE job_id = $1 AND status = 'sent'
           ) AS passed_elsewhere
      FROM notifications.notification_sends
     WHERE job_id = $1 AND status = 'suspect'`,
};

export interface SuspectRow {
  device_token_id: string;
  last_code: string;
  token_sha256: string;
  passed_elsewhere: boolean;
}

/**
 * $1 job id, $2 why the sends that are still pending were not made. The content goes when nothing is left to show it
 * to: it is personal.
 */
export const SETTLE_JOB = {
  name: 'settle_mobile_job',
  text: `
    WITH not_made AS (
      UPDATE notifications.notification_sends
         SET status = 'failed', last_code = coalesce($2, last_code), updated_at = clock_timestamp()
       WHERE job_id = $1 AND status = 'pending'
    ), sends AS (
      SELECT CASE WHEN status IN ('pending', 'suspect') THEN 'failed' ELSE status END AS status,
             CASE status WHEN 'pending' THEN coalesce($2, last_code) ELSE last_code END AS code, updated_at
        FROM notifications.notification_sends
       WHERE job_id = $1
    ), totals AS (
      SELECT count(*)::int AS tokens,
             (count(*) FILTER (WHERE status = 'sent'))::int AS sent,
             (count(*) FILTER (WHERE status = 'removed'))::int AS removed,
             (count(*) FILTER (WHERE status = 'failed'))::int AS failed,
             (array_agg(code ORDER BY updated_at DESC) FILTER (WHERE status = 'failed'))[1] AS code
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
           content = CASE WHEN failed > 0 OR $2 IS NOT NULL THEN content END,
           error_code = coalesce(code, $2),
           error_message = CASE WHEN failed > 0 THEN format('%s of %s devices were not reached', failed, tokens) END,
           updated_at = clock_timestamp()
      FROM totals
     WHERE job_id = $1
    RETURNING status, tokens, sent, removed, failed, error_code AS code`,
};

export type SettledRow = Omit<MobilePushOutcome, 'code'> & { code: string | null };
