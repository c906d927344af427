/**
 * From a stream entry to a durable job: a row in the log with what is to be shown, then a workflow that works on it.
 * Both may be repeated: a row is written once, a workflow started once. A job whose workflow is lost gets another, and an
 * operation has those that failed sent again.
 */
import { createHash } from 'node:crypto';
import type { WorkflowClient, WorkflowStartOptions } from '@temporalio/client';
import { WorkflowExecutionAlreadyStartedError } from '@temporalio/client';
import type { Pool } from 'pg';
import type { Logger } from 'pino';
import { searchableKey } from '../../api/ids.ts';
import type { MalformedJob, MobileJobContent } from '../../api/mobile-push/job.ts';
import { malformedJob } from '../../api/mobile-push/job.ts';
import { checkedMobileJob } from '../../api/mobile-push/message.ts';
import { clockOfEntry } from '../../api/stream-ids.ts';
import { cutText, storableText } from '../../api/text.ts';
import {
  MOBILE_PUSH_WORKFLOW,
  MOBILE_TASK_QUEUE,
  mobilePushWorkflowId,
  mobileReplay,
} from '../../workflows/mobile-push/contract.ts';
import type { OperationKind } from '../../workflows/operation-contract.ts';
import { orderIdOf } from '../../workflows/operation-contract.ts';
import type { MobilePushMetrics } from './metrics.ts';
import { detailsOf } from '../../workflows/details.ts';
import { userAttributes } from '../../workflows/search-attributes.ts';
import type { Statement } from '../postgres.ts';
import type { OperationItem, OperationWork } from '../operations.ts';
import { ORDER_OF_ITEM, operationItems } from '../operations.ts';
import { isPostgresRefusal, query } from '../postgres.ts';
import type { Reconciled } from '../reconciliation.ts';
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
  mobile: {
    /** From the time of its entry until a push expires whose job does not say when, ms. */
    timeToLiveMs: number;
  };
}

