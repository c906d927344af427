/** The meaning of Redis's numbers about a stream, where it is read again from, and ids that a producer has chosen. */
import { readFileSync } from 'node:fs';
import { Redis } from 'ioredis';
import type { StreamPosition } from '../../activities/intent/entries.ts';
import { OffsetMovedError, loadPosition, moveOffset } from '../../activities/intent/entries.ts';
import { diagnose, inspectStream, rewindPoint } from '../../activities/intent/stream-watch.ts';
import type { StreamEntry } from '../../activities/stream-read.ts';
import { openStream } from '../../activities/stream-read.ts';
import { MAX_ENTRY_BYTES } from '../../api/intent/entry.ts';
import { offsetKey, oldestUnprocessedAgeMs } from '../../api/intent/stream.ts';
import { LAST_ENTRY_ID } from '../../api/stream-ids.ts';
import { consumerGroup } from '../../cli/checks.ts';
import { intentStreamChecks } from '../../cli/intent/check.ts';
import { why } from '../../client/why.ts';
import type { OperatorResources } from '../../client/resources.ts';
import { startTcpProxy } from '../../dev/servers/tcp-proxy.ts';
import type { StreamState } from '../../workflows/intent/contract.ts';
import { slotOfTests } from '../harness.ts';
import { parseIntent } from './galaxy.ts';

const DAY_MS = 86_400_000;
const AHEAD = '99999999999999-0';

const slot = slotOfTests();

/** Each test has its own stream. */
let stream = '';
let count = 0;
beforeEach(() => {
  stream = `intents-${(count += 1)}`;
});

const append = async (...ids: string[]): Promise<string> => {
  for (const id of ids.slice(0, -1)) await slot.redis.xadd(stream, id, 'field', 'value');
  return (await slot.redis.xadd(stream, ids.at(-1)!, 'field', 'value'))!;
};

const at = (offset: string, entriesPassed?: number) => ({ offset, entriesPassed });
const kindsIn = ({ problems }: ReturnType<typeof diagnose>) => problems.map(({ kind }) => kind);
const diagnosis = async (position: StreamPosition, seen?: StreamState) =>
  diagnose(await inspectStream(slot.redis, stream), position, seen);

describe('I39 the diagnosis', () => {
  const SEEN = { lastGeneratedId: '5-0', maxDeletedEntryId: '0-0', entriesAdded: 1 };

  test('I39 a policy that evicts is a risk, and Redis says which it has', async () => {
    expect((await inspectStream(slot.redis, stream)).maxmemoryPolicy).toBe('noeviction');
    const kindsWith = (maxmemoryPolicy?: string) =>
      kindsIn(diagnose({ stream: undefined, maxmemoryPolicy }, at('0-0', 0)));
    expect(kindsWith('allkeys-lru')).toEqual(['eviction_enabled']);
    expect(kindsWith()).toEqual([]);
  });

  test('I39 a stream that never was is not missing; one to which fewer entries were added than before was replaced', async () => {
    expect(await diagnosis(at('0-0', 0))).toEqual({ problems: [], entriesPassed: 0 });
    expect(kindsIn(await diagnosis(at('5-0')))).toEqual(['stream_missing']);
    expect(kindsIn(await diagnosis(at('0-0', 0), SEEN))).toEqual(['stream_missing']);
    await append('7-0');
    const replaced = await diagnosis(at('6-0', 2), { ...SEEN, entriesAdded: 2 });
    expect(kindsIn(replaced)).toEqual(['stream_regressed']);
  });

  test('I39 a reader without a count takes what it finds, and counts from there', async () => {
    await append('1-0', '2-0', '3-0', '4-0');
    await slot.redis.xtrim(stream, 'MAXLEN', 2);
    const problems = [{ kind: 'entries_lost' }];
    expect(await diagnosis(at('1-0'))).toEqual({ problems: [], entriesPassed: 2 });
    expect(await diagnosis(at('1-0', 1))).toMatchObject({ problems, entriesPassed: 2 });
    expect(await diagnosis(at('4-0', 3))).toMatchObject({ problems, entriesPassed: 4 });
    // What was trimmed before anything was read is found, even when all is gone.
    await slot.redis.xtrim(stream, 'MAXLEN', 0);
    expect(await diagnosis(at('0-0', 0))).toMatchObject({ problems, entriesPassed: 4 });
  });

  test('I39 trimming and deleting what was read is no finding', async () => {
    await append('1-0', '2-0', '3-0');
    await slot.redis.xdel(stream, '2-0');
    expect(kindsIn(await diagnosis(at('3-0', 3)))).toEqual([]);
    await slot.redis.xtrim(stream, 'MAXLEN', 0);
    expect(kindsIn(await diagnosis(at('3-0', 3)))).toEqual([]);
  });

  test('I39 a deletion that an earlier check saw is not found again', async () => {
    await append('1-0', '2-0', '3-0');
    await slot.redis.xdel(stream, '2-0');
    const inspection = await inspectStream(slot.redis, stream);
    expect(kindsIn(diagnose(inspection, at('1-0')))).toEqual(['entries_lost']);
    expect(kindsIn(diagnose(inspection, at('1-0'), inspection.stream))).toEqual([]);
  });
});

