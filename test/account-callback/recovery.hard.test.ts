/** The service as processes that are killed in the middle of an emission: whatever they were doing is done in the end. */
import type { CallbackInput } from '../../api/account-callback/input.ts';
import type { CallbackBench } from './callbacks.ts';
import {
  CALLBACK_ENV,
  DAY,
  HOUR,
  MIDNIGHT,
  MINUTE,
  day,
  expectationsOf,
  hour,
  takeCallbackBench,
  track,
} from './callbacks.ts';
import { eventually } from '../harness.ts';
import { createFleet } from '../service-process.ts';

const USERS = 1_500;
const START = MIDNIGHT - HOUR;

let bench: CallbackBench;
let fleet: ReturnType<typeof createFleet>;
beforeAll(async () => {
  bench = await takeCallbackBench();
  fleet = createFleet(bench.slot);
});
afterEach(() => fleet.killAll());
afterAll(() => bench.release());

test('C2 C7 C9 a service that is killed while it emits, again and again: no user misses a period, and what is told again is the same', async () => {
  const env = {
    ...CALLBACK_ENV,
    NOTIFICATION_CALLBACK_SHARDS: '2',
    NOTIFICATION_PORTFOLIO_BASE_URL: bench.portfolio.url,
    // A call that the kill cuts off fails for this client alone.
    NOTIFICATION_CALLBACK_RETRY_LADDER: '500ms,1s,1s,1s,1s',
  };
  const inputs: CallbackInput[] = Array.from({ length: USERS }, (_, index) => `user-${index}`).flatMap(
    (user, index) => [track(user, START), hour(user, START, index), day(user, MIDNIGHT - DAY, index)],
  );
  await bench.store(inputs);
  await bench.setClock(MIDNIGHT + 5 * MINUTE, 2);

  const { portfolio } = bench;
  for (const callsBefore of [200, 900, 1_700]) {
    const service = await fleet.start(env);
    await eventually(`${callsBefore} callbacks`, async () => portfolio.calls.length >= callsBefore, 120_000);
    await service.end('SIGKILL');
    // An entry that comes late must not change what may have been told already.
    await bench.store(Array.from({ length: USERS }, (_, index) => hour(`user-${index}`, START, callsBefore)));
  }
  const last = await fleet.start(env);
  await bench.settled(180_000);
  await eventually('nothing to be left to repeat', async () => {
    const left = await bench.rows("SELECT FROM notification.callback_snapshots WHERE status <> 'delivered'");
    return left.length === 0;
  });
  expect(await last.end('SIGTERM')).toBe(0);

  const bodies = new Map<string, Set<string>>();
  for (const { userId, kind, body, idempotencyKey } of portfolio.calls) {
    const key = `${kind} ${userId}`;
    bodies.set(key, (bodies.get(key) ?? new Set()).add(`${idempotencyKey} ${body}`));
  }
  expect(bodies.size).toBe(2 * USERS);
  expect([...bodies].filter(([, different]) => different.size > 1)).toEqual([]);
  const expected = expectationsOf(inputs);
  for (let index = 0; index < USERS; index += 50) {
    const userId = `user-${index}`;
    expect(portfolio.held({ userId, kind: 'daily', periodStartMs: MIDNIGHT - DAY })).toEqual(
      expected(userId, 'daily', MIDNIGHT - DAY),
    );
  }
  const again = portfolio.calls.length - 2 * USERS;
  console.info(`${USERS} users, 3 kills: ${again} of ${portfolio.calls.length} callbacks were repeats`);
}, 600_000);
