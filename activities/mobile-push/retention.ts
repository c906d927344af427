/** Which push jobs are deleted, and when: a failed one keeps its content for a replay, and that is personal. */
import type { Kept, RetentionTimes } from '../retention.ts';

const JOBS = { table: 'notifications.notification_log', since: 'created_at' };

/** @returns the tables in the order in which they are deleted from. */
export const mobileTables = (times: RetentionTimes): Kept[] => [
  {
    ...JOBS,
    name: 'mobile_jobs',
    condition: "status NOT IN ('pending', 'malformed')",
    keepMs: times.recordRetentionMs,
  },
  {
    // A pending job that nothing happens to has lost its workflow, or waits for what does not come. The newest of its sends
    // is asked for, and not whether there is a new one: PostgreSQL might read the new ones of all jobs for that.
    ...JOBS,
    name: 'stuck_mobile_jobs',
    condition: "status = 'pending' AND updated_at < now() - interval '1 day'",
    keptBy: [
      `FROM (SELECT max(send.updated_at) AS updated_at FROM notifications.notification_sends AS send
             WHERE send.job_id = notification_log.job_id) AS newest
      WHERE newest.updated_at >= now() - interval '1 day'`,
    ],
    keepMs: times.recordRetentionMs,
  },
  {
    ...JOBS,
    name: 'malformed_mobile_jobs',
    condition: "status = 'malformed'",
    keepMs: times.malformedIntentRetentionMs,
  },
];
