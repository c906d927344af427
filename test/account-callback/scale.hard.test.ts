/**
 * Many users over four shards cross an hour and a midnight. 2,000 of them; TEST_CALLBACK_USERS asks for
 * another number.
 */
import type { CallbackInput } from '../../api/account-callback/input.ts';
import { DAY, HOUR, MIDNIGHT, MINUTE, day, expectationsOf, hour, track, benchOfTests } from './callbacks.ts';
import { eventually } from '../harness.ts';

const USERS = Number(process.env['TEST_CALLBACK_USERS'] ?? 2_000);
const SHARDS = 4;
const LIMIT_MS = 300_000 + USERS * 60;

const bench = benchOfTests();

const START = MIDNIGHT - HOUR;
const userOf = (index: number) => `user-${index}`;

/** No two users alike. */
const inputsOf = (): CallbackInput[] =>
  Array.from({ length: USERS }, (_, index) => [
    track(userOf(index), START),
    hour(userOf(index), START, index),
    day(userOf(index), MIDNIGHT - DAY, index),
  ]).flat();

test(
  'C1 C2 C3 C4 C5 each user gets one hourly and one daily callback with the right values, and 3 % that hang or fail hold up no other user',
  async () => {
    const inputs = inputsOf();
    for (let at = 0; at < inputs.length; at += 5_000) await bench.store(inputs.slice(at, at + 5_000));
    // Some of the failing ones hang, the others refuse.
    const failing = new Set<string>();
    for (let index = 0; index < USERS; index += 33) {
      failing.add(userOf(index));
      const failure =
        index % 6 === 0 ? ({ kind: 'hang' } as const) : ({ kind: 'status', status: 503 } as const);
      bench.portfolio.fail({ userId: userOf(index), failure });
    }
    const others = USERS - failing.size;

    await bench.setClock(MIDNIGHT + 5 * MINUTE, SHARDS);
    const began = performance.now();
    await bench.startService({
      NOTIFICATION_CALLBACK_SHARDS: String(SHARDS),
      // Longer than the others may take: who hangs still does when they are through. With very many users less, because
      // not all pages with a hanging user can be under way together; and more than a machine at its limit needs.
      NOTIFICATION_HTTP_TIMEOUT: USERS > 5_000 ? '20s' : '30m',
      NOTIFICATION_CALLBACK_RETRY_LADDER: '24h',
    });
    await eventually(
      'all but those that fail to have both callbacks',
      async () => bench.portfolio.calls.filter(({ isAcknowledged }) => isAcknowledged).length >= 2 * others,
      LIMIT_MS,
    );
    const tookMs = performance.now() - began;
    const { calls } = bench.portfolio;
    const firstAt = calls[0]!.at;
    const deliveringMs = Math.max(...calls.map(({ at }) => at)) - firstAt;
    console.info(
      `${USERS} users over ${SHARDS} shards: ${calls.length} callbacks in ${Math.round(deliveringMs)} ms, ` +
        `${Math.round((calls.length * 1_000) / deliveringMs)}/s; ${Math.round(tookMs)} ms from the start of the service`,
    );

    const expected = expectationsOf(inputs);
    const seen = new Set<string>();
    for (const { userId, kind, body, idempotencyKey } of calls) {
      const key = `${kind} ${userId}`;
      expect([key, seen.has(key)]).toEqual([key, false]);
      seen.add(key);
      const periodStartMs = kind === 'hourly' ? START : MIDNIGHT - DAY;
      expect([key, JSON.parse(body)]).toEqual([key, expected(userId, kind, periodStartMs)]);
      expect(idempotencyKey).toBe(`${kind}/${periodStartMs}/${userId}`);
    }
    expect(seen.size).toBe(2 * USERS);

    // Batches of at most 500, as the histories have them.
    const states = await Promise.all(Array.from({ length: SHARDS }, (_, shard) => bench.status(shard)));
    for (const { lastAlarm } of states) {
      const { resumed = 0, daily = 0, hourly = 0 } = lastAlarm ?? {};
      expect(resumed + daily + hourly).toBeLessThanOrEqual(500);
    }
    const perShard = await bench.rows<{ shard: number; users: number }>(
      'SELECT shard, count(*)::int AS users FROM notification.callback_trackings GROUP BY shard ORDER BY shard',
    );
    expect(perShard.map(({ shard }) => shard)).toEqual([0, 1, 2, 3]);
    for (const { users } of perShard) {
      expect(users).toBeGreaterThan(USERS / 8);
      expect(users).toBeLessThan(USERS / 2);
    }
    // Those that hang are pending still, the ones that refused wait for their retry.
    await eventually('all outcomes to be written', async () => {
      const left = await bench.rows<{ user_id: string }>(
        "SELECT user_id FROM notification.callback_snapshots WHERE status <> 'delivered'",
      );
      return left.length === 2 * failing.size && left.every(({ user_id }) => failing.has(user_id));
    });
  },
  2 * LIMIT_MS,
);
