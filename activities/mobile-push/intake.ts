/**
 * From a stream entry to a durable job: a row in the log with what is to be shown, then a workflow that works on it.
 * Both may be repeated: a row is written once, a workflow started once.
 */
import { createHash } from 'node:crypto';
import type { WorkflowClient, WorkflowStartOptions } from '@temporalio/client';
import { WorkflowExecutionAlreadyStartedError } from '@temporalio/client';
import type { Pool } from 'pg';
import type { Logger } from 'pino';
import { searchableKey } from '../../api/ids.ts';
import type { MalformedJob } from '../../api/mobile-push/job.ts';
import { malformedJob } from '../../api/mobile-push/job.ts';
import { checkedMobileJob } from '../../api/mobile-push/message.ts';
import { cutText } from '../../api/text.ts';
import {
  MOBILE_PUSH_WORKFLOW,
  MOBILE_TASK_QUEUE,
  mobilePushAttributes,
  mobilePushWorkflowId,
} from '../../workflows/mobile-push/contract.ts';
import type { MobilePushMetrics } from './metrics.ts';
import { isPostgresRefusal, query } from '../postgres.ts';
import { stateOf, statusOf } from '../workflows.ts';
import type { StreamEntry } from '../stream-read.ts';

/** How long one call to Temporal may take before it counts as failed, ms. */
const CALL_DEADLINE_MS = 5_000;
const MAX_SUMMARY_LENGTH = 80;
/** Of the reason in a bare row, characters. */
const MAX_REASON = 500;
/** Temporal takes no longer key. */
const MAX_FAIRNESS_KEY_BYTES = 64;

export interface MobileIntakeResources {
  db: Pool;
  workflows: WorkflowClient;
  log: Logger;
  metrics: MobilePushMetrics;
}

export function createMobileIntake({ db, workflows, log, metrics }: MobileIntakeResources) {
  return {
    /**
     * Resolves when the entry is durable, as a job that is worked on or as a malformed one.
     *
     * @throws ApplicationFailure of PostgreSQL when it is away, or what the client of Temporal fails with.
     */
    async take(entry: StreamEntry): Promise<void> {
      const parsed = read(entry);
      if (!parsed.ok) return refuse(parsed.malformed);
      const { jobId, userId, content } = parsed.job;
      const values = [jobId, userId, content.channel ?? null, JSON.stringify(content)];
      const rows = await query<{ status: string }>(db, RECORD_JOB, values).catch(refusalOf);
      if (typeof rows === 'string')
        return refuse(malformedJob(jobId, entry.fields, entry.size, 'unstorable', rows, userId));
      const [row] = rows;
      // Otherwise it was worked on before; Temporal may have forgotten its workflow by now.
      if (row?.status === 'pending') await start({ jobId, userId, channel: content.channel ?? null });
    },

    /**
     * Writes down an entry that was delivered as often as it may be, so that an operator can replay it. Nothing to
     * give up when only its acknowledgement was missing.
     *
     * @throws as `take`.
     */
    async giveUp(entry: StreamEntry, deliveries: number): Promise<void> {
      const parsed = read(entry);
      if (!parsed.ok) return refuse(parsed.malformed);
      const { jobId, userId, content } = parsed.job;
      if (await isStarted(jobId)) return;
      const message = `delivered ${deliveries} times without being taken`;
      const values = [jobId, userId, content.channel ?? null, JSON.stringify(content), message];
      const rows = await query(db, RECORD_GIVEN_UP, values).catch(refusalOf);
      if (typeof rows === 'string')
        return refuse(malformedJob(jobId, entry.fields, entry.size, 'unstorable', rows, userId));
      if (rows.length === 0) return;
      metrics.mobileMaxRetries({ what: 'entry' });
      log.error(
        { event: 'notifications.max_retries', job_id: jobId, deliveries },
        'stream entry given up; the job can be replayed',
      );
    },

    /**
     * Goes on with jobs whose entries are gone from the stream, as far as they were written down.
     *
     * @returns ids of entries that nothing is known about.
     * @throws as `take`.
     */
    async recover(jobIds: string[]): Promise<string[]> {
      const rows = await query<RecordedRow>(db, LIST_RECORDED, [jobIds]);
      for (const row of rows) {
        if (row.status !== 'pending') continue;
        await start({ jobId: row.job_id, userId: row.user_id, channel: row.channel });
      }
      return jobIds.filter((id) => !rows.some((row) => row.job_id === id));
    },

    /**
     * Starts a job again that is pending and that no workflow works on. One that ended has written down how: its row
     * says so by now, or was put back to an earlier state.
     *
     * @returns whether it did.
     * @throws as `take`.
     */
    async takeUp(job: Startable): Promise<boolean> {
      const state = await withDeadline(() => stateOf(workflows, mobilePushWorkflowId(job.jobId)));
      if (state === 'RUNNING') return false;
      const [row] = await query<RecordedRow>(db, LIST_RECORDED, [[job.jobId]]);
      if (row?.status !== 'pending') return false;
      await start(job, {
        workflowIdReusePolicy: 'ALLOW_DUPLICATE',
        ...(state === 'STUCK' ? { workflowIdConflictPolicy: 'TERMINATE_EXISTING' } : {}),
      });
      return true;
    },

    /** Whether PostgreSQL and Temporal answer. Never throws. */
    async isReachable(): Promise<boolean> {
      // A workflow that cannot be there: answered from Temporal's database, where starts go too.
      const attempts = [query(db, PING, []), isStarted('none')];
      return (await Promise.allSettled(attempts)).every(({ status }) => status === 'fulfilled');
    },
  };

  function read({ id, fields, size }: StreamEntry) {
    return checkedMobileJob(id, fields, size);
  }

  /** Keeps the entry; bare, when PostgreSQL does not take what it holds: it must not hold up those behind it. */
  async function refuse(malformed: MalformedJob): Promise<void> {
    const refusal = await keep(malformed).catch(refusalOf);
    if (typeof refusal !== 'string') return;
    const failureMessage = cutText(`${malformed.failureCode}; ${refusal}`, MAX_REASON);
    await keep({ jobId: malformed.jobId, failureCode: 'unstorable', failureMessage, rawFields: {} });
  }

  async function keep({
    jobId,
    userId,
    failureCode,
    failureMessage,
    rawFields,
  }: MalformedJob): Promise<void> {
    const values = [jobId, userId ?? null, failureCode, failureMessage, JSON.stringify(rawFields)];
    const [isNew] = await query(db, RECORD_MALFORMED_JOB, values);
    log.warn(
      { job_id: jobId, outcome: 'malformed', failure_code: failureCode, reason: failureMessage },
      'malformed mobile job recorded',
    );
    if (isNew) metrics.mobileMalformed({ failure_code: failureCode });
  }

  async function start(
    { jobId, userId, channel }: Startable,
    policies: Pick<WorkflowStartOptions, 'workflowIdReusePolicy' | 'workflowIdConflictPolicy'> = {
      workflowIdReusePolicy: 'REJECT_DUPLICATE',
    },
  ): Promise<void> {
    try {
      await withDeadline(() =>
        workflows.start(MOBILE_PUSH_WORKFLOW, {
          workflowId: mobilePushWorkflowId(jobId),
          taskQueue: MOBILE_TASK_QUEUE,
          args: [{ jobId }],
          ...policies,
          requestEagerStart: true,
          typedSearchAttributes: mobilePushAttributes(searchableKey(userId)),
          staticSummary: cutText(channel === null ? 'push' : `push on ${channel}`, MAX_SUMMARY_LENGTH),
          // A flood on one channel must not starve the others.
          priority: { fairnessKey: fairnessKeyOf(channel ?? '') },
        }),
      );
    } catch (error) {
      if (!(error instanceof WorkflowExecutionAlreadyStartedError)) throw error;
    }
    log.debug({ job_id: jobId }, 'mobile job started');
  }

  async function isStarted(jobId: string): Promise<boolean> {
    return (await withDeadline(() => statusOf(workflows, mobilePushWorkflowId(jobId)))) !== undefined;
  }

  function withDeadline<T>(call: () => Promise<T>): Promise<T> {
    return workflows.withDeadline(Date.now() + CALL_DEADLINE_MS, call);
  }
}