describe('I39 reading again', () => {
  const NOW_MS = 1_790_000_000_000;
  const HOUR_MS = 3_600_000;

  test.each([LAST_ENTRY_ID, AHEAD, `${NOW_MS}-5`])(
    'security-1 bug-P16 begins before now, whatever the id %s says',
    (id) => {
      expect(rewindPoint(id, LAST_ENTRY_ID, 30 * DAY_MS, NOW_MS)).toBe(`${NOW_MS - HOUR_MS}-0`);
    },
  );

  test.each([
    ['so long before', `${NOW_MS}-7`, `${NOW_MS}-9`, `${NOW_MS - HOUR_MS}-0`],
    ['within what records are kept', `${NOW_MS}-0`, `${NOW_MS + 27 * DAY_MS - 5}-0`, `${NOW_MS - 5}-0`],
    ['never forwards', `${NOW_MS}-0`, `${NOW_MS + 40 * DAY_MS}-0`, `${NOW_MS}-0`],
    ['from 0-0 when ids are no times', '999999999999-0', `${NOW_MS}-0`, '0-0'],
  ])('I39 intent-D2 begins %s', (_, id, newestId, expected) => {
    expect(rewindPoint(id, newestId, 30 * DAY_MS, NOW_MS + 50 * DAY_MS)).toBe(expected);
  });

  test('I39 the offset goes back from where the reader holds it, and only from there', async () => {
    expect(await loadPosition(slot.db, stream, '0-0')).toEqual(at('0-0', 0));
    await moveOffset(slot.db, stream, '0-0', at('9-0', 4));
    const back = at('1-0');
    await expect(moveOffset(slot.db, stream, '8-0', back)).rejects.toThrow(OffsetMovedError);
    expect(await loadPosition(slot.db, stream, '0-0')).toEqual(at('9-0', 4));
    await moveOffset(slot.db, stream, '9-0', back);
    expect(await loadPosition(slot.db, stream, '0-0')).toEqual(back);
  });
});

const SET_BACK = readFileSync('deploy/redis/set-ids-back.lua', 'utf8');

/** What doctor says. */
const IS_AHEAD = { status: 'error', detail: expect.stringContaining('stream_ids_ahead') as string };

const ageMs = (nowMs: number) => oldestUnprocessedAgeMs(slot.redis, stream, '0-0', nowMs);
const resources = () => ({ db: slot.db, redis: slot.redis, intentsStream: stream }) as OperatorResources;

test('security-3 intent-D4 I4 of entries that are too large only the first bytes are transferred, and they are refused', async () => {
  const [many, payloadBytes] = [5, 2_000_000];
  const payload = Buffer.alloc(payloadBytes, 'x');
  for (let n = 0; n < many; n += 1)
    await slot.redis.xadd(stream, '*', 'producer', 'game_master', 'payload_json', payload);
  const proxy = await startTcpProxy(slot.endpoints.redis);
  const connection = new Redis({ host: proxy.host, port: proxy.port, db: slot.slot });
  const { readAfter } = await openStream(connection, {
    stream,
    maxEntryBytes: MAX_ENTRY_BYTES,
    batchSize: 100,
  });
  const read: StreamEntry[] = [];
  let reads = 0;
  for (let isMore = true; isMore; reads += 1) {
    const { entries, isFull } = await readAfter(read.at(-1)?.id ?? '0-0', offsetKey(stream), 1);
    read.push(...entries);
    isMore = isFull;
  }
  expect([read.length, reads]).toEqual([many, 2]);
  const bytes = payloadBytes + 'producergame_masterpayload_json'.length;
  for (const { id, fields, size } of read)
    expect(parseIntent(id, fields, size)).toMatchObject({
      malformed: {
        ...{ producer: 'game_master', failureCode: 'entry_too_large' },
        failureMessage: `the entry has ${bytes} bytes; at most ${MAX_ENTRY_BYTES} are accepted`,
        rawFields: { payload_json: `${'x'.repeat(4_096)}… (cut, ${payloadBytes} bytes in all)` },
      },
    });
  expect(proxy.answeredBytes).toBeLessThan(payloadBytes / 4);
  connection.disconnect();
  await proxy.stop();
});

