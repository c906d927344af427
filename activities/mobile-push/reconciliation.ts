/**
 * Takes up push jobs that nobody works on. The row is the truth and a workflow is its worker: a job that is pending has
 * one, unless Temporal or PostgreSQL has been put back to an earlier state, or somebody has terminated it. A device that
 * the rows say has the push gets none; one whose send was forgotten gets it again under the same push id.
 */
import { Context } from '@temporalio/activity';
import pLimit from 'p-limit';
import type { Pool } from 'pg';
import type { MobileReconciliationOutcome } from '../../workflows/mobile-push/contract.ts';
import { heartbeat } from '../heartbeat.ts';
import { query } from '../postgres.ts';
import type { MobileIntakeResources } from './intake.ts';
import { createMobileIntake } from './intake.ts';

/** Older than any job that is about to be started, ms. */
const SETTLED_MS = 60_000;
/** Jobs that are looked at together. */
const PAGE_SIZE = 500;
/** Concurrently: little beside what new jobs need. */
const PARALLEL = 8;
/** A run that has taken so long leaves the rest to the next one, ms. */
const MAX_RUN_MS = 600_000;

export type MobileReconciliationActivities = ReturnType<typeof createMobileReconciliationActivities>;

interface PendingRow {
  job_id: string;
  user_id: string;
  channel: string | null;
  /** To the microsecond. */
  created_at: string;
}

export function createMobileReconciliationActivities(resources: MobileIntakeResources) {
  const { db, log, metrics } = resources;
  const intake = createMobileIntake(resources);

  return {
    /** Looks at every job that is pending, the oldest first. */
    async takeUpMobileJobs(): Promise<MobileReconciliationOutcome> {
      const activity = Context.current();
      const outcome: MobileReconciliationOutcome = { pending: 0, restarted: 0 };
      const endAt = performance.now() + MAX_RUN_MS;
      let after: [at: string, id: string] = ['-infinity', ''];
      for (;;) {
        const page = await query<PendingRow>(db, LIST_PENDING, [SETTLED_MS, ...after, PAGE_SIZE]);
        await pLimit(PARALLEL).map(page, async ({ job_id: jobId, user_id: userId, channel }) => {
          if (!(await intake.takeUp({ jobId, userId, channel }))) return;
          outcome.restarted += 1;
          metrics.workTakenUp({ what: 'mobile_job' });
        });
        outcome.pending += page.length;
        heartbeat(outcome);
        activity.cancellationSignal.throwIfAborted();
        const last = page.at(-1);
        if (!last || page.length < PAGE_SIZE || performance.now() > endAt) break;
        after = [last.created_at, last.job_id];
      }
      if (outcome.restarted > 0) log.warn({ ...outcome }, 'work was taken up that nobody did');
      return outcome;
    },
  };
}

/** Whether there may be something to take up. @throws ApplicationFailure of PostgreSQL. */
export const areJobsOverdue = async (db: Pool): Promise<boolean> =>
  (await query(db, LIST_PENDING, [SETTLED_MS, '-infinity', '', 1])).length > 0;

/** $1 age, ms, $2 and $3 the last of the page before, $4 rows at most. */
const LIST_PENDING = {
  name: 'list_pending_mobile_jobs',
  text: `
    SELECT job_id, user_id, channel, created_at::text
      FROM notifications.notification_log AS job
     WHERE status = 'pending' AND created_at < now() - $1::int * interval '1 millisecond'
       AND created_at >= $2::timestamptz AND (created_at, job_id) > ($2::timestamptz, $3)
     ORDER BY job.created_at, job_id
     LIMIT $4`,
};
