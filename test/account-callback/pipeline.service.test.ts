/** The pipeline: its steps, its intervals, its caps, and rows that change under it. */
import { holdAnswers } from '../../dev/stand-ins/failure-scripts.ts';
import type { AlarmSteps } from '../../workflows/account-callback/contract.ts';
import type { CallbackBench } from './callbacks.ts';
import { DAY, HOUR, MIDNIGHT, MINUTE, SECOND, positions, price, takeCallbackBench } from './callbacks.ts';
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

const userOf = (index: number) => `user-${String(index).padStart(5, '0')}`;
const usersFrom = (from: number, to: number, at: number) =>
  Array.from({ length: to - from }, (_, index) => positions(userOf(from + index), at, String(index), {}));

interface Scheduled {
  type: string;
  /** What it returned. */
  result: Record<string, unknown>;
}

/** The activities of each alarm, in the order in which they were begun. */
async function alarmsOf(): Promise<Scheduled[][]> {
  const { events } = await bench.handle().fetchHistory();
  const decode = (data: Uint8Array | null | undefined) =>
    data ? (JSON.parse(Buffer.from(data).toString()) as Record<string, unknown>) : {};
  const results = new Map(
    events!.flatMap((event) => {
      const done = event.activityTaskCompletedEventAttributes;
      return done ? [[String(done.scheduledEventId), decode(done.result?.payloads?.[0]?.data)]] : [];
    }),
  );
  const alarms: Scheduled[][] = [[]];
  for (const event of events!) {
    const type = event.activityTaskScheduledEventAttributes?.activityType?.name;
    if (!type) continue;
    // Each alarm processes prices, retries unless the retry before is under way, and cleans up now and then.
    const current = alarms.at(-1)!;
    const isEnd = type === 'retryCallbacks' || type === 'cleanUpCallbacks';
    const isNext = current.some((one) => one.type === 'processPrices') && !isEnd;
    const scheduled = { type, result: results.get(String(event.eventId)) ?? {} };
    if (isNext) alarms.push([scheduled]);
    else current.push(scheduled);
  }
  return alarms;
}

/** How long each alarm waited for the next, by the timers between them, ms. */
async function waitsOf(): Promise<number[]> {
  const { events } = await bench.handle().fetchHistory();
  return events!.flatMap(({ timerStartedEventAttributes: timer }) => {
    const { seconds, nanos } = timer?.startToFireTimeout ?? {};
    return timer ? [Number(seconds ?? 0) * 1_000 + Math.round((nanos ?? 0) / 1e6)] : [];
  });
}

test('C1 C2 C3 the steps follow one another, and what 500 callbacks of one alarm leave is resumed by the next', async () => {
  await bench.store([...usersFrom(0, 620, MIDNIGHT - HOUR), price('BTC', MIDNIGHT - HOUR, '1')]);
  await bench.setClock(MIDNIGHT + 10 * MINUTE);
  await bench.settled(MIDNIGHT, 240_000);
  expect(bench.calls('daily')).toHaveLength(620);
  expect(bench.calls('hourly')).toHaveLength(620);

  const alarms = await alarmsOf();
  const page = (type: string) => `(${type} emitCallbacks )`;
  const steps = new RegExp(
    [
      // 0: further pages of what is under way.
      `^(freezeDailyPage (emitCallbacks )?)?(findHourlyPage (emitCallbacks )?)*`,
      // 1, 2: new ones.
      `(findDueDay ${page('freezeDailyPage')}?)?(findHourlyPage (emitCallbacks )?)*`,
      // 3, 4, 5.
      'processPrices (retryCallbacks )?(cleanUpCallbacks )?$',
    ].join(''),
  );
  for (const alarm of alarms.filter((one) => one.some(({ type }) => type === 'processPrices'))) {
    expect(alarm.map(({ type }) => `${type} `).join('')).toMatch(steps);
    const begun = alarm.reduce((sum, { result }) => sum + Number(result['found'] ?? 0), 0);
    expect(begun).toBeLessThanOrEqual(500);
  }
  // The first computes; the second has the day, cut at 500; the third resumes it, and has hours with what is left.
  const [first, second, third] = alarms.map((alarm) => alarm.map(({ type }) => type));
  expect(first).toEqual([
    'findDueDay',
    'findHourlyPage',
    'processPrices',
    'retryCallbacks',
    'cleanUpCallbacks',
  ]);
  expect(second!.slice(0, 3)).toEqual(['findDueDay', 'freezeDailyPage', 'emitCallbacks']);
  expect(third!.slice(0, 2)).toEqual(['freezeDailyPage', 'emitCallbacks']);
  const { lastAlarm } = await bench.status();
  expect(Object.keys(lastAlarm!)).toEqual([
    'resumed',
    'daily',
    'hourly',
    'computed',
    'cleaned',
  ] satisfies (keyof AlarmSteps)[]);
}, 300_000);

