/**
 * The activities on real tables, with the stand-in portfolio service: the ladder of a callback that fails, its dead letter and
 * replay, what it means for the days behind it; and an account as operators see it.
 */
import type { Context } from '@temporalio/activity';
import { asyncLocalStorage } from '@temporalio/activity';
import { metrics } from '@opentelemetry/api';
import { pino } from 'pino';
import {
  createAccountCallbackActivities,
  createAccountCallbackMetrics,
} from '../../activities/account-callback/activities.ts';
import { beginPage, recordDelivered, recordFailed } from '../../activities/account-callback/callback-rows.ts';
import { createHttpCaller } from '../../activities/http/caller.ts';
import type { CallbackKind } from '../../api/account-callback/callback.ts';
import { searchableKey } from '../../api/ids.ts';
import { NotFoundError } from '../../client/errors.ts';
import type { Operator } from '../../client/operator.ts';
import { holdAnswers } from '../../dev/stand-ins/failure-scripts.ts';
import type { EmissionCursor } from '../../workflows/account-callback/contract.ts';
import { DEVELOPMENT_SIGNING_SECRET } from '../../config/caller.ts';
import { loadConfig } from '../../config/load.ts';
import { cliOfTests } from '../command-line.ts';
import { CALLBACK_ENV, DAY, HOUR, MIDNIGHT, MINUTE, day, hour, track, benchOfTests } from './callbacks.ts';

const NOW = MIDNIGHT + 10 * MINUTE;
/** The first step of the ladder is over. */
const LATER = NOW + 2 * MINUTE;

const bench = benchOfTests();
const desk = cliOfTests(() => bench.slot);
const caller = createHttpCaller({ signingSecrets: [DEVELOPMENT_SIGNING_SECRET] });
const lines: Record<string, unknown>[] = [];
let operator: Operator;
let activities: ReturnType<typeof activitiesWith>;
beforeAll(() => {
  operator = bench.operator();
  activities = activitiesWith(300_000);
});
afterAll(async () => caller.close());
/** A user of another shard, for whom nothing is done: with periods that are due, a retry, and days that it waits for. */
beforeEach(async () => {
  await bench.store([...hourAndDay('elsewhere', 4), day('elsewhere', MIDNIGHT - 2 * DAY, 4)]);
  await bench.rows(`
    UPDATE notification.callback_snapshots SET shard = 1;
    UPDATE notification.callback_trackings SET shard = 1, caught_up_date = '2026-03-01';
    INSERT INTO notification.failed_callbacks
    SELECT kind, user_id, period_start_ms, shard, 1, '2026-03-01', 'old', '2026-03-01'
      FROM notification.callback_snapshots WHERE period_start_ms = ${MIDNIGHT - 2 * DAY}`);
});
afterEach(async () => {
  expect(bench.portfolio.calls.filter(({ userId }) => userId === 'elsewhere')).toEqual([]);
  expect(await failuresOf('elsewhere')).toMatchObject([{ attempts: 1 }]);
  bench.portfolio.heal();
  await bench.empty();
  lines.length = 0;
});

function activitiesWith(timeoutMs: number) {
  const retryLadderMs = loadConfig({}).values.NOTIFICATION_CALLBACK_RETRY_LADDER;
  const made = createAccountCallbackActivities({
    db: bench.slot.db,
    log: pino(
      { level: 'debug' },
      { write: (line) => lines.push(JSON.parse(line) as (typeof lines)[number]) },
    ),
    metrics: createAccountCallbackMetrics(metrics.getMeter('test')),
    portfolio: { baseUrl: bench.portfolio.url, caller, timeoutMs, retryLadderMs },
  });
  const context = {
    ...{ heartbeat: () => undefined, cancellationSignal: new AbortController().signal },
    info: { currentAttemptScheduledTimestampMs: 0, scheduledTimestampMs: 0 },
  };
  const run = <T>(work: () => T): T => asyncLocalStorage.run(context as unknown as Context, work);
  return {
    emit: (kind: CallbackKind, limit = 500, after?: EmissionCursor) =>
      run(() => made.emitCallbacks(0, kind, after, limit, NOW)),
    retry: (nowMs: number) => run(() => made.retryCallbacks(0, nowMs)),
  };
}

