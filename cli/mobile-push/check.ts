/** What can be wrong with mobile pushes: their consumer group, and jobs that failed. */
import type { Redis } from 'ioredis';
import type { Pool } from 'pg';
import type { CheckGroup, Diagnosis } from '../checks.ts';
import { ok, warn } from '../checks.ts';

/** Entries behind the group's last delivery that say that nobody reads. */
const MANY_UNREAD = 1_000;

export interface MobileNeeds {
  redis: Redis;
  db: Pool;
  stream: string;
  group: string;
}

export function mobileChecks(needs: MobileNeeds): CheckGroup {
  return [
    ['mobile: consumer group', () => consumerGroup(needs)],
    ['mobile: jobs', () => jobs(needs.db)],
  ];
}

async function consumerGroup({ redis, stream, group }: MobileNeeds): Promise<Diagnosis> {
  if (!(await redis.exists(stream))) return ok(`${stream} does not exist yet`);
  const groups = (await redis.xinfo('GROUPS', stream)) as unknown[][];
  const ours = groups.map(fieldsOf).find((fields) => fields['name'] === group);
  if (!ours) return warn(`${stream} has no group ${group}`, 'start the service: it creates the group');
  const [lag, pending, consumers] = ['lag', 'pending', 'consumers'].map((name) => Number(ours[name] ?? 0));
  const detail = `${lag} unread, ${pending} not acknowledged, ${consumers} consumers ever`;
  return lag! > MANY_UNREAD
    ? warn(detail, 'is a process with the role mobile-push running, and are there enough of them?')
    : ok(detail);
}

function fieldsOf(reply: unknown[]): Record<string, unknown> {
  const fields: Record<string, unknown> = {};
  for (let i = 0; i + 1 < reply.length; i += 2) fields[String(reply[i])] = reply[i + 1];
  return fields;
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
