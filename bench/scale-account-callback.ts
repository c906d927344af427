/**
 * Account callbacks over large tables: how long a process takes to start, and the longest statement of what is done again
 * and again.
 */
import pg from 'pg';
import {
  beginPage,
  callbackTables,
  loadDueRetries,
  recordDelivered,
  recordFailed,
  waitsOf,
} from '../activities/account-callback/callback-rows.ts';
import { PERIOD_MS } from '../api/account-callback/callback.ts';
import { startPortfolioService } from '../dev/stand-ins/account-callback/portfolio-service.ts';
import { deleteAllExpired } from '../dev/retention.ts';
import { migrate } from '../migrations/migrate.ts';
import type { EmissionCursor } from '../workflows/account-callback/contract.ts';
import { MAX_EMISSIONS, MAX_RETRIES } from '../workflows/account-callback/contract.ts';
import { MIDNIGHT, SHARDS, beginShards } from './account-callback.ts';
import type { Bench, Part } from './environment.ts';
import type { Measurement } from './measurement.ts';

const USERS = 28_000;
/** 28,000 users for 72 hours: 2 million snapshots, of which most are past their retention when it is measured. */
const HOURS = 72;
const { hourly: HOUR, daily: DAY } = PERIOD_MS;
const RETRY_MS = 60_000;

export const scaleAccountCallback: Measurement = {
  name: 'scale.callbacks',
  meaning: `account callbacks over 2 million snapshots of ${USERS} users`,
  isQuick: false,
  rows: [
    {
      name: 'scale.callbacks.start',
      unit: 's',
      meaning: 'until a process is ready',
      target: { atMost: 10 },
    },
    {
      name: 'scale.callbacks.statement',
      unit: 'ms',
      meaning: 'the longest statement of a day, and of retention',
      target: { atMost: 5_000 },
    },
    {
      name: 'scale.callbacks.retention',
      unit: 's',
      meaning: 'deletion of the snapshots past their retention, two thirds of all',
    },
  ],

  async run(bench) {
    const part = await bench.part('account-callback');
    await bench.stopService('account-callback');
    await migrate(part.env['NOTIFICATION_POSTGRES_PRIMARY_DSN']!);
    await part.db.query(FORGET);
    const { db, longest } = watchedPool(part);
    bench.onClose(() => db.end());
    bench.report('Filling the tables');
    await fill(part);

    const startMs = await startOnce(bench, part);
    await part.db.query(PENDING_DAYS);
    await days(db);
    const retentionMs = await timed(() => deleteAllExpired(db, HOURS_OF_A_DAY));
    return [
      { row: 'scale.callbacks.start', value: startMs / 1_000 },
      { row: 'scale.callbacks.statement', value: longest().ms, details: longest() },
      { row: 'scale.callbacks.retention', value: retentionMs / 1_000 },
    ];
  },
};

async function timed(work: () => Promise<unknown>): Promise<number> {
  const began = performance.now();
  await work();
  return performance.now() - began;
}

/** A pool as the service has it, that remembers its longest statement. */
function watchedPool({ env }: Part) {
  const db = new pg.Pool({
    connectionString: env['NOTIFICATION_POSTGRES_PRIMARY_DSN'],
    max: 2,
    options: '-c timezone=UTC',
    statement_timeout: 5_000,
  });
  let longest = { name: '', ms: 0 };
  const query = db.query.bind(db) as (config: pg.QueryConfig) => Promise<pg.QueryResult>;
  const watched = async (config: pg.QueryConfig) => {
    const began = performance.now();
    try {
      return await query(config);
    } finally {
      const ms = performance.now() - began;
      if (ms > longest.ms) longest = { name: config.name ?? '', ms };
    }
  };
  return { db: Object.assign(db, { query: watched }), longest: () => longest };
}

async function fill({ db }: Part): Promise<void> {
  for (const statement of FILL) await db.query(statement);
}