/** The last hour and the last day of a user who takes part. */
const hourAndDay = (user: string, value: number) => [
  track(user, MIDNIGHT - HOUR),
  hour(user, MIDNIGHT - HOUR, value),
  day(user, MIDNIGHT - DAY, value),
];

const callsOf = (userId: string, kind: CallbackKind) =>
  bench.calls(kind).filter((call) => call.userId === userId);
const startsOf = (userId: string, kind: CallbackKind) =>
  callsOf(userId, kind).map(({ body }) => (JSON.parse(body) as { period_start_ms: number }).period_start_ms);
/** Failed callbacks of a user; without the times of an attempt those that were given up. */
const failuresOf = (userId: string) =>
  bench.rows<Record<'kind' | 'last_error', string> & Record<'attempts' | 'wait_ms' | 'next_ms', number>>(
    `SELECT kind, attempts, last_error, (extract(epoch FROM next_attempt_at - failed_at) * 1000)::float8 AS wait_ms,
            ceil(extract(epoch FROM next_attempt_at) * 1000)::float8 AS next_ms
       FROM notification.failed_callbacks WHERE user_id = $1 ORDER BY kind`,
    [userId],
  );
const dailyDateOf = async (userId: string) => {
  const [row] = await bench.rows<{ day: string }>(
    "SELECT to_char(daily_date, 'YYYY-MM-DD') AS day FROM notification.callback_trackings WHERE user_id = $1",
    [userId],
  );
  return row?.day;
};

test('C5 C6 who fails for ever is tried after 1 m, 5 m, 15 m, 1 h and 2 h, then dropped with an error and a dead letter; a replay delivers it as it was', async () => {
  const user = 'down/forever? &é';
  await bench.store([...hourAndDay(user, 5), ...hourAndDay('fine', 6)]);
  bench.portfolio.fail({ userId: user, failure: { kind: 'status', status: 500 } });
  for (const kind of ['hourly', 'daily'] as const) await activities.emit(kind);

  let dueMs = NOW;
  for (const [index, minutes] of [1, 5, 15, 60, 120].entries()) {
    const failures = await failuresOf(user);
    const [attempts, wait_ms] = [index + 1, minutes * MINUTE];
    expect(failures).toMatchObject(Array(2).fill({ attempts, wait_ms }));
    await activities.retry(dueMs + wait_ms - 1);
    expect(callsOf(user, 'hourly')).toHaveLength(attempts);
    dueMs = Math.max(...failures.map(({ next_ms }) => next_ms));
    expect((await activities.retry(dueMs)).isDaySettled).toBe(attempts === 5);
  }
  expect(bench.portfolio.calls.filter(({ userId }) => userId === user)).toHaveLength(12);
  expect(bench.portfolio.calls.filter(({ userId }) => userId === 'fine')).toHaveLength(2);
  const given = { attempts: 6, last_error: 'status 500: scripted failure', next_ms: null };
  expect(await failuresOf(user)).toMatchObject([
    { kind: 'daily', ...given },
    { kind: 'hourly', ...given },
  ]);
  const errors = lines.filter(({ event }) => event === 'callbacks.dropped');
  expect(errors).toMatchObject(Array(2).fill({ level: 50, user_id: searchableKey(user), attempts: 6 }));
  // The day is given up: the next one need not wait for it.
  expect(await dailyDateOf(user)).toBe('2026-03-28');
  const { callbacks } = await operator.callbacks.show(user);
  expect(callbacks.items).toMatchObject([
    { status: 'dropped', attempts: 6 },
    { lastError: given.last_error },
  ]);

  bench.portfolio.heal();
  expect(await operator.callbacks.countReplayable({ userId: user })).toBe(2);
  expect(await operator.callbacks.replay({ userId: user }, { requestedBy: 'test' })).toBe(2);
  await activities.retry(dueMs + MINUTE);
  for (const kind of ['hourly', 'daily'] as const) {
    const calls = callsOf(user, kind);
    expect(calls.map(({ isAcknowledged }) => isAcknowledged)).toEqual([...Array(6).fill(false), true]);
    expect(new Set(calls.map(({ body, idempotencyKey }) => `${idempotencyKey} ${body}`)).size).toBe(1);
  }
  expect(await failuresOf(user)).toEqual([]);
  expect(
    await bench.rows('SELECT status FROM notification.callback_snapshots WHERE settled_at IS NOT NULL'),
  ).toEqual(Array(4).fill({ status: 'delivered' }));
  const again = operator.callbacks.replay({ userId: user }, { requestedBy: 'test' });
  await expect(again).rejects.toThrow(NotFoundError);
});

