/** What is begun ahead of a backlog, and what is not, by a look over a real stream. */
import type { Redis } from 'ioredis';
import type { EntryFields } from '../../api/intent/entry.ts';
import { MAX_ENTRY_BYTES } from '../../api/intent/entry.ts';
import { offsetKey } from '../../api/intent/stream.ts';
import { STREAM_START } from '../../api/stream-ids.ts';
import { createLookAhead } from '../../activities/intent/look-ahead.ts';
import { openStream } from '../../activities/stream-read.ts';
import type { Slot } from '../harness.ts';
import { eventually, takeSlot } from '../harness.ts';
import { append } from '../service-process.ts';
import { entryOf, turn } from './entries.ts';

const STREAM = 'notification:intents';

let slot: Slot;
let connection: Redis;
beforeAll(async () => {
  slot = await takeSlot();
});
beforeEach(async () => {
  await slot.redis.flushdb();
  connection = slot.redis.duplicate();
});
afterEach(() => connection.disconnect());
afterAll(() => slot.release());

const urgent = (key: string, changes = {}): EntryFields =>
  entryOf('game.generation_failed', { idempotency_key: key, ...changes });
const other = (key: string): EntryFields => turn({ idempotency_key: key });

/** A reader that has something to do until it is told that it is over. */
async function reader(
  options: {
    mustWait?: string[];
    cancelled?: string[];
    producer?: () => string | undefined;
    start?: () => Promise<boolean>;
  } = {},
) {
  const started: string[] = [];
  const stop = new AbortController();
  const progress = { offset: STREAM_START, readBefore: STREAM_START, ahead: 0 };
  const reading = await openStream(connection, {
    ...{ stream: STREAM, maxEntryBytes: MAX_ENTRY_BYTES, batchSize: 100 },
  });
  const lookAhead = createLookAhead({
    lookAfter: (id, wanted) => reading.lookAfter(id, offsetKey(STREAM), wanted),
    mustWait: ({ idempotencyKey }) => options.mustWait?.includes(idempotencyKey) ?? false,
    producerOfBacklog: () => options.producer?.(),
    cancelledOf: () => Promise.resolve(new Set(options.cancelled)),
    async start(intent) {
      started.push(intent.notificationId);
      return (await options.start?.()) ?? true;
    },
    ...{ progress, stop: stop.signal },
  });
  /** Until all that is there has been looked at: a marker at the end of the stream is begun. */
  const busyUntilAllSeen = async () => {
    const [marker] = await append(slot.redis, [urgent(`marker-${started.length}`)]);
    await lookAhead.during(eventually('the marker to be begun', async () => started.includes(marker!)));
    return started.filter((id) => id !== marker);
  };
  return { lookAhead, progress, started, stop, busyUntilAllSeen };
}

test('I87 urgent intents behind the offset are begun while the reader is busy, others and malformed ones are not', async () => {
  const [, first, , , second] = await append(slot.redis, [
    other('a'),
    urgent('b'),
    urgent('c', { payload_json: '{' }),
    [[Buffer.from('notification_type'), Buffer.from('game.generation_failed')]],
    urgent('d'),
  ]);
  const { busyUntilAllSeen, lookAhead } = await reader();
  expect(await busyUntilAllSeen()).toEqual([first, second]);
  await expect(lookAhead.startOf(first!)).resolves.toBe(true);
  expect(lookAhead.startOf('1-1')).toBeUndefined();
});

test('U2 what is cancelled is not begun ahead', async () => {
  const [first, second] = await append(slot.redis, [urgent('a'), urgent('b')]);
  const { busyUntilAllSeen } = await reader({ cancelled: [first!] });
  expect(await busyUntilAllSeen()).toEqual([second]);
});

test('I88 while the backlog is of one producer, intents of others are begun ahead of it', async () => {
  const ofOther = (key: string) => entryOf('lobby.membership.approved', { idempotency_key: key });
  const ids = await append(slot.redis, [
    ...[other('a'), ofOther('b'), other('c')],
    ...Array.from({ length: 1_200 }, (_, n) => other(`between-${n}`)),
    ...[ofOther('d'), ofOther('b'), urgent('e')],
  ]);
  const backlog: { producer?: string } = {};
  const { busyUntilAllSeen } = await reader({ producer: () => backlog.producer });
  expect(await busyUntilAllSeen()).toEqual([ids.at(-1)]);
  // What was looked at before is looked at once more. The second of one key comes in its turn.
  backlog.producer = 'game_master';
  const all = await busyUntilAllSeen();
  expect(all.filter((id) => ids.includes(id))).toEqual([ids.at(-1), ids[1], ids.at(-3)]);
});

