/** An hour is told when all that was published in time is taken, whoever takes it, and in spite of what is stuck. */
import { watchInputs } from '../../activities/account-callback/completeness.ts';
import type { CallbackInput } from '../../api/account-callback/input.ts';
import { NotFoundError } from '../../client/errors.ts';
import type { CallbackBench } from './callbacks.ts';
import { HOUR, MINUTE, NOON_YESTERDAY, positions, price, takeCallbackBench } from './callbacks.ts';
import { eventually } from '../harness.ts';

const STREAM = 'stream.account.inputs';
const GROUP = 'notifications';

let bench: CallbackBench;
beforeAll(async () => {
  bench = await takeCallbackBench();
});
afterAll(() => bench.release());

test('kinds-V3 a tick that a dying consumer was given is part of its hour, although later prices came first', async () => {
  const { redis } = bench.slot;
  const endMs = NOON_YESTERDAY;
  const startMs = endMs - HOUR;
  await redis.xgroup('CREATE', STREAM, GROUP, '0', 'MKSTREAM');
  const append = (atMs: number, input: CallbackInput) =>
    redis.xadd(STREAM, `${atMs}-0`, 'payload', JSON.stringify(input));
  await append(startMs + 30 * MINUTE, price('BTC', startMs + 30 * MINUTE, '999'));
  await redis.xreadgroup('GROUP', GROUP, 'dies', 'STREAMS', STREAM, '>');
  await bench.store([positions('ann', startMs, '0', { BTC: '1' }), price('BTC', startMs, '100')]);
  await append(endMs + 1_000, price('BTC', endMs + 1_000, '101'));

  await bench.setClock(endMs + MINUTE);
  await bench.startService();
  await eventually('the later price to be taken', async () => {
    const taken = await bench.rows('SELECT 1 FROM notification.callback_prices WHERE price = 101');
    return taken.length === 1;
  });
  const waiting = await bench.runNow();
  expect([waiting.nextAlarm?.interval, bench.calls('hourly')]).toEqual(['waiting', []]);

  // As after half a minute.
  await redis.xclaim(STREAM, GROUP, 'dies', 0, `${startMs + 30 * MINUTE}-0`, 'IDLE', 60_000, 'JUSTID');
  await bench.slot.stopServices();
  await bench.startService();
  await eventually('the dead one’s to be taken', async () => {
    const taken = await bench.rows('SELECT 1 FROM notification.callback_prices WHERE price = 999');
    return taken.length === 1;
  });
  await bench.runNow();
  const told = await eventually('the hour', async () =>
    bench.portfolio.held({ userId: 'ann', kind: 'hourly', periodStartMs: startMs }),
  );
  expect(told).toMatchObject({ peak_value: '999', closing_value: '999', bottom_value: '100' });
});

test('kinds-V3 what is stuck holds hours for the grace and no longer; what is being read is waited for', async () => {
  const { redis } = bench.slot;
  const [stream, group, graceMs] = ['watched', 'group', 1_000];
  let clockMs = 0;
  const { oldestOutstanding } = watchInputs({
    ...{ redis, stream, group, graceMs },
    log: { warn: () => undefined } as never,
    now: () => clockMs,
  });
  const add = (atMs: number) => redis.xadd(stream, `${atMs}-0`, 'payload', '{}');
  const read = (consumer: string) =>
    redis.xreadgroup('GROUP', group, consumer, 'COUNT', 1, 'STREAMS', stream, '>');

  expect(await oldestOutstanding()).toBeUndefined();
  await add(100);
  expect(await oldestOutstanding()).toBe(100);
  await redis.xgroup('CREATE', stream, group, '0');
  expect(await oldestOutstanding()).toBe(100);
  // One consumer hangs with its entry, another one goes on.
  await read('hangs');
  for (const atMs of [200, 300]) await add(atMs);
  expect(await oldestOutstanding()).toBe(100);
  for (const [atMs, seen] of [
    [200, 100],
    [300, 100],
  ] as const) {
    clockMs += graceMs / 2 - 1;
    await read('works');
    await redis.xack(stream, group, `${atMs}-0`);
    expect(await oldestOutstanding()).toBe(seen);
  }
  clockMs += 2;
  expect(await oldestOutstanding()).toBeUndefined();
  // Whatever is behind it is waited for.
  await add(400);
  expect(await oldestOutstanding()).toBe(400);
  await read('works');
  expect(await oldestOutstanding()).toBe(400);
  await redis.xack(stream, group, '400-0');
  expect(await oldestOutstanding()).toBeUndefined();

  // Nobody reads: the grace begins when there is something to read.
  clockMs += 10 * graceMs;
  await add(500);
  expect(await oldestOutstanding()).toBe(500);
  clockMs += graceMs - 1;
  expect(await oldestOutstanding()).toBe(500);
  clockMs += 1;
  expect(await oldestOutstanding()).toBeUndefined();
  // Somebody reads again.
  await add(600);
  await read('works');
  expect(await oldestOutstanding()).toBe(500);
});

test('kinds-V3 what came too late is told apart', async () => {
  const at = NOON_YESTERDAY;
  // It would compute the hours that are to be left open here.
  await bench.slot.stopServices();
  await bench.empty();
  expect(await bench.store([price('BTC', at, '1'), positions('ann', at, '1', {})])).toEqual({ late: 0 });
  await bench.rows('UPDATE notification.callback_trackings SET caught_up_to_ms = $1', [at + HOUR]);
  const late = [price('BTC', at + 1, '2'), positions('ann', at + 1, '1', {})];
  expect(await bench.store([...late, price('BTC', at + HOUR, '3')])).toEqual({ late: 2 });
  // The same ones again are not stored, and not late.
  expect(await bench.store(late)).toEqual({ late: 0 });
});

test('kinds-S3 a symbol that is silent for long, or that an operator has forgotten, is not waited for', async () => {
  await bench.slot.stopServices();
  await bench.empty();
  const endMs = NOON_YESTERDAY;
  const startMs = endMs - HOUR;
  await bench.store([
    positions('ann', startMs, '1', { BTC: '1' }),
    price('DELISTED', startMs - 6 * HOUR, '5'),
    price('TYPO', startMs, '5'),
    price('BTC', startMs, '10'),
    price('BTC', endMs, '11'),
  ]);
  await bench.setClock(endMs + MINUTE);
  await bench.startService();
  await bench.runNow();
  expect(bench.portfolio.held({ userId: 'ann', kind: 'hourly', periodStartMs: startMs })).toBeUndefined();
  const operator = bench.operator();
  const { items } = await operator.callbacks.symbols();
  expect(items.map(({ symbol }) => symbol)).toEqual(['DELISTED', 'TYPO', 'BTC']);
  await operator.callbacks.forgetSymbol('TYPO');
  await expect(operator.callbacks.forgetSymbol('NEVER')).rejects.toThrow(NotFoundError);
  await bench.runNow();
  await eventually('the hour', async () =>
    bench.portfolio.held({ userId: 'ann', kind: 'hourly', periodStartMs: startMs }),
  );
  // A price makes it known again.
  await bench.store([price('TYPO', endMs + 1, '6')]);
  const forgotten = (await operator.callbacks.symbols()).items.filter(({ forgottenAt }) => forgottenAt);
  expect(forgotten).toEqual([]);
});