test('C1 100 ms while callbacks are pending, 60 s while prices may come, 5 min otherwise, sooner when an hour ends', async () => {
  await bench.store([...usersFrom(0, 3, MIDNIGHT - HOUR), price('BTC', MIDNIGHT - HOUR, '1')]);
  await bench.setClock(MIDNIGHT + 30 * SECOND);
  const waiting = await eventually('an alarm for prices', async () => {
    const state = await bench.status();
    return state.nextAlarm?.interval === 'waiting' && state;
  });
  expect(waiting.lastAlarm).toMatchObject({ daily: 0, hourly: 0, computed: 0 });
  expect(await waitsOf()).toContain(60_000);
  expect(bench.portfolio.calls).toEqual([]);

  // Every symbol has gone past the hour: nothing of it can come any more.
  await bench.store([price('BTC', MIDNIGHT, '2')]);
  await bench.runNow();
  await bench.settled(MIDNIGHT);
  await eventually('a steady state', async () => (await bench.status()).nextAlarm?.interval === 'steady');
  const waits = await waitsOf();
  expect(waits).toContain(100);
  expect(waits.at(-1)).toBe(300_000);

  await bench.setClock(MIDNIGHT + 58 * MINUTE);
  await eventually('an alarm at the end of the hour', async () => {
    const { nextAlarm } = await bench.status();
    return nextAlarm && nextAlarm.atMs - Date.now() < 2 * MINUTE;
  });
});

test('C2 a day is told only when all trackings have come to its end; hours wait for nobody', async () => {
  await bench.store([...usersFrom(0, 3, MIDNIGHT - 2 * HOUR), price('BTC', MIDNIGHT - 2 * HOUR, '1')]);
  // Somebody whose last hour is not over by the shard's clock holds up the day of all.
  await bench.setClock(MIDNIGHT - 10 * MINUTE);
  // A shard that is ended before it has written that it told them would tell them again.
  await bench.settled(MIDNIGHT - HOUR);
  expect(bench.calls('hourly')).toHaveLength(3);
  await bench.runNow();
  expect(bench.calls('daily')).toEqual([]);
  await bench.setClock(MIDNIGHT + 10 * MINUTE);
  await bench.settled(MIDNIGHT);
  const order = bench.portfolio.calls.map(({ kind }) => kind);
  expect(order.filter((kind) => kind === 'hourly')).toHaveLength(6);
  expect(order.filter((kind) => kind === 'daily')).toHaveLength(3);

  // One that is new and far behind: the day that follows waits for it, and it is not told half of it.
  await bench.empty();
  await bench.store([
    ...usersFrom(0, 3, MIDNIGHT - HOUR),
    positions('behind', MIDNIGHT - 30 * HOUR, '1', {}),
    price('BTC', MIDNIGHT - DAY, '1'),
  ]);
  await bench.setClock(MIDNIGHT + 10 * MINUTE);
  await bench.settled(MIDNIGHT);
  const { calls } = bench.portfolio;
  const lastHour = calls.findIndex(
    ({ userId, body }) => userId === 'behind' && body.includes(`${MIDNIGHT - HOUR}`),
  );
  expect(calls.findIndex(({ userId, kind }) => userId === userOf(0) && kind === 'daily')).toBeGreaterThan(-1);
  expect(lastHour).toBeGreaterThan(-1);
  expect(calls.filter(({ userId, kind }) => userId === 'behind' && kind === 'daily')).toHaveLength(2);
});

test('C2 C3 C6 users who come, go and are reset in the middle of an emission: nobody is left out, nobody is told twice', async () => {
  await bench.store([...usersFrom(0, 1_200, MIDNIGHT - HOUR), price('BTC', MIDNIGHT - HOUR, '1')]);
  // All this happens before the first page of the day ends.
  const last = userOf(1_199);
  const answers = holdAnswers();
  bench.portfolio.fail({ userId: userOf(499), failure: answers.failure });
  await bench.setClock(MIDNIGHT + 10 * MINUTE);
  await answers.arrived;
  await eventually('most of the first page', async () => bench.calls('daily').length >= 400);
  // Behind the cursor and before it, new ones; some are gone; some are set back, and one that was not told yet as well.
  await bench.store([
    positions('aaa-new', MIDNIGHT - HOUR, '1', {}),
    positions('zzz-new', MIDNIGHT - HOUR, '2', {}),
  ]);
  const gone = [userOf(900), userOf(3)];
  // With what is to be told of them, as when somebody is forgotten: nobody would deliver it any more. A page that is being
  // written down holds the lock, and would add to it.
  const ofGone = `user_id IN ('${gone.join("', '")}')`;
  await bench.slot.db.query(`
    BEGIN;
    LOCK TABLE notification.callback_trackings IN ACCESS EXCLUSIVE MODE;
    DELETE FROM notification.callback_trackings WHERE ${ofGone};
    DELETE FROM notification.callback_snapshots WHERE ${ofGone};
    COMMIT`);
  await bench.rows(
    "UPDATE notification.callback_trackings SET daily_date = '2026-03-27' WHERE user_id = ANY($1)",
    [[userOf(0), userOf(1), userOf(1_100)]],
  );
  answers.release();
  await bench.settled(MIDNIGHT, 240_000);
  await bench.runNow();
  await bench.settled(MIDNIGHT, 240_000);

  for (const kind of ['daily', 'hourly'] as const) {
    const users = bench.calls(kind).map(({ userId }) => userId);
    expect([kind, new Set(users).size]).toEqual([kind, users.length]);
    const left = [
      'aaa-new',
      'zzz-new',
      last,
      ...usersFrom(0, 1_200, 0).flatMap((input) => ('user_id' in input ? [input.user_id] : [])),
    ];
    const missing = left.filter((user) => !users.includes(user) && !gone.includes(user));
    expect([kind, missing]).toEqual([kind, []]);
  }
}, 300_000);
