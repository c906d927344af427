/** Callbacks that fail: the ladder, the dead letter, the replay, and what it means for the days behind them. */
import { searchableKey } from '../../api/ids.ts';
import { WorkflowNotFoundError } from '@temporalio/client';
import { recordDelivered, recordFailed } from '../../activities/account-callback/callback-rows.ts';
import { NotFoundError } from '../../client/errors.ts';
import type { Operator } from '../../client/operator.ts';
import { loadConfig } from '../../config/load.ts';
import type { Service } from '../../workers/service.ts';
import { DAY, HOUR, MIDNIGHT, MINUTE, SECOND, day, hour, track, benchOfTests } from './callbacks.ts';
import { eventually } from '../harness.ts';

/** A shard without a worker. */
const NO_SHARD = 999;
const LADDER_MS = [300, 500, 700, 900, 1_100];

const bench = benchOfTests();
let service: Service;
let operator: Operator;
beforeAll(async () => {
  await bench.setClock(MIDNIGHT);
  await startService(LADDER_MS);
  operator = bench.operator();
});
afterEach(async () => {
  // A test that needs none has left it ended.
  await bench
    .handle()
    .terminate('end of a test')
    .catch((error: unknown) => {
      if (!(error instanceof WorkflowNotFoundError)) throw error;
    });
  bench.portfolio.heal();
  await bench.empty();
});

/** The last hour and the last day of a user who takes part. */
const hourAndDay = (user: string, value: number) => [
  track(user, MIDNIGHT - HOUR),
  hour(user, MIDNIGHT - HOUR, value),
  day(user, MIDNIGHT - DAY, value),
];

async function startService(ladderMs: readonly number[], env: Record<string, string> = {}): Promise<void> {
  service = await bench.startService({
    NOTIFICATION_CALLBACK_RETRY_LADDER: ladderMs.map((ms) => `${ms}ms`).join(),
    ...env,
  });
}

/** As `startService`, in place of the one before. */
async function restartService(...args: Parameters<typeof startService>): Promise<void> {
  await service.stop();
  await bench.setClock(MIDNIGHT);
  await startService(...args);
}

const callsOf = (userId: string, kind: 'hourly' | 'daily') =>
  bench.calls(kind).filter((call) => call.userId === userId);
const deadLetters = (userId: string) =>
  bench.rows<{ kind: string; attempts: number; last_error: string }>(
    `SELECT kind, attempts, last_error FROM notification.failed_callbacks
      WHERE user_id = $1 AND next_attempt_at IS NULL ORDER BY kind`,
    [userId],
  );
const dailyDateOf = async (userId: string) => {
  const [row] = await bench.rows<{ day: string }>(
    "SELECT to_char(daily_date, 'YYYY-MM-DD') AS day FROM notification.callback_trackings WHERE user_id = $1",
    [userId],
  );
  return row?.day;
};

test('C5 the ladder is 1 m, 5 m, 15 m, 1 h, 2 h', () => {
  expect(loadConfig({}).values.NOTIFICATION_CALLBACK_RETRY_LADDER).toEqual(
    [1, 5, 15, 60, 120].map((minutes) => minutes * MINUTE),
  );
});

test('C5 each attempt that fails waits for its own step of the ladder, and one that succeeds settles the callback', async () => {
  await bench.rows(
    `INSERT INTO notification.callback_snapshots
       (kind, user_id, period_start_ms, shard, entry_id, peak_value, peak_at_ms, bottom_value, bottom_at_ms, closing_value,
        created_at)
     VALUES ('hourly', 'stepwise', $1, $2, '1-0', '1', $1, '1', $1, '1', now())`,
    [MIDNIGHT, NO_SHARD],
  );
  const callback = {
    ...{ kind: 'hourly' as const, userId: 'stepwise', periodStartMs: MIDNIGHT },
    ...{ peakValue: '1', peakAtMs: MIDNIGHT, bottomValue: '1', bottomAtMs: MIDNIGHT, closingValue: '1' },
  };
  for (const [attempts, waitMs] of LADDER_MS.entries()) {
    const failed = [{ ...callback, attempts, reason: 'no', outline: 'no', waitMs }];
    await recordFailed(bench.slot.db, NO_SHARD, failed, MIDNIGHT);
    const rows = await bench.rows<{ attempts: number; wait_ms: number }>(
      `SELECT attempts, (extract(epoch FROM next_attempt_at - failed_at) * 1000)::float8 AS wait_ms
         FROM notification.failed_callbacks WHERE user_id = 'stepwise'`,
    );
    expect(rows).toEqual([{ attempts: attempts + 1, wait_ms: waitMs }]);
  }
  await recordDelivered(bench.slot.db, [{ ...callback, attempts: LADDER_MS.length }]);
  expect(
    await bench.rows(
      `SELECT status, settled_at IS NOT NULL AS is_settled, failed.attempts
         FROM notification.callback_snapshots LEFT JOIN notification.failed_callbacks AS failed USING (user_id)
        WHERE user_id = 'stepwise'`,
    ),
  ).toEqual([{ status: 'delivered', is_settled: true, attempts: null }]);
});

