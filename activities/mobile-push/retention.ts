/** Retention of mobile push jobs: what failed keeps its content for a replay, and that is personal. */
import type { RetentionResources } from '../intent/retention.ts';
import { deleteInBatches } from '../expiry.ts';

export type MobileRetentionActivities = ReturnType<typeof createMobileRetentionActivities>;

export function createMobileRetentionActivities(resources: RetentionResources) {
  const { recordRetentionMs, malformedIntentRetentionMs } = resources.retention;
  return {
    /** Removes jobs past the retention of records with their sends, unless they are under way. */
    deleteExpiredJobs: () => deleteInBatches(resources, DELETE_JOBS, recordRetentionMs),
    deleteExpiredMalformedJobs: () =>
      deleteInBatches(resources, DELETE_MALFORMED_JOBS, malformedIntentRetentionMs),
  };
}

const deleteWhere = (condition: string): string => `
    WITH expired AS (
      SELECT job_id
        FROM notifications.notification_log
       WHERE created_at < now() - $1::bigint * interval '1 millisecond' AND ${condition}
       ORDER BY created_at
       LIMIT $2
         FOR UPDATE SKIP LOCKED
    ), deleted AS (
      DELETE FROM notifications.notification_log AS job USING expired WHERE job.job_id = expired.job_id
      RETURNING 1
    )
    SELECT count(*) AS deleted FROM deleted`;

const DELETE_JOBS = {
  name: 'delete_expired_mobile_jobs',
  text: deleteWhere("status NOT IN ('pending', 'malformed')"),
};

const DELETE_MALFORMED_JOBS = {
  name: 'delete_expired_malformed_mobile_jobs',
  text: deleteWhere("status = 'malformed'"),
};
