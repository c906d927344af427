/** What can be wrong with mobile pushes: their consumer group, the table of device tokens, and jobs that failed. */
import type { Pool } from 'pg';
import type { CheckGroup, ConsumerGroup, Diagnosis } from '../checks.ts';
import { consumerGroup, error, ok, rowCheck, warn } from '../checks.ts';

export const mobileChecks = (db: Pool, group: ConsumerGroup): CheckGroup => [
  ['mobile: consumer group', () => consumerGroup(group, 'mobile-push')],
  rowCheck(db, 'mobile: device tokens', CHECK_DEVICE_TOKENS, ([row]: [DeviceTokensRow]) =>
    diagnosisOfTokens(row),
  ),
  rowCheck(db, 'mobile: jobs', COUNT_JOBS, ([{ failed, malformed, stuck }]: [JobsRow]) =>
    failed + malformed + stuck === 0
      ? ok('none failed in the last 24 hours')
      : warn(
          `${failed} failed, ${malformed} malformed in the last 24 hours; ${stuck} pending for over an hour`,
          'see mobile list --replayable, and mobile replay',
        ),
  ),
];

/** The table of another service, without which every job waits. */
function diagnosisOfTokens(row: DeviceTokensRow): Diagnosis {
  const { exists, missing, may_read, may_delete, is_indexed } = row;
  if (!exists)
    return error('there is no table public.device_token', 'every job waits until its owner creates it');
  if (missing.length > 0) {
    return error(`public.device_token lacks ${missing.join(', ')}`, 'jobs wait until its owner adds them');
  }
  const lacking = [...(may_read ? [] : ['SELECT']), ...(may_delete ? [] : ['DELETE'])];
  if (lacking.length > 0) {
    const grants = lacking.join(', ');
    return error(`no right to ${grants} on public.device_token`, `GRANT ${grants} ON public.device_token`);
  }
  return is_indexed
    ? ok('public.device_token can be read by user, and stale tokens deleted')
    : warn('public.device_token has no index on "userId"', 'each job reads the whole table until it has one');
}

interface DeviceTokensRow {
  exists: boolean;
  missing: string[];
  may_read: boolean;
  may_delete: boolean;
  is_indexed: boolean;
}

const CHECK_DEVICE_TOKENS = `
  WITH device_token AS (SELECT to_regclass('public.device_token') AS oid)
  SELECT oid IS NOT NULL AS exists,
         ARRAY(
           SELECT name FROM unnest(ARRAY['id', 'userId', 'token']) AS name
            WHERE NOT EXISTS (
              SELECT 1 FROM pg_attribute WHERE attrelid = oid AND attname = name AND NOT attisdropped
            )
         ) AS missing,
         coalesce(has_table_privilege(oid, 'SELECT'), false) AS may_read,
         coalesce(has_table_privilege(oid, 'DELETE'), false) AS may_delete,
         EXISTS (
           SELECT 1 FROM pg_index JOIN pg_attribute ON attrelid = indrelid AND attnum = indkey[0]
            WHERE indrelid = oid AND attname = 'userId' AND indisvalid
         ) AS is_indexed
    FROM device_token`;

interface JobsRow {
  failed: number;
  malformed: number;
  stuck: number;
}

const COUNT_JOBS = `
  SELECT count(*) FILTER (WHERE content IS NOT NULL AND status IN ('failed', 'partial', 'max_retries'))::int AS failed,
         count(*) FILTER (WHERE status = 'malformed')::int AS malformed,
         (SELECT count(*)::int FROM notifications.notification_log
           WHERE status = 'pending' AND updated_at < now() - interval '1 hour') AS stuck
    FROM notifications.notification_log
   WHERE created_at > now() - interval '24 hours' AND status NOT IN ('sent', 'no_tokens')`;