test('C2 C3 C6 users who come, go and are reset in the middle of an emission: no user is left out, no user is told twice', async () => {
  const users = Array.from({ length: 12 }, (_, index) => `user-${String(index).padStart(2, '0')}`);
  const [first, second, gone, last, later, goneLater] = [0, 1, 3, 4, 9, 10].map((index) => users[index]!);
  await bench.store(users.flatMap((user) => hourAndDay(user, 1)));
  for (const kind of ['daily', 'hourly'] as const) {
    // All this happens before the first page ends.
    const answers = holdAnswers();
    bench.portfolio.fail({ userId: last!, failure: answers.failure });
    const page = activities.emit(kind, 5);
    await answers.arrived;
    if (kind === 'daily') {
      // Behind the cursor and before it, new ones; some are gone, with what is to be told of them; some are set back.
      await bench.store(['aaa-new', 'zzz-new'].flatMap((user) => hourAndDay(user, 1)));
      for (const table of ['callback_trackings', 'callback_snapshots'])
        await bench.rows(`DELETE FROM notification.${table} WHERE user_id = ANY($1)`, [[gone, goneLater]]);
      await bench.rows(
        "UPDATE notification.callback_trackings SET daily_date = '2026-03-27' WHERE user_id = ANY($1)",
        [[first, second, later]],
      );
    }
    answers.release();
    bench.portfolio.heal();
    // The rest of this pass, and another one, which finds nothing behind its cursor.
    let { upTo } = await page;
    for (let passes = 0; passes < 2; passes += upTo ? 0 : 1)
      ({ upTo } = await activities.emit(kind, 5, upTo));
    const told = bench.calls(kind).map(({ userId }) => userId);
    const expected = ['aaa-new', 'zzz-new', ...users].filter((user) => user !== gone && user !== goneLater);
    expect(told.filter((user) => user !== gone).toSorted()).toEqual(expected.toSorted());
  }
});

test('C3 C5 one alarm tries 50 failed callbacks at most', async () => {
  const users = Array.from({ length: 120 }, (_, index) => `user-${index}`);
  await bench.store(users.map((user) => hour(user, MIDNIGHT - HOUR)));
  for (const userId of users) bench.portfolio.fail({ userId, failure: { kind: 'reset' }, times: 1 });
  expect(await activities.emit('hourly')).toMatchObject({ begun: 120 });
  for (const delivered of [50, 100, 120]) {
    await activities.retry(LATER);
    expect(bench.calls('hourly').filter((call) => call.isAcknowledged)).toHaveLength(delivered);
  }
});

test('C5 subscription-B9 values that the portfolio service quotes are shown to operators and not logged', async () => {
  const [user, peak] = ['quoted@example.com', '8675309.25'];
  await bench.store([{ ...hour(user, MIDNIGHT - HOUR), peak_value: peak } as ReturnType<typeof hour>]);
  bench.portfolio.fail({ userId: user, failure: { kind: 'status', status: 422, isQuoted: true } });
  await activities.emit('hourly');
  const [failure] = await failuresOf(user);
  expect(failure!.last_error).toMatch(/^status 422: this is refused: /);
  expect(failure!.last_error).toContain(peak);
  // An id that may be an address is named by its hash.
  expect(lines).toContainEqual(
    expect.objectContaining({ user_id: searchableKey(user), reason: 'status 422' }),
  );
  expect(JSON.stringify(lines)).not.toContain(peak);
  expect(JSON.stringify(lines)).not.toContain(user);
});

test('C5 redirects, refusals, silence and broken connections are failures', async () => {
  const failures = {
    moved: { kind: 'status', status: 307, location: `${bench.portfolio.url}/elsewhere` },
    lost: { kind: 'status', status: 404 },
    silent: { kind: 'hang' },
    broken: { kind: 'reset' },
  } as const;
  for (const [userId, failure] of Object.entries(failures)) {
    await bench.store([hour(userId, MIDNIGHT - HOUR)]);
    bench.portfolio.fail({ userId, failure, times: 1 });
  }
  await activitiesWith(2_000).emit('hourly');
  expect(Object.fromEntries(lines.map(({ user_id, reason }) => [String(user_id), reason]))).toMatchObject({
    ...{ moved: 'status 307', lost: 'status 404', silent: 'no answer within 2000 ms' },
    broken: expect.any(String) as string,
  });
  await activities.retry(LATER);
  for (const userId of Object.keys(failures))
    expect(callsOf(userId, 'hourly')).toMatchObject([{ isAcknowledged: false }, { isAcknowledged: true }]);
});

