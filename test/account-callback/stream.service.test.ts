/** The consumer group of account inputs: what happens to entries, and to the group, when consumers come and go. */
import { appendInputs } from '../../client/account-callback/inputs.ts';
import { HOUR, MIDNIGHT, hour, inputsTaken, benchOfTests } from './callbacks.ts';
import { eventually } from '../harness.ts';
import { keepRows } from '../put-back.ts';

const STREAM = 'stream.account.extremes';

const bench = benchOfTests();

const START = MIDNIGHT - 1_000 * HOUR;
const hoursOf = (user: string) =>
  bench.rows('SELECT FROM notification.callback_snapshots WHERE user_id = $1', [user]);
const kept = (user: string) =>
  eventually(`the hour of ${user}`, async () => (await hoursOf(user)).length === 1);

test('I52 C7 inputs that a PostgreSQL has forgotten that was put back are taken again, and those of long ago are removed', async () => {
  const { redis, db } = bench.slot;
  const hourAgo = Date.now() - 3_600_000;
  const old = redis.pipeline();
  for (let n = 1; n <= 250; n += 1) {
    old.xadd(STREAM, `${hourAgo}-${n}`, 'payload', JSON.stringify(hour('OLD', START + n * HOUR)));
  }
  await old.exec();
  const service = await bench.startService();
  await eventually('the old ones', async () => (await hoursOf('OLD')).length === 250);
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
  await appendInputs(redis, [hour('FORGOTTEN', START)]);
  await kept('FORGOTTEN');
  await inputsTaken(redis);
  await look();
  await putBack();
  await eventually('it to be taken again', async () => (await hoursOf('FORGOTTEN')).length === 1);
  await inputsTaken(redis);
  expect(
    bench.slot.logs.filter(({ reason }) => String(reason).startsWith('PostgreSQL fell back')),
  ).toHaveLength(1);
  await service.stop();
  // Redis removes whole nodes of a hundred entries.
  expect(await redis.xlen(STREAM)).toBeLessThan(150);
  await redis.del(STREAM);
});

test('security-9 whether a period is over is judged by the clock that gave the entry its id', async () => {
  const { redis } = bench.slot;
  const aheadMs = Date.now() - (Date.now() % HOUR) + 3 * HOUR;
  const payloadOf = (input: object) => ['payload', JSON.stringify(input)] as const;
  await redis.xadd(STREAM, '*', ...payloadOf(hour('AHEAD', aheadMs)));
  // For a reader whose clock is days behind that of Redis.
  await redis.xadd(STREAM, `${aheadMs + 5 * 24 * HOUR}-0`, ...payloadOf(hour('LATER', aheadMs)));
  const service = await bench.startService();
  await kept('LATER');
  await inputsTaken(redis);
  expect(await hoursOf('AHEAD')).toEqual([]);
  await service.stop();
});
