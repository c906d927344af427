/** What makes an outbound stream suspicious, and what is then missed in it (activities/outbound-state.ts). */
import type { OutboundLook, SeenOutbound } from '../../activities/outbound-state.ts';
import { hasFallenBack, regressionOf, suspicionOf, wantedIn } from '../../activities/outbound-state.ts';

const id = (sequence: number) => `1700000000000-${sequence}`;
const SEEN: SeenOutbound = {
  ...{ serverRunId: 'one', lastEntryId: id(5), entriesAdded: 12, wantedFrom: id(0) },
  ...{ pending: [], database: 0, hasFallenBack: false },
};
const later = (change: Partial<OutboundLook> = {}): OutboundLook => ({
  ...SEEN,
  ...{ lastEntryId: id(10), entriesAdded: 17, firstEntryId: id(1), entriesRemoved: 0 },
  ...change,
});
const RESTARTED = { serverRunId: 'two' };
const GONE = { lastEntryId: '0-0', entriesAdded: 0, firstEntryId: '0-1' };
/** However far it has grown since. */
const CREATED_AGAIN = {
  ...{ ...RESTARTED, firstEntryId: id(6), wantedFrom: id(6), entriesAdded: 400 },
  ...{ lastEntryId: '1700000000999-0', entriesRemoved: 11 },
};
/** Looks the same but for that. */
const TRIMMED = { ...CREATED_AGAIN, entriesRemoved: 12 };

test.each<[string, Partial<OutboundLook>, suspicion: RegExp, fellBack: boolean]>([
  ['stands still', SEEN, /^$/, false],
  ['grows', {}, /^$/, false],
  // What it has trimmed is not lost.
  ['grows in a Redis that was restarted', RESTARTED, /restarted or replaced/, false],
  ['has an older last id', { lastEntryId: id(4) }, /last id went back/, true],
  ['has no entry at all', GONE, /stream is gone/, true],
  ['has fewer entries that were ever added, by far', { entriesAdded: 3 }, /went back from 12 to 3/, true],
  [
    'was created again',
    CREATED_AGAIN,
    /none of the first 12 entries is there, and only 11 were removed/,
    true,
  ],
  ['has trimmed all that was seen', TRIMMED, /restarted or replaced/, false],
])('I46 security-1 how suspicious a stream is that %s', (_, change, suspicion, fellBack) => {
  const now = later(change);
  const reason = suspicionOf(SEEN, now) ?? '';
  expect(reason).toMatch(suspicion);
  expect(regressionOf(SEEN, now)).toBe(fellBack ? reason : undefined);
  expect(hasFallenBack(SEEN, now)).toBe(fellBack);
});

/** It was restarted, and its rows are checked. */
const SUSPECTED = { ...SEEN, ...RESTARTED, lastEntryId: id(10), entriesAdded: 17 };
const CHECKED = { ...SUSPECTED, firstEntryId: id(9), entriesRemoved: 12 };
const GROUP = { ...SEEN, wantedFrom: id(6), pending: [id(2)] };

test.each<[string, SeenOutbound, Partial<OutboundLook>, missed: number[], others: number[]]>([
  ['I46 security-1 all of a stream that was created again', SEEN, CREATED_AGAIN, [1], []],
  ['I46 security-1 what came after the last look, of one that has trimmed', SEEN, TRIMMED, [6], [5]],
  // Read beyond or not.
  ['I46 security-1 the same of one that was restarted', SEEN, { ...RESTARTED, wantedFrom: id(9) }, [1], [0]],
  [
    'I46 security-1 all of one that was empty: it may have been created again since',
    { ...SEEN, lastEntryId: '0-0', entriesAdded: 0, wantedFrom: '0-0' },
    { ...RESTARTED, firstEntryId: id(6) },
    [1],
    [],
  ],
  ['intent-1 what a restarted stream has not trimmed by the time of the check', SUSPECTED, CHECKED, [9], [8]],
  ['intent-1 all of one that fell back', { ...SUSPECTED, hasFallenBack: true }, CHECKED, [8], []],
  ['intent-5 what a group had pending or not read, of a stream that is gone', GROUP, GONE, [2, 6], [1, 3, 5]],
  ['intent-5 the same of a whole stream', GROUP, { firstEntryId: id(2) }, [2, 6], [1, 3, 5]],
])('%s is missed', (_, seen, now, missed, others) => {
  const isMissed = wantedIn(seen, later(now));
  expect([...missed, ...others].filter((sequence) => isMissed(id(sequence)))).toEqual(missed);
});
