/** Why the devices of a user got a mobile push, or did not. */
import { mobilePushWorkflowId } from '../../workflows/mobile-push/contract.ts';
import type { Answer, Cause, Question } from '../causes.ts';
import { countOf, timeOf } from '../causes.ts';
import type { OperatorResources } from '../resources.ts';
import { linkField } from '../resources.ts';
import type { MobileJobStatus } from './jobs.ts';

/** Newest first. */
export async function mobileAnswers(
  resources: Pick<OperatorResources, 'db' | 'uiUrl' | 'namespace'>,
  { recipient, since, limit }: Question,
): Promise<Answer[]> {
  const { rows } = await resources.db.query<JobRow>(FIND_JOBS, [recipient, since, limit]);
  return rows.map((row) => {
    const [cause, what] = causeOf(row);
    return {
      kind: 'mobile-push',
      cause,
      at: row.status === 'pending' ? row.createdAt : row.updatedAt,
      id: row.jobId,
      sentence: `the mobile push ${what}`,
      ...(row.status === 'malformed' ? {} : linkField(resources, mobilePushWorkflowId(row.jobId))),
    };
  });
}

function causeOf(row: JobRow): [Cause, string] {
  const error = [row.errorCode, row.errorMessage].filter(Boolean).join(': ') || 'a failure that says nothing';
  const ended = timeOf(row.updatedAt);
  switch (row.status) {
    case 'sent':
      return ['push_sent', `was taken by FCM for ${countOf(row.sent, 'device')} at ${ended}${staleOf(row)}`];
    case 'partial':
      return [
        'push_partly_sent',
        `was taken by FCM for ${row.sent} of ${countOf(row.tokens, 'device')}; ${countOf(row.failed, 'device')} failed because of ${error}; galaxy-notify mobile replay ${row.jobId}`,
      ];
    case 'failed':
      return row.failed === 0
        ? [
            'push_failed',
            `reached nobody: ${countOf(row.removed, 'token')} of the user had ended, and none was left`,
          ]
        : [
            'push_failed',
            `reached no device and was given up at ${ended} because of ${error}; galaxy-notify mobile replay ${row.jobId}`,
          ];
    case 'no_tokens':
      return ['push_without_device', `was not sent, because the user had no device at ${ended}`];
    case 'malformed':
      return ['push_refused', `was refused because of ${error}`];
    case 'max_retries':
      return [
        'push_given_up',
        `was delivered five times to processes that did not take it, and given up at ${ended}; galaxy-notify mobile replay ${row.jobId}`,
      ];
    case 'pending':
      return ['push_waiting', `has been under way since ${timeOf(row.createdAt)}${waitsFor(row)}`];
  }
}

const staleOf = ({ removed }: JobRow): string =>
  removed === 0 ? '' : `; ${countOf(removed, 'token')} had ended`;

function waitsFor({ open, lastCode, nextAt }: JobRow): string {
  if (open === 0) return ', and nothing was sent yet';
  const again = nextAt === null ? '' : ` at ${timeOf(nextAt)}`;
  return `: ${countOf(open, 'device')} ${lastCode === null ? 'not tried yet' : `tried again${again} because of ${lastCode}`}`;
}

interface JobRow {
  jobId: string;
  status: MobileJobStatus;
  tokens: number;
  sent: number;
  removed: number;
  failed: number;
  errorCode: string | null;
  errorMessage: string | null;
  createdAt: Date;
  updatedAt: Date;
  /** Of the sends of a job under way. */
  open: number;
  lastCode: string | null;
  nextAt: Date | null;
}

/** $1 user, $2 since, $3 limit. */
const FIND_JOBS = `
  SELECT job_id AS "jobId", status, token_count AS tokens, sent_count AS sent, removed_count AS removed,
         failed_count AS failed, error_code AS "errorCode", error_message AS "errorMessage", created_at AS "createdAt",
         updated_at AS "updatedAt", sends.*
    FROM (SELECT *
            FROM notifications.notification_log
           WHERE user_id = $1 AND created_at >= $2
           ORDER BY created_at DESC
           LIMIT $3) AS job
   CROSS JOIN LATERAL (
         SELECT count(*)::int AS open, max(last_code) AS "lastCode", min(due_at) AS "nextAt"
           FROM notifications.notification_sends AS send
          WHERE send.job_id = job.job_id AND job.status = 'pending' AND send.status = 'pending') AS sends
   ORDER BY created_at DESC`;

/** Of tests, which plan them. */
export const STATEMENTS = { FIND_JOBS };
