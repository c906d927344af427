/**
 * What grows with users, ticks and time must not stop anything: neither a start, nor a shard because of one of its users,
 * nor callbacks because of what is to be deleted.
 */
import type { Pool, PoolClient } from 'pg';
import { CLEANUP_BOUNDS, cleanUp } from '../../activities/account-callback/cleanup.ts';
import { freezeDay } from '../../activities/account-callback/extremes.ts';
import { loadPage } from '../../activities/account-callback/outcomes.ts';
import { storeInputs } from '../../activities/account-callback/inputs.ts';
import { NotFoundError } from '../../client/errors.ts';
import type { EmissionPage } from '../../workflows/account-callback/contract.ts';
import type { CallbackBench } from './callbacks.ts';
import { DAY, HOUR, MIDNIGHT, MINUTE, positions, price, takeCallbackBench } from './callbacks.ts';
import { eventually } from '../harness.ts';

const NOON = MIDNIGHT - 12 * HOUR;

let bench: CallbackBench;
beforeAll(async () => {
  bench = await takeCallbackBench();
});
afterAll(() => bench.release());
afterEach(async () => {
  await bench.slot.stopServices();
  for (const shard of [0, 1, 2]) {
    await bench
      .handle(shard)
      .terminate('end of a test')
      .catch(() => undefined);
  }
  bench.portfolio.heal();
  await bench.empty();
});

const hourOf = (userId: string, periodStartMs: number) =>
  bench.portfolio.held({ userId, kind: 'hourly', periodStartMs });
const told = (userId: string, periodStartMs: number) =>
  eventually(`${userId} to be told`, async () => hourOf(userId, periodStartMs));
const one = async <Row extends object>(sql: string, values?: unknown[]): Promise<Row> =>
  (await bench.rows<Row>(sql, values))[0]!;

/** Delivered hours of so many users before a time, as they lie there for days. */
async function haveHistory(users: number, hours: number, beforeMs: number): Promise<void> {
  await bench.rows(
    `INSERT INTO notification.callback_trackings (user_id, shard, daily_date, caught_up_to_ms, created_at)
     SELECT 'user-' || n, notification.callback_shard('user-' || n), to_timestamp($2::bigint / 1000)::date - 1, $2::bigint, now()
       FROM generate_series(1, $1::int) AS n`,
    [users, beforeMs],
  );
  await bench.rows(
    `INSERT INTO notification.callback_snapshots
       (kind, user_id, period_start_ms, shard, peak_value, peak_at_ms, bottom_value, bottom_at_ms, closing_value, status,
        created_at)
     SELECT 'hourly', user_id, $2::bigint - hour * ${HOUR}, shard, 1, 0, 1, 0, 1, 'delivered', now()
       FROM notification.callback_trackings, generate_series(1, $1::int) AS hour`,
    [hours, beforeMs],
  );
}

/** Of this transaction, by whatever plan. */
const SNAPSHOTS_READ = `
  SELECT (seq_tup_read + idx_tup_fetch)::int AS read FROM pg_stat_xact_user_tables WHERE relname = 'callback_snapshots'`;

/** As long as it takes with ten thousand times as many rows. */
async function withSlowShards(work: () => Promise<void>): Promise<void> {
  const name = 'notification.callback_shard(user_id text)';
  const { source } = await one<{ source: string }>(
    `SELECT pg_get_functiondef('notification.callback_shard(text)'::regprocedure) AS source`,
  );
  await bench.rows(`
    CREATE OR REPLACE FUNCTION ${name} RETURNS integer LANGUAGE plpgsql STABLE AS $$
      BEGIN
        PERFORM pg_sleep(0.01);
        RETURN (SELECT mod(('x' || substr(md5(user_id), 1, 7))::bit(28)::integer, shards)
                  FROM notification.callback_settings);
      END $$`);
  try {
    await work();
  } finally {
    await bench.rows(source);
  }
}

test('kinds-V1 a process starts however many snapshots there are, and with another number of shards as well', async () => {
  const service = await bench.startService({ NOTIFICATION_CALLBACK_SHARDS: '1' });
  await service.stop();
  await haveHistory(30, 100, NOON);
  await withSlowShards(async () => {
    const same = await bench.startService({ NOTIFICATION_CALLBACK_SHARDS: '1' });
    await same.stop();
    const more = await bench.startService({ NOTIFICATION_CALLBACK_SHARDS: '3' });
    await more.stop();
  });
  const spread = await bench.rows('SELECT shard FROM notification.callback_trackings GROUP BY shard');
  expect(spread).toHaveLength(3);
  expect(await one('SELECT shards FROM notification.callback_settings')).toEqual({ shards: 3 });
});

