/** Subscriptions at one glance: of all agents, as the workers' pools see them. */
import type { KindLook } from '../look.ts';
import { COUNTED_AT_MOST, READ_AT_MOST, ageMs, lookOf, readDead, readWaits } from '../look.ts';
import type { OperatorResources } from '../resources.ts';

/** Never throws: what could not be read is said. */
export function subscriptionLook({ db }: OperatorResources): Promise<KindLook> {
  return lookOf(
    ['due subscriptions', () => readWaits(db, READ_DUE_SUBSCRIPTIONS)],
    ['subscriptions given up', () => readDead(db, READ_SUBSCRIPTIONS_DEAD)],
  );
}

/** In the order of the index that has them, without which PostgreSQL might read the table in search of them. */
const first = (column: string, table: string, condition: string, order: string, most: number): string => `
          (SELECT ${column}
             FROM subscriptions.${table}
            WHERE ${condition}
            ORDER BY ${order}
            LIMIT ${most})`;

const READ_DUE_SUBSCRIPTIONS = `
  SELECT what, count(since)::float8 AS count, ${ageMs('min(since)')} AS "oldestMs"
    FROM (SELECT 'of messaging routers' AS what, since FROM ${first(
      'action_ts AS since',
      'ntf_subscriptions',
      'smp_action IS NOT NULL AND NOT smp_failed',
      'agent_id, smp_host, smp_port, action_ts, conn_id',
      READ_AT_MOST,
    )} AS smp
          UNION ALL
          SELECT 'of notification routers', since FROM ${first(
            'action_ts AS since',
            'ntf_subscriptions',
            'ntf_action IS NOT NULL AND NOT ntf_failed AND action_ts <= now()',
            'action_ts',
            READ_AT_MOST,
          )} AS ntf
          UNION ALL
          SELECT 'tokens to be deleted', since FROM ${first(
            'created_at AS since',
            'ntf_tokens_to_delete',
            'true',
            'created_at',
            READ_AT_MOST,
          )} AS tokens) AS due
   GROUP BY what
   ORDER BY what`;

/** The reason that a worker gave up for is in its history alone. */
const READ_SUBSCRIPTIONS_DEAD = `
  SELECT failure, count(*)::float8 AS count
    FROM (SELECT 'given up' AS failure FROM ${first(
      '',
      'ntf_subscriptions',
      'action_ts IS NULL',
      'agent_id, conn_id',
      COUNTED_AT_MOST,
    )} AS given_up
          UNION ALL
          SELECT 'key that does not open' FROM ${first(
            '',
            'ntf_subscriptions',
            '(ntf_failed OR smp_failed)',
            'agent_id, conn_id',
            COUNTED_AT_MOST,
          )} AS unreadable) AS dead
   GROUP BY failure`;

export const STATEMENTS = { READ_DUE_SUBSCRIPTIONS, READ_SUBSCRIPTIONS_DEAD };
