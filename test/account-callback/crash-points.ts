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
import { ACCOUNT_CALLBACK_TASK_QUEUE } from '../../workflows/account-callback/contract.ts';
import { RETENTION_WORKFLOW } from '../../workflows/recovery-contract.ts';
import { crashWalksOfEachTest } from '../crash-walk.ts';
import { eventually } from '../harness.ts';

const START = MIDNIGHT - 2 * HOUR;
/** Of PostgreSQL, by whose clock rows are old. */
const NOW = Math.floor(Date.now() / HOUR) * HOUR;

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

test('C8 a process that dies after any step of retention: what is old is gone, what is young or needed is there', async () => {
  await bench.empty();
  const walk = beginWalk({
    ...CALLBACK_ENV,
    NOTIFICATION_PORTFOLIO_BASE_URL: bench.portfolio.url,
  });
  const users: string[] = [];
  const put = async () => {
    const userId = `user-${users.length}`;
    users.push(userId);
    await haveOldAndYoung(userId);
    const run = await bench.slot.client.workflow.start(RETENTION_WORKFLOW, {
      workflowId: `retention-${users.length}`,
      taskQueue: ACCOUNT_CALLBACK_TASK_QUEUE,
    });
    return async () => (await run.describe()).status.name === 'COMPLETED';
  };
  // Dead letters, hours, days, those that were dropped, trackings and malformed entries.
  expect(await walk.through('deleteExpired', put, 6)).toBe(6);
  await walk.survivor();
  await eventually('retention to end', await put());

  const kept = await bench.rows<{ user_id: string; what: string }>(`
    SELECT user_id, kind || ' ' || status || ' ' || (${NOW} - period_start_ms) / ${HOUR} AS what
      FROM notification.callback_snapshots
    UNION ALL
    SELECT user_id, CASE WHEN next_attempt_at IS NULL THEN 'dead letter ' ELSE 'retry ' END
                    || (${NOW} - period_start_ms) / ${HOUR}
      FROM notification.failed_callbacks
     ORDER BY 1, 2`);
  for (const userId of users) {
    expect(kept.filter((row) => row.user_id === userId).map(({ what }) => what)).toEqual([
      'daily delivered 96',
      'dead letter 74',
      'hourly delivered 70',
      'hourly dropped 74',
      'hourly retrying 75',
      'retry 75',
    ]);
  }
  expect(kept).toHaveLength(6 * users.length);
}, 600_000);

/** Callbacks so many hours old; 72 hours of delivered ones are kept. */
async function haveOldAndYoung(userId: string): Promise<void> {
  const veryOld = (400 * DAY) / HOUR;
  const snapshots: [kind: string, hours: number, status: string][] = [
    ['hourly', 70, 'delivered'],
    ['hourly', 73, 'delivered'],
    ['hourly', 74, 'dropped'],
    ['hourly', 75, 'retrying'],
    ['hourly', veryOld, 'dropped'],
    ['daily', 96, 'delivered'],
    ['daily', veryOld, 'delivered'],
  ];
  for (const [kind, hours, status] of snapshots) {
    // What keeps a snapshot comes with it, as it does in the service: an earlier run may be at work.
    await bench.rows(
      `WITH given AS (SELECT $1::text AS kind, $2::text AS user_id, $3::bigint AS start_ms, $4::text AS status),
            failed AS (
              INSERT INTO notification.failed_callbacks
              SELECT kind, user_id, start_ms, 0, 1, CASE status WHEN 'retrying' THEN $5::timestamptz END, 'refused',
                     to_timestamp(start_ms / 1000.0)
                FROM given WHERE status IN ('retrying', 'dropped')
            )
       INSERT INTO notification.callback_snapshots
              (kind, user_id, period_start_ms, shard, entry_id, peak_value, peak_at_ms, bottom_value, bottom_at_ms,
               closing_value, status, created_at, settled_at)
       SELECT kind, user_id, start_ms, 0, '1-0', '1', start_ms, '1', start_ms, '1', status, now(),
              CASE WHEN status <> 'retrying' THEN to_timestamp(start_ms / 1000.0) END
         FROM given`,
      [kind, userId, NOW - hours * HOUR, status, new Date(NOW + DAY)],
    );
  }
}
