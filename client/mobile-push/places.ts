/** What mobile pushes keep of people: jobs with their content and sends, entries of the stream, and tokens of devices. */
import { DEFAULT_MOBILE_STREAM, PAYLOAD_FIELD } from '../../api/mobile-push/job.ts';
import { mobilePushWorkflowId } from '../../workflows/mobile-push/contract.ts';
import type { Cause, FoundCause, Question } from '../causes.ts';
import { countOf, timeOf } from '../causes.ts';
import type { Person, Personal } from '../places.ts';
import { HAS_NAME, hasField, idsOf, notTaken, streamOf } from '../places.ts';
import type { OperatorResources } from '../resources.ts';
import type { MobileJobStatus } from './jobs.ts';

const TOKENS = 'public.device_token';
const JOBS = { table: 'notifications.notification_log', key: ['job_id'] };
/** The table is another service's: this role may lack the right; the table may not exist, or have ids of another type. */
const NO_RIGHT = '42501';
const NOTHING_THERE = ['42P01', '22P02', '22003'];

export function mobilePushesOf({ db, redis }: OperatorResources, person: Person): Personal {
  const { userId, quoted, nested } = person;
  const stream = DEFAULT_MOBILE_STREAM;
  const entries = streamOf({
    redis,
    stream,
    userId,
    names: ['userId', PAYLOAD_FIELD],
    // A job has its fields flat, or as JSON in one of them.
    isOwn: (fields) => fields['userId'] === userId || hasField(fields[PAYLOAD_FIELD], 'userId', userId),
  });
  const pending = () =>
    idsOf(
      db,
      `SELECT job_id AS id FROM notifications.notification_log
        WHERE user_id = $1 AND status = 'pending' ORDER BY created_at LIMIT 100`,
      [userId],
    );

  let mayNotDelete = false;
  return {
    places: [
      entries,
      {
        ...{ table: TOKENS, key: ['id'], where: '"userId" = $1', values: [userId], isIndexed: true },
        tolerates(code) {
          mayNotDelete ||= code === NO_RIGHT;
          return code === NO_RIGHT || NOTHING_THERE.includes(code ?? '');
        },
      },
      // Deletes their sends with them.
      { ...JOBS, where: "user_id = $1 AND status <> 'pending'", values: [userId], isIndexed: true },
      // A refused job may lack a user.
      {
        ...JOBS,
        where: `status = 'malformed' AND ${HAS_NAME}`,
        values: [[...quoted, ...nested]],
      },
    ],
    underWay: [
      {
        ids: pending,
        what: 'is under way',
        advice: 'wait; galaxy-notify mobile show says for what',
        thing: 'mobile push',
      },
      notTaken(entries, 'mobile push', pending),
    ],
    remains: async () =>
      mayNotDelete
        ? [
            {
              what: `tokens of devices in ${TOKENS}`,
              ends: 'when the service that it belongs to deletes them',
            },
          ]
        : [],
  };
}

/** @returns why devices got a mobile push, or did not: newest first. */
export async function findPushCauses(
  { db }: Pick<OperatorResources, 'db'>,
  { recipient, since, limit }: Question,
): Promise<FoundCause[]> {
  const { rows } = await db.query<JobRow>(FIND_JOBS, [recipient, since, limit]);
  return rows.map((row) => {
    const [cause, what] = causeOf(row);
    return {
      cause,
      at: row.status === 'pending' ? row.created_at : row.updated_at,
      id: row.job_id,
      sentence: `the mobile push ${what}`,
      ...(row.status === 'malformed' ? {} : { workflowId: mobilePushWorkflowId(row.job_id) }),
    };
  });
}

function causeOf(row: JobRow): [Cause, string] {
  const error =
    [row.error_code, row.error_message].filter(Boolean).join(': ') || 'a failure that says nothing';
  const ended = timeOf(row.updated_at);
  const replay = `galaxy-notify mobile replay ${row.job_id}`;
  switch (row.status) {
    case 'sent': {
      const stale = row.removed === 0 ? '' : `; ${countOf(row.removed, 'token')} had ended`;
      return ['push_sent', `was taken by FCM for ${countOf(row.sent, 'device')} at ${ended}${stale}`];
    }
    case 'partial':
      return [
        'push_partly_sent',
        `was taken by FCM for ${row.sent} of ${countOf(row.tokens, 'device')}; ${countOf(row.failed, 'device')} failed because of ${error}; ${replay}`,
      ];
    case 'failed':
      return row.failed === 0
        ? [
            'push_failed',
            `reached no device: ${countOf(row.removed, 'token')} of the user had ended, and none was left`,
          ]
        : ['push_failed', `reached no device and was given up at ${ended} because of ${error}; ${replay}`];
    case 'no_tokens':
      return ['push_without_device', `was not sent, because the user had no device at ${ended}`];
    case 'malformed':
      return ['push_refused', `was refused because of ${error}`];
    case 'max_retries':
      return [
        'push_given_up',
        `was delivered five times to processes that did not take it, and given up at ${ended}; ${replay}`,
      ];
    case 'pending':
      return ['push_waiting', `has been under way since ${timeOf(row.created_at)}${waitsFor(row)}`];
  }
}

function waitsFor({ open, code, next_at: nextAt }: JobRow): string {
  if (open === 0) return ', and nothing was sent yet';
  const again = nextAt === null ? '' : ` at ${timeOf(nextAt)}`;
  return `: ${countOf(open, 'device')} ${code === null ? 'not tried yet' : `tried again${again} because of ${code}`}`;
}

interface JobRow {
  job_id: string;
  status: MobileJobStatus;
  tokens: number;
  sent: number;
  removed: number;
  failed: number;
  error_code: string | null;
  error_message: string | null;
  created_at: Date;
  updated_at: Date;
  /** Of the sends of a job under way. */
  open: number;
  code: string | null;
  next_at: Date | null;
}

/** $1 user, $2 since, $3 limit. */
const FIND_JOBS = `
  SELECT job_id, status, token_count AS tokens, sent_count AS sent, removed_count AS removed, failed_count AS failed,
         error_code, error_message, created_at, updated_at, sends.*
    FROM (SELECT *
            FROM notifications.notification_log
           WHERE user_id = $1 AND created_at >= $2
           ORDER BY created_at DESC
           LIMIT $3) AS job
   CROSS JOIN LATERAL (
         SELECT count(*)::int AS open, max(last_code) AS code, min(due_at) AS next_at
           FROM notifications.notification_sends AS send
          WHERE send.job_id = job.job_id AND job.status = 'pending' AND send.status = 'pending') AS sends
   ORDER BY created_at DESC`;

/** Of tests, which plan them. */
export const STATEMENTS = { FIND_JOBS };