export function createMobileIntake({ db, workflows, log, metrics, mobile }: MobileIntakeResources) {
  return {
    /**
     * Resolves when the entry is durable, as a job that is worked on or as a malformed one.
     *
     * @throws ApplicationFailure of PostgreSQL when it is away, or what the client of Temporal fails with.
     */
    async takeEntry(entry: StreamEntry): Promise<void> {
      const job = await record(entry);
      // Otherwise it was worked on before; Temporal may have forgotten its workflow by now.
      if (job?.status === 'pending') await start(job);
    },

    /**
     * Writes down an entry that was delivered as often as it may be, so that an operator can replay it. Nothing to
     * give up when only its acknowledgement was missing.
     *
     * @throws as `takeEntry`.
     */
    async giveUp(entry: StreamEntry, deliveries: number): Promise<void> {
      const job = await record(entry);
      if (job?.status !== 'pending' || (await isStarted(job.jobId))) return;
      const message = `delivered ${deliveries} times without being taken`;
      const [isGivenUp] = await query(db, GIVE_UP_JOB, [job.jobId, message]);
      if (!isGivenUp) return;
      metrics.mobileMaxRetries({ what: 'entry' });
      log.error(
        { event: 'notifications.max_retries', job_id: job.jobId, deliveries },
        'stream entry given up; the job can be replayed',
      );
    },

    /**
     * Continues jobs whose entries are gone from the stream, if they have a row.
     *
     * @returns ids of entries that nothing is known about.
     * @throws as `takeEntry`.
     */
    async recover(jobIds: string[]): Promise<string[]> {
      const rows = await query<RecordedRow>(db, LIST_RECORDED, [jobIds]);
      for (const row of rows) if (row.status === 'pending') await start(row);
      return jobIds.filter((id) => !rows.some((row) => row.jobId === id));
    },

    /**
     * Starts a job again that is pending and that no workflow works on. One that ended has written down how: its row
     * says so by now, or was put back to an earlier state.
     *
     * @returns whether it did.
     * @throws as `takeEntry`.
     */
    async takeUp(job: Startable): Promise<boolean> {
      const state = await withDeadline(() => stateOf(workflows, mobilePushWorkflowId(job.jobId), true));
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

  /** Writes the job of an entry down, unless that was done before. @returns how it stands; undefined: it is malformed. */
  async function record(entry: StreamEntry): Promise<RecordedRow | undefined> {
    const { id, fields, size } = entry;
    const parsed = checkedMobileJob(id, fields, size);
    if (!parsed.ok) return refuse(entry, parsed.malformed);
    const { userId, content } = parsed.job;
    const channel = content.channel ?? null;
    const values = [userId, channel, JSON.stringify({ ...content, expiresAtMs: expiryOf(id, content) })];
    const row = await write<{ status: string }>(entry, RECORD_JOB, values).catch(refusalOf);
    if (typeof row !== 'string') return { ...row, userId, channel };
    return refuse(entry, malformedJob(id, fields, size, 'unstorable', row, userId));
  }

  /** Redis makes ids of its clock. One that a producer made by hand tells no time: the push lives from now on. */
  function expiryOf(entryId: string, { expiresAtMs }: MobileJobContent): number {
    return expiresAtMs ?? (clockOfEntry(entryId) ?? Date.now()) + mobile.timeToLiveMs;
  }

  /** Keeps the entry; bare, when PostgreSQL does not take what it holds: it must not hold up those behind it. */
  async function refuse(entry: StreamEntry, malformed: MalformedJob): Promise<undefined> {
    const refusal = await keep(entry, malformed).catch(refusalOf);
    if (typeof refusal !== 'string') return;
    const failureMessage = cutText(`${malformed.failureCode}; ${refusal}`, MAX_REASON);
    await keep(entry, { jobId: entry.id, failureCode: 'unstorable', failureMessage, rawFields: {} });
  }

  async function keep(entry: StreamEntry, malformed: MalformedJob): Promise<void> {
    const { userId = null, failureCode, failureMessage, rawFields } = malformed;
    const values = [userId, failureCode, failureMessage, JSON.stringify(rawFields)];
    const { jobId, is_new: isNew } = await write<{ is_new: boolean }>(entry, RECORD_MALFORMED_JOB, values);
    log.warn(
      { job_id: jobId, outcome: 'malformed', failure_code: failureCode, reason: failureMessage },
      'malformed mobile job recorded',
    );
    if (isNew) metrics.mobileMalformed({ failure_code: failureCode });
  }

  /**
   * Writes a row under the id of the entry. Another entry may have had it before: a stream that begins again, or that moves to
   * another Redis, can give an id once more. Then the row gets an id that the content of the entry makes its own.
   */
  async function write<Row extends object>(
    { id, fields }: StreamEntry,
    statement: Statement,
    values: unknown[],
  ): Promise<Row & { jobId: string }> {
    const hash = createHash('sha256');
    for (const part of fields.flat()) hash.update(`${part.length}:`).update(part);
    const entryHash = hash.digest('hex').slice(0, 8);
    const writeAs = async (jobId: string) => {
      const rows = await query<Row & { is_own: boolean }>(db, statement, [jobId, entryHash, ...values]);
      return { ...rows[0]!, jobId };
    };
    const row = await writeAs(id);
    if (row.is_own) return row;
    const jobId = `${id}/${entryHash}`;
    log.warn({ entry_id: id, job_id: jobId }, 'another stream entry had this id; the job gets its own');
    return writeAs(jobId);
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
          staticDetails: detailsOf(`To the devices of ${searchableKey(userId)}`),
          typedSearchAttributes: userAttributes([searchableKey(userId)]),
          staticSummary: cutText(channel === null ? 'push' : `push on ${channel}`, MAX_SUMMARY_LENGTH),
          // A flood on one channel must not starve the others. Long names that begin alike may share a key.
          priority: { fairnessKey: storableText(Buffer.from(channel ?? ''), MAX_FAIRNESS_KEY_BYTES) },
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

/** A job, as its workflow is started by. */
export interface Startable {
  jobId: string;
  userId: string;
  channel: string | null;
}

interface RecordedRow extends Startable {
  status: string;
}

const PING = { name: 'ping', text: 'SELECT 1' };

/** Whether the row is of this entry; $2 its hash. */
const IS_OWN = 'coalesce(log.entry_hash = $2, true) AS is_own';

/** Returns the state of the job, also when another process wrote it first. */
const RECORD_JOB = {
  name: 'record_mobile_job',
  text: `
    INSERT INTO notifications.notification_log AS log (job_id, entry_hash, user_id, channel, content)
    VALUES ($1, $2, $3, $4, $5)
    ON CONFLICT (job_id) DO UPDATE SET job_id = log.job_id
    RETURNING status, ${IS_OWN}`,
};

const RECORD_MALFORMED_JOB = {
  name: 'record_malformed_mobile_job',
  text: `
    INSERT INTO notifications.notification_log AS log
      (job_id, entry_hash, user_id, status, error_code, error_message, raw_fields)
    VALUES ($1, $2, $3, 'malformed', $4, $5, $6)
    ON CONFLICT (job_id) DO UPDATE SET job_id = log.job_id
    RETURNING created_at >= statement_timestamp() AS is_new, ${IS_OWN}`,
};

const GIVE_UP_JOB = {
  name: 'give_up_mobile_job',
  text: `
    UPDATE notifications.notification_log
       SET status = 'max_retries', error_code = 'max_retries', error_message = $2, updated_at = clock_timestamp()
     WHERE job_id = $1 AND status = 'pending'
    RETURNING 1`,
};

const LIST_RECORDED = {
  name: 'list_recorded_mobile_jobs',
  text: `
    SELECT job_id AS "jobId", user_id AS "userId", channel, status
      FROM notifications.notification_log
     WHERE job_id = ANY($1)`,
};

// --- Jobs that lost their workflow ----------------------------------------------------------------------------------

/** Older than any job that is about to be started, ms. */
const SETTLED_MS = 60_000;

interface PendingRow extends Startable {
  /** To the microsecond. */
  createdAt: string;
}

/**
 * Jobs that are pending and that no workflow works on, the oldest first. A device that the rows say has the push gets none;
 * one whose send was forgotten gets it again under the same push id.
 */
export function mobileReconciliation(resources: MobileIntakeResources): Reconciled[] {
  const { db, metrics } = resources;
  const intake = createMobileIntake(resources);
  const jobs: Reconciled<PendingRow> = {
    ...{ what: 'mobile job', isLoss: true, seen: 'pending', done: ['restarted'] },
    page: (after, limit) =>
      query(db, LIST_PENDING, [SETTLED_MS, after?.createdAt ?? '-infinity', after?.jobId ?? '', limit]),
    idOf: ({ jobId }) => jobId,
    async start([job]) {
      if (!(await intake.takeUp(job!))) return {};
      metrics.workTakenUp({ what: 'mobile_job' });
      return { restarted: 1 };
    },
  };
  return [jobs];
}

/** $1 age, ms, $2 and $3 the last of the page before, $4 rows at most. */
const LIST_PENDING = {
  name: 'list_pending_mobile_jobs',
  text: `
    SELECT job_id AS "jobId", user_id AS "userId", channel, created_at::text AS "createdAt"
      FROM notifications.notification_log AS job
     WHERE status = 'pending' AND created_at < now() - $1::int * interval '1 millisecond'
       AND created_at >= $2::timestamptz AND (created_at, job_id) > ($2::timestamptz, $3)
     ORDER BY job.created_at, job_id
     LIMIT $4`,
};

// --- Jobs that are sent again ---------------------------------------------------------------------------------------

/** What operators do to many jobs: sends that failed are made again. A job carries an order out once. */
export function mobileOperations(workflows: WorkflowClient): Partial<Record<OperationKind, OperationWork>> {
  return { resend: { list: LIST_JOBS, deal: resend } };

  /** @returns whether a device is left to send it to. */
  async function resend(item: JobItem): Promise<boolean> {
    if (item.was_resent) return true;
    if (!item.is_failed) return false;
    try {
      const request = { requestedBy: item.requested_by, orderId: orderIdOf(item.operation_id) };
      await workflows.signalWithStart(
        MOBILE_PUSH_WORKFLOW,
        mobileReplay(item.job_id, searchableKey(item.user_id ?? ''), request),
      );
      return true;
    } catch (error) {
      // Its last run completed: every device that could be reached has the push.
      if (error instanceof WorkflowExecutionAlreadyStartedError) return false;
      throw error;
    }
  }
}

interface JobItem extends OperationItem {
  job_id: string;
  user_id: string | null;
  /** It failed before the operation began, and was not opened again since. */
  is_failed: boolean;
  /** By this operation, in a step that did not come to its end. */
  was_resent: boolean;
}

/** Jobs that were pending when the operation began are among those that failed: see client/mobile-push/jobs.ts. */
const LIST_JOBS = {
  name: 'list_operation_jobs',
  text: operationItems(
    `item.job_id, job.user_id,
           coalesce(job.content IS NOT NULL AND job.status IN ('partial', 'failed', 'max_retries', 'pending')
                    AND job.updated_at < operation.created_at, false) AS is_failed,
           coalesce(job.opened_by = ${ORDER_OF_ITEM}, false) AS was_resent`,
    'LEFT JOIN notifications.notification_log AS job ON job.job_id = item.job_id',
  ),
};
