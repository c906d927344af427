/**
 * Entries as they are kept: which one is in force, who takes part, and what is noted as late; and their consumer group, when
 * PostgreSQL is put back.
 */
import { beginPage } from '../../activities/account-callback/callback-rows.ts';
import { storeInputs } from '../../activities/account-callback/inputs.ts';
import type { CallbackInput } from '../../api/account-callback/input.ts';
import { DEFAULT_INPUT_STREAM as STREAM } from '../../api/account-callback/input.ts';
import { appendInputs } from '../../client/account-callback/inputs.ts';
import { DAY, HOUR, MIDNIGHT, benchOfTests, day, hour, inputsTaken, track, untrack } from './callbacks.ts';
import { eventually } from '../harness.ts';
import { anotherLook, keepRows } from '../put-back.ts';

const bench = benchOfTests();
afterEach(() => bench.empty());

const START = MIDNIGHT - HOUR;
const LONG_AGO = MIDNIGHT - 1_000 * HOUR;
const NOTHING = { late: 0, untracked: 0 };
const put = (id: string, ...inputs: CallbackInput[]) =>
  storeInputs(
    bench.slot.db,
    inputs.map((input) => ({ id, input })),
  );
const trackingOf = async (userId: string) => {
  const [row] = await bench.rows<Record<string, unknown>>(
    `SELECT is_waited_for, until_ms::float8, to_char(caught_up_date, 'YYYY-MM-DD') AS caught_up
       FROM notification.callback_trackings WHERE user_id = $1`,
    [userId],
  );
  return row;
};
const snapshotOf = async (userId: string) => {
  const [row] = await bench.rows<Record<string, unknown>>(
    `SELECT entry_id, bottom_value, late_entries, late_entry_id, late_values ->> 'bottom_value' AS late
       FROM notification.callback_snapshots WHERE user_id = $1`,
    [userId],
  );
  return row;
};
const begin = async () => {
  for (let shard = 0; shard < 4; shard += 1) {
    await beginPage(bench.slot.db, shard, 'hourly', undefined, 500);
  }
};

test('kinds-F3 of two entries about one period the later id is in force, in whatever order they come, until it is emitted', async () => {
  expect(await put('1790000000000-9', hour('ann', START, 9))).toEqual(NOTHING);
  expect(await put('1790000000000-10', hour('ann', START, 10))).toEqual(NOTHING);
  // Of one millisecond, and earlier: redelivered, or taken by another consumer.
  expect(await put('1790000000000-9', hour('ann', START, 9))).toEqual(NOTHING);
  expect(await put('999999999999-0', hour('ann', START, 8))).toEqual(NOTHING);
  expect(await snapshotOf('ann')).toMatchObject({ entry_id: '1790000000000-10', bottom_value: '10' });
  // Two of one batch.
  await storeInputs(bench.slot.db, [
    { id: '1790000000001-1', input: hour('ann', START, 12) },
    { id: '1790000000001-0', input: hour('ann', START, 11) },
  ]);
  expect(await snapshotOf('ann')).toMatchObject({ bottom_value: '12', late_entries: 0 });

  await begin();
  expect(await put('1790000000002-0', hour('ann', START, 13))).toEqual({ late: 1, untracked: 0 });
  expect(await put('1790000000002-0', hour('ann', START, 13))).toEqual(NOTHING);
  // An id of 64 bits, which no signed integer holds.
  expect(await put('18446744073709551614-3', hour('ann', START, 14))).toEqual({ late: 1, untracked: 0 });
  // A repeat of what is delivered is no correction.
  expect(await put('18446744073709551615-0', hour('ann', START, 12))).toEqual(NOTHING);
  expect(await snapshotOf('ann')).toEqual({
    ...{ entry_id: '1790000000001-1', bottom_value: '12' },
    ...{ late_entries: 2, late_entry_id: '18446744073709551614-3', late: '14' },
  });
  const { callbacks } = await bench.operator().callbacks.show('ann');
  expect(callbacks.items).toMatchObject([
    { lateEntries: 2, lateEntryId: '18446744073709551614-3', lateValues: { bottom_value: '14' } },
  ]);
});

test('C2 the later of track and untrack is in force; a user who was untracked holds up no other user and gets no later period', async () => {
  await put('5-0', track('ann', MIDNIGHT - DAY));
  expect(await trackingOf('ann')).toEqual({ is_waited_for: true, until_ms: null, caught_up: '2026-03-27' });
  await put('7-0', untrack('ann', START));
  await put('6-0', track('ann', MIDNIGHT - DAY));
  expect(await trackingOf('ann')).toMatchObject({ is_waited_for: false, until_ms: START });
  expect(await put('8-0', hour('ann', START - HOUR), hour('ann', START))).toEqual({ late: 0, untracked: 1 });
  expect(await bench.rows('SELECT FROM notification.callback_snapshots')).toHaveLength(1);
  await put('9-0', track('ann', MIDNIGHT));
  expect(await put('10-0', hour('ann', START))).toEqual(NOTHING);
  expect(await trackingOf('ann')).toEqual({ is_waited_for: true, until_ms: null, caught_up: '2026-03-28' });
});