/** @returns why PostgreSQL does not take these values. @throws every other failure. */
function refusalOf(error: unknown): string {
  if (isPostgresRefusal(error)) return error.message;
  throw error;
}

interface Startable {
  jobId: string;
  userId: string;
  channel: string | null;
}

interface RecordedRow {
  job_id: string;
  user_id: string;
  channel: string | null;
  status: string;
}

function fairnessKeyOf(channel: string): string {
  if (Buffer.byteLength(channel) <= MAX_FAIRNESS_KEY_BYTES) return channel;
  return createHash('sha256').update(channel).digest('hex');
}

const PING = { name: 'ping', text: 'SELECT 1' };

/** Returns how the job stands, whoever wrote it down first. */
const RECORD_JOB = {
  name: 'record_mobile_job',
  text: `
    INSERT INTO notifications.notification_log AS log (job_id, user_id, channel, content)
    VALUES ($1, $2, $3, $4)
    ON CONFLICT (job_id) DO UPDATE SET job_id = log.job_id
    RETURNING status`,
};

const RECORD_MALFORMED_JOB = {
  name: 'record_malformed_mobile_job',
  text: `
    INSERT INTO notifications.notification_log (job_id, user_id, status, error_code, error_message, raw_fields)
    VALUES ($1, $2, 'malformed', $3, $4, $5)
    ON CONFLICT (job_id) DO NOTHING
    RETURNING 1`,
};

const RECORD_GIVEN_UP = {
  name: 'record_given_up_mobile_job',
  text: `
    INSERT INTO notifications.notification_log AS log
      (job_id, user_id, channel, content, status, error_code, error_message)
    VALUES ($1, $2, $3, $4, 'max_retries', 'max_retries', $5)
    ON CONFLICT (job_id) DO UPDATE
      SET status = 'max_retries', error_code = 'max_retries', error_message = $5, updated_at = clock_timestamp()
      WHERE log.status = 'pending'
    RETURNING 1`,
};

const LIST_RECORDED = {
  name: 'list_recorded_mobile_jobs',
  text: `
    SELECT job_id, user_id, channel, status FROM notifications.notification_log WHERE job_id = ANY($1)`,
};
