/** What all readers of streams share: who is listed in a group, who takes what others left, and what the stores know of each other. */
import { pino } from 'pino';
import { Redis } from 'ioredis';
import type { StreamConsumerOptions } from '../../activities/stream-consumer.ts';
import { consumeStream } from '../../activities/stream-consumer.ts';
import { recall, remember } from '../../activities/stream-memory.ts';
import type { DeliveredEntry } from '../../activities/stream-read.ts';
import { beatKey } from '../../api/intent/stream.ts';
import { startTcpProxy } from '../../dev/servers/tcp-proxy.ts';
import { eventually, slotOfTests } from '../harness.ts';
import { keepRows } from '../put-back.ts';

const STREAM = 'some-stream';
const GROUP = 'some-group';
const BEAT = beatKey('tester', STREAM);

const slot = slotOfTests();
beforeEach(async () => {
  await slot.db.query('DELETE FROM notification.inbound_streams');
  await slot.redis.del(STREAM, BEAT);
  await slot.redis.xgroup('CREATE', STREAM, GROUP, '0', 'MKSTREAM');
});

/** What a test has left would take the entries of the next one. */
const started: { stop(): Promise<void> }[] = [];
afterEach(async () => {
  for (const one of started.splice(0).reverse()) await one.stop();
});

/** Acknowledges whatever it takes, unless told otherwise. */
function consume(more: Partial<StreamConsumerOptions> = {}) {
  const taken: DeliveredEntry[] = [];
  const batches: number[] = [];
  const { redis } = slot;
  const { host, port } = slot.endpoints.redis;
  const consumer = consumeStream({
    ...{ stream: STREAM, group: GROUP, what: 'entries', minIdleMs: 100 },
    limits: { maxEntryBytes: 256 * 1024, batchSize: 10 },
    log: pino({ level: 'silent' }),
    openReader: () => new Redis({ host, port, db: slot.slot, retryStrategy: () => null }),
    takeEntries: async (entries) => {
      taken.push(...entries);
      batches.push(entries.length);
      await redis.xack(STREAM, GROUP, ...entries.map(({ id }) => id));
      return [];
    },
    ...more,
  });
  started.push(consumer);
  return { ...consumer, taken, batches };
}

const add = (text: string) => slot.redis.xadd(STREAM, '*', 'text', text);
const read = (consumer: string) => slot.redis.xreadgroup('GROUP', GROUP, consumer, 'STREAMS', STREAM, '>');
const isOld = () =>
  eventually('the entries to be old enough', async () => {
    const [[, , idleMs]] = (await slot.redis.xpending(STREAM, GROUP, '-', '+', 1)) as [
      [string, string, number],
    ];
    return idleMs > 100;
  });
const consumers = async (): Promise<string[]> =>
  ((await slot.redis.xinfo('CONSUMERS', STREAM, GROUP)) as string[][]).map(
    (info) => info[info.indexOf('name') + 1]!,
  );

test('M2 C7 entries of a dead consumer are taken before new ones, with their deliveries, and it is forgotten', async () => {
  const left = await add('left');
  await read('dead');
  await isOld();
  const fresh = await add('fresh');
  const consumer = consume();
  await eventually('both entries', async () => consumer.taken.length === 2);
  expect(consumer.taken.map(({ id, deliveries }) => ({ id, deliveries }))).toEqual([
    { id: left, deliveries: 2 },
    { id: fresh, deliveries: 1 },
  ]);
  await eventually('the dead consumer to be forgotten', async () => !(await consumers()).includes('dead'));
  expect(await consumers()).toEqual([expect.stringContaining(`-${process.pid}`)]);
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
  // A consumer that was silent for as long as the dead one would be forgotten with it.
  await eventually('the quiet one to be heard of', async () => Number(await idleOfQuiet()) < 2_000);
});

const MB = 1_000_000;
const SILENCE_MS = 5_000;
test.each([
  ['new', false],
  ['left by a dead consumer', true],
])(
  'security-3 of entries that are too large and %s only the first bytes come, over a slow link',
  async (_, areLeft) => {
    const proxy = await startTcpProxy(slot.endpoints.redis);
    started.push(proxy);
    await proxy.set({ kind: 'narrow', bytesPerSecond: 1_250_000 });
    const large = Buffer.alloc(2 * MB, 'x');
    for (let index = 0; index < 10; index += 1)
      await slot.redis.xadd(STREAM, '*', 'first', 'a', 'large', large);
    await add('behind them');
    if (areLeft) {
      // Its answer is thrown away: the 20 MB have no other use.
      const readAll = `redis.call('XREADGROUP', 'GROUP', ARGV[1], 'dead', 'STREAMS', KEYS[1], '>')`;
      await slot.redis.eval(readAll, 1, STREAM, GROUP);
      await isOld();
    }
    const consumer = consume({
      limits: { maxEntryBytes: 256 * 1024, batchSize: 100 },
      openReader: () =>
        new Redis({
          ...{ host: proxy.host, port: proxy.port, db: slot.slot },
          ...{ retryStrategy: () => null, socketTimeout: SILENCE_MS },
        }),
    });
    await eventually('all of them', async () => consumer.taken.length === 11);
    const { fields, size } = consumer.taken[0]!;
    const lengths = [
      [5, 1],
      [5, 2 * MB],
    ];
    expect(size).toEqual({ bytes: 'firstalarge'.length + 2 * MB, fields: 2, lengths });
    expect(fields.map(([name, value]) => [String(name), value.length])).toEqual([
      ['first', 1],
      ['large', 4_097],
    ]);
    expect(consumer.taken.at(-1)!.fields.map(([, value]) => String(value))).toEqual(['behind them']);
    expect(proxy.answeredBytes).toBeLessThan(MB);
  },
);

