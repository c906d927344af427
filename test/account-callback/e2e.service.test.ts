/** Prices and positions on their way to what portfolio services are told about hours and days. */
import type { CallbackInput } from '../../api/account-callback/input.ts';
import type { CallbackBench } from './callbacks.ts';
import {
  DAY,
  HOUR,
  MIDNIGHT,
  MINUTE,
  SECOND,
  expectationsOf,
  positions,
  price,
  takeCallbackBench,
} from './callbacks.ts';
import { eventually } from '../harness.ts';

let bench: CallbackBench;
beforeAll(async () => {
  bench = await takeCallbackBench();
  await bench.setClock(MIDNIGHT);
  await bench.startService();
});
afterAll(() => bench.release());
afterEach(async () => {
  await bench.handle().terminate('end of a test');
  bench.portfolio.heal();
  await bench.empty();
});

const told = (userId: string, kind: 'hourly' | 'daily', periodStartMs: number) =>
  bench.portfolio.held({ userId, kind, periodStartMs });
const callsOf = (userId: string) =>
  bench.portfolio.calls
    .filter((call) => call.userId === userId)
    .map(({ kind, body }) => ({ kind, ...(JSON.parse(body) as Record<string, unknown>) }));
const startOf = (call: Record<string, unknown>) => Number(call['period_start_ms']);

test('C4 closing values: the last tick of the hour, the price at midnight; positions that change count from their time on', async () => {
  const start = MIDNIGHT - 2 * HOUR;
  const inputs: CallbackInput[] = [
    positions('ann', start + 5, '100.5', { BTC: '0.5', ETH: '-2' }),
    positions('ann', start + 30 * MINUTE, '90', { BTC: '1' }),
    positions('bob', start, '7', {}),
    price('BTC', start - 10 * MINUTE, '60000'),
    price('ETH', start + 10 * MINUTE, '3000.25'),
    price('BTC', start + 20 * MINUTE, '61000.000000000000000001'),
    price('ETH', start + 20 * MINUTE, '2990'),
    price('BTC', start + 50 * MINUTE, '59000'),
    price('BTC', start + HOUR, '59500'),
    price('BTC', MIDNIGHT, '62000'),
    price('BTC', MIDNIGHT + 1, '99999'),
  ];
  await bench.store(inputs);
  await bench.setClock(MIDNIGHT + 10 * MINUTE);
  await bench.settled(MIDNIGHT);
  const expected = expectationsOf(inputs);
  for (const userId of ['ann', 'bob']) {
    for (const [kind, startMs] of [
      ['hourly', start],
      ['hourly', start + HOUR],
      ['daily', MIDNIGHT - DAY],
    ] as const) {
      expect(told(userId, kind, startMs)).toEqual(expected(userId, kind, startMs));
    }
    expect(callsOf(userId)).toHaveLength(3);
  }
  expect(told('ann', 'hourly', start)!.closing_value).toBe('59090');
  expect(told('ann', 'daily', MIDNIGHT - DAY)).toMatchObject({
    peak_value: '61090.000000000000000001',
    closing_value: '62090',
  });
});

test('C4 without a price or coefficients at midnight, a day closes with its peak', async () => {
  const start = MIDNIGHT - 2 * HOUR;
  const inputs = [
    ...['no-price', 'closed', 'never'].flatMap((user) => [positions(user, start, '1', { BTC: '2' })]),
    price('BTC', start, '10'),
    price('BTC', start + MINUTE, '30'),
    price('BTC', start + 2 * MINUTE, '20'),
    positions('no-price', start + 90 * MINUTE, '1', { BTC: '2', NEW: '1' }),
    positions('closed', start + 90 * MINUTE, '0', null),
    positions('nothing', start, '5', { NEVER: '1' }),
  ];
  await bench.store(inputs);
  await bench.setClock(MIDNIGHT + 10 * MINUTE);
  await bench.settled(MIDNIGHT);
  const expected = expectationsOf(inputs);
  for (const user of ['no-price', 'closed']) {
    const day = told(user, 'daily', MIDNIGHT - DAY)!;
    expect(day).toMatchObject({ peak_value: '61', bottom_value: '21', closing_value: '61' });
    expect(day).toEqual(expected(user, 'daily', MIDNIGHT - DAY));
  }
  expect(told('never', 'daily', MIDNIGHT - DAY)).toMatchObject({ peak_value: '61', closing_value: '41' });
  // There is no value of theirs: nothing to tell, and nobody waits for them.
  expect(callsOf('nothing')).toEqual([]);
});