test('kinds-V2 an account with many symbols and a tick a second holds up nobody, and is told', async () => {
  const start = NOON - HOUR;
  const symbols = Array.from({ length: 100 }, (_, index) => `S${index}`);
  await bench.rows(
    `INSERT INTO notification.callback_prices (symbol, at_ms, price)
     SELECT 'S' || symbol, $1::bigint + second * 1000, 100 + (second * (symbol + 7)) % 61
       FROM generate_series(0, 99) AS symbol, generate_series(0, 3599) AS second`,
    [start],
  );
  await bench.store([
    positions('large', start, '5', Object.fromEntries(symbols.map((symbol) => [symbol, '0.5']))),
    positions('small', start, '1', { S3: '2' }),
    ...symbols.map((symbol) => price(symbol, NOON, '100')),
  ]);
  await bench.setClock(NOON + MINUTE);
  // Little time for one statement, so that this is much. A start does not repeat one for which the machine had none.
  const short = { NOTIFICATION_POSTGRES_OPERATION_TIMEOUT: '1s' };
  await eventually('a start', () => bench.startService(short));
  expect(await told('small', start)).toMatchObject({ peak_value: '321', bottom_value: '201' });
  const sums = Array.from({ length: 3_600 }, (_, second) =>
    symbols.reduce((sum, _symbol, index) => sum + 100 + ((second * (index + 7)) % 61), 10),
  );
  expect(await told('large', start)).toMatchObject({
    peak_value: String(Math.max(...sums) / 2),
    peak_at_ms: start + 1_000 * sums.indexOf(Math.max(...sums)),
    bottom_value: String(Math.min(...sums) / 2),
    closing_value: String(sums.at(-1)! / 2),
  });
});

test('kinds-V2 an account that cannot be computed is set aside, and the others go on', async () => {
  const start = NOON - HOUR;
  const users = ['ann', 'bob', 'broken', 'cyd'].map((user) => positions(user, start, '1', { BTC: '2' }));
  await bench.store([...users, price('BTC', start, '10'), price('BTC', NOON, '11')]);
  await bench.rows(
    `UPDATE notification.callback_positions SET coefficients = '{"BTC": "much"}' WHERE user_id = 'broken'`,
  );
  await bench.setClock(NOON + MINUTE);
  await bench.startService();
  for (const user of ['ann', 'bob', 'cyd']) {
    expect(await told(user, start)).toMatchObject({ peak_value: '21', closing_value: '21' });
  }
  expect(hourOf('broken', start)).toBeUndefined();

  const operator = bench.operator();
  const [aside] = await eventually('the row', async () => {
    const { items } = await operator.callbacks.setAside();
    return items.length === 1 && items;
  });
  expect(aside).toMatchObject({
    userId: 'broken',
    hourStart: new Date(start),
    failures: 1,
    reason: 'a price, cash or coefficient is no decimal',
    nextTryAt: new Date(aside!.setAsideAt.getTime() + 10 * MINUTE),
  });
  // The day goes on without it, too.
  const tracked = () =>
    one<{ shard: number; at: number }>(
      `SELECT shard, caught_up_to_ms::float8 AS at FROM notification.callback_trackings WHERE user_id = 'broken'`,
    );
  expect(await tracked()).toEqual({ shard: -1, at: start });

  // Nothing is mended: it fails once more, and rests for longer.
  await bench.rows("UPDATE notification.callback_set_aside SET next_try_at = 'epoch'");
  await eventually('another failure', async () => {
    await bench.runNow();
    const [again] = (await operator.callbacks.setAside()).items;
    return again?.failures === 2 && again.nextTryAt!.getTime() === again.setAsideAt.getTime() + HOUR;
  });
  await bench.rows(
    `UPDATE notification.callback_positions SET coefficients = '{"BTC": "3"}' WHERE user_id = 'broken'`,
  );
  await expect(operator.callbacks.takeUp('ann', { maxAgeMs: 365 * DAY })).rejects.toThrow(NotFoundError);
  expect(await operator.callbacks.takeUp('broken', { maxAgeMs: 365 * DAY })).toBe(1);
  expect(await told('broken', start)).toMatchObject({ peak_value: '31' });
  expect((await operator.callbacks.setAside()).items).toEqual([]);
});

