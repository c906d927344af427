/** The counters and gauges of notification subscriptions. */
import type { BatchObservableResult, Meter, Observable } from '@opentelemetry/api';
import type { Pool } from 'pg';
import type { Logger } from 'pino';
import type { CommandKind, WorkerPool } from '../../workflows/subscription/contract.ts';
import type { ListKind } from '../../workflows/subscription/rules.ts';
import { countersOf } from '../counters.ts';
import { query } from '../postgres.ts';
import { reasonOf } from '../reason.ts';
import type { EventKind } from './events.ts';

/** Recording functions, one per counter. */
export type SubscriptionMetrics = ReturnType<typeof createSubscriptionMetrics>;

export function createSubscriptionMetrics(meter: Meter) {
  const { counter, adder } = countersOf(meter);
  return {
    subscriptionWork: adder<{ kind: ListKind; result: 'done' | 'retry' | 'given_up' }>(
      'notification.subscriptions.work',
      'Attempts at work on subscriptions and tokens, by how they ended',
    ),
    subscriptionCommand: counter<{ kind: CommandKind }>(
      'notification.subscriptions.commands',
      'Commands that supervisors carried out',
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

/**
 * Registers the gauges, which are read from PostgreSQL at each export. Each process reports the same figures: take the
 * maximum over them, not the sum.
 *
 * @returns ends the observation; call it before the connections are closed.
 */
export function observeSubscriptions(meter: Meter, { db, log }: { db: Pool; log: Logger }): () => void {
  const rows = meter.createObservableGauge('notification.subscriptions.rows', {
    description: 'Subscriptions by status',
  });
  const due = meter.createObservableGauge('notification.subscriptions.due', {
    description: 'Subscriptions and token deletions that something is to be done about now, by pool',
  });
  const withoutAction = meter.createObservableGauge('notification.subscriptions.without_action', {
    description: 'Subscriptions that a worker has given up; the next command for them starts them over',
  });
  const tokenDeletions = meter.createObservableGauge('notification.subscriptions.token_deletions', {
    description: 'Tokens that are still to be deleted on their router',
  });
  const unreadable = meter.createObservableGauge('notification.subscriptions.unreadable', {
    description: 'Rows whose work stopped because a sealed key in them did not open',
  });
  const gauges: Observable[] = [rows, due, withoutAction, tokenDeletions, unreadable];

  const observe = async (result: BatchObservableResult): Promise<void> => {
    try {
      const counted = await query<CountRow>(db, COUNT_RECORDS, []);
      const [totals] = await query<TotalsRow>(db, COUNT_DUE, [Date.now()]);
      for (const { status, count } of counted) result.observe(rows, count, { status });
      result.observe(due, totals!.smp, { pool: 'ntf-smp' });
      result.observe(due, totals!.ntf, { pool: 'ntf-ntf' });
      result.observe(due, totals!.deletions, { pool: 'ntf-tkn-del' });
      result.observe(withoutAction, totals!.without_action);
      result.observe(tokenDeletions, totals!.deletions);
      result.observe(unreadable, totals!.unreadable, { kind: 'subscription' });
      result.observe(unreadable, totals!.unreadable_queues, { kind: 'queue' });
      result.observe(unreadable, totals!.unreadable_deletions, { kind: 'token_deletion' });
    } catch (error) {
      // No value is better than a wrong one, and at most one line an export.
      log.warn({ gauge: 'subscriptions', reason: reasonOf(error) }, 'gauge not read');
    }
  };
  meter.addBatchObservableCallback(observe, gauges);
  return () => meter.removeBatchObservableCallback(observe, gauges);
}

interface CountRow {
  status: string;
  count: number;
}

interface TotalsRow {
  smp: number;
  ntf: number;
  deletions: number;
  without_action: number;
  unreadable: number;
  unreadable_queues: number;
  unreadable_deletions: number;
}

/** What a router last said may be any text: only the words that are known become an attribute. */
const COUNT_RECORDS = {
  name: 'count_subscription_records',
  text: `
    SELECT CASE WHEN status ~ '^CREATED (NEW|PENDING|ACTIVE|INACTIVE|SERVICE)$' OR status NOT LIKE 'CREATED %'
                THEN status ELSE 'CREATED other' END AS status,
           count(*)::float8 AS count
      FROM subscriptions.ntf_subscriptions
     GROUP BY 1`,
};

const COUNT_DUE = {
  name: 'count_due_subscriptions',
  text: `
    SELECT count(*) FILTER (WHERE smp_action IS NOT NULL AND NOT smp_failed)::float8 AS smp,
           count(*) FILTER (WHERE ntf_action IS NOT NULL AND NOT ntf_failed
                              AND (ntf_action <> 'C' OR action_ts <= to_timestamp($1::float8 / 1000)))::float8 AS ntf,
           (SELECT count(*)::float8 FROM subscriptions.ntf_tokens_to_delete) AS deletions,
           count(*) FILTER (WHERE action_ts IS NULL)::float8 AS without_action,
           count(*) FILTER (WHERE ntf_failed OR smp_failed)::float8 AS unreadable,
           (SELECT count(*)::float8 FROM subscriptions.rcv_queues WHERE del_failed) AS unreadable_queues,
           (SELECT count(*)::float8 FROM subscriptions.ntf_tokens_to_delete WHERE del_failed) AS unreadable_deletions
      FROM subscriptions.ntf_subscriptions`,
};