test('C5 the second retry waits for the second step of the ladder', async () => {
  await restartService([50, HOUR]);
  await bench.store(hourAndDay('patient', 5));
  bench.portfolio.fail({ userId: 'patient', failure: { kind: 'status', status: 500 } });
  await bench.setClock(MIDNIGHT + 10 * MINUTE);
  const failures = () =>
    bench.rows<{ attempts: number; wait_ms: number }>(
      `SELECT attempts, (extract(epoch FROM next_attempt_at - failed_at) * 1000)::float8 AS wait_ms
         FROM notification.failed_callbacks WHERE user_id = 'patient'`,
    );
  await eventually('both to fail twice', async () => {
    const rows = await failures();
    return rows.length === 2 && rows.every(({ attempts }) => attempts === 2);
  });
  expect((await failures()).map(({ wait_ms }) => wait_ms)).toEqual([HOUR, HOUR]);
  bench.portfolio.heal();
  await restartService(LADDER_MS);
});

test('C5 C6 who fails for ever is tried five times more, then dropped with an error and a dead letter; a replay delivers it as it was', async () => {
  const user = 'down/forever? &é';
  await bench.store([...hourAndDay(user, 5), ...hourAndDay('fine', 6)]);
  bench.portfolio.fail({ userId: user, failure: { kind: 'status', status: 500 } });
  await bench.setClock(MIDNIGHT + 10 * MINUTE);
  await eventually('both to be dropped', async () => (await deadLetters(user)).length === 2);

  for (const kind of ['hourly', 'daily'] as const) {
    const calls = callsOf(user, kind);
    expect([kind, calls.length]).toEqual([kind, 6]);
    expect(new Set(calls.map(({ body }) => body)).size).toBe(1);
    expect(callsOf('fine', kind)).toHaveLength(1);
  }
  expect(await deadLetters(user)).toEqual([
    { kind: 'daily', attempts: 6, last_error: 'status 500: scripted failure' },
    { kind: 'hourly', attempts: 6, last_error: 'status 500: scripted failure' },
  ]);
  const errors = bench.slot.logs.filter(({ event }) => event === 'callbacks.dropped');
  expect(errors).toHaveLength(2);
  expect(errors[0]).toMatchObject({ level: 'error', user_id: searchableKey(user), attempts: 6 });
  // The day is given up: the next one need not wait for it.
  expect(await dailyDateOf(user)).toBe('2026-03-28');
  const { items } = await operator.callbacks.deadLetters({ userId: user });
  expect(items.map(({ kind, link }) => [kind, typeof link])).toEqual(
    expect.arrayContaining([
      ['hourly', 'string'],
      ['daily', 'string'],
    ]),
  );

  bench.portfolio.heal();
  expect(await operator.callbacks.countReplayable({ userId: user })).toBe(2);
  expect(await operator.callbacks.replay({ userId: user }, { requestedBy: 'test' })).toBe(2);
  await eventually('both to be delivered', async () =>
    (['hourly', 'daily'] as const).every((kind) => callsOf(user, kind).at(-1)!.isAcknowledged),
  );
  for (const kind of ['hourly', 'daily'] as const) {
    const calls = callsOf(user, kind);
    expect([kind, calls.length]).toEqual([kind, 7]);
    expect(new Set(calls.map(({ body, idempotencyKey }) => `${idempotencyKey} ${body}`)).size).toBe(1);
  }
  await eventually('nothing to wait', async () => (await operator.callbacks.failed()).items.length === 0);
  expect(await deadLetters(user)).toEqual([]);
  await expect(operator.callbacks.replay({ userId: user }, { requestedBy: 'test' })).rejects.toThrow(
    NotFoundError,
  );
}, 120_000);

test('C3 C5 one alarm tries 50 failed callbacks at most, and one that hangs delays no other', async () => {
  const logged = bench.slot.logs.length;
  const users = Array.from({ length: 120 }, (_, index) => `user-${index}`);
  await bench.store(users.map((user) => hour(user, MIDNIGHT + HOUR)));
  for (const userId of users) bench.portfolio.fail({ userId, failure: { kind: 'reset' }, times: 1 });
  await bench.setClock(MIDNIGHT + 2 * HOUR + 10 * MINUTE);
  await eventually('all to be delivered', async () => {
    const delivered = bench.calls('hourly').filter((call) => call.isAcknowledged);
    return new Set(delivered.map(({ userId }) => userId).filter((id) => id.startsWith('user-'))).size === 120;
  });
  const batches = await eventually('all of it in the log', async () => {
    const sizes = bench.slot.logs
      .slice(logged)
      .filter((line) => line.msg === 'account callbacks retried')
      .map((line) => Number(line['delivered']) + Number(line['failed']));
    return sizes.reduce((sum, size) => sum + size, 0) >= 120 && sizes;
  });
  expect(Math.max(...batches)).toBe(50);
  expect(batches.reduce((sum, size) => sum + size, 0)).toBe(120);
}, 120_000);

