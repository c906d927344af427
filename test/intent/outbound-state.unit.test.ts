/** What makes an outbound stream suspicious (activities/outbound-state.ts). */
import type { OutboundLook, OutboundState, SeenOutbound } from '../../activities/outbound-state.ts';
import { hasFallenBack, regressionOf, suspicionOf, wantedIn } from '../../activities/outbound-state.ts';

const SEEN: SeenOutbound = {
  serverRunId: 'one',
  lastEntryId: '1700000000000-5',
  entriesAdded: 12,
  wantedFrom: '1700000000000-0',
  ...{ pending: [], database: 0, hasFallenBack: false },
};
/** Whether an entry of 2023 is missed when it is not there. */
const isMissed = (sequence: number, seen: SeenOutbound, now: OutboundLook) =>
  wantedIn(seen, now)(`1700000000000-${sequence}`);
const later = (change: Partial<OutboundLook> = {}): OutboundLook => ({
  ...SEEN,
  lastEntryId: '1700000000000-10',
  entriesAdded: 17,
  firstEntryId: '1700000000000-1',
  entriesRemoved: 0,
  ...change,
});

test('I46 security-1 a stream that only grows is not suspicious, nor one that stands still', () => {
  expect(suspicionOf(SEEN, later(SEEN))).toBeUndefined();
  expect(suspicionOf(SEEN, later())).toBeUndefined();
});

test('I46 security-1 a Redis that was restarted is suspicious, though its stream has grown since', () => {
  const restarted = later({ serverRunId: 'two' });
  expect(suspicionOf(SEEN, restarted)).toMatch(/restarted or replaced/);
  // What it has trimmed is not lost: it has not fallen back.
  expect(regressionOf(SEEN, restarted)).toBeUndefined();
});

test.each<[string, Partial<OutboundState>, RegExp]>([
  ['an older last id', { lastEntryId: '1700000000000-4' }, /last id went back/],
  ['no entry at all', { lastEntryId: '0-0', entriesAdded: 0 }, /stream is gone/],
  ['fewer entries that were ever added, by far', { entriesAdded: 3 }, /went back from 12 to 3/],
])('I46 security-1 a stream has fallen back that has %s', (_, change, reason) => {
  expect(regressionOf(SEEN, later(change))).toMatch(reason);
  expect(suspicionOf(SEEN, later(change))).toMatch(reason);
});

test('I46 security-1 a stream that was created again shows it, however far it has grown since', () => {
  const recreated = { firstEntryId: '1700000000000-6', wantedFrom: '1700000000000-6', serverRunId: 'two' };
  const grown = later({
    ...recreated,
    entriesAdded: 400,
    lastEntryId: '1700000000999-0',
    entriesRemoved: 11,
  });
  expect(regressionOf(SEEN, grown)).toMatch(
    'none of the first 12 entries is there, and only 11 were removed',
  );
  // What it has is not what is missed.
  expect(isMissed(1, SEEN, grown)).toBe(true);
  // One that has trimmed them all looks the same but for that.
  const trimmed = { ...grown, entriesRemoved: 12 };
  expect(regressionOf(SEEN, trimmed)).toBeUndefined();
  expect([5, 6].map((id) => isMissed(id, SEEN, trimmed))).toEqual([false, true]);
});

test('I46 security-1 of a restarted stream what was handed off after the last look is missed, read beyond or not', () => {
  const restarted = later({ serverRunId: 'two', wantedFrom: '1700000000000-9' });
  expect([0, 1].map((id) => isMissed(id, SEEN, restarted))).toEqual([false, true]);
  // It was empty: all that came after is missed, and the stream may have been created again since.
  const empty = { ...SEEN, lastEntryId: '0-0', entriesAdded: 0, wantedFrom: '0-0' };
  expect(isMissed(1, empty, later({ serverRunId: 'two', firstEntryId: '1700000000000-6' }))).toBe(true);
});

test('intent-1 what a restarted stream has trimmed by the time of the check is not missed; of one that fell back it is', () => {
  const suspected = { ...SEEN, serverRunId: 'two', lastEntryId: '1700000000000-10', entriesAdded: 17 };
  const trimmed = later({ ...suspected, firstEntryId: '1700000000000-9', entriesRemoved: 12 });
  expect([8, 9].map((id) => isMissed(id, suspected, trimmed))).toEqual([false, true]);
  expect(isMissed(8, { ...suspected, hasFallenBack: true }, trimmed)).toBe(true);
  expect(hasFallenBack(SEEN, trimmed)).toBe(false);
  expect(hasFallenBack(SEEN, later({ lastEntryId: '1700000000000-4' }))).toBe(true);
});

test('intent-5 what a group had acknowledged is not missed, and what it had pending is, of either stream', () => {
  const seen = { ...SEEN, wantedFrom: '1700000000000-6', pending: ['1700000000000-2'] };
  const gone = later({ lastEntryId: '0-0', entriesAdded: 0, firstEntryId: '0-1' });
  const whole = later({ firstEntryId: '1700000000000-2' });
  for (const now of [gone, whole]) {
    expect([1, 2, 3, 5, 6].map((id) => isMissed(id, seen, now))).toEqual([false, true, false, false, true]);
  }
});