test('I88 many intents of others are a backlog themselves, of which only urgent ones are begun ahead', async () => {
  const [, early] = await append(slot.redis, [
    ...[other('a'), urgent('b')],
    ...Array.from({ length: 300 }, (_, n) => other(`backlog-${n}`)),
  ]);
  const { busyUntilAllSeen } = await reader({ producer: () => 'game_lobby' });
  const begun = await busyUntilAllSeen();
  expect(begun).toContain(early);
  // The end of the backlog by itself is a few.
  expect(begun.length).toBeLessThanOrEqual(1 + 50);
});

test('I87 a reader that is done at once looks at nothing', async () => {
  await append(slot.redis, [urgent('a')]);
  const { lookAhead, started } = await reader();
  await expect(lookAhead.during(Promise.resolve('done'))).resolves.toBe('done');
  await expect(lookAhead.during(Promise.reject(new Error('failed')))).rejects.toThrow('failed');
  expect(started).toEqual([]);
});

test('I9 I87 of two intents with one key the later is not begun ahead, be the earlier urgent or not', async () => {
  const ids = await append(slot.redis, [
    ...[other('one'), urgent('two')],
    ...Array.from({ length: 1_500 }, (_, n) => other(`between-${n}`)),
    ...[urgent('one'), urgent('two'), urgent('three')],
  ]);
  const { busyUntilAllSeen } = await reader();
  expect(await busyUntilAllSeen()).toEqual([ids[1], ids.at(-1)]);
});

test('I87 keys of another producer are other keys', async () => {
  const [, mine] = await append(slot.redis, [
    entryOf('lobby.membership.approved', { idempotency_key: 'one' }),
    urgent('one'),
  ]);
  const { busyUntilAllSeen } = await reader();
  expect(await busyUntilAllSeen()).toEqual([mine]);
});

test('I87 what something under way must end before, and what was read before, comes in its turn', async () => {
  const [known, , free] = await append(slot.redis, [urgent('known'), urgent('waits'), urgent('free')]);
  const { busyUntilAllSeen, progress } = await reader({ mustWait: ['waits'] });
  progress.readBefore = known!;
  expect(await busyUntilAllSeen()).toEqual([free]);
});

test('I87 what the offset has passed is forgotten: its key is free, and it is not begun ahead any more', async () => {
  const passed = await append(slot.redis, [urgent('one'), other('two')]);
  const { busyUntilAllSeen, lookAhead, progress, started } = await reader();
  await busyUntilAllSeen();
  progress.offset = (await slot.redis.xrevrange(STREAM, '+', '-', 'COUNT', 1))[0]![0];
  const [again] = await append(slot.redis, [urgent('two')]);
  expect(await busyUntilAllSeen()).toContain(again);
  expect(lookAhead.startOf(passed[0]!)).toBeUndefined();
  expect(started.filter((id) => id === passed[0])).toHaveLength(1);
});

test('I39 I87 a reader that goes back looks at everything anew', async () => {
  const [first] = await append(slot.redis, [urgent('one')]);
  const { busyUntilAllSeen, lookAhead, progress, started } = await reader();
  progress.offset = first!;
  await busyUntilAllSeen();
  expect(started).not.toContain(first);
  await lookAhead.during(
    Promise.resolve().then(() => {
      progress.offset = STREAM_START;
    }),
  );
  await busyUntilAllSeen();
  expect(started).toContain(first);
});

test('I87 one that could not be started is started in its turn, and a start that hangs holds nobody up', async () => {
  const [id] = await append(slot.redis, [urgent('one')]);
  const failing = await reader({ start: () => Promise.reject(new Error('Temporal is away')) });
  const begun = failing.lookAhead.during(eventually('a start', async () => failing.started.length > 0));
  await begun;
  await eventually('it to be forgotten', async () => failing.lookAhead.startOf(id!) === undefined);

  await append(
    slot.redis,
    Array.from({ length: 30 }, (_, n) => urgent(`more-${n}`)),
  );
  const hanging = await reader({ start: () => new Promise(() => undefined) });
  await hanging.lookAhead.during(
    eventually('as many as may be begun together', async () => hanging.started.length === 20),
  );
  expect(hanging.started).toHaveLength(20);
});

test('I87 a backlog is looked at before it is read, and a stop ends that', async () => {
  const [id] = await append(slot.redis, [
    urgent('one'),
    ...Array.from({ length: 2_500 }, (_, n) => other(`between-${n}`)),
  ]);
  const { lookAhead, started } = await reader();
  await lookAhead.begin();
  expect(started).toEqual([id]);
  await lookAhead.end();

  const stopped = await reader();
  stopped.stop.abort();
  await stopped.lookAhead.begin();
  expect(stopped.started).toEqual([]);
});