test('C5 subscription-B9 values that the portfolio service quotes are shown to operators and not logged', async () => {
  const [user, peak] = ['quoted@example.com', '8675309.25'];
  await bench.store(
    hourAndDay(user, 1).map((input) => ('peak_value' in input ? { ...input, peak_value: peak } : input)),
  );
  bench.portfolio.fail({ userId: user, failure: { kind: 'status', status: 422, isQuoted: true } });
  await bench.setClock(MIDNIGHT + 10 * MINUTE);
  await eventually('both to be dropped', async () => (await deadLetters(user)).length === 2, 60_000);
  for (const { last_error } of await deadLetters(user)) {
    expect(last_error).toMatch(/^status 422: this is refused: /);
    expect(last_error).toContain(peak);
  }
  const lines = bench.slot.logs.filter((line) => line['user_id'] === searchableKey(user));
  expect(new Set(lines.map((line) => line['reason']))).toEqual(new Set(['status 422']));
  expect(JSON.stringify(bench.slot.logs)).not.toContain(peak);
  // An id that may be an address is named by its hash.
  expect(JSON.stringify(bench.slot.logs)).not.toContain(user);
}, 150_000);

test('C5 redirects, refusals, silence and broken connections are failures; a long answer is not read', async () => {
  // Longer than a machine at its limit is silent.
  await restartService(LADDER_MS, { NOTIFICATION_HTTP_TIMEOUT: '10s' });
  const users = ['moved', 'gone', 'silent', 'broken'];
  await bench.store(users.map((user) => hour(user, MIDNIGHT + HOUR)));
  const fail = (userId: string, failure: Parameters<typeof bench.portfolio.fail>[0]['failure']) =>
    bench.portfolio.fail({ userId, failure, times: 1 });
  fail('moved', { kind: 'status', status: 307, location: `${bench.portfolio.url}/elsewhere` });
  fail('gone', { kind: 'status', status: 404 });
  fail('silent', { kind: 'hang' });
  fail('broken', { kind: 'reset' });
  await bench.setClock(MIDNIGHT + 2 * HOUR + 10 * MINUTE);
  await eventually('all to be delivered', async () =>
    users.every((user) => callsOf(user, 'hourly').some(({ isAcknowledged }) => isAcknowledged)),
  );
  for (const user of users) expect([user, callsOf(user, 'hourly').length]).toEqual([user, 2]);
  const reasons = bench.slot.logs
    .filter((line) => line.msg === 'account callback failed' && users.includes(String(line['user_id'])))
    .map((line) => `${String(line['user_id'])}: ${String(line['reason'])}`);
  expect(reasons).toEqual(
    expect.arrayContaining([
      'moved: status 307',
      'gone: status 404',
      `silent: no answer within ${10 * SECOND} ms`,
      expect.stringContaining('broken: '),
    ]),
  );
}, 150_000);