test('C2 a tracking catches up with its days, in whatever order track and day come, and never goes back', async () => {
  // Of a user who was never tracked: delivered, and no emission waits for it.
  await put('1-0', day('ann', MIDNIGHT - DAY));
  expect(await trackingOf('ann')).toMatchObject({ is_waited_for: false, caught_up: '2026-03-28' });
  await put('2-0', track('ann', MIDNIGHT - 2 * DAY));
  expect(await trackingOf('ann')).toMatchObject({ is_waited_for: true, caught_up: '2026-03-28' });
  await put('3-0', day('ann', MIDNIGHT - 2 * DAY));
  expect(await trackingOf('ann')).toMatchObject({ is_waited_for: true, caught_up: '2026-03-28' });
});

test('C2 a tracking that does not catch up in time is named, and an operator releases it until its next day', async () => {
  const { callbacks } = bench.operator();
  await put(
    '1-0',
    track('late', MIDNIGHT - DAY),
    track('fine', MIDNIGHT - DAY),
    track('new', MIDNIGHT - DAY),
  );
  // Days before yesterday are long over.
  await bench.rows(`
    UPDATE notification.callback_trackings
       SET changed_at = CASE user_id WHEN 'new' THEN clock_timestamp() ELSE '2026-03-28' END,
           caught_up_date = CASE user_id WHEN 'fine' THEN (now() AT TIME ZONE 'UTC')::date - 1 ELSE caught_up_date END`);
  expect((await callbacks.overdue()).items).toMatchObject([{ userId: 'late', caughtUpDate: '2026-03-27' }]);
  expect(await callbacks.release('overdue', { requestedBy: 'nina' })).toBe(1);
  expect(await trackingOf('late')).toMatchObject({ is_waited_for: false });
  expect((await callbacks.overdue()).items).toEqual([]);
  await expect(callbacks.release(['late'])).rejects.toThrow('no such tracking');
  await put('2-0', day('late', MIDNIGHT - DAY));
  expect(await trackingOf('late')).toMatchObject({ is_waited_for: true, caught_up: '2026-03-28' });
});

const hoursOf = (user: string) =>
  bench.rows('SELECT FROM notification.callback_snapshots WHERE user_id = $1', [user]);
const kept = (user: string) =>
  eventually(`the hour of ${user}`, async () => (await hoursOf(user)).length === 1);

test('I52 C7 inputs that a PostgreSQL has forgotten that was put back are taken again, and those of long ago are removed', async () => {
  const { redis, db } = bench.slot;
  const hourAgo = Date.now() - 3_600_000;
  const old = redis.pipeline();
  for (let n = 1; n <= 250; n += 1) {
    old.xadd(STREAM, `${hourAgo}-${n}`, 'payload', JSON.stringify(hour('OLD', LONG_AGO + n * HOUR)));
  }
  await old.exec();
  const service = await bench.startService();
  await eventually('the old ones', async () => (await hoursOf('OLD')).length === 250);
  const look = () => anotherLook(redis, 'account-callback', STREAM);
  await look();
  const { putBack } = await keepRows(db);
  await appendInputs(redis, [hour('FORGOTTEN', LONG_AGO)]);
  await kept('FORGOTTEN');
  await inputsTaken(redis);
  await look();
  await putBack();
  await eventually('it to be taken again', async () => (await hoursOf('FORGOTTEN')).length === 1);
  await inputsTaken(redis);
  expect(
    bench.slot.logs.filter(({ reason }) => String(reason).startsWith('PostgreSQL fell back')),
  ).toHaveLength(1);
  await service.stop();
  // Redis removes whole nodes of a hundred entries.
  expect(await redis.xlen(STREAM)).toBeLessThan(150);
  await redis.del(STREAM);
});

test('security-9 whether a period is over is judged by the clock that gave the entry its id', async () => {
  const { redis } = bench.slot;
  const aheadMs = Date.now() - (Date.now() % HOUR) + 3 * HOUR;
  const payloadOf = (input: object) => ['payload', JSON.stringify(input)] as const;
  await redis.xadd(STREAM, '*', ...payloadOf(hour('AHEAD', aheadMs)));
  // For a reader whose clock is days behind that of Redis.
  await redis.xadd(STREAM, `${aheadMs + 5 * 24 * HOUR}-0`, ...payloadOf(hour('LATER', aheadMs)));
  const service = await bench.startService();
  await kept('LATER');
  await inputsTaken(redis);
  expect(await hoursOf('AHEAD')).toEqual([]);
  await service.stop();
});
