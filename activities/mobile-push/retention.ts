/** Which push jobs are deleted, and when: a failed one keeps its content for a replay, and that is personal. */
import type { Expiring, Kept } from '../retention.ts';

/** @returns the tables in the order in which they are deleted from. */
export const mobileTables = (settings: {
  recordRetentionMs: number;
  malformedIntentRetentionMs: number;
}): Kept[] => [
  { ...ENDED, keepMs: settings.recordRetentionMs },
  { ...STUCK, keepMs: settings.recordRetentionMs },
  { ...MALFORMED, keepMs: settings.malformedIntentRetentionMs },
];

const ENDED: Expiring = {
  name: 'mobile_jobs',
  table: 'notifications.notification_log',
  since: 'created_at',
  condition: "status NOT IN ('pending', 'malformed')",
};

/**
 * A pending job that nothing happens to has lost its workflow, or waits for what does not come. The newest of its sends
 * is asked for, and not whether there is a new one: PostgreSQL might read the new ones of all jobs for that.
 */
const STUCK: Expiring = {
  name: 'stuck_mobile_jobs',
  table: 'notifications.notification_log',
  since: 'created_at',
  condition: "status = 'pending' AND updated_at < now() - interval '1 day'",
  keptBy: [
    `FROM (SELECT max(send.updated_at) AS updated_at FROM notifications.notification_sends AS send
             WHERE send.job_id = notification_log.job_id) AS newest
      WHERE newest.updated_at >= now() - interval '1 day'`,
  ],
};

const MALFORMED: Expiring = {
  name: 'malformed_mobile_jobs',
  table: 'notifications.notification_log',
  since: 'created_at',
  condition: "status = 'malformed'",
};
