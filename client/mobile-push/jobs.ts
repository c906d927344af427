/**
 * Mobile push jobs: look into them, and repeat sends that failed. The content of a push is personal: it is read when one
 * job is shown, and kept out of lists.
 */
import { WorkflowExecutionAlreadyStartedError, WorkflowNotFoundError } from '@temporalio/client';
import { searchableKey } from '../../api/ids.ts';
import type { MobileReplayRequest } from '../../workflows/mobile-push/contract.ts';
import {
  MOBILE_PUSH_WORKFLOW,
  mobilePushWorkflowId,
  mobileReplay,
} from '../../workflows/mobile-push/contract.ts';
import type { OperatorAction } from '../actions.ts';
import { actionOperations, byAuthor } from '../actions.ts';
import type { Choice, Listing, Page, WithoutNulls } from '../lists.ts';
import { NotFoundError, NothingToDoError } from '../errors.ts';
import { conditionsOf, listOf, rowOf, spanOf, withoutNulls } from '../lists.ts';
import type { LiveState } from '../temporal.ts';
import { bounded, liveStateOf } from '../temporal.ts';
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
  status?: MobileJobStatus;
  userId?: string;
  /** Why the last send failed, or the entry was refused. */
  code?: string;
  /** Only jobs that a replay may help: devices not reached, given up, or pending for over an hour. */
  replayable?: boolean;
  /** Only jobs with a device that is between two attempts. */
  retrying?: boolean;
  /** Bounds of the time of arrival, both included. */
  since?: Date;
  until?: Date;
}

export interface JobRow {
  jobId: string;
  status: MobileJobStatus;
  /** Null when a malformed entry names none. */
  userId: string | null;
  channel: string | null;
  tokens: number;
  sent: number;
  removed: number;
  failed: number;
  errorCode: string | null;
  errorMessage: string | null;
  createdAt: Date;
  updatedAt: Date;
}

export interface MobileJobSummary extends WithoutNulls<JobRow> {
  /** What is between two attempts; in lists of such jobs. */
  retry?: MobileRetryView;
  link?: string;
}

/** Sends of a job that failed and are made again. */
export interface MobileRetryView {
  devices: number;
  /** The next one of the device that has failed most often; the first one is 1. */
  attempt: number;
  /** The soonest; in the past while it is being made. */
  nextAttemptAt: Date;
  /** Of the last failure. */
  lastCode: string;
  lastFailureAt: Date;
}

/** One job's send to one device. The token itself is never shown. */
export interface MobileSendView {
  deviceTokenId: string;
  status: string;
  attempts: number;
  /** Goes with every attempt, so that a device can drop a repeat. */
  pushId: string;
  lastCode?: string;
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
  /** What an operator asked for last, of this very job. */
  lastAction?: OperatorAction;
}