test('kinds-V2 nobody is set aside for what is wrong with PostgreSQL, although it answers', async () => {
  const start = NOON - HOUR;
  const users = ['ann', 'bob', 'cyd'].map((user) => positions(user, start, '1', { BTC: '2' }));
  await bench.store([...users, price('BTC', start, '10'), price('BTC', NOON, '11')]);
  await bench.rows('CREATE SEQUENCE notification.refusals');
  await bench.rows(
    `CREATE FUNCTION notification.refuse() RETURNS trigger LANGUAGE plpgsql AS
     $$ BEGIN PERFORM nextval('notification.refusals'); RAISE EXCEPTION 'the disk is full' USING ERRCODE = '53100'; END $$`,
  );
  await bench.rows(
    'CREATE TRIGGER full_disk BEFORE INSERT ON notification.callback_snapshots EXECUTE FUNCTION notification.refuse()',
  );
  try {
    await bench.setClock(NOON + MINUTE);
    await bench.startService();
    // Halved down to one account, and tried anew.
    await eventually('refusals', async () => {
      const { count } = await one<{ count: number }>(
        'SELECT last_value::int AS count FROM notification.refusals',
      );
      return count >= 6;
    });
  } finally {
    await bench.rows('DROP FUNCTION notification.refuse CASCADE');
    await bench.rows('DROP SEQUENCE notification.refusals');
  }
  for (const user of ['ann', 'bob', 'cyd'])
    expect(await told(user, start)).toMatchObject({ peak_value: '21' });
});

test('kinds-S2 the first day of many users is made and loaded user by user, whatever was written about others', async () => {
  const [users, pageSize] = [200, 50];
  await haveHistory(users, 24, MIDNIGHT);
  // As on every first day: what PostgreSQL knows is that there is no such day.
  await bench.rows('ANALYZE notification.callback_trackings, notification.callback_snapshots');
  await bench.rows("UPDATE notification.callback_trackings SET shard = 0, daily_date = '2026-03-27'");
  const client: PoolClient = await bench.slot.db.connect();
  const rowsRead = async (work: () => Promise<void>): Promise<number> => {
    const count = async () => (await client.query<{ read: number }>(SNAPSHOTS_READ)).rows[0]!.read;
    const before = await count();
    await work();
    return (await count()) - before;
  };
  const db = client as unknown as Pool;
  try {
    await client.query('BEGIN');
    const pages: (EmissionPage & { kind: 'daily' })[] = [];
    let after = { periodStartMs: MIDNIGHT - DAY, userId: '' };
    for (let page = 0; page < users / pageSize; page += 1) {
      const read = await rowsRead(async () => {
        const { found, upTo } = await freezeDay(db, 0, after, pageSize);
        expect(found).toBe(pageSize);
        pages.push({ kind: 'daily', after, upTo: upTo! });
      });
      expect(read).toBeLessThanOrEqual(pageSize * 24);
      after = pages.at(-1)!.upTo;
    }
    for (const page of pages) {
      const read = await rowsRead(async () => {
        expect(await loadPage(db, 0, page)).toHaveLength(pageSize);
      });
      expect(read).toBe(pageSize);
    }
  } finally {
    await client.query('ROLLBACK');
    client.release();
  }
});

test('kinds-S2 what is old is deleted without a look at each row of each shard', async () => {
  const start = NOON - HOUR;
  await bench.store([positions('ann', start, '1', {})]);
  await bench.rows(
    `INSERT INTO notification.callback_positions (user_id, at_ms, cash, coefficients)
     SELECT 'ann', $1::bigint - n * 60000, n, '{}' FROM generate_series(1, 3000) AS n`,
    [NOON - 4 * DAY],
  );
  await withSlowShards(async () => {
    await bench.setClock(NOON + 10 * MINUTE);
    await bench.startService();
    await told('ann', start);
    await eventually('old positions to be gone', async () => {
      const left = await bench.rows('SELECT 1 FROM notification.callback_positions');
      return left.length === 2;
    });
  });
});

test('kinds-S2 callbacks do not wait for what is to be deleted', async () => {
  const start = NOON - HOUR;
  await bench.store([positions('ann', start, '1', {})]);
  const blocker: PoolClient = await bench.slot.db.connect();
  try {
    await blocker.query('BEGIN');
    await blocker.query('LOCK TABLE notification.callback_dead_letters IN ACCESS EXCLUSIVE MODE');
    await bench.setClock(NOON + 10 * MINUTE);
    await bench.startService();
    await told('ann', start);
    expect((await bench.status()).lastCleanupMs).toBe(0);
  } finally {
    await blocker.query('ROLLBACK');
    blocker.release();
  }
  await eventually('the clean-up', async () => (await bench.status()).lastCleanupMs > 0);
});

