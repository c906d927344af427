/** What can be wrong with mobile pushes: their consumer group, and jobs that failed. */
import type { Redis } from 'ioredis';
import type { Pool } from 'pg';
import type { CheckGroup, Diagnosis } from '../checks.ts';
import { ok, warn } from '../checks.ts';
import { consumerGroup } from '../consumer-group.ts';

export interface MobileNeeds {
  redis: Redis;
  db: Pool;
  stream: string;
  group: string;
}

export function mobileChecks(needs: MobileNeeds): CheckGroup {
  return [
    ['mobile: consumer group', () => consumerGroup({ ...needs, role: 'mobile-push' })],
    ['mobile: jobs', () => jobs(needs.db)],
  ];
}

async function jobs(db: Pool): Promise<Diagnosis> {
  const { rows } = await db.query<{ failed: number; malformed: number }>(COUNT_JOBS);
  const { failed, malformed } = rows[0]!;
  if (failed + malformed === 0) return ok('none failed in the last 24 hours');
  return warn(
    `${failed} failed, ${malformed} malformed in the last 24 hours`,
    'see mobile list --status failed, and mobile replay',
  );
}

const COUNT_JOBS = `
  SELECT count(*) FILTER (WHERE status IN ('failed', 'partial', 'max_retries'))::int AS failed,
         count(*) FILTER (WHERE status = 'malformed')::int AS malformed
    FROM notifications.notification_log
   WHERE created_at > now() - interval '24 hours'`;
