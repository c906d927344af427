/** The counters and gauges of notification subscriptions. */
import type { Meter } from '@opentelemetry/api';
import type { Pool } from 'pg';
import type { WorkerPool } from '../../workflows/subscription/contract.ts';
import type { ListKind } from '../../workflows/subscription/rules.ts';
import type { GaugeRead } from '../metrics.ts';
import { COUNTED_AT_MOST, countersOf, gaugesOfRows } from '../metrics.ts';
import type { Statement } from '../postgres.ts';
import type { EventKind } from './agents.ts';
import { serversWithWork } from './agents.ts';

/** Recording functions, one per counter. */
export type SubscriptionMetrics = ReturnType<typeof createSubscriptionMetrics>;

export function createSubscriptionMetrics(meter: Meter) {
  const { counter, adder } = countersOf(meter);
  return {
    subscriptionWork: adder<{ kind: ListKind; result: 'done' | 'retry' | 'given_up' }>(
      'notification.subscriptions.work',
      'Attempts at work on subscriptions and tokens, by how they ended',
    ),
    subscriptionEvent: counter<{ kind: EventKind }>(
      'notification.subscriptions.events',
      'Events about errors, as clients are told them',
    ),
    subscriptionDeath: counter<{ pool: WorkerPool }>(
      'notification.subscriptions.worker_deaths',
      'Times that a worker of a pool ended by an error',
    ),
  };
}

const DUE = 'notification.subscriptions.due';
const WITHOUT_ACTION = 'notification.subscriptions.without_action';
const UNREADABLE = 'notification.subscriptions.unreadable';
const SILENT_ROUTERS = 'notification.subscriptions.silent_routers';

export function subscriptionGauges(db: Pool): GaugeRead[] {
  const gaugeOf = (gauge: string, description: string, statement: Statement) =>
    gaugesOfRows(db, { [gauge]: { description } }, statement);
  return [
    gaugeOf(
      DUE,
      'Subscriptions and token deletions that something is to be done about now, by pool',
      COUNT_DUE,
    ),
    gaugeOf(
      WITHOUT_ACTION,
      'Subscriptions that a worker has given up; the next command for them starts them over',
      COUNT_WITHOUT_ACTION,
    ),
    gaugeOf(
      UNREADABLE,
      'Rows whose work stopped because a sealed key in them did not open',
      COUNT_UNREADABLE,
    ),
    gaugeOf(
      SILENT_ROUTERS,
      'Routers for which work has been due for a quarter of an hour without an answer, by pool',
      COUNT_SILENT,
    ),
  ];
}

/** In the order of the index that has them, without which PostgreSQL might read the table in search of them. */
const counted = (table: string, condition: string, order: string): string => `
           (SELECT count(*)::float8
              FROM (SELECT FROM subscriptions.${table}
                     WHERE ${condition}
                     ORDER BY ${order}
                     LIMIT ${COUNTED_AT_MOST}) AS these)`;

/** What is no check is due when it is written. */
const COUNT_DUE = {
  name: 'count_due_subscriptions',
  text: `
    SELECT 'ntf-smp' AS pool, ${counted(
      'ntf_subscriptions',
      'smp_action IS NOT NULL AND NOT smp_failed',
      'agent_id, smp_host, smp_port, action_ts, conn_id',
    )} AS "${DUE}"
     UNION ALL
    SELECT 'ntf-ntf', ${counted(
      'ntf_subscriptions',
      'ntf_action IS NOT NULL AND NOT ntf_failed AND action_ts <= now()',
      'action_ts',
    )}
     UNION ALL
    SELECT 'ntf-tkn-del', ${counted('ntf_tokens_to_delete', 'true', 'id')}`,
};

const COUNT_WITHOUT_ACTION = {
  name: 'count_subscriptions_without_action',
  text: `SELECT ${counted('ntf_subscriptions', 'action_ts IS NULL', 'agent_id, conn_id')} AS "${WITHOUT_ACTION}"`,
};

const COUNT_UNREADABLE = {
  name: 'count_unreadable_subscriptions',
  text: `
    SELECT 'subscription' AS kind, ${counted(
      'ntf_subscriptions',
      '(ntf_failed OR smp_failed)',
      'agent_id, conn_id',
    )} AS "${UNREADABLE}"
     UNION ALL
    SELECT 'token_deletion', ${counted('ntf_tokens_to_delete', 'del_failed', 'agent_id, id')}`,
};

/** A router that is worked on for the first time, or tried again at the longest delay, is not silent yet. */
const SINCE = "now() - interval '15 minutes'";

/**
 * A router is silent when the work that was due first is old and no counter of what it has done has moved since. Token
 * deletions have no counters; the oldest of them stays the oldest only while nothing is answered. One look at each router of
 * each agent that is open.
 */
const COUNT_SILENT = {
  name: 'count_silent_routers',
  text: `
    WITH agent AS MATERIALIZED (
      SELECT agent_id FROM subscriptions.agents WHERE is_open
    ), overdue AS (
    ${serversWithWork({ smp: `action_ts < ${SINCE}`, ntf: `action_ts < ${SINCE}`, deletion: `deletion.created_at < ${SINCE}` })}
    ), silent AS (
      SELECT pool
        FROM overdue
       WHERE pool = 'ntf-tkn-del'
          OR NOT EXISTS (SELECT FROM subscriptions.servers_stats AS stats
                          WHERE (stats.agent_id, stats.host, stats.port) = (overdue.agent_id, overdue.host, overdue.port)
                            AND counter IN ('ntfCreated', 'ntfChecked', 'ntfDeleted', 'ntfKey', 'ntfKeyDeleted')
                            AND stats.updated_at >= ${SINCE})
    )
    SELECT pool, (SELECT count(*)::float8 FROM silent WHERE silent.pool = pools.pool) AS "${SILENT_ROUTERS}"
      FROM unnest(ARRAY['ntf-smp', 'ntf-ntf', 'ntf-tkn-del']) AS pools (pool)`,
};
