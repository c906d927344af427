/** What every consumer group shares: who is listed in it, and who takes what others left. */
import { pino } from 'pino';
import { Redis } from 'ioredis';
import type { DeliveredEntry, StreamConsumerOptions } from '../../activities/stream-consumer.ts';
import { consumeStream } from '../../activities/stream-consumer.ts';
import type { Slot } from '../harness.ts';
import { eventually, takeSlot } from '../harness.ts';

const STREAM = 'some-stream';
const GROUP = 'some-group';

let slot: Slot;
beforeAll(async () => {
  slot = await takeSlot();
});
afterAll(() => slot.release());
beforeEach(async () => {
  await slot.redis.del(STREAM);
  await slot.redis.xgroup('CREATE', STREAM, GROUP, '0', 'MKSTREAM');
});

/** Those of a test that failed would take the entries of the next one. */
const started: { stop(): Promise<void> }[] = [];
afterEach(async () => {
  await Promise.all(started.splice(0).map((consumer) => consumer.stop()));
});

/** Acknowledges whatever it takes, unless told otherwise. */
function consume(more: Partial<StreamConsumerOptions> = {}) {
  const taken: DeliveredEntry[] = [];
  const { redis } = slot;
  const { host, port } = slot.endpoints.redis;
  const consumer = consumeStream({
    ...{ redis, stream: STREAM, group: GROUP, what: 'entries', batchSize: 10, minIdleMs: 100 },
    log: pino({ level: 'silent' }),
    openReader: () => new Redis({ host, port, db: slot.slot, retryStrategy: () => null }),
    take: async (entries) => {
      taken.push(...entries);
      await redis.xack(STREAM, GROUP, ...entries.map(({ id }) => id));
    },
    ...more,
  });
  started.push(consumer);
  return { ...consumer, taken };
}

const add = (text: string) => slot.redis.xadd(STREAM, '*', 'text', text);
const read = (consumer: string) => slot.redis.xreadgroup('GROUP', GROUP, consumer, 'STREAMS', STREAM, '>');
const consumers = async (): Promise<string[]> =>
  ((await slot.redis.xinfo('CONSUMERS', STREAM, GROUP)) as string[][]).map(
    (info) => info[info.indexOf('name') + 1]!,
  );

test('M2 C7 entries of a dead consumer are taken before new ones, with their deliveries, and it is forgotten', async () => {
  const left = await add('left');
  await read('dead');
  await eventually('the entry to be old enough', async () => {
    const [[, , idleMs]] = (await slot.redis.xpending(STREAM, GROUP, '-', '+', 1)) as [
      [string, string, number],
    ];
    return idleMs > 100;
  });
  const fresh = await add('fresh');
  const consumer = consume();
  await eventually('both entries', async () => consumer.taken.length === 2);
  expect(consumer.taken.map(({ id, deliveries }) => ({ id, deliveries }))).toEqual([
    { id: left, deliveries: 2 },
    { id: fresh, deliveries: 1 },
  ]);
  await eventually('the dead consumer to be forgotten', async () => !(await consumers()).includes('dead'));
  expect(await consumers()).toEqual([expect.stringContaining(`-${process.pid}`)]);
  await consumer.stop();
  expect(await consumers()).toEqual([]);
});

test('M2 C7 a consumer to whom nothing is given stays listed, however long', async () => {
  await slot.redis.xgroup('CREATECONSUMER', STREAM, GROUP, 'dead');
  const quiet = consume();
  await add('the last for long');
  await eventually('the entry', async () => quiet.taken.length === 1);
  await eventually('the dead consumer to be forgotten', async () => !(await consumers()).includes('dead'));
  const idleOfQuiet = async () => {
    const [info] = (await slot.redis.xinfo('CONSUMERS', STREAM, GROUP)) as (string | number)[][];
    return info?.[info.indexOf('idle') + 1];
  };
  // Whoever was silent for as long as the dead one would be forgotten with it.
  expect(await idleOfQuiet()).toBeLessThan(2_000);
  await quiet.stop();
});

test('M2 C7 a consumer that stops with entries stays listed until they are claimed', async () => {
  await add('left');
  const failing = consume({
    take: () => Promise.reject(new Error('nothing can be taken')),
    minIdleMs: 60_000,
  });
  await eventually('the delivery', async () => (await consumers()).length === 1);
  await eventually('an entry pending', async () => (await slot.redis.xpending(STREAM, GROUP))[0] === 1);
  await failing.stop();
  expect(await consumers()).toHaveLength(1);
  const next = consume();
  await eventually('the entry', async () => next.taken.length === 1);
  await next.stop();
  expect(await consumers()).toEqual([]);
});
