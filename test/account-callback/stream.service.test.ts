/** The consumer group of account inputs: what happens to entries, and to the group, when consumers come and go. */
import { appendInputs } from '../../client/account-callback/inputs.ts';
import type { CallbackBench } from './callbacks.ts';
import { MIDNIGHT, price, takeCallbackBench } from './callbacks.ts';
import { eventually } from '../harness.ts';

const STREAM = 'stream.account.inputs';
const GROUP = 'notifications';

let bench: CallbackBench;
beforeAll(async () => {
  bench = await takeCallbackBench();
});
afterAll(() => bench.release());

const consumers = async (): Promise<string[]> =>
  ((await bench.slot.redis.xinfo('CONSUMERS', STREAM, GROUP)) as string[][]).map(
    (info) => info[info.indexOf('name') + 1]!,
  );
const pricesOf = (symbol: string) =>
  bench.rows<{ price: string }>('SELECT price FROM notification.callback_prices WHERE symbol = $1', [symbol]);
const kept = (symbol: string) =>
  eventually(`the price of ${symbol}`, async () => (await pricesOf(symbol)).length === 1);

test('C7 what a dead consumer left is taken first, and a service that stops leaves no consumer behind', async () => {
  const { redis } = bench.slot;
  await redis.xgroup('CREATE', STREAM, GROUP, '0', 'MKSTREAM');
  await appendInputs(redis, [price('LEFT', MIDNIGHT, '1')]);
  const [[, [[id]]]] = (await redis.xreadgroup('GROUP', GROUP, 'dead', 'STREAMS', STREAM, '>')) as [
    [string, [[string, string[]]]],
  ];
  await redis.xclaim(STREAM, GROUP, 'dead', 0, id, 'IDLE', 60_000, 'JUSTID');
  await appendInputs(redis, [price('NEW', MIDNIGHT, '2')]);

  const first = await bench.startService();
  await Promise.all([kept('LEFT'), kept('NEW')]);
  await eventually('an empty stream', async () => (await redis.xlen(STREAM)) === 0);
  await first.stop();
  expect(await consumers()).toEqual(['dead']);

  const second = await bench.startService();
  await appendInputs(redis, [price('AFTER', MIDNIGHT, '3')]);
  await kept('AFTER');
  await second.stop();
  expect(await consumers()).toEqual(['dead']);
});