describe('security-1 an entry with the last possible id', () => {
  test('security-1 is read behind the entries in front of it, and nothing is looked for behind it', async () => {
    await append('1-0', '2-0', LAST_ENTRY_ID);
    const connection = slot.redis.duplicate();
    const { readAfter } = await openStream(connection, { stream, maxEntryBytes: 1_000, batchSize: 100 });
    const read = await readAfter('0-0', offsetKey(stream), 1);
    expect(read.isFull).toBe(false);
    expect(read.entries.map(({ id }) => id)).toEqual(['1-0', '2-0', LAST_ENTRY_ID]);
    expect(await readAfter(LAST_ENTRY_ID, offsetKey(stream), 1)).toEqual({ entries: [], isFull: false });
    connection.disconnect();
  });

  test('security-1 has been read: age, previews and answers do without what would come behind it', async () => {
    await append(LAST_ENTRY_ID);
    expect(await ageMs(Date.now())).toBe(0);
    await slot.redis.set(offsetKey(stream), LAST_ENTRY_ID);
    expect(await oldestUnprocessedAgeMs(slot.redis, stream, LAST_ENTRY_ID, Date.now())).toBe(0);
    expect((await why(resources(), 'user-1')).doubts).toEqual([]);
  });

  test('security-1 in a stream of jobs is an error in doctor, and the group gets what comes after the ids are set back', async () => {
    const group = 'readers';
    await slot.redis.xgroup('CREATE', stream, group, '0', 'MKSTREAM');
    const readNew = () => slot.redis.xreadgroup('GROUP', group, 'one', 'STREAMS', stream, '>');
    const honest = await slot.redis.xadd(stream, '*', 'a', 'b');
    await slot.redis.xadd(stream, LAST_ENTRY_ID, 'a', 'b');
    expect(await consumerGroup({ redis: slot.redis, stream, group }, 'mobile-push')).toMatchObject(IS_AHEAD);
    await readNew();
    await expect(slot.redis.eval(SET_BACK, 1, stream, LAST_ENTRY_ID, group)).rejects.toThrow(
      'not acknowledged',
    );
    await slot.redis.xack(stream, group, LAST_ENTRY_ID);
    await slot.redis.xack(stream, group, honest!);
    await slot.redis.eval(SET_BACK, 1, stream, LAST_ENTRY_ID, group);
    await slot.redis.xadd(stream, '*', 'a', 'b');
    expect(await readNew()).toHaveLength(1);
  });
});

describe('security-1 ids ahead of the clock', () => {
  const kinds = async () => kindsIn(await diagnosis(at('0-0', 0)));
  const doctor = async () => {
    const [check] = intentStreamChecks(
      resources(),
      slot.config({ NOTIFICATION_INTENTS_STREAM: stream }).values,
    );
    return check![1]();
  };

  test('security-1 are a finding, and an error in doctor, once they are more than a day ahead', async () => {
    await append(`${Date.now() + DAY_MS / 2}-0`);
    expect(await kinds()).toEqual([]);
    await append(AHEAD);
    expect(await kinds()).toEqual(['stream_ids_ahead']);
    expect(await doctor()).toMatchObject(IS_AHEAD);
  });

  test('security-1 bug-P16 the age of an entry grows from when the process first saw it', async () => {
    await append(AHEAD, '*');
    const nowMs = Date.now();
    expect(await ageMs(nowMs)).toBe(0);
    expect(await ageMs(nowMs + 700_000)).toBe(700_000);
    // The next entry is another one.
    await slot.redis.xdel(stream, AHEAD);
    expect(await ageMs(nowMs + 800_000)).toBe(0);
    expect(await ageMs(nowMs + 900_000)).toBe(100_000);
  });

  test('security-1 bug-P16 an entry of before counts from its id, as by a process that has just begun', async () => {
    const nowMs = Date.now();
    await append(`${nowMs - 5_000}-0`);
    expect(await ageMs(nowMs)).toBe(5_000);
  });

  test('security-1 the script of the runbook sets them back, once what is ahead was read', async () => {
    const honest = await append('*');
    await append(AHEAD);
    const unread = await append('*');
    await expect(slot.redis.eval(SET_BACK, 1, stream, AHEAD)).rejects.toThrow('smaller than');
    await slot.redis.eval(SET_BACK, 1, stream, unread);
    const next = await append('*');
    expect((await slot.redis.xrange(stream, '-', '+')).map(([id]) => id)).toEqual([honest, next]);
    expect(Number(next.split('-')[0])).toBeLessThan(Date.now() + 60_000);
    expect(await kinds()).not.toContain('stream_ids_ahead');
  });
});
