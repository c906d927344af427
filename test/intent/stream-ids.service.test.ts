/** Ids that a producer has chosen: the last one that a stream can have, and those ahead of the clock. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import type { Redis } from 'ioredis';
import { diagnose, inspectStream, rewindPoint } from '../../activities/intent/stream-watch.ts';
import { openStream } from '../../activities/stream-read.ts';
import { offsetKey, oldestUnprocessedAgeMs } from '../../api/intent/stream.ts';
import { intentStreamChecks } from '../../cli/intent/check.ts';
import { consumerGroup } from '../../cli/checks.ts';
import type { OperatorResources } from '../../client/resources.ts';
import { why } from '../../client/why.ts';
import { slotOfTests } from '../harness.ts';

const STREAM = 'notification:intents';
const LAST = '18446744073709551615-18446744073709551615';
const AHEAD = '99999999999999-0';
const DAY_MS = 86_400_000;
const SET_BACK = readFileSync(path.join(import.meta.dirname, '../../deploy/redis/set-ids-back.lua'), 'utf8');

const slot = slotOfTests();
let connection: Redis;
beforeEach(async () => {
  await slot.redis.flushdb();
  connection = slot.redis.duplicate();
});
afterEach(() => connection.disconnect());

const append = (id: string) =>
  slot.redis.xadd(STREAM, id, 'notification_type', 'game.turn.ready', 'producer', 'game_master');
const reading = () => openStream(connection, { stream: STREAM, maxEntryBytes: 1_000, batchSize: 100 });
const ageMs = (nowMs: number) => oldestUnprocessedAgeMs(slot.redis, STREAM, '0-0', nowMs);
const resources = () => ({ db: slot.db, redis: slot.redis, intentsStream: STREAM }) as OperatorResources;

describe('security-1 an entry with the last possible id', () => {
  test('security-1 is read behind the entries in front of it, and nothing is looked for behind it', async () => {
    for (const id of ['1-0', '2-0', LAST]) await append(id);
    const { readAfter } = await reading();
    const read = await readAfter('0-0', offsetKey(STREAM), 1);
    expect(read.map(({ id }) => id)).toEqual(['1-0', '2-0', LAST]);
    expect(await readAfter(LAST, offsetKey(STREAM), 1)).toEqual([]);
  });

  test('security-1 has been read: age, previews and answers do without what would come behind it', async () => {
    await append(LAST);
    expect(await ageMs(Date.now())).toBe(0);
    await slot.redis.set(offsetKey(STREAM), LAST);
    expect(await oldestUnprocessedAgeMs(slot.redis, STREAM, LAST, Date.now())).toBe(0);
    expect((await why(resources(), 'user-1')).doubts).toEqual([]);
  });

  test('security-1 in a stream of jobs is an error in doctor, and the group gets what comes after the ids are set back', async () => {
    const [stream, group] = ['stream.notifications.jobs', 'readers'];
    await slot.redis.xgroup('CREATE', stream, group, '0', 'MKSTREAM');
    const readNew = () => slot.redis.xreadgroup('GROUP', group, 'one', 'STREAMS', stream, '>');
    const honest = await slot.redis.xadd(stream, '*', 'a', 'b');
    await slot.redis.xadd(stream, LAST, 'a', 'b');
    expect(await consumerGroup({ redis: slot.redis, stream, group }, 'mobile-push')).toMatchObject({
      status: 'error',
      detail: expect.stringContaining('stream_ids_ahead') as string,
    });
    await readNew();
    await expect(slot.redis.eval(SET_BACK, 1, stream, LAST, group)).rejects.toThrow('not acknowledged');
    await slot.redis.xack(stream, group, LAST);
    await slot.redis.xack(stream, group, honest!);
    await slot.redis.eval(SET_BACK, 1, stream, LAST, group);
    await slot.redis.xadd(stream, '*', 'a', 'b');
    expect(await readNew()).toHaveLength(1);
  });
});

describe('security-1 ids ahead of the clock', () => {
  const kinds = async () =>
    diagnose(await inspectStream(slot.redis, STREAM), { offset: '0-0', entriesPassed: 0 }).problems.map(
      ({ kind }) => kind,
    );
  const doctor = async () => {
    const [check] = intentStreamChecks(resources(), slot.config().values);
    return check![1]();
  };

  test('security-1 are a finding, and an error in doctor, once they are more than a day ahead', async () => {
    await append(`${Date.now() + DAY_MS / 2}-0`);
    expect(await kinds()).toEqual([]);
    await append(AHEAD);
    expect(await kinds()).toEqual(['stream_ids_ahead']);
    expect(await doctor()).toMatchObject({
      status: 'error',
      detail: expect.stringContaining('stream_ids_ahead') as string,
    });
  });

  test('security-1 bug-P16 the age of an entry grows from when the process first saw it', async () => {
    await append(AHEAD);
    await append('*');
    const nowMs = Date.now();
    expect(await ageMs(nowMs)).toBe(0);
    expect(await ageMs(nowMs + 700_000)).toBe(700_000);
    // The next entry is another one.
    await slot.redis.xdel(STREAM, AHEAD);
    expect(await ageMs(nowMs + 800_000)).toBe(0);
    expect(await ageMs(nowMs + 900_000)).toBe(100_000);
  });

  test('security-1 bug-P16 an entry of before counts from its id, as by a process that has just begun', async () => {
    const nowMs = Date.now();
    await append(`${nowMs - 5_000}-0`);
    expect(await ageMs(nowMs)).toBe(5_000);
  });

  test('security-1 bug-P16 a stream is read again from before now, whatever its ids say', () => {
    const nowMs = 1_790_000_000_000;
    for (const id of [LAST, AHEAD, `${nowMs}-5`])
      expect(rewindPoint(id, LAST, 30 * DAY_MS, nowMs)).toBe(`${nowMs - 3_600_000}-0`);
  });

  test('security-1 the script of the runbook sets them back, once what is ahead was read', async () => {
    const honest = await append('*');
    await append(AHEAD);
    const unread = (await append('*'))!;
    await expect(slot.redis.eval(SET_BACK, 1, STREAM, AHEAD)).rejects.toThrow('smaller than');
    await slot.redis.eval(SET_BACK, 1, STREAM, unread);
    const next = (await append('*'))!;
    expect((await slot.redis.xrange(STREAM, '-', '+')).map(([id]) => id)).toEqual([honest, next]);
    expect(Number(next.split('-')[0])).toBeLessThan(Date.now() + 60_000);
    expect(await kinds()).not.toContain('stream_ids_ahead');
  });
});