test('C9 hours and days that were missed are told in order, each with its own extremes', async () => {
  const start = MIDNIGHT - 3 * DAY - 2 * HOUR;
  const ticks = Array.from({ length: 74 * 2 + 1 }, (_, half) =>
    price('BTC', start + half * 30 * MINUTE + 7, String(1_000 + ((half * 37) % 101))),
  );
  const inputs = [price('BTC', start - HOUR, '999'), ...ticks, positions('ann', start, '0.5', { BTC: '3' })];
  await bench.store(inputs);
  // One who came later: all trackings, of whatever age, catch up before a day is told.
  const late = positions('bob', MIDNIGHT - DAY - HOUR, '0', { BTC: '1' });
  await bench.store([late]);
  await bench.setClock(MIDNIGHT + 30 * MINUTE);
  await bench.settled(MIDNIGHT, 240_000);

  const expected = expectationsOf([...inputs, late]);
  for (const [userId, hours, days] of [
    ['ann', 74, 4],
    ['bob', 25, 2],
  ] as const) {
    for (const [kind, count, length] of [
      ['hourly', hours, HOUR],
      ['daily', days, DAY],
    ] as const) {
      const calls = callsOf(userId).filter((call) => call.kind === kind);
      // Hours are begun in order; one whose answer is slow may be overtaken by the next.
      if (kind === 'hourly') calls.sort((a, b) => startOf(a) - startOf(b));
      const starts = Array.from({ length: count }, (_, index) => MIDNIGHT - (count - index) * length);
      expect([userId, kind, calls.map(startOf)]).toEqual([userId, kind, starts]);
      for (const [index, { kind: _kind, ...body }] of calls.entries()) {
        expect(body).toEqual(expected(userId, kind, starts[index]!));
      }
    }
  }
}, 400_000);

test('C7 C9 a price that comes late changes nothing that was told, and is not told again', async () => {
  const start = MIDNIGHT - HOUR;
  await bench.store([positions('ann', start, '0', { BTC: '1' }), price('BTC', start, '10')]);
  bench.portfolio.fail({ userId: 'ann', failure: { kind: 'lost-answer' }, times: 2 });
  await bench.setClock(MIDNIGHT + 10 * MINUTE);
  await bench.settled(MIDNIGHT);
  const before = bench.portfolio.calls.filter(({ userId }) => userId === 'ann').length;
  await bench.store([price('BTC', start + MINUTE, '99'), positions('ann', start + 2, '77', { BTC: '5' })]);
  // What is to be tried again, is now.
  await bench.rows("UPDATE notification.failed_callbacks SET next_attempt_at = 'epoch'");
  await bench.runNow();
  await eventually('nothing to be left', async () => {
    const [row] = await bench.rows<{ left: number }>(
      "SELECT count(*)::int AS left FROM notification.callback_snapshots WHERE status <> 'delivered'",
    );
    return row!.left === 0;
  });
  const calls = bench.portfolio.calls.filter(({ userId }) => userId === 'ann');
  expect(calls.length).toBeGreaterThan(before - 1);
  for (const kind of ['hourly', 'daily']) {
    const ofKind = calls.filter((call) => call.kind === kind);
    expect(ofKind).toHaveLength(2);
    expect(new Set(ofKind.map(({ body, idempotencyKey }) => `${idempotencyKey} ${body}`)).size).toBe(1);
  }
  expect(told('ann', 'daily', MIDNIGHT - DAY)).toMatchObject({ peak_value: '10', closing_value: '10' });
});

test('C8 old hourly snapshots are deleted, and nothing that is still needed', async () => {
  const start = MIDNIGHT - 5 * DAY;
  const inputs = [
    positions('ann', start, '1', { BTC: '1' }),
    positions('ann', start + DAY, '2', { BTC: '1' }),
    price('BTC', start, '10'),
    price('BTC', start + HOUR, '11'),
    price('BTC', MIDNIGHT - 30 * MINUTE, '12'),
  ];
  await bench.store(inputs);
  await bench.setClock(MIDNIGHT + 10 * MINUTE);
  await bench.settled(MIDNIGHT, 240_000);
  const hours = () =>
    bench.rows<{ at: number }>(
      "SELECT period_start_ms::float8 AS at FROM notification.callback_snapshots WHERE kind = 'hourly' ORDER BY 1",
    );
  expect((await hours()).length).toBeGreaterThanOrEqual(72);
  await bench.rows("UPDATE notification.callback_trackings SET daily_date = '2026-03-24'");
  await bench.setClock(MIDNIGHT + 20 * MINUTE - SECOND);
  await bench.runNow();
  // The days are told already, so they are settled again without another callback.
  await bench.settled(MIDNIGHT);
  await bench.rows(`
    INSERT INTO notification.malformed_account_inputs
    VALUES ('1-0', 'payload', 'old', '{}', now() - interval '1 year'), ('2-0', 'payload', 'young', '{}', now())`);
  // A shard that begins anew begins with cleaning up.
  await bench.setClock(MIDNIGHT + 20 * MINUTE);
  const { lastAlarm } = await bench.runNow();
  expect(lastAlarm).toBeDefined();
  await eventually('the old ones to be gone', async () => {
    const left = await hours();
    expect([left.length, left[0]!.at]).toEqual([71, MIDNIGHT - 71 * HOUR]);
    // What was in force when the kept ones began is kept as well.
    const kept = await bench.rows<{ at: number }>(
      'SELECT at_ms::float8 AS at FROM notification.callback_prices ORDER BY 1',
    );
    expect(kept.map(({ at }) => at)).toEqual([start + HOUR, MIDNIGHT - 30 * MINUTE]);
    const held = await bench.rows<{ cash: string }>('SELECT cash FROM notification.callback_positions');
    expect(held).toEqual([{ cash: '2' }]);
    const malformed = await bench.rows(
      'SELECT stream_entry_id AS id FROM notification.malformed_account_inputs',
    );
    expect(malformed).toEqual([{ id: '2-0' }]);
    return true;
  });
  expect(callsOf('ann').filter(({ kind }) => kind === 'daily')).toHaveLength(5);
}, 400_000);
