/** Which jobs are old enough to be deleted: a failed one keeps its content for a replay, and that is personal. */
import type { RetentionResources } from '../retention.ts';
import { deleteOlderThan, deletionOf } from '../retention.ts';

export type MobileRetentionActivities = ReturnType<typeof createMobileRetentionActivities>;

export function createMobileRetentionActivities(resources: RetentionResources) {
  const { recordRetentionMs, malformedIntentRetentionMs } = resources.retention;
  return {
    /** Removes jobs past the retention of records with their sends, unless one of them was tried within a day. */
    async deleteExpiredJobs(): Promise<number> {
      const ended = await deleteOlderThan(recordRetentionMs, DELETE_JOBS, resources);
      const stuck = await deleteOlderThan(recordRetentionMs, DELETE_STUCK_JOBS, resources);
      return ended + stuck;
    },
    deleteExpiredMalformedJobs: () =>
      deleteOlderThan(malformedIntentRetentionMs, DELETE_MALFORMED_JOBS, resources),
  };
}

const JOBS = { table: 'notifications.notification_log', key: 'job_id', since: 'created_at' };

const DELETE_JOBS = deletionOf({
  ...JOBS,
  name: 'delete_expired_mobile_jobs',
  condition: "status NOT IN ('pending', 'malformed')",
});

/**
 * A pending one that nothing happens to has lost its workflow, or waits for what does not come. The newest of its sends
 * is asked for, and not whether there is a new one: PostgreSQL might read the new ones of all jobs for that.
 */
const DELETE_STUCK_JOBS = deletionOf({
  ...JOBS,
  name: 'delete_stuck_mobile_jobs',
  condition: `status = 'pending' AND updated_at < now() - interval '1 day' AND coalesce((
             SELECT max(send.updated_at) FROM notifications.notification_sends AS send
              WHERE send.job_id = notification_log.job_id) < now() - interval '1 day', true)`,
});

const DELETE_MALFORMED_JOBS = deletionOf({
  ...JOBS,
  name: 'delete_expired_malformed_mobile_jobs',
  condition: "status = 'malformed'",
});