test('kinds-S2 a clean-up stops after its time and goes on where it stopped, past all that is to be kept', async () => {
  await haveHistory(20, 100, NOON);
  // Dead letters keep what they are about, however old it is.
  await bench.rows(`
    INSERT INTO notification.callback_dead_letters (kind, user_id, period_start_ms, attempts, last_error, dropped_at)
    SELECT kind, user_id, period_start_ms, 6, 'down', now()
      FROM notification.callback_snapshots
     WHERE user_id IN ('user-1', 'user-2', 'user-3')`);
  await bench.rows(`
    INSERT INTO notification.callback_positions (user_id, at_ms, cash, coefficients)
    SELECT user_id, ${NOON - 5 * DAY} + n, n, '{}' FROM notification.callback_trackings, generate_series(1, 7) AS n`);
  const resources = {
    db: bench.slot.db,
    log: { info: () => undefined } as never,
    callbacks: { snapshotRetentionMs: 10 * HOUR, recordRetentionMs: 30 * DAY },
  };
  let [runs, deleted] = [0, 0];
  for (let isUnfinished = true; isUnfinished; runs += 1) {
    const outcome = await cleanUp(resources, NOON, () => undefined, { batchSize: 50, limitMs: 0 });
    expect(outcome.deleted).toBeLessThanOrEqual(50);
    deleted += outcome.deleted;
    isUnfinished = outcome.isUnfinished;
  }
  // One statement of 50 rows a run. Hours of a day that is not told yet are kept, and positions in force.
  expect(runs).toBeGreaterThan(30);
  expect(deleted).toBe(17 * 88 + 20 * 6);
  const kept = await bench.rows('SELECT 1 FROM notification.callback_snapshots');
  expect(kept).toHaveLength(20 * 12 + 3 * 88);
  expect(await cleanUp(resources, NOON, () => undefined, CLEANUP_BOUNDS)).toEqual({
    deleted: 0,
    isUnfinished: false,
  });
}, 180_000);

test('kinds-S2 an account that was closed long ago is not looked at any more, and one that opens again is', async () => {
  await haveHistory(4, 1, NOON);
  const closedAt = NOON - 40 * DAY;
  await bench.rows(
    `INSERT INTO notification.callback_positions (user_id, at_ms, cash, coefficients)
     SELECT user_id, $1::bigint, 0, null FROM notification.callback_trackings WHERE user_id <> 'user-4'`,
    [closedAt],
  );
  // One was open before, one has something to be told, one was closed a moment ago.
  await bench.rows(`INSERT INTO notification.callback_positions VALUES ('user-1', $1, 5, '{"BTC": 1}')`, [
    closedAt - DAY,
  ]);
  await bench.rows(
    `UPDATE notification.callback_snapshots SET status = 'pending', settled_at = null WHERE user_id = 'user-3'`,
  );
  await bench.rows(`INSERT INTO notification.callback_positions VALUES ('user-4', $1, 0, null)`, [
    NOON - HOUR,
  ]);
  const resources = {
    db: bench.slot.db,
    log: { info: () => undefined } as never,
    callbacks: { snapshotRetentionMs: 10 * HOUR, recordRetentionMs: 30 * DAY },
  };
  const tracked = async () =>
    (
      await bench.rows<{ user_id: string }>('SELECT user_id FROM notification.callback_trackings ORDER BY 1')
    ).map(({ user_id: id }) => id);
  await cleanUp(resources, NOON, () => undefined, { batchSize: 2, limitMs: 60_000 });
  expect(await tracked()).toEqual(['user-3', 'user-4']);
  // What was there before does not open an account again, whatever repeats it; news does.
  const again = { nowMs: NOON, maxAgeMs: 10 * HOUR };
  const given = (userId: string, atMs: number) =>
    storeInputs(
      bench.slot.db,
      [{ type: 'positions', user_id: userId, cash: '5', coefficients: {}, at_ms: atMs }],
      again,
    );
  await given('user-1', closedAt - DAY);
  await given('user-2', NOON);
  await cleanUp(resources, NOON + 2 * DAY, () => undefined, CLEANUP_BOUNDS);
  expect(await tracked()).toEqual(['user-2', 'user-3', 'user-4']);
});

test('kinds-S2 positions that come while a closed account is forgotten are not lost with it', async () => {
  await haveHistory(1, 1, NOON);
  await bench.rows(
    `INSERT INTO notification.callback_positions VALUES ('user-1', ${NOON - 40 * DAY}, 0, null)`,
  );
  const resources = {
    db: bench.slot.db,
    log: { info: () => undefined } as never,
    callbacks: { snapshotRetentionMs: 10 * HOUR, recordRetentionMs: 30 * DAY },
  };
  const opening = await bench.slot.db.connect();
  try {
    await opening.query('BEGIN');
    await storeInputs(
      opening as unknown as Pool,
      [{ type: 'positions', user_id: 'user-1', cash: '7', coefficients: {}, at_ms: NOON }],
      { nowMs: NOON, maxAgeMs: 10 * HOUR },
    );
    const cleaning = cleanUp(resources, NOON, () => undefined, CLEANUP_BOUNDS);
    await eventually('the clean-up to wait for the positions', async () => {
      const [row] = await bench.rows<{ waiting: boolean }>(
        `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock') AS waiting`,
      );
      return row!.waiting;
    });
    await opening.query('COMMIT');
    await cleaning;
  } finally {
    opening.release();
  }
  expect(await bench.rows('SELECT user_id FROM notification.callback_trackings')).toEqual([
    { user_id: 'user-1' },
  ]);
});
