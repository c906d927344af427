/**
 * What the values of an hour cost when there is a tick a second: CPU of the process and of PostgreSQL for an account, and
 * accounts a second, ticks read and results written included. It is computed in the process of the benchmark, shard by
 * shard, so one core is in use; processes that have other shards add theirs.
 */
import pg from 'pg';
import { processCompleteHours } from '../activities/account-callback/hours.ts';
import { PERIOD_MS } from '../api/account-callback/callback.ts';
import { migrate } from '../migrations/migrate.ts';
import { MIDNIGHT, SHARDS } from './account-callback.ts';
import type { Bench } from './environment.ts';
import type { Measurement } from './measurement.ts';

const { hourly: HOUR } = PERIOD_MS;
/** Accounts of the measured hour, each with 5 of the symbols, and a tick a second of each. */
const [ACCOUNTS, SYMBOLS, HELD, TICKS] = [20_000, 50, 5, 3_600];
/** Compilers and caches. */
const WARM_UP = 400;

export const accountValues: Measurement = {
  name: 'account-values',
  meaning: `the hour of ${ACCOUNTS} accounts with ${HELD} of ${SYMBOLS} symbols, a tick a second of each`,
  isQuick: true,
  rows: [
    {
      name: 'account-values.cpu',
      unit: 'ms',
      meaning: 'CPU of the process and of PostgreSQL for the hour of one account',
      target: { atMost: 2 },
    },
    {
      name: 'account-values.rate',
      unit: '/s',
      meaning: 'accounts on one core; the target is 100,000 in 5 minutes on two',
      target: { atLeast: 167 },
    },
    {
      name: 'account-values.memory',
      unit: 'MB',
      meaning: 'resident memory meanwhile, highest above the start',
    },
  ],

  async run(bench) {
    const part = await bench.part('account-callback');
    await bench.stopService('account-callback');
    const dsn = part.env['NOTIFICATION_POSTGRES_PRIMARY_DSN']!;
    await migrate(dsn);
    const db = new pg.Pool({
      connectionString: dsn,
      max: 2,
      options: '-c timezone=UTC',
      statement_timeout: 5_000,
    });
    bench.onClose(() => db.end());
    await fill(db, WARM_UP);
    await hourOfAll(db);
    bench.report(`${ACCOUNTS} accounts, ${SYMBOLS * TICKS} ticks`);
    await fill(db, ACCOUNTS);
    const before = process.memoryUsage.rss();
    let highest = before;
    const beganAt = performance.now();
    const cpuBefore = cpuOf(bench);
    const users = await hourOfAll(db, () => (highest = Math.max(highest, process.memoryUsage.rss())));
    const ms = performance.now() - beganAt;
    const cpuAfter = cpuOf(bench);
    if (users !== ACCOUNTS) throw new Error(`${users} of ${ACCOUNTS} accounts were computed`);
    return [
      ...(cpuBefore && cpuAfter
        ? [
            {
              row: 'account-values.cpu',
              value: (1_000 * (cpuAfter.all - cpuBefore.all)) / ACCOUNTS,
              details: { ofPostgres: (1_000 * (cpuAfter.postgres - cpuBefore.postgres)) / ACCOUNTS },
            },
          ]
        : []),
      { row: 'account-values.rate', value: (1_000 * ACCOUNTS) / ms },
      { row: 'account-values.memory', value: (highest - before) / 1024 ** 2 },
    ];
  },
};

/** CPU so far, s: this process beside PostgreSQL; undefined where the system does not tell. */
function cpuOf(bench: Bench): { all: number; postgres: number } | undefined {
  const servers = bench.cpu(process.pid);
  if (servers === undefined) return undefined;
  const { user, system } = process.cpuUsage();
  // The servers are children of this process.
  return { all: servers.postgres + (user + system) / 1e6, postgres: servers.postgres };
}

const resources = (db: pg.Pool) => ({
  db,
  log: { info: () => undefined, warn: () => undefined, error: () => undefined } as never,
  inputs: { oldestOutstanding: async () => undefined },
  callbacks: { priceGraceMs: 0, symbolSilenceMs: HOUR, snapshotRetentionMs: 24 * HOUR },
});

/** @returns accounts that were computed. */
async function hourOfAll(db: pg.Pool, beat: () => void = () => undefined): Promise<number> {
  const time = { nowMs: MIDNIGHT, realMs: MIDNIGHT };
  let users = 0;
  for (let shard = 0; shard < SHARDS; shard += 1) {
    for (let isBehind = true; isBehind;) {
      const outcome = await processCompleteHours(resources(db), shard, time, beat);
      users += outcome.computed;
      isBehind = outcome.isBehind;
    }
  }
  return users;
}

async function fill(db: pg.Pool, accounts: number): Promise<void> {
  for (const statement of FILL) await db.query(statement.replaceAll('$accounts', String(accounts)));
}

const FILL = [
  `TRUNCATE notification.callback_trackings, notification.callback_positions, notification.callback_prices,
            notification.callback_symbols, notification.callback_snapshots, notification.failed_callbacks,
            notification.callback_dead_letters, notification.callback_set_aside`,
  `UPDATE notification.callback_settings SET shards = ${SHARDS}, users_placed = true`,
  `INSERT INTO notification.callback_trackings (user_id, shard, daily_date, caught_up_to_ms, created_at)
   SELECT 'user-' || n, notification.callback_shard('user-' || n), '2026-03-27', ${MIDNIGHT - HOUR}, now()
     FROM generate_series(1, $accounts) AS n`,
  `INSERT INTO notification.callback_positions (user_id, at_ms, cash, coefficients)
   SELECT 'user-' || n, ${MIDNIGHT - HOUR}, n,
          (SELECT jsonb_object_agg('S' || (n + leg * 7) % ${SYMBOLS}, (leg + 0.25)::text)
             FROM generate_series(1, ${HELD}) AS leg)
     FROM generate_series(1, $accounts) AS n`,
  `INSERT INTO notification.callback_prices (symbol, at_ms, price)
   SELECT 'S' || symbol, ${MIDNIGHT - HOUR} + second * 1000::bigint + symbol,
          60000.25 + (second * (symbol + 7)) % 1009
     FROM generate_series(0, ${SYMBOLS - 1}) AS symbol, generate_series(0, ${TICKS - 1}) AS second`,
  `INSERT INTO notification.callback_symbols (symbol, last_at_ms)
   SELECT symbol, max(at_ms) FROM notification.callback_prices GROUP BY symbol`,
  'ANALYZE',
];
