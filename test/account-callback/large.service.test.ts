/** Large tables stop nothing: neither the first day of many users, nor the status of shards, nor retention. */
import type { Pool } from 'pg';
import { beginPage, callbackTables } from '../../activities/account-callback/callback-rows.ts';
import { callbackOperations } from '../../client/account-callback/callbacks.ts';
import type { OperatorResources } from '../../client/resources.ts';
import { DAY, HOUR, MIDNIGHT, benchOfTests } from './callbacks.ts';
import { deleteExpired } from '../../dev/retention.ts';

const TABLES = callbackTables(30 * DAY, 90 * DAY);
const NOON = MIDNIGHT - 12 * HOUR;

const bench = benchOfTests();
afterEach(() => bench.empty());

/** @param selected kind, user, start, status and time of the delivery of snapshots, as the rest of a SELECT. */
const haveSnapshots = (selected: string, values: unknown[] = []) =>
  bench.rows(
    `INSERT INTO notification.callback_snapshots
       (entry_id, peak_value, peak_at_ms, bottom_value, bottom_at_ms, closing_value, created_at,
        shard, kind, user_id, period_start_ms, status, settled_at)
     SELECT '1-0', '1', 0, '1', 0, '1', now(), 0, ${selected}`,
    values,
  );

/** Of snapshots whose callback failed: of all but those that are tried again it was given up. */
const haveFailures = (condition: string) =>
  bench.rows(`
    INSERT INTO notification.failed_callbacks
    SELECT kind, user_id, period_start_ms, shard, 6, CASE status WHEN 'retrying' THEN now() END, 'down',
           coalesce(settled_at, '2025-01-01')
      FROM notification.callback_snapshots WHERE ${condition}`);

/** Delivered hours of so many users before a time, as they lie there for days. */
async function haveHistory(users: number, hours: number, beforeMs: number): Promise<void> {
  await bench.rows(
    `INSERT INTO notification.callback_trackings
       (user_id, shard, entry_id, is_waited_for, caught_up_date, daily_date, changed_at)
     SELECT 'user-' || n, notification.callback_shard('user-' || n), '1-0', true,
            to_timestamp($2::bigint / 1000)::date - 1, to_timestamp($2::bigint / 1000)::date - 2, now()
       FROM generate_series(1, $1::int) AS n`,
    [users, beforeMs],
  );
  await haveSnapshots(
    `'hourly', user_id, $2::bigint - hour * ${HOUR}, 'delivered',
     to_timestamp(($2::bigint - hour * ${HOUR}) / 1000.0) + interval '1 minute'
       FROM notification.callback_trackings, generate_series(1, $1::int) AS hour`,
    [hours, beforeMs],
  );
}

/** @param work may ask how many rows of the table its transaction has read so far, by whatever plan. */
async function inTransaction(
  table: string,
  work: (db: Pool, rowsRead: () => Promise<number>) => Promise<void>,
): Promise<void> {
  const client = await bench.slot.db.connect();
  const rowsRead = async () => {
    const { rows } = await client.query<{ read: number }>(
      'SELECT (seq_tup_read + idx_tup_fetch)::int AS read FROM pg_stat_xact_user_tables WHERE relname = $1',
      [table],
    );
    return rows[0]!.read;
  };
  try {
    await client.query('BEGIN');
    await work(client as unknown as Pool, rowsRead);
  } finally {
    await client.query('ROLLBACK');
    client.release();
  }
}

test('kinds-V1 no process starts with another number of shards than that of the users', async () => {
  await haveHistory(1, 1, NOON);
  await expect(bench.startService({ NOTIFICATION_CALLBACK_SHARDS: '3' })).rejects.toThrow(
    'NOTIFICATION_CALLBACK_SHARDS must stay 1',
  );
});

test('kinds-S2 the first day of many users is found and loaded user by user, whatever was written about others', async () => {
  const [users, pageSize] = [200, 50];
  await haveHistory(users, 24, MIDNIGHT);
  // As on every first day: what PostgreSQL knows is that there is no such day.
  await bench.rows('ANALYZE notification.callback_trackings, notification.callback_snapshots');
  await haveSnapshots("'daily', user_id, $1::bigint, 'pending', NULL FROM notification.callback_trackings", [
    MIDNIGHT - DAY,
  ]);
  await inTransaction('callback_snapshots', async (db, rowsRead) => {
    let after = { periodStartMs: MIDNIGHT - DAY, last: '' };
    for (let page = 1; page <= users / pageSize; page += 1) {
      const { due, upTo } = await beginPage(db, 0, 'daily', after, pageSize);
      expect(due).toHaveLength(pageSize);
      after = upTo!;
      // Once to find and lock them, and once to mark them.
      expect(await rowsRead()).toBeLessThanOrEqual(2 * pageSize * page);
    }
  });
});

