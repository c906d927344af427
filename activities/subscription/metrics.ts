/** The counters and gauges of notification subscriptions. */
import type { Meter } from '@opentelemetry/api';
import type { Pool } from 'pg';
import type { Logger } from 'pino';
import type { CommandKind, WorkerPool } from '../../workflows/subscription/contract.ts';
import type { ListKind } from '../../workflows/subscription/rules.ts';
import { countersOf } from '../counters.ts';
import { gaugeRead, observeReads } from '../gauges.ts';
import { query } from '../postgres.ts';
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

const ROWS = 'notification.subscriptions.rows';
const DUE = 'notification.subscriptions.due';
const WITHOUT_ACTION = 'notification.subscriptions.without_action';
const TOKEN_DELETIONS = 'notification.subscriptions.token_deletions';

/**
 * Registers the gauges (activities/gauges.ts).
 *
 * @returns ends the observation; call it before the connections are closed.
 */
export function observeSubscriptions(meter: Meter, { db, log }: { db: Pool; log: Logger }): () => void {
  const statuses = gaugeRead({
    what: 'subscriptions by status',
    gauges: { [ROWS]: { description: 'Subscriptions by status' } },
    async read() {
      const counted = await query<CountRow>(db, COUNT_RECORDS, []);
      return counted.map(({ status, count }) => ({ gauge: ROWS, value: count, attributes: { status } }));
    },
  });
  const dueNow = gaugeRead({
    what: 'due subscriptions',
    gauges: {
      [DUE]: {
        description: 'Subscriptions and token deletions that something is to be done about now, by pool',
      },
      [WITHOUT_ACTION]: {
        description: 'Subscriptions that a worker has given up; the next command for them starts them over',
      },
      [TOKEN_DELETIONS]: { description: 'Tokens that are still to be deleted on their router' },
    },
    async read() {
      const [totals] = await query<TotalsRow>(db, COUNT_DUE, [Date.now()]);
      const { smp, ntf, deletions, without_action: withoutAction } = totals!;
      return [
        { gauge: DUE, value: smp, attributes: { pool: 'ntf-smp' } },
        { gauge: DUE, value: ntf, attributes: { pool: 'ntf-ntf' } },
        { gauge: DUE, value: deletions, attributes: { pool: 'ntf-tkn-del' } },
        { gauge: WITHOUT_ACTION, value: withoutAction },
        { gauge: TOKEN_DELETIONS, value: deletions },
      ];
    },
  });
  return observeReads(meter, log, [statuses, dueNow]);
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
           count(*) FILTER (WHERE smp_action IS NULL AND ntf_action IS NULL)::float8 AS without_action
      FROM subscriptions.ntf_subscriptions`,
};