test('C6 who has a daily callback to be retried gets no new one before; its success goes on to the next day, and never back', async () => {
  const [first, second] = [MIDNIGHT - 2 * DAY, MIDNIGHT - DAY];
  await bench.store(
    ['slow', 'fine'].flatMap((user) => [track(user, first), day(user, first), day(user, second)]),
  );
  bench.portfolio.fail({ userId: 'slow', failure: { kind: 'reset' } });
  await activities.emit('daily');
  await activities.emit('daily');
  expect(startsOf('fine', 'daily')).toEqual([first, second]);
  expect(await dailyDateOf('fine')).toBe('2026-03-28');
  expect(startsOf('slow', 'daily')).toEqual([first]);
  expect(await dailyDateOf('slow')).toBe('2026-03-26');

  bench.portfolio.heal();
  expect(await activities.retry(LATER)).toEqual({ isDaySettled: true, isBehind: false });
  expect(await dailyDateOf('slow')).toBe('2026-03-27');
  await activities.emit('daily');
  expect(startsOf('slow', 'daily')).toEqual([first, first, second]);
  expect(await dailyDateOf('slow')).toBe('2026-03-28');

  // An older day that is delivered later, as a replay does, leaves the newer one in force.
  await bench.rows(
    `INSERT INTO notification.failed_callbacks
     SELECT kind, user_id, period_start_ms, shard, 6, NULL, 'old', '2026-03-27'
       FROM notification.callback_snapshots
      WHERE kind = 'daily' AND user_id = 'slow' AND period_start_ms = $1`,
    [first],
  );
  await operator.callbacks.replay({ kind: 'daily' }, { requestedBy: 'test' });
  await activities.retry(LATER);
  expect(startsOf('slow', 'daily').at(-1)).toBe(first);
  expect(await dailyDateOf('slow')).toBe('2026-03-28');
  expect(await activities.retry(LATER + DAY)).toMatchObject({ isBehind: true });
});

test('C5 what another process has counted or delivered meanwhile stays as it is', async () => {
  const { db } = bench.slot;
  await bench.store([hour('raced', MIDNIGHT - HOUR)]);
  const { due } = await beginPage(db, 0, 'hourly', undefined, 10);
  const failed = due.map((one) => ({ ...one, reason: 'down', outline: 'down', waitMs: MINUTE }));
  for (const nowMs of [NOW, LATER]) await recordFailed(db, failed, nowMs);
  expect(await failuresOf('raced')).toMatchObject([{ attempts: 1, next_ms: NOW + MINUTE }]);
  await recordDelivered(db, due);
  await recordFailed(db, failed, LATER);
  expect(await failuresOf('raced')).toEqual([]);
});

test('C5 security-13 a process whose clock is a day ahead puts no retry off', async () => {
  await bench.store([hour('hasty', MIDNIGHT - HOUR)]);
  bench.portfolio.fail({ userId: 'hasty', failure: { kind: 'status', status: 500 }, times: 1 });
  const now = Date.now.bind(Date);
  const clock = jest.spyOn(Date, 'now').mockImplementation(() => now() + DAY);
  try {
    await activities.emit('hourly');
  } finally {
    clock.mockRestore();
  }
  await activities.retry(LATER);
  expect(callsOf('hasty', 'hourly').at(-1)).toMatchObject({ isAcknowledged: true });
});

