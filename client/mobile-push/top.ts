/** Mobile pushes at one glance. */
import type { KindLook } from '../look.ts';
import { READ_AT_MOST, WINDOW_BEGIN, ageMs, lookOf, readDead, readRates, readWaits } from '../look.ts';
import type { OperatorResources } from '../resources.ts';

/** Never throws: what could not be read is said. */
export function mobileLook({ db }: OperatorResources): Promise<KindLook> {
  return lookOf(
    ['rates', () => readRates(db, READ_MOBILE_RATES)],
    ['waiting jobs', () => readWaits(db, READ_MOBILE_JOBS)],
    ['failed jobs', () => readDead(db, READ_MOBILE_DEAD)],
  );
}

/** No index has when a job ended, so those are looked at that came within ten minutes. */
const READ_MOBILE_RATES = `
  SELECT count(*) FILTER (WHERE created_at > ${WINDOW_BEGIN})::float8 AS arrived,
         count(*) FILTER (WHERE status <> 'pending' AND updated_at > ${WINDOW_BEGIN})::float8 AS done
    FROM (SELECT created_at, updated_at, status
            FROM notifications.notification_log
           WHERE created_at > now() - interval '10 minutes'
           ORDER BY created_at DESC
           LIMIT ${READ_AT_MOST}) AS newest`;

/** A replay opens old jobs again, which touches their rows. */
const READ_MOBILE_JOBS = `
  SELECT 'jobs' AS what, count(*)::float8 AS count, ${ageMs('min(updated_at)')} AS "oldestMs"
    FROM (SELECT updated_at
            FROM notifications.notification_log
           WHERE status = 'pending'
           ORDER BY created_at
           LIMIT ${READ_AT_MOST}) AS oldest`;

/** The condition on the status that the index has is said once more: PostgreSQL does not conclude it from the list. */
const READ_MOBILE_DEAD = `
  SELECT coalesce(error_code, asked.status) AS failure, count(*)::float8 AS count
    FROM unnest(ARRAY['failed', 'partial', 'max_retries', 'malformed']) AS asked (status)
   CROSS JOIN LATERAL (
     SELECT error_code
       FROM notifications.notification_log AS job
      WHERE job.status = asked.status AND job.status NOT IN ('sent', 'no_tokens')
      ORDER BY job.created_at DESC
      LIMIT ${READ_AT_MOST}
   ) AS newest
   GROUP BY 1`;

export const STATEMENTS = { READ_MOBILE_RATES, READ_MOBILE_JOBS, READ_MOBILE_DEAD };
