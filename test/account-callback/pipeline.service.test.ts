/** The pipeline: its steps, its intervals, its caps, and rows that change under it. */
import { holdAnswers } from '../../dev/stand-ins/failure-scripts.ts';
import { DAY, HOUR, MIDNIGHT, MINUTE, day, hour, track, benchOfTests } from './callbacks.ts';
import { eventually } from '../harness.ts';

const bench = benchOfTests();
beforeAll(async () => {
  await bench.setClock(MIDNIGHT);
  await bench.startService();
});
afterEach(async () => {
  await bench.handle().terminate('end of a test');
  bench.portfolio.heal();
  await bench.empty();
});

const userOf = (index: number) => `user-${String(index).padStart(5, '0')}`;
/** The last hour and the last day of users who take part. */
const callbacksOf = (users: readonly string[]) =>
  users.flatMap((user) => [
    track(user, MIDNIGHT - DAY),
    hour(user, MIDNIGHT - HOUR),
    day(user, MIDNIGHT - DAY),
  ]);
const usersFrom = (from: number, to: number) =>
  Array.from({ length: to - from }, (_, index) => userOf(from + index));

interface Scheduled {
  type: string;
  /** Its kind and the cursor it began at, of an emission. */
  kind?: string;
  after?: unknown;
  /** What it returned. */
  result: Record<string, unknown>;
}

/** The activities of each alarm, in the order in which they were begun. */
async function alarmsOf(): Promise<Scheduled[][]> {
  const { events } = await bench.handle().fetchHistory();
  const decode = (data: Uint8Array | null | undefined) =>
    data?.length ? (JSON.parse(Buffer.from(data).toString()) as Record<string, unknown>) : {};
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
    // Each alarm looks for trackings that are behind and retries unless the retry before is under way.
    const current = alarms.at(-1)!;
    const isEnd = type === 'retryCallbacks';
    const isNext = current.some((one) => one.type === 'hasTrackingBehind') && !isEnd;
    const [, kind, after] = event.activityTaskScheduledEventAttributes?.input?.payloads ?? [];
    const scheduled = {
      ...{ type, result: results.get(String(event.eventId)) ?? {} },
      ...(type === 'emitCallbacks'
        ? { kind: decode(kind?.data) as unknown as string, after: decode(after?.data) }
        : {}),
    };
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
  await bench.store(callbacksOf(usersFrom(0, 620)));
  await bench.setClock(MIDNIGHT + 10 * MINUTE);
  await bench.settled(240_000);
  expect(bench.calls('daily')).toHaveLength(620);
  expect(bench.calls('hourly')).toHaveLength(620);

  const alarms = await alarmsOf();
  // 0: further pages of what is under way; 1, 2: new ones; 3, 4.
  const steps = /^(daily )?(hourly )*(daily )?(hourly )*hasTrackingBehind (retryCallbacks )?$/;
  for (const alarm of alarms.filter((one) => one.some(({ type }) => type === 'hasTrackingBehind'))) {
    expect(alarm.map(({ type, kind }) => `${kind ?? type} `).join('')).toMatch(steps);
    const begun = alarm.reduce((sum, { result }) => sum + Number(result['begun'] ?? 0), 0);
    expect(begun).toBeLessThanOrEqual(500);
  }
  // The first has the day, cut at 500; the second resumes it, and has hours with what is left.
  const [first, second] = alarms;
  expect(first![0]).toMatchObject({ kind: 'daily', after: {}, result: { begun: 500 } });
  expect(first![1]).toMatchObject({ type: 'hasTrackingBehind' });
  expect(second![0]).toMatchObject({ kind: 'daily', after: { userId: userOf(499) } });
  expect(second![1]).toMatchObject({ kind: 'hourly', after: {} });
}, 300_000);

test('C1 100 ms while callbacks are pending, 60 s while a tracking is behind, 5 min otherwise, sooner when an hour ends', async () => {
  await bench.store([track('ann', MIDNIGHT - DAY)]);
  await bench.setClock(MIDNIGHT + 30 * MINUTE);
  await eventually(
    'an alarm for a day',
    async () => (await bench.status()).nextAlarm?.interval === 'waiting',
  );
  expect(await waitsOf()).toContain(60_000);
  expect(bench.portfolio.calls).toEqual([]);

  await bench.store(callbacksOf(['ann']));
  await bench.runNow();
  await bench.settled();
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

test('C2 a day is told only when all trackings have come to its end; hours wait for no tracking; a released tracking neither', async () => {
  const users = usersFrom(0, 3);
  await bench.store([
    ...callbacksOf(users),
    track('behind', MIDNIGHT - DAY),
    hour('behind', MIDNIGHT - HOUR),
  ]);
  await bench.setClock(MIDNIGHT + 10 * MINUTE);
  await eventually('the hours', async () => bench.calls('hourly').length === 4);
  await bench.runNow();
  expect(bench.calls('daily')).toEqual([]);
  // Neither an untracked user holds up the day, nor one who is tracked from a later day on.
  await bench.store([track('later', MIDNIGHT), { kind: 'untrack', user_id: users[0]!, until_ms: MIDNIGHT }]);
  await bench.runNow();
  expect(bench.calls('daily')).toEqual([]);
  await bench.operator().callbacks.release(['behind'], { requestedBy: 'nina' });
  await eventually('the days', async () => bench.calls('daily').length === 3);

  // The next day is waited for again, once a day of the released one has come.
  await bench.store([day('behind', MIDNIGHT - DAY)]);
  await bench.runNow();
  await eventually('its day', async () => bench.calls('daily').length === 4);
  await bench.store([day(users[1]!, MIDNIGHT), day(users[2]!, MIDNIGHT), day('later', MIDNIGHT)]);
  await bench.runNow();
  expect(bench.calls('daily')).toHaveLength(4);
  await bench.store([day('behind', MIDNIGHT)]);
  await bench.runNow();
  await eventually('all days', async () => bench.calls('daily').length === 8);
});

test('C2 C3 C6 users who come, go and are reset in the middle of an emission: no user is left out, no user is told twice', async () => {
  await bench.store(callbacksOf(usersFrom(0, 1_200)));
  // All this happens before the first page of the day ends.
  const last = userOf(1_199);
  const answers = holdAnswers();
  bench.portfolio.fail({ userId: userOf(499), failure: answers.failure });
  await bench.setClock(MIDNIGHT + 10 * MINUTE);
  await answers.arrived;
  await eventually('most of the first page', async () => bench.calls('daily').length >= 400);
  // Behind the cursor and before it, new ones; some are gone; some are set back, and one that was not told yet as well.
  await bench.store(callbacksOf(['aaa-new', 'zzz-new']));
  const gone = [userOf(900), userOf(3)];
  // With what is to be told of them, as when a user is forgotten: no process would deliver it any more. A page that is being
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
  await bench.settled(240_000);
  await bench.runNow();
  await bench.settled(240_000);

  for (const kind of ['daily', 'hourly'] as const) {
    const users = bench.calls(kind).map(({ userId }) => userId);
    expect([kind, new Set(users).size]).toEqual([kind, users.length]);
    const left = ['aaa-new', 'zzz-new', last, ...usersFrom(0, 1_200)];
    const missing = left.filter((user) => !users.includes(user) && !gone.includes(user));
    expect([kind, missing]).toEqual([kind, []]);
  }
}, 300_000);
