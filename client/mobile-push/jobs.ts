/**
 * Mobile push jobs: look into them, repeat sends that failed, and forget or explain those of a person. The content of a push is
 * personal: it is read when one job is shown, and kept out of lists.
 */
import type { Given } from '../../api/given.ts';
import { given } from '../../api/given.ts';
import { DEFAULT_MOBILE_STREAM, PAYLOAD_FIELD } from '../../api/mobile-push/job.ts';
import { countOf, timeOf } from '../../api/text.ts';
import { mobilePushWorkflowId } from '../../workflows/mobile-push/contract.ts';
import type { Grouped, Listing, Page, Span } from '../lists.ts';
import { NotFoundError } from '../errors.ts';
import { conditionsOf, listOf, rowOf, spanOf, statementOf } from '../lists.ts';
import type { Cause, FoundCause, Person, Personal, Question } from '../places.ts';
import { HAS_NAME, hasField, idsOf, notTaken, streamOf } from '../places.ts';
import type { LiveState } from '../temporal.ts';
import { liveStateOf } from '../temporal.ts';
import type { OperatorResources } from '../resources.ts';
import { linkField } from '../resources.ts';

/** As in the column `status`; the last two are jobs that no workflow took. */
export const MOBILE_STATUSES = [
  'pending',
  'sent',
  'partial',
  'failed',
  'no_tokens',
  'malformed',
  'max_retries',
] as const;
export type MobileJobStatus = (typeof MOBILE_STATUSES)[number];

/** Statuses in which a replay can help, if a device is left that it could reach. */
export const REPLAYABLE: readonly MobileJobStatus[] = ['partial', 'failed', 'max_retries', 'pending'];

/** A job that is pending for longer may have lost its workflow. One that has not is sent once more when it has failed. */
const STUCK_AFTER = '1 hour';

/**
 * What a replay can help: content is kept for as long as a device is left to show it, and a push that has expired is not
 * sent. A job whose only devices were
 * stale is `failed` as well, and nothing of it is left.
 */
const HAS_CONTENT = `(content IS NOT NULL AND coalesce((content ->> 'expiresAtMs')::numeric > extract(epoch FROM now()) * 1000, true))`;
const CAN_BE_REPLAYED = `${HAS_CONTENT}
     AND (status IN ('partial', 'failed', 'max_retries')
          OR status = 'pending' AND updated_at < now() - interval '${STUCK_AFTER}')`;

export interface MobileJobFilter {
  jobId?: string;
  status?: MobileJobStatus;
  userId?: string;
  /** Why the last send failed, or the entry was refused. */
  code?: string;
  /** Only jobs that a replay may help: devices not reached, given up, or pending for over an hour. */
  replayable?: boolean;
  /** Bounds of the time of arrival, both included. */
  since?: Date;
  until?: Date;
}

interface JobRow {
  jobId: string;
  status: MobileJobStatus;
  /** Null when a malformed entry names none. */
  userId: string | null;
  channel: string | null;
  tokens: number;
  sent: number;
  removed: number;
  failed: number;
  /** Of a job under way: why a device is tried again. */
  errorCode: string | null;
  errorMessage: string | null;
  createdAt: Date;
  updatedAt: Date;
}

export interface MobileJobSummary extends Given<JobRow> {
  link?: string;
}

/** One job's send to one device. The token itself is never shown. */
export interface MobileSendView {
  deviceTokenId: string;
  status: string;
  attempts: number;
  /** Goes with every attempt, so that a device can drop a repeat. */
  pushId: string;
  lastCode?: string;
  /** In the past while it is being made; of a send that is tried again. */
  nextAttemptAt?: Date;
  messageId?: string;
  updatedAt: Date;
}

export interface MobileJobView extends MobileJobSummary {
  /** Absent once no device is left to show it to. */
  content?: unknown;
  /** Of a malformed entry. */
  rawFields?: Record<string, string>;
  sends: MobileSendView[];
  /** What its workflow does right now; absent when Temporal does not know it, or did not answer. */
  live?: LiveState;
}