test('C6 who has a daily callback to be retried gets no new one before; its success goes on to the next day, and never back', async () => {
  // Patient enough that nothing is given up before it was looked at.
  await restartService(Array<number>(60).fill(1_000));
  await bench.store(
    ['slow', 'fine'].flatMap((user) => [
      track(user, MIDNIGHT - 2 * DAY),
      day(user, MIDNIGHT - 2 * DAY),
      day(user, MIDNIGHT - DAY),
    ]),
  );
  bench.portfolio.fail({ userId: 'slow', failure: { kind: 'reset' } });
  await bench.setClock(MIDNIGHT + 10 * MINUTE);
  const daysOf = (userId: string) =>
    callsOf(userId, 'daily').map(
      ({ body }) => (JSON.parse(body) as { period_start_ms: number }).period_start_ms,
    );
  await eventually('both days of the one that is fine', async () => daysOf('fine').length === 2);
  // Only the first day of the other was tried, however often.
  expect(new Set(daysOf('slow'))).toEqual(new Set([MIDNIGHT - 2 * DAY]));
  expect(await dailyDateOf('slow')).toBe('2026-03-26');
  await eventually('it to be settled', async () => (await dailyDateOf('fine')) === '2026-03-28');

  bench.portfolio.heal();
  await eventually('the first day', async () => (await dailyDateOf('slow'))! >= '2026-03-27');
  await eventually('both days', async () => (await dailyDateOf('slow')) === '2026-03-28');
  expect(daysOf('slow').at(-1)).toBe(MIDNIGHT - DAY);
  expect([...daysOf('slow')].sort()).toEqual(daysOf('slow'));

  // An older day that is delivered later, as a replay does, leaves the newer one in force.
  await bench.rows(
    `INSERT INTO notification.failed_callbacks
     SELECT kind, user_id, period_start_ms, shard, 6, NULL, 'old', '2026-03-27'
       FROM notification.callback_snapshots
      WHERE kind = 'daily' AND user_id = 'slow' AND period_start_ms = $1`,
    [MIDNIGHT - 2 * DAY],
  );
  await bench.rows(`
    CREATE FUNCTION notification.never_back() RETURNS trigger LANGUAGE plpgsql AS $$
      BEGIN
        IF NEW.daily_date < OLD.daily_date THEN RAISE EXCEPTION 'a day went back'; END IF;
        RETURN NEW;
      END $$;
    CREATE TRIGGER never_back BEFORE UPDATE ON notification.callback_trackings
      FOR EACH ROW EXECUTE FUNCTION notification.never_back()`);
  const before = daysOf('slow').length;
  await operator.callbacks.replay({ kind: 'daily' }, { requestedBy: 'test' });
  await eventually('the replay', async () => daysOf('slow').length === before + 1);
  await eventually('it to be settled', async () => (await operator.callbacks.failed()).items.length === 0);
  expect(await dailyDateOf('slow')).toBe('2026-03-28');
  await bench.rows('DROP FUNCTION notification.never_back() CASCADE');
}, 120_000);

test('C5 security-13 a process whose clock is a day ahead puts no retry off', async () => {
  await bench.store([hour('hasty', MIDNIGHT - HOUR)]);
  bench.portfolio.fail({ userId: 'hasty', failure: { kind: 'status', status: 500 }, times: 2 });
  const now = Date.now.bind(Date);
  const clock = jest.spyOn(Date, 'now').mockImplementation(() => now() + DAY);
  try {
    // By this clock; the shard's is as in the other tests.
    await bench.setClock(MIDNIGHT + DAY + 10 * MINUTE);
    await eventually('a failed attempt', async () => callsOf('hasty', 'hourly').length > 0);
  } finally {
    clock.mockRestore();
  }
  await eventually('it to be told', async () => {
    const told = await bench.rows(
      "SELECT FROM notification.callback_snapshots WHERE user_id = 'hasty' AND status = 'delivered'",
    );
    return told.length > 0;
  });
});

test('kinds-F13 bug-P14 a user whose portfolio service answers 410 is told nothing more', async () => {
  await bench.store([...hourAndDay('gone', 5), ...hourAndDay('stays', 6)]);
  bench.portfolio.fail({ userId: 'gone', failure: { kind: 'status', status: 410 } });
  await bench.setClock(MIDNIGHT + 10 * MINUTE);
  await eventually('the day of the other', async () => (await dailyDateOf('stays')) === '2026-03-28');
  const takesPart = async () => (await operator.callbacks.show('gone')).tracking!.until === undefined;
  await eventually('the end of the tracking', async () => !(await takesPart()));
  const calls = bench.portfolio.calls.filter(({ userId }) => userId === 'gone');
  expect(calls.length).toBeLessThanOrEqual(2);
  expect(await deadLetters('gone')).toContainEqual(
    expect.objectContaining({ attempts: 1, last_error: 'status 410: scripted failure' }),
  );

  // What waited is told nothing either, and cannot be replayed.
  const { answers } = await operator.why('gone', { since: new Date(0) });
  expect(answers.map(({ sentence }) => sentence)).toContainEqual(
    expect.stringMatching(/^the hourly callback of .* was dropped: the user is gone$/),
  );

  // No emission waits for its days, and its later entries are not delivered.
  const next = ['gone', 'stays'].map((user) => hour(user, MIDNIGHT));
  expect(await bench.store(next)).toEqual({ late: 0, untracked: 1 });
  await bench.setClock(MIDNIGHT + HOUR + 10 * MINUTE);
  await eventually('the next hour of the other', async () => callsOf('stays', 'hourly').length === 2);
  expect(bench.portfolio.calls.filter(({ userId }) => userId === 'gone')).toHaveLength(calls.length);
  expect(
    await bench.rows(
      `SELECT FROM notification.callback_snapshots WHERE user_id = 'gone' AND status IN ('pending', 'retrying')`,
    ),
  ).toEqual([]);

  // A producer that tracks the user again means another portfolio.
  bench.portfolio.heal();
  await bench.store([track('gone', MIDNIGHT), hour('gone', MIDNIGHT)]);
  expect(await takesPart()).toBe(true);
  await bench.runNow();
  await eventually('it to be told again', async () => callsOf('gone', 'hourly').at(-1)!.isAcknowledged);
});
