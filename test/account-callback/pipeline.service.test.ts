/** The pipeline on real rows: what is due, and what came late or was missed. */
import { DAY, HOUR, MIDNIGHT, day, expectationsOf, hour, track, benchOfTests } from './callbacks.ts';
import { eventually } from '../harness.ts';

const bench = benchOfTests();
beforeAll(() => bench.startService());
afterEach(async () => {
  bench.portfolio.heal();
  await bench.empty();
});

/** The last hour and the last day of users who take part. */
const callbacksOf = (users: readonly string[]) =>
  users.flatMap((user) => [
    track(user, MIDNIGHT - DAY),
    hour(user, MIDNIGHT - HOUR),
    day(user, MIDNIGHT - DAY),
  ]);

test('C2 a day is told only when all trackings have come to its end; hours wait for no tracking; a released tracking neither', async () => {
  const users = ['ann', 'bob', 'eve'];
  await bench.store([
    ...callbacksOf(users),
    track('behind', MIDNIGHT - DAY),
    hour('behind', MIDNIGHT - HOUR),
  ]);
  await bench.runNow();
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

test('C9 hours and days that were missed are delivered in order, each with its own extremes', async () => {
  const start = MIDNIGHT - 3 * DAY - 2 * HOUR;
  const hours = Array.from({ length: 74 }, (_, index) => hour('ann', start + index * HOUR, index));
  const days = [4, 3, 2, 1].map((before) => day('ann', MIDNIGHT - before * DAY, before));
  // One who came later: all trackings, of whatever age, catch up before a day is delivered.
  const late = [track('bob', MIDNIGHT - DAY), day('bob', MIDNIGHT - DAY, 5)];
  const inputs = [track('ann', start), ...hours, ...days, ...late];
  await bench.store(inputs.toReversed());
  await bench.runNow();
  await bench.settled(240_000);

  const expected = expectationsOf(inputs);
  for (const [userId, kind, count, length] of [
    ['ann', 'hourly', 74, HOUR],
    ['ann', 'daily', 4, DAY],
    ['bob', 'hourly', 0, HOUR],
    ['bob', 'daily', 1, DAY],
  ] as const) {
    const bodies = bench
      .calls(kind)
      .filter((call) => call.userId === userId)
      .map(({ body }) => JSON.parse(body) as { period_start_ms: number });
    // Hours are begun in order; one whose answer is slow may be overtaken by the next.
    if (kind === 'hourly') bodies.sort((a, b) => a.period_start_ms - b.period_start_ms);
    const starts = Array.from({ length: count }, (_, index) => MIDNIGHT - (count - index) * length);
    expect(bodies).toEqual(starts.map((startMs) => expected(userId, kind, startMs)));
  }
}, 400_000);

test('C7 C9 an entry that comes after the first attempt began is noted as late, and what is sent again is the same', async () => {
  const start = MIDNIGHT - HOUR;
  await bench.store([track('ann', start), hour('ann', start, 10), day('ann', MIDNIGHT - DAY, 10)]);
  bench.portfolio.fail({ userId: 'ann', failure: { kind: 'lost-answer' } });
  /** All that waits is tried now, and again: on a busy machine connections break, too. */
  const tryUntil = (what: string, isDone: () => Promise<boolean>) =>
    eventually(what, async () => {
      await bench.rows("UPDATE notification.failed_callbacks SET next_attempt_at = 'epoch'");
      await bench.runNow();
      return isDone();
    });
  const kinds = ['hourly', 'daily'] as const;
  await tryUntil('both to be received', async () => kinds.every((kind) => bench.calls(kind).length > 0));
  const later = [hour('ann', start, 99), day('ann', MIDNIGHT - DAY, 99)];
  expect(await bench.store(later)).toEqual({ late: 2, untracked: 0 });
  bench.portfolio.heal();
  const left = "SELECT FROM notification.callback_snapshots WHERE status <> 'delivered'";
  await tryUntil('nothing to be left', async () => (await bench.rows(left)).length === 0);
  for (const kind of kinds) {
    const ofKind = bench.calls(kind);
    expect(ofKind.length).toBeGreaterThan(1);
    expect(new Set(ofKind.map(({ body, idempotencyKey }) => `${idempotencyKey} ${body}`)).size).toBe(1);
    expect(JSON.parse(ofKind[0]!.body)).toMatchObject({ peak_value: '20', closing_value: '10' });
  }
});
