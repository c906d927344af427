/** The meaning of Redis's numbers about a stream, and where a stream is read again from. */
import { diagnose, inspectStream, rewindPoint } from '../../activities/intent/stream-watch.ts';
import { OffsetMovedError, loadPosition, moveOffset } from '../../activities/intent/entries.ts';
import { slotOfTests } from '../harness.ts';

const slot = slotOfTests();

/** Each test has its own stream. */
let stream = '';
let count = 0;
beforeEach(() => {
  stream = `intents-${(count += 1)}`;
});

const SEEN = { lastGeneratedId: '5-0', maxDeletedEntryId: '0-0', entriesAdded: 1 };

const append = (id: string) => slot.redis.xadd(stream, id, 'field', 'value');

describe('I39 the diagnosis', () => {
  const at = (offset: string, entriesPassed?: number) => ({ offset, entriesPassed });
  const kindsOf = (...args: Parameters<typeof diagnose>) =>
    diagnose(...args).problems.map(({ kind }) => kind);

  test('I39 a policy that evicts is a risk, and Redis says which it has', async () => {
    expect((await inspectStream(slot.redis, stream)).maxmemoryPolicy).toBe('noeviction');
    const inspection = { stream: undefined, maxmemoryPolicy: 'allkeys-lru' };
    expect(kindsOf(inspection, at('0-0', 0))).toEqual(['eviction_enabled']);
    expect(kindsOf({ ...inspection, maxmemoryPolicy: undefined }, at('0-0', 0))).toEqual([]);
  });

  test('I39 a stream that never was is not missing', async () => {
    const inspection = await inspectStream(slot.redis, stream);
    expect(diagnose(inspection, at('0-0', 0))).toEqual({ problems: [], entriesPassed: 0 });
    expect(kindsOf(inspection, at('5-0'))).toEqual(['stream_missing']);
    expect(kindsOf(inspection, at('0-0', 0), SEEN)).toEqual(['stream_missing']);
  });

  test('I39 fewer entries were ever added than before: the stream was replaced', async () => {
    await append('7-0');
    const seen = { ...SEEN, entriesAdded: 2 };
    expect(kindsOf(await inspectStream(slot.redis, stream), at('6-0', 2), seen)).toEqual([
      'stream_regressed',
    ]);
  });

  test('I39 a reader without a count takes what it finds, and counts from there', async () => {
    for (const id of ['1-0', '2-0', '3-0', '4-0']) await append(id);
    await slot.redis.xtrim(stream, 'MAXLEN', 2);
    const inspection = await inspectStream(slot.redis, stream);
    expect(diagnose(inspection, at('1-0'))).toEqual({ problems: [], entriesPassed: 2 });
    expect(diagnose(inspection, at('1-0', 1))).toMatchObject({
      problems: [{ kind: 'entries_lost' }],
      entriesPassed: 2,
    });
    expect(diagnose(inspection, at('4-0', 3))).toMatchObject({
      problems: [{ kind: 'entries_lost' }],
      entriesPassed: 4,
    });
  });

  test('I39 what was trimmed before anything was read is found, even when all is gone', async () => {
    for (const id of ['1-0', '2-0']) await append(id);
    await slot.redis.xtrim(stream, 'MAXLEN', 0);
    expect(diagnose(await inspectStream(slot.redis, stream), at('0-0', 0))).toMatchObject({
      problems: [
        { kind: 'entries_lost', message: expect.stringContaining('2 entries were deleted') as string },
      ],
      entriesPassed: 2,
    });
  });

  test('I39 trimming and deleting what was read is no finding', async () => {
    for (const id of ['1-0', '2-0', '3-0']) await append(id);
    await slot.redis.xdel(stream, '2-0');
    expect(kindsOf(await inspectStream(slot.redis, stream), at('3-0', 3))).toEqual([]);
    await slot.redis.xtrim(stream, 'MAXLEN', 0);
    expect(kindsOf(await inspectStream(slot.redis, stream), at('3-0', 3))).toEqual([]);
  });

  test('I39 a deletion that an earlier check saw is not found again', async () => {
    for (const id of ['1-0', '2-0', '3-0']) await append(id);
    await slot.redis.xdel(stream, '2-0');
    const inspection = await inspectStream(slot.redis, stream);
    expect(kindsOf(inspection, at('1-0'))).toEqual(['entries_lost']);
    expect(kindsOf(inspection, at('1-0'), inspection.stream)).toEqual([]);
  });
});

describe('I39 reading again', () => {
  const DAY_MS = 86_400_000;
  const NOW_MS = 1_790_000_000_000;
  const HOUR_MS = 3_600_000;

  test.each([
    ['so long before', `${NOW_MS}-7`, `${NOW_MS}-9`, `${NOW_MS - HOUR_MS}-0`],
    ['within what records are kept', `${NOW_MS}-0`, `${NOW_MS + 27 * DAY_MS - 5}-0`, `${NOW_MS - 5}-0`],
    ['never forwards', `${NOW_MS}-0`, `${NOW_MS + 40 * DAY_MS}-0`, `${NOW_MS}-0`],
    ['from 0-0 when ids are no times', '999999999999-0', `${NOW_MS}-0`, '0-0'],
  ])('I39 intent-D2 begins %s', (_, id, newestId, expected) => {
    expect(rewindPoint(id, newestId, 30 * DAY_MS, NOW_MS + 50 * DAY_MS)).toBe(expected);
  });

  test('I39 the offset goes back from where the reader holds it, and only from there', async () => {
    expect(await loadPosition(slot.db, stream, '0-0')).toEqual({ offset: '0-0', entriesPassed: 0 });
    await moveOffset(slot.db, stream, '0-0', { offset: '9-0', entriesPassed: 4 });
    const back = { offset: '1-0', entriesPassed: undefined };
    await expect(moveOffset(slot.db, stream, '8-0', back)).rejects.toThrow(OffsetMovedError);
    expect(await loadPosition(slot.db, stream, '0-0')).toEqual({ offset: '9-0', entriesPassed: 4 });
    await moveOffset(slot.db, stream, '9-0', back);
    expect(await loadPosition(slot.db, stream, '0-0')).toEqual(back);
  });
});