/** @returns ms until a process was ready, whose shards find nothing due: what they do is measured apart. */
async function startOnce(bench: Bench, part: Part): Promise<number> {
  const portfolio = await startPortfolioService();
  try {
    await beginShards(part);
    return await timed(() =>
      bench.service('account-callback', {
        NOTIFICATION_ROLES: 'account-callback',
        NOTIFICATION_CALLBACK_SHARDS: String(SHARDS),
        NOTIFICATION_PORTFOLIO_BASE_URL: portfolio.url,
      }),
    );
  } finally {
    await bench.stopService('account-callback');
    await portfolio.stop();
  }
}

/** A day of all users, while the portfolio service is away, and once more when it is back. */
async function days(db: pg.Pool): Promise<void> {
  for (let shard = 0; shard < SHARDS; shard += 1) {
    let after: EmissionCursor | undefined;
    for (;;) {
      const { due, upTo } = await beginPage(db, shard, 'daily', after, MAX_EMISSIONS);
      if (!upTo) break;
      const failed = due.map((callback) => ({
        ...callback,
        reason: 'status 503',
        outline: 'status 503',
        waitMs: RETRY_MS,
      }));
      await recordFailed(db, failed, MIDNIGHT);
      after = upTo;
    }
    if (!after) throw new Error('no day is due');
    while ((await waitsOf(db, shard, MIDNIGHT)).nextRetryMs !== undefined) {
      await recordDelivered(db, await loadDueRetries(db, shard, MIDNIGHT + RETRY_MS, MAX_RETRIES));
    }
  }
}

/** Hours older than a day, as if that were their retention. */
const HOURS_OF_A_DAY = callbackTables(30 * DAY, 30 * DAY).map((table) =>
  table.name === 'hourly_callbacks' ? { ...table, keepMs: DAY } : table,
);

const FORGET = `
  TRUNCATE notification.callback_trackings, notification.callback_snapshots, notification.failed_callbacks`;

const SNAPSHOT = `notification.callback_snapshots
  (kind, user_id, period_start_ms, shard, entry_id, peak_value, peak_at_ms, bottom_value, bottom_at_ms, closing_value,
   status, created_at, settled_at)`;

const PENDING_DAYS = `
  INSERT INTO ${SNAPSHOT}
  SELECT 'daily', user_id, ${MIDNIGHT - DAY}, shard, '2-0', '2', ${MIDNIGHT - DAY}, '1', ${MIDNIGHT - DAY}, '1', 'pending',
         now(), NULL
    FROM notification.callback_trackings`;

const FILL = [
  `UPDATE notification.callback_settings SET shards = ${SHARDS}`,
  `INSERT INTO notification.callback_trackings
     (user_id, shard, entry_id, is_waited_for, caught_up_date, daily_date, changed_at)
   SELECT 'user-' || n, notification.callback_shard('user-' || n), '1-0', true, '2026-03-28', '2026-03-27', now()
     FROM generate_series(1, ${USERS}) AS n`,
  // In the order of time, as they come. Dead letters keep those of the first hour.
  `INSERT INTO ${SNAPSHOT}
   SELECT 'hourly', user_id, at_ms, shard, '1-0', '2', at_ms, '1', at_ms, '1',
          CASE at_ms WHEN ${MIDNIGHT - HOURS * HOUR} THEN 'dropped' ELSE 'delivered' END, now(),
          now() - (${MIDNIGHT} - at_ms) * interval '1 millisecond'
     FROM generate_series(${MIDNIGHT - HOURS * HOUR}, ${MIDNIGHT - HOUR}, ${HOUR}::bigint) AS at_ms
    CROSS JOIN notification.callback_trackings
    ORDER BY at_ms`,
  `INSERT INTO notification.failed_callbacks
   SELECT kind, user_id, period_start_ms, shard, 6, NULL, 'status 503', now()
     FROM notification.callback_snapshots WHERE status = 'dropped'`,
  'ANALYZE',
];
