/** What the reader begins by one workflow each. */
import fc from 'fast-check';
import { unitsOf } from '../../activities/intent/units.ts';
import type { Intent, ParsedIntent } from '../../api/intent/entry.ts';
import { accepted, turn } from './entries.ts';

const ALL_NEW = '0-0';
const PLAIN = accepted(turn());

interface Read {
  parsed: ParsedIntent;
  size: { bytes: number; fields: number };
}

const read = (changes: Partial<Intent>, bytes = 500): Read => ({
  parsed: { ok: true, intent: { ...PLAIN, ...changes } },
  size: { bytes, fields: 7 },
});

const reads = (count: number, changes: Partial<Intent> = {}, bytes?: number): Read[] =>
  Array.from({ length: count }, (_, index) => read({ notificationId: `1-${index}`, ...changes }, bytes));

const sizesOf = (entries: Read[], intentsPerWorkflow: number, readBefore = ALL_NEW): number[] =>
  unitsOf(entries, { intentsPerWorkflow, readBefore }).map(({ length }) => length);

test('I56 each intent is by itself unless several may have one workflow', () => {
  expect(sizesOf(reads(3), 1)).toEqual([1, 1, 1]);
  expect(sizesOf(reads(7), 3)).toEqual([3, 3, 1]);
});

test('I56 a slice is bounded in bytes and in recipients', () => {
  expect(sizesOf(reads(3, {}, 200 * 1024), 100)).toEqual([2, 1]);
  expect(sizesOf(reads(2, {}, 1024 * 1024), 100)).toEqual([1, 1]);
  const recipientUserIds = Array.from({ length: 32 }, (_, index) => `user-${index}`);
  expect(sizesOf(reads(40, { recipientUserIds }), 100)).toEqual([31, 9]);
});

test('I56 large audiences, malformed entries and what was read before are by themselves', () => {
  const large = read({ recipientUserIds: Array.from({ length: 33 }, (_, index) => `user-${index}`) });
  expect(sizesOf([...reads(2), large, ...reads(2)], 100)).toEqual([2, 1, 2]);
  expect(sizesOf(reads(4), 100, '1-1')).toEqual([1, 1, 2]);
});

test('intent-7 what a producer sends after a large audience begins after it', () => {
  const recipientUserIds = Array.from({ length: 33 }, (_, index) => `user-${index}`);
  const other = read({ notificationId: '1-0' });
  const earlier = read({ notificationId: '2-0', recipientUserIds, idempotencyKey: 'one' });
  const later = read({ notificationId: '3-0', idempotencyKey: 'one' });
  const units = unitsOf([other, earlier, later], { intentsPerWorkflow: 100, readBefore: ALL_NEW });
  expect(units).toEqual([[other.parsed], [earlier.parsed], [later.parsed]]);
});

test('I56 every entry is in one unit, in the order of the stream, with those of its producer', () => {
  const producers = ['geoprofile', 'game_master'] as const;
  fc.assert(
    fc.property(
      fc.array(fc.record({ producer: fc.constantFrom(...producers), bytes: fc.nat(300_000) }), {
        maxLength: 60,
      }),
      fc.integer({ min: 1, max: 20 }),
      (kinds, intentsPerWorkflow) => {
        const entries = kinds.map(({ producer, bytes }, index) =>
          read({ producer, notificationId: `1-${index}` }, bytes),
        );
        const units = unitsOf(entries, { intentsPerWorkflow, readBefore: ALL_NEW });
        expect(new Set(units.flat())).toEqual(new Set(entries.map(({ parsed }) => parsed)));
        expect(units.flat()).toHaveLength(entries.length);
        for (const unit of units) {
          expect(unit.length).toBeLessThanOrEqual(intentsPerWorkflow);
          const intents = unit.map((entry) => (entry as { intent: Intent }).intent);
          expect(new Set(intents.map(({ producer }) => producer)).size).toBe(1);
          const positions = intents.map(({ notificationId }) => Number(notificationId.slice(2)));
          expect(positions).toEqual([...positions].sort((a, b) => a - b));
        }
      },
    ),
  );
});
