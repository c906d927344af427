/**
 * Account callbacks a second, and how their time grows with the number of users: each user gets an hourly and a daily
 * one. The stand-in portfolio service runs in the process of the benchmark.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { storeInputs } from '../activities/account-callback/inputs.ts';
import { PERIOD_MS } from '../api/account-callback/callback.ts';
import type { CallbackInput } from '../api/account-callback/input.ts';
import type { PortfolioStandIn } from '../dev/stand-ins/account-callback/portfolio-service.ts';
import { startPortfolioService } from '../dev/stand-ins/account-callback/portfolio-service.ts';
import { migrate } from '../migrations/migrate.ts';
import {
  ACCOUNT_CALLBACK_TASK_QUEUE,
  ACCOUNT_CALLBACK_WORKFLOW,
  accountCallbackWorkflowId,
} from '../workflows/account-callback/contract.ts';
import type { Part } from './environment.ts';
import type { Measurement } from './measurement.ts';

export const SHARDS = 4;
const [FEW, MANY] = [1_000, 20_000];
/** A midnight of UTC. */
export const MIDNIGHT = Date.UTC(2026, 2, 29);
/** No round takes as long unless something is broken. */
const ROUND_LIMIT_MS = 1_200_000;

interface CallbackRound {
  users: number;
  callbacks: number;
  /** From the start of the shards to the last callback. */
  perSecond: number;
  /** From the first callback to the last. */
  deliveringMs: number;
  totalMs: number;
}

export const accountCallback: Measurement = {
  name: 'account-callback',
  meaning: `users over ${SHARDS} shards cross an hour and a midnight: two callbacks for each`,
  isQuick: false,
  rows: [
    { name: 'account-callback.few', unit: '/s', meaning: `callbacks with ${FEW} users` },
    { name: 'account-callback.many', unit: '/s', meaning: `callbacks with ${MANY} users` },
    {
      name: 'account-callback.growth',
      unit: '',
      meaning: `time for ${MANY} users by that for ${FEW}, by the ratio of users: below 1, more users cost less each`,
    },
  ],

  async run(bench) {
    const part = await bench.part('account-callback');
    const portfolio = await startPortfolioService();
    bench.onClose(() => portfolio.stop());
    await migrate(part.env['NOTIFICATION_POSTGRES_PRIMARY_DSN']!);
    await beginShards(part);
    await bench.service('account-callback', {
      NOTIFICATION_ROLES: 'account-callback',
      NOTIFICATION_CALLBACK_SHARDS: String(SHARDS),
      // What a machine at its limit is late with is measured as late, and not as a retry a minute later.
      NOTIFICATION_HTTP_TIMEOUT: '60s',
      NOTIFICATION_PORTFOLIO_BASE_URL: portfolio.url,
    });
    // Compilers, caches and connections.
    await measure(part, portfolio, FEW);
    bench.report(`${FEW} and ${MANY} users: an hourly and a daily callback for each`);
    const few = await measure(part, portfolio, FEW);
    const many = await measure(part, portfolio, MANY);
    await bench.stopService('account-callback');
    return [
      { row: 'account-callback.few', value: few.perSecond, details: few },
      { row: 'account-callback.many', value: many.perSecond, details: many },
      { row: 'account-callback.growth', value: many.totalMs / few.totalMs / (MANY / FEW) },
    ];
  },
};

/** Restarts the shards. */
export async function beginShards({ client }: Part): Promise<void> {
  for (let shard = 0; shard < SHARDS; shard += 1) {
    await client.workflow.start(ACCOUNT_CALLBACK_WORKFLOW, {
      workflowId: accountCallbackWorkflowId(shard),
      taskQueue: ACCOUNT_CALLBACK_TASK_QUEUE,
      args: [{ shard }],
      workflowIdConflictPolicy: 'TERMINATE_EXISTING',
    });
  }
}

async function measure(part: Part, portfolio: PortfolioStandIn, users: number): Promise<CallbackRound> {
  await part.db.query(FORGET);
  portfolio.forget();
  const inputs = inputsOf(users);
  for (let from = 0; from < inputs.length; from += 5_000) {
    const entries = inputs
      .slice(from, from + 5_000)
      .map((input, index) => ({ id: `${from + index + 1}-0`, input }));
    await storeInputs(part.db, entries);
  }
  const beganAt = Date.now();
  await beginShards(part);
  while (portfolio.calls.length < 2 * users) {
    if (Date.now() > beganAt + ROUND_LIMIT_MS) {
      throw new Error(`${portfolio.calls.length} of ${2 * users} callbacks came`);
    }
    await sleep(50);
  }
  const times = portfolio.calls.map(({ at }) => at);
  const [firstAt, lastAt] = [times[0]!, times.at(-1)!];
  const totalMs = lastAt - beganAt;
  return {
    users,
    callbacks: times.length,
    perSecond: (times.length * 1_000) / totalMs,
    deliveringMs: lastAt - firstAt,
    totalMs,
  };
}

/** The last hour and the last day of each user. */
function inputsOf(users: number): CallbackInput[] {
  const start = MIDNIGHT - PERIOD_MS.hourly;
  return Array.from({ length: users }, (_, index) => `user-${index}`).flatMap(
    (user_id, index): CallbackInput[] => {
      const extremes = {
        ...{ user_id, peak_value: `${1_000 + index}.25`, peak_at_ms: start },
        ...{ bottom_value: `${index}.5`, bottom_at_ms: start },
      };
      return [
        { kind: 'track', user_id, from_ms: start },
        { kind: 'hour', hour_start_ms: start, ...extremes, closing_value: `${index + 1}` },
        { kind: 'day', day: new Date(start).toISOString().slice(0, 10), ...extremes },
      ];
    },
  );
}

const FORGET = `
  TRUNCATE notification.callback_trackings, notification.callback_snapshots, notification.failed_callbacks`;
