/** The consumer group of account inputs: what happens to entries, and to the group, when consumers come and go. */
import { appendInputs } from '../../client/account-callback/inputs.ts';
import { malformedInputOperations } from '../../client/account-callback/malformed.ts';
import type { CallbackBench } from './callbacks.ts';
import { HOUR, MIDNIGHT, inputsTaken, price, takeCallbackBench } from './callbacks.ts';
import { eventually } from '../harness.ts';
import { keepRows } from '../put-back.ts';

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

test('I52 C7 inputs that a PostgreSQL has forgotten that was put back are taken again, and those of long ago are removed', async () => {
  const { redis, db } = bench.slot;
  const hourAgo = Date.now() - 3_600_000;
  const old = redis.pipeline();
  for (let n = 1; n <= 250; n += 1) {
    old.xadd(STREAM, `${hourAgo}-${n}`, 'payload', JSON.stringify(price('OLD', MIDNIGHT + n, '1')));
  }
  await old.exec();
  const service = await bench.startService();
  await eventually('the old ones', async () => (await pricesOf('OLD')).length === 250);
  const beat = async () =>
    (await redis.get(
      `notification:stream_beats:account-callback:${Buffer.from(STREAM).toString('base64url')}`,
    )) ?? '';
  const look = async () => {
    const then = await beat();
    await eventually('a look', async () => (await beat()) !== then);
  };
  await look();
  const { putBack } = await keepRows(db);
  await appendInputs(redis, [price('FORGOTTEN', MIDNIGHT, '2')]);
  await kept('FORGOTTEN');
  await inputsTaken(redis);
  await look();
  await putBack();
  await eventually('it to be taken again', async () => (await pricesOf('FORGOTTEN')).length === 1);
  await inputsTaken(redis);
  expect(bench.slot.logs.filter(({ msg }) => String(msg).startsWith('PostgreSQL fell back'))).toHaveLength(1);
  await service.stop();
  // Redis removes whole nodes of a hundred entries.
  expect(await redis.xlen(STREAM)).toBeLessThan(150);
  await redis.del(STREAM);
});

test('kinds-V10 C7 what a dead consumer left is taken first, and a service that stops leaves no consumer behind', async () => {
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
  await inputsTaken(redis);
  await first.stop();
  expect(await consumers()).toEqual(['dead']);

  const second = await bench.startService();
  await appendInputs(redis, [price('AFTER', MIDNIGHT, '3')]);
  await kept('AFTER');
  await second.stop();
  expect(await consumers()).toEqual(['dead']);
});

describe('what does not count, or not yet', () => {
  const send = async (...fields: [string, string | Buffer][]): Promise<string> =>
    (await bench.slot.redis.xadd(STREAM, '*', ...fields.flat()))!;
  const emptied = () => inputsTaken(bench.slot.redis);
  const payloadOf = (input: object) => ['payload', JSON.stringify(input)] as [string, string];

  test('kinds-V10 security-3 C7 malformed inputs are kept with their reason and content, as far as they are read', async () => {
    const { redis, db } = bench.slot;
    const wrong = { type: 'positions', user_id: 'u', cash: 5, coefficients: {}, at_ms: MIDNIGHT };
    const micros = price('LATE', Date.now() * 1_000, '1');
    const number = await send(payloadOf(wrong));
    const large = await send(['payload', Buffer.alloc(1_000_000, 'x')]);
    const never = await send(payloadOf(micros));
    await appendInputs(redis, [price('GOOD', MIDNIGHT, '1')]);
    const service = await bench.startService();
    await kept('GOOD');
    await emptied();

    const malformed = malformedInputOperations({ db });
    const { items } = await malformed.list({ since: new Date(Date.now() - 600_000) });
    expect(items.map(({ entryId, code, message }) => [entryId, `${code}: ${message}`])).toEqual(
      expect.arrayContaining([
        [number, expect.stringMatching(/^invalid_payload: cash/)],
        [large, 'entry_too_large: the entry has 1000007 bytes; at most 131072 are accepted'],
        [never, 'invalid_payload: at_ms: is more than 172800000 ms ahead'],
      ]),
    );
    expect((await malformed.show(number)).rawFields).toEqual({ payload: JSON.stringify(wrong) });
    expect((await malformed.show(large)).rawFields).toEqual({
      payload: `${'x'.repeat(4_096)}… (cut, 1000000 bytes in all)`,
    });
    expect((await malformed.list({ code: 'entry_too_large' })).items).toHaveLength(1);
    await expect(malformed.show('1-1')).rejects.toThrow('no malformed account input 1-1 is recorded');
    await service.stop();
  });

  test('security-9 inputs that are ahead of the clocks are kept, and neither end hours nor put off a tracking', async () => {
    const aheadMs = Date.now() + 3 * HOUR;
    const positions = { type: 'positions', user_id: 'ahead', cash: '5', coefficients: {}, at_ms: aheadMs };
    await send(payloadOf(price('AHEAD', aheadMs, '1')));
    await send(payloadOf(positions));
    const service = await bench.startService();
    await kept('AHEAD');
    await emptied();
    const [row] = await bench.rows<{ symbol_ms: string; from_ms: string; positions: number }>(
      `SELECT (SELECT last_at_ms FROM notification.callback_symbols WHERE symbol = 'AHEAD') AS symbol_ms,
              (SELECT caught_up_to_ms FROM notification.callback_trackings WHERE user_id = 'ahead') AS from_ms,
              (SELECT count(*)::int FROM notification.callback_positions WHERE user_id = 'ahead') AS positions`,
    );
    expect(row!.positions).toBe(1);
    expect(Number(row!.symbol_ms)).toBeLessThan(aheadMs - 2 * HOUR);
    expect(Number(row!.from_ms)).toBeLessThan(aheadMs - 2 * HOUR);

    // For a reader whose clock is days behind, as it is behind this entry's: Redis has given the entry its time.
    const laterMs = Date.now() + 5 * 24 * HOUR;
    await bench.slot.redis.xadd(STREAM, `${laterMs}-0`, ...payloadOf(price('LATER', laterMs, '1')));
    await emptied();
    expect(await pricesOf('LATER')).toHaveLength(1);
    await service.stop();
  });
});
