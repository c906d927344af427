/** Account callbacks, and a process that dies after each step with which it changes something outside. */
import type { CallbackInput } from '../../api/account-callback/input.ts';
import {
  CALLBACK_ENV,
  DAY,
  HOUR,
  MIDNIGHT,
  benchOfTests,
  day,
  expectationsOf,
  hour,
  track,
} from './callbacks.ts';
import { crashWalksOfEachTest } from '../crash-walk.ts';

const START = MIDNIGHT - 2 * HOUR;

const bench = benchOfTests();
const beginWalk = crashWalksOfEachTest(() => bench.slot);

test('C2 C5 C7 C9 a process that dies after any step of a callback: every period is told, always in the same way', async () => {
  const { portfolio } = bench;
  const walk = beginWalk({
    ...CALLBACK_ENV,
    NOTIFICATION_PORTFOLIO_BASE_URL: portfolio.url,
    NOTIFICATION_CALLBACK_RETRY_LADDER: '200ms,200ms,200ms,500ms,500ms,500ms,1s,1s,1s,1s',
  });
  const inputs: CallbackInput[] = [];
  const users: string[] = [];
  const put = (fails: boolean) => async () => {
    const userId = `user-${users.length}`;
    users.push(userId);
    const given = [
      track(userId, START),
      ...[START, START + HOUR].map((start) => hour(userId, start, users.length)),
      day(userId, MIDNIGHT - DAY, users.length),
    ];
    inputs.push(...given);
    if (fails) portfolio.fail({ userId, failure: { kind: 'lost-answer' }, times: 1 });
    await bench.store(given);
    // The test does not wait for an answer of a process that is to die.
    bench.runNow().catch(() => undefined);
    return async () => {
      const isTold = (kind: 'hourly' | 'daily', periodStartMs: number) =>
        portfolio.calls.some((call) => call.userId === userId && call.kind === kind && call.isAcknowledged) &&
        portfolio.held({ userId, kind, periodStartMs }) !== undefined;
      const [row] = await bench.rows<{ left: number }>(
        "SELECT count(*)::int AS left FROM notification.callback_snapshots WHERE user_id = $1 AND status <> 'delivered'",
        [userId],
      );
      return isTold('hourly', START + HOUR) && isTold('daily', MIDNIGHT - 24 * HOUR) && row!.left === 0;
    };
  };
  const kills = {
    emitted: await walk.through('emitCallbacks', put(false), 8),
    retried: await walk.through('retryCallbacks', put(true), 6),
  };
  console.info(`processes that died: ${JSON.stringify(kills)}`);
  expect(kills.emitted).toBeGreaterThanOrEqual(1);
  expect(kills.retried).toBeGreaterThanOrEqual(1);

  await walk.survivor();
  await bench.settled(180_000);
  const expected = expectationsOf(inputs);
  const bodies = new Map<string, Set<string>>();
  for (const { userId, kind, body, idempotencyKey } of portfolio.calls) {
    const { period_start_ms: start } = JSON.parse(body) as { period_start_ms: number };
    const key = `${kind} ${userId} ${start}`;
    bodies.set(key, (bodies.get(key) ?? new Set()).add(`${idempotencyKey} ${body}`));
  }
  expect([...bodies.values()].every((different) => different.size === 1)).toBe(true);
  for (const userId of users) {
    for (const start of [START, START + HOUR]) {
      const told = portfolio.held({ userId, kind: 'hourly', periodStartMs: start });
      expect(told).toEqual(expected(userId, 'hourly', start));
    }
    const dayMs = MIDNIGHT - DAY;
    expect(portfolio.held({ userId, kind: 'daily', periodStartMs: dayMs })).toEqual(
      expected(userId, 'daily', dayMs),
    );
  }
}, 600_000);
