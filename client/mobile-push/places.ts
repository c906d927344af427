/** What mobile pushes keep of people: jobs with their content and sends, entries of the stream, and tokens of devices. */
import { DEFAULT_MOBILE_STREAM, PAYLOAD_FIELD } from '../../api/mobile-push/job.ts';
import { countOf, timeOf } from '../../api/text.ts';
import { mobilePushWorkflowId } from '../../workflows/mobile-push/contract.ts';
import type { Listing } from '../lists.ts';
import { listOf, statementOf } from '../lists.ts';
import type { Cause, FoundCause, Person, Personal, Question } from '../places.ts';
import { HAS_NAME, hasField, idsOf, notTaken, streamOf } from '../places.ts';
import type { OperatorResources } from '../resources.ts';
import type { JobRow, MobileJobFilter } from './jobs.ts';
import { JOBS } from './jobs.ts';

const TOKENS = 'public.device_token';
const LOG = { table: JOBS.from, key: ['job_id'] };
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
      { ...LOG, where: "user_id = $1 AND status <> 'pending'", values: [userId], isIndexed: true },
      // A refused job may lack a user.
      {
        ...LOG,
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
  { recipient: userId, since, limit }: Question,
): Promise<FoundCause[]> {
  const { items } = await listOf(db, JOBS_WITH_SENDS, { userId, since, limit }, (row: SentJobRow) => row);
  return items.map((row) => {
    const [cause, what] = causeOf(row);
    return {
      cause,
      at: row.status === 'pending' ? row.createdAt : row.updatedAt,
      id: row.jobId,
      sentence: `the mobile push ${what}`,
      ...(row.status === 'malformed' ? {} : { workflowId: mobilePushWorkflowId(row.jobId) }),
    };
  });
}

function causeOf(row: SentJobRow): [Cause, string] {
  const error = [row.errorCode, row.errorMessage].filter(Boolean).join(': ') || 'a failure that says nothing';
  const ended = timeOf(row.updatedAt);
  const replay = `galaxy-notify mobile replay ${row.jobId}`;
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
      return ['push_waiting', `has been under way since ${timeOf(row.createdAt)}${waitsFor(row)}`];
  }
}

function waitsFor({ open, errorCode, nextAt }: SentJobRow): string {
  if (open === 0) return ', and nothing was sent yet';
  const again = nextAt === null ? '' : ` at ${timeOf(nextAt)}`;
  return `: ${countOf(open, 'device')} ${errorCode === null ? 'not tried yet' : `tried again${again} because of ${errorCode}`}`;
}

interface SentJobRow extends JobRow {
  /** Of the sends of a job under way. */
  open: number;
  nextAt: Date | null;
}

const JOBS_WITH_SENDS: Listing<MobileJobFilter> = {
  ...JOBS,
  columns: `${JOBS.columns}, sends.*`,
  from: `${JOBS.from}
   CROSS JOIN LATERAL (
         SELECT count(*)::int AS open, min(due_at) AS "nextAt"
           FROM notifications.notification_sends AS send
          WHERE send.job_id = notification_log.job_id AND notification_log.status = 'pending'
            AND send.status = 'pending') AS sends`,
};

/** Of tests, which plan them. */
export const STATEMENTS = {
  FIND_JOBS: statementOf(JOBS_WITH_SENDS, { userId: '', since: new Date(0) }).text,
};