test('kinds-S2 the status of shards reads each failed callback once, however many shards there are', async () => {
  await haveHistory(20, 100, NOON);
  await bench.rows(`
    UPDATE notification.callback_snapshots SET shard = period_start_ms / ${HOUR} % 50, status = 'dropped';
    UPDATE notification.callback_settings SET shards = 50`);
  await haveFailures('true');
  await bench.rows('ANALYZE notification.failed_callbacks');
  await inTransaction('failed_callbacks', async (db, rowsRead) => {
    const operator = { db, temporal: bench.slot.client } as OperatorResources;
    const status = await callbackOperations(operator).status();
    expect(status.reduce((sum, { deadLetters }) => sum + deadLetters, 0)).toBe(2_000);
    expect(await rowsRead()).toBeLessThanOrEqual(2_000);
  }).finally(() => bench.rows('UPDATE notification.callback_settings SET shards = 1'));
});

test('C8 kinds-S2 hours go 72 h after their delivery, the rest with the records, and those that dead letters keep hold up none behind them', async () => {
  await haveHistory(20, 100, Date.now());
  // More than a batch, of one moment, which were replayed and delivered.
  await haveSnapshots(
    "'hourly', 'replayed', n, 'delivered', now() - interval '200 hours' FROM generate_series(1, 12000) AS n",
  );
  await haveFailures("user_id IN ('user-1', 'user-2', 'user-3', 'replayed')");
  await bench.rows(`
    INSERT INTO notification.malformed_account_inputs
    VALUES ('1-0', 'payload', 'old', '{}', now() - interval '1 year'), ('2-0', 'payload', 'young', '{}', now());
    INSERT INTO notification.callback_trackings
    SELECT id, 0, '1-0', until_ms, false, '2026-01-01', '2026-01-01', changed_at::timestamptz
      FROM (VALUES ('old', 0, '2025-01-01'), ('young', 0, 'now'), ('open', NULL, '2025-01-01'))
             AS given (id, until_ms, changed_at)`);
  // Days, and what was given up or is tried again: of so many days ago.
  await haveSnapshots(`
    kind, 'aged', days, status, CASE WHEN status <> 'retrying' THEN now() - days * interval '1 day' END
      FROM (VALUES ('daily', 4, 'delivered'), ('daily', 400, 'delivered'), ('hourly', 4, 'dropped'),
                   ('hourly', 400, 'dropped'), ('hourly', 401, 'retrying')) AS given (kind, days, status)`);
  await haveFailures("user_id = 'aged' AND kind = 'hourly'");
  const { deleted } = await deleteExpired(bench.slot.db, TABLES);
  // The hours -73 to -100, but for the minute: those of -72 are a minute younger than that.
  expect(deleted).toMatchObject({
    hourly_callbacks: 17 * 28,
    callback_dead_letters: 1,
    daily_callbacks: 1,
    dropped_callbacks: 1,
    // Users who are gone or take no part are remembered for some time.
    callback_trackings: 1,
    malformed_account_inputs: 1,
  });
  expect(await bench.rows("SELECT FROM notification.callback_trackings WHERE user_id = 'old'")).toEqual([]);
  const aged = await bench.rows(
    "SELECT status, period_start_ms::int AS days FROM notification.callback_snapshots WHERE user_id = 'aged' ORDER BY 1, 2",
  );
  expect(aged).toEqual([
    { status: 'delivered', days: 4 },
    { status: 'dropped', days: 4 },
    { status: 'retrying', days: 401 },
  ]);
  expect(await bench.rows("SELECT FROM notification.failed_callbacks WHERE user_id = 'aged'")).toHaveLength(
    2,
  );
  const kept = await bench.rows("SELECT 1 FROM notification.callback_snapshots WHERE user_id <> 'aged'");
  expect(kept).toHaveLength(20 * 72 + 3 * 28 + 12_000);
}, 180_000);