test('kinds-F13 bug-P14 a user whose portfolio service answers 410 is told nothing more', async () => {
  await bench.store([...hourAndDay('gone', 5), ...hourAndDay('stays', 6)]);
  bench.portfolio.fail({ userId: 'gone', failure: { kind: 'status', status: 410 } });
  for (const kind of ['hourly', 'daily'] as const) await activities.emit(kind);
  expect(await dailyDateOf('stays')).toBe('2026-03-28');
  const takesPart = async () => (await operator.callbacks.show('gone')).tracking!.until === undefined;
  expect(await takesPart()).toBe(false);
  expect(bench.portfolio.calls.filter(({ userId }) => userId === 'gone')).toHaveLength(1);
  expect(await failuresOf('gone')).toMatchObject([
    { kind: 'hourly', attempts: 1, last_error: 'status 410: scripted failure', next_ms: null },
  ]);
  // What waited is told nothing either, and cannot be replayed.
  const { answers } = await operator.why('gone', { since: new Date(0) });
  expect(answers.map(({ sentence }) => sentence)).toContainEqual(
    expect.stringMatching(/^the daily callback of .* was dropped: the user is gone$/),
  );

  // No emission waits for its days, and its later entries are not delivered.
  const next = ['gone', 'stays'].map((user) => hour(user, MIDNIGHT));
  expect(await bench.store(next)).toEqual({ late: 0, untracked: 1 });
  await activities.emit('hourly');
  expect(startsOf('stays', 'hourly')).toEqual([MIDNIGHT - HOUR, MIDNIGHT]);
  expect(startsOf('gone', 'hourly')).toEqual([MIDNIGHT - HOUR]);

  // A producer that tracks the user again means another portfolio.
  bench.portfolio.heal();
  await bench.store([track('gone', MIDNIGHT), hour('gone', MIDNIGHT)]);
  expect(await takesPart()).toBe(true);
  await activities.emit('hourly');
  expect(callsOf('gone', 'hourly').at(-1)).toMatchObject({ isAcknowledged: true });

  // What was delivered stays so when it goes again.
  bench.portfolio.fail({ userId: 'gone', failure: { kind: 'status', status: 410 } });
  await bench.store([hour('gone', MIDNIGHT + HOUR)]);
  await activities.emit('hourly');
  const { callbacks } = await operator.callbacks.show('gone', { since: new Date(MIDNIGHT) });
  expect(callbacks.items.map(({ status }) => status)).toEqual(['dropped', 'delivered']);
});

test('C4 U1 U6 an account is shown with its tracking and its callbacks, newest first, and with entries that came late', async () => {
  const start = MIDNIGHT - 3 * HOUR;
  const hours = [start, start + HOUR];
  await bench.store([
    track('zoe', start),
    ...hours.map((startMs, index) => hour('zoe', startMs, 100 + index)),
    day('zoe', MIDNIGHT - DAY, 294),
  ]);
  for (const kind of ['hourly', 'hourly', 'daily'] as const) await activities.emit(kind);
  await bench.store([hour('zoe', start, 77)]);

  const { tracking, callbacks } = await operator.callbacks.show('zoe');
  expect(tracking).toMatchObject({
    ...{ shard: 0, isWaitedFor: true, caughtUpDate: '2026-03-28', dailyDate: '2026-03-28' },
    link: expect.stringContaining('account-callback%2F0') as string,
  });
  const delivered = { status: 'delivered', lateEntries: 0 };
  expect(callbacks.items).toMatchObject([
    { ...delivered, kind: 'hourly', periodStart: new Date(start + HOUR) },
    { ...delivered, kind: 'hourly', lateEntries: 1, lateValues: { bottom_value: '77' } },
    { ...delivered, kind: 'daily', periodStart: new Date(MIDNIGHT - DAY), peakValue: '304' },
  ]);
  const { callbacks: days } = await operator.callbacks.show('zoe', { until: new Date(MIDNIGHT - DAY) });
  expect(days).toMatchObject({ hasMore: false, items: [{ kind: 'daily' }] });
  expect((await operator.callbacks.show('zoe', { limit: 1 })).callbacks.hasMore).toBe(true);
  expect((await operator.callbacks.show('zoe', { since: new Date(MIDNIGHT) })).callbacks.items).toEqual([]);
  await expect(operator.callbacks.show('nobody')).rejects.toThrow(NotFoundError);

  const showOf = (...args: string[]) => desk.cli(['callbacks', 'show', ...args], { changes: CALLBACK_ENV });
  const shown = await showOf('zoe');
  expect(shown).toMatchObject({ code: 0, stderr: '' });
  expect(shown.stdout).toMatch(/daily +delivered +304/);
  expect(shown.stdout).toMatch(/ 1 +\{.*"bottom_value":"77"/);
  expect(await showOf('nobody')).toMatchObject({ code: 3, stdout: '' });
});
