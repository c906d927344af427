/**
 * Push jobs that are pending and that no workflow works on. A device that the rows say has the push gets none; one whose
 * send was forgotten gets it again under the same push id.
 */
import { query } from '../postgres.ts';
import type { Reconciled } from '../reconciliation.ts';
import type { MobileIntakeResources, Startable } from './intake.ts';
import { createMobileIntake } from './intake.ts';

/** Older than any job that is about to be started, ms. */
const SETTLED_MS = 60_000;

interface PendingRow extends Startable {
  /** To the microsecond. */
  createdAt: string;
}

/** The oldest first. */
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