test('security-3 a read ends where its bytes do, and the rest stays for the next read', async () => {
  const value = Buffer.alloc(200_000, 'x');
  for (let index = 0; index < 20; index += 1) await slot.redis.xadd(STREAM, '*', 'text', value);
  const consumer = consume({ limits: { maxEntryBytes: 256 * 1024, batchSize: 100 } });
  await eventually('all of them', async () => consumer.taken.length === 20);
  expect(Math.max(...consumer.batches)).toBeLessThanOrEqual(6);
  // One that was read and not taken would be delivered again.
  expect(consumer.taken.filter(({ deliveries }) => deliveries > 1)).toEqual([]);
});

test('security-3 an entry of very many fields counts by its fields, too', async () => {
  const fields = Array.from({ length: 5_000 }, () => ['', '']).flat();
  await slot.redis.xadd(STREAM, '*', ...fields);
  const consumer = consume();
  await eventually('the entry', async () => consumer.taken.length === 1);
  expect(consumer.taken[0]).toMatchObject({ size: { bytes: 0, fields: 5_000 } });
  expect(consumer.taken[0]!.fields).toHaveLength(64);
});

test('kinds-S3 entries that wait are renewed', async () => {
  // Renewed three times as often: even a machine that stands still for a second or two does so in time.
  const minIdleMs = 3_000;
  const id = await add('slow');
  const { promise: done, resolve: end } = Promise.withResolvers<void>();
  let takes = 0;
  consume({
    minIdleMs,
    takeEntries: async (entries) => {
      takes += 1;
      await done;
      await slot.redis.xack(STREAM, GROUP, ...entries.map((entry) => entry.id));
      return [];
    },
  });
  const pending = async () =>
    ((await slot.redis.xpending(STREAM, GROUP, id!, id!, 1)) as [string, string, number, number][])[0]!;
  await eventually('the delivery', async () => takes === 1);
  const other = consume({ minIdleMs });
  await eventually('an entry that is old, and is kept', async () => {
    const [, , idleMs] = await pending();
    return Date.now() - Number(id!.split('-')[0]) > 8_000 && idleMs < minIdleMs;
  });
  expect((await pending())[3]).toBe(1);
  expect(other.taken).toEqual([]);
  end();
  await eventually('the acknowledgement', async () => (await slot.redis.xpending(STREAM, GROUP))[0] === 0);
  expect(takes).toBe(1);
});

const owner = () => ({ db: slot.db, redis: slot.redis, role: 'tester', stream: STREAM });
const recalled = () => recall(owner());

/** A look, and what happens to the stores in the middle of it. */
async function look(passedId: string, meanwhile?: () => Promise<unknown>): Promise<void> {
  const memory = await recalled();
  await meanwhile?.();
  await remember(owner(), { passedId, seen: undefined }, memory);
}

async function looks(count: number): Promise<void> {
  for (let n = 1; n <= count; n += 1) await look(`${n}-0`);
}

test('I52 each look raises the beat in both stores, also of several that look at the same time', async () => {
  await Promise.all([looks(3), looks(3)]);
  expect(await recalled()).toMatchObject({ postgres: 'as it was', isRedisBehind: false, passedId: '3-0' });
});

test.each([0, 2])(
  'I52 a PostgreSQL that falls back in the middle of a look, to after %i looks, is noticed by the next one',
  async (before) => {
    await looks(before);
    const { putBack } = await keepRows(slot.db);
    await looks(5);
    await expect(look('6-0', putBack)).rejects.toThrow('PostgreSQL fell back to an earlier state');
    expect(await recalled()).toMatchObject({ postgres: 'regressed' });
    await look('7-0');
    expect(await recalled()).toMatchObject({ postgres: 'as it was', passedId: '7-0' });
  },
);

test.each([0, 2])(
  'I52 a Redis that falls back in the middle of a look, to after %i looks, is noticed by the next one',
  async (before) => {
    await looks(before);
    const kept = await slot.redis.get(BEAT);
    await looks(8);
    await look('9-0', () => (kept === null ? slot.redis.del(BEAT) : slot.redis.set(BEAT, kept)));
    expect(await recalled()).toMatchObject({ postgres: 'as it was', isRedisBehind: true });
    await look('10-0');
    expect(await recalled()).toMatchObject({ isRedisBehind: false, passedId: '10-0' });
  },
);