export function mobileOperations(resources: OperatorResources) {
  const { db } = resources;

  const summaryOf = (row: JobRow): MobileJobSummary => ({
    ...given(row),
    // Malformed entries have no workflow.
    ...(row.status === 'malformed' ? {} : linkField(resources, mobilePushWorkflowId(row.jobId))),
  });

  return {
    /** Jobs, newest first. */
    list: (filter: MobileJobFilter & { limit?: number } = {}): Promise<Page<MobileJobSummary>> =>
      listOf<JobRow, MobileJobFilter, MobileJobSummary>(db, JOBS, filter, summaryOf),

    /** @throws NotFoundError when no such job was recorded, or it was deleted since. */
    async show(jobId: string): Promise<MobileJobView> {
      type ShownRow = JobRow & { content: object | null; rawFields: Record<string, string> | null };
      const row = await rowOf<ShownRow>(db, JOBS, 'job_id', jobId, ', content, raw_fields AS "rawFields"');
      if (!row) throw new NotFoundError(`no mobile push job ${jobId} is recorded`);
      const sends = await db.query<MobileSendView>(LIST_SENDS, [jobId]);
      const live = await liveStateOf(resources, mobilePushWorkflowId(jobId)).catch(() => undefined);
      return { ...summaryOf(row), sends: sends.rows, ...given({ live }) };
    },
  };
}

const JOBS: Listing<MobileJobFilter> = {
  columns: `job_id AS "jobId", status, user_id AS "userId", channel, token_count AS tokens, sent_count AS sent,
         removed_count AS removed, failed_count AS failed, error_message AS "errorMessage", created_at AS "createdAt",
         updated_at AS "updatedAt", coalesce(error_code, (
           SELECT max(last_code) FROM notifications.notification_sends AS send
            WHERE send.job_id = notification_log.job_id AND send.status = 'pending')) AS "errorCode"`,
  from: 'notifications.notification_log',
  order: 'created_at DESC, job_id DESC',
  filters: {
    replayable: `(${CAN_BE_REPLAYED}) = ?`,
    ...{ jobId: 'job_id = ?', status: 'status = ?', userId: 'user_id = ?', code: 'error_code = ?' },
    ...spanOf('created_at'),
  },
};

/** Jobs of one kind that can be sent again. */
export interface JobGroup extends Span {
  status: MobileJobStatus;
  /** Why the last send failed; null of a job under way. */
  code: string | null;
  jobs: number;
}

/** The jobs that an operation sends again. */
export const chooseJobs = (filter: MobileJobFilter): Grouped => ({
  columns: ['job_id'],
  from: JOBS.from,
  at: 'created_at',
  conditions: conditionsOf(JOBS, { ...filter, replayable: true }),
  groups: { status: 'status', code: 'error_code' },
  counted: 'jobs',
});

const LIST_SENDS = `
  SELECT device_token_id AS "deviceTokenId", status, attempts, push_id AS "pushId", last_code AS "lastCode",
         message_id AS "messageId", updated_at AS "updatedAt", due_at AS "nextAttemptAt"
    FROM notifications.notification_sends
   WHERE job_id = $1
   ORDER BY device_token_id
   LIMIT 1000`;

// --- A person's jobs ----------------------------------------------------------------------------------------------------

const TOKENS = 'public.device_token';
const LOG = { table: JOBS.from, key: ['job_id'] };

/** What mobile pushes keep of people: jobs with their content and sends, entries of the stream, and tokens of devices. */
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

  return {
    places: [
      entries,
      {
        ...{ table: TOKENS, key: ['id'], where: '"userId" = $1', values: [userId] },
        ...{ isIndexed: true, isForeign: true },
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
    async remains() {
      const { rowCount } = await db.query(MAY_NOT_DELETE_TOKENS);
      const ends = 'when the service that it belongs to deletes them';
      return rowCount ? [{ what: `tokens of devices in ${TOKENS}`, ends }] : [];
    },
  };
}

/** No row without such a table. */
const MAY_NOT_DELETE_TOKENS = `
  SELECT FROM to_regclass('${TOKENS}') AS tokens
   WHERE NOT (has_table_privilege(tokens, 'SELECT') AND has_table_privilege(tokens, 'DELETE'))`;

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