export function mobileOperations(resources: OperatorResources) {
  const { db } = resources;

  const summaryOf = (row: JobRow): MobileJobSummary => ({
    ...withoutNulls(row),
    // Malformed entries have no workflow.
    ...(row.status === 'malformed' ? {} : linkField(resources, mobilePushWorkflowId(row.jobId))),
  });

  return {
    /** Jobs, newest first. */
    list(filter: MobileJobFilter & { limit?: number } = {}): Promise<Page<MobileJobSummary>> {
      if (!filter.retrying) {
        return listOf<JobRow, MobileJobFilter, MobileJobSummary>(db, JOBS, filter, summaryOf);
      }
      return listOf<JobRow & MobileRetryView, MobileJobFilter, MobileJobSummary>(
        ...([db, RETRYING, filter] as const),
        ({ devices, attempt, nextAttemptAt, lastCode, lastFailureAt, ...row }) => ({
          ...summaryOf(row),
          retry: { devices, attempt, nextAttemptAt, lastCode, lastFailureAt },
        }),
      );
    },

    /** @throws NotFoundError when no such job was recorded, or it was deleted since. */
    async show(jobId: string): Promise<MobileJobView> {
      type ShownRow = JobRow & { content: object | null; rawFields: Record<string, string> | null };
      const row = await rowOf<ShownRow>(db, JOBS, 'job_id', jobId, ', content, raw_fields AS "rawFields"');
      if (!row) throw notRecorded(jobId);
      const sends = await db.query<MobileSendView>(LIST_SENDS, [jobId]);
      const live = await liveStateOf(resources, mobilePushWorkflowId(jobId)).catch(() => undefined);
      const [lastAction] = (await actionOperations(resources).list({ target: jobId, limit: 1 })).items;
      return { ...summaryOf(row), sends: sends.rows, ...withoutNulls({ live, lastAction }) };
    },

    /**
     * Repeats the sends of one job that failed, with a fresh budget; a device that has the push gets nothing.
     *
     * @throws NotFoundError; NothingToDoError when no device is left that did not get it.
     */
    async replay(jobId: string, request: MobileReplayRequest = {}): Promise<void> {
      const job = await findJob(jobId);
      if (!job.hasContent) {
        throw new NothingToDoError(
          `mobile push job ${jobId} is ${job.status}: no device is left to send it to`,
        );
      }
      const { requestedBy } = request;
      await byAuthor(resources, { action: 'mobile replay', target: jobId, requestedBy }, () =>
        orderReplay(job, request),
      );
    },

    /**
     * Ends a job that is under way: what was not sent counts as failed, and can be replayed.
     *
     * @param request its `requestedBy` is kept, and shown with the job.
     * @throws NotFoundError; NothingToDoError when it has ended, or lost its workflow.
     */
    async cancel(jobId: string, { requestedBy }: MobileReplayRequest = {}): Promise<void> {
      const job = await findJob(jobId);
      const nothing = new NothingToDoError(`mobile push job ${jobId} is ${job.status}, and not under way`);
      if (job.status !== 'pending') throw nothing;
      await byAuthor(resources, { action: 'mobile cancel', target: jobId, requestedBy }, async () => {
        try {
          const { workflow } = resources.temporal;
          await bounded(resources.temporal, () => workflow.getHandle(mobilePushWorkflowId(jobId)).cancel());
        } catch (error) {
          if (!(error instanceof WorkflowNotFoundError)) throw error;
          throw nothing;
        }
      });
    },

    /** How many jobs an operation with this filter would send again. */
    async countReplayable(filter: MobileJobFilter): Promise<number> {
      const { where, values } = chooseJobs(filter).given;
      const count = `SELECT count(*)::int AS jobs FROM ${JOBS.from} ${where}`;
      return (await db.query<{ jobs: number }>(count, values)).rows[0]!.jobs;
    },
  };

  async function findJob(jobId: string): Promise<JobToReplay> {
    const { rows } = await db.query<JobToReplay>(FIND_JOB, [jobId]);
    if (!rows[0]) throw notRecorded(jobId);
    return rows[0];
  }

  async function orderReplay({ jobId, userId }: JobToReplay, request: MobileReplayRequest): Promise<void> {
    try {
      await bounded(resources.temporal, () =>
        resources.temporal.workflow.signalWithStart(
          MOBILE_PUSH_WORKFLOW,
          mobileReplay(jobId, searchableKey(userId ?? ''), request),
        ),
      );
    } catch (error) {
      // Its last run completed: every device that could be reached has the push.
      if (!(error instanceof WorkflowExecutionAlreadyStartedError)) throw error;
    }
  }
}

const notRecorded = (jobId: string) => new NotFoundError(`no mobile push job ${jobId} is recorded`);

interface JobToReplay extends Pick<JobRow, 'jobId' | 'status' | 'userId'> {
  hasContent: boolean;
}

const KEY = 'job_id AS "jobId", status, user_id AS "userId"';

export const JOBS: Listing<MobileJobFilter> = {
  columns: `${KEY}, channel, token_count AS tokens, sent_count AS sent, removed_count AS removed,
         failed_count AS failed, error_code AS "errorCode", error_message AS "errorMessage", created_at AS "createdAt",
         updated_at AS "updatedAt"`,
  from: 'notifications.notification_log',
  order: 'created_at DESC, job_id DESC',
  filters: {
    replayable: `(${CAN_BE_REPLAYED}) = ?`,
    ...{ status: 'status = ?', userId: 'user_id = ?', code: 'error_code = ?' },
    ...spanOf('created_at'),
  },
};

/** The last failure says why; a job of many devices has others. */
const RETRYING: Listing<MobileJobFilter> = {
  ...JOBS,
  columns: `${JOBS.columns}, retry.*`,
  from: `${JOBS.from}
   CROSS JOIN LATERAL (
         SELECT count(*)::int AS devices, max(attempts) + 1 AS attempt, min(due_at) AS "nextAttemptAt",
                (array_agg(last_code ORDER BY send.updated_at DESC))[1] AS "lastCode",
                max(send.updated_at) AS "lastFailureAt"
           FROM notifications.notification_sends AS send
          WHERE send.job_id = notification_log.job_id AND send.status = 'pending' AND attempts > 0
         HAVING count(*) > 0) AS retry`,
  // What it joins with has them alone.
  always: "status = 'pending'",
};

/** The jobs that an operation sends again. */
export const chooseJobs = (filter: MobileJobFilter): Choice => ({
  columns: ['job_id'],
  from: JOBS.from,
  at: 'created_at',
  given: conditionsOf(filter.retrying ? RETRYING : JOBS, { ...filter, replayable: true }),
});

const LIST_SENDS = `
  SELECT device_token_id AS "deviceTokenId", status, attempts, push_id AS "pushId", last_code AS "lastCode",
         message_id AS "messageId", updated_at AS "updatedAt"
    FROM notifications.notification_sends
   WHERE job_id = $1
   ORDER BY device_token_id
   LIMIT 1000`;

const FIND_JOB = `
  SELECT ${KEY}, ${HAS_CONTENT} AS "hasContent"
    FROM notifications.notification_log
   WHERE job_id = $1`;
