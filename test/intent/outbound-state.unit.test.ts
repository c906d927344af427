/** What makes an outbound stream suspicious (activities/outbound-state.ts). */
import type { OutboundState } from '../../activities/outbound-state.ts';
import { regressionOf, suspicionOf } from '../../activities/outbound-state.ts';

const SEEN: OutboundState = {
  serverRunId: 'one',
  lastEntryId: '1700000000000-5',
  entriesAdded: 12,
  wantedFrom: '1700000000000-0',
};
const later = (change: Partial<OutboundState> = {}): OutboundState => ({
  ...SEEN,
  lastEntryId: '1700000000000-10',
  entriesAdded: 17,
  ...change,
});

test('I46 security-1 a stream that only grows is not suspicious, nor one that stands still', () => {
  expect(suspicionOf(SEEN, SEEN)).toBeUndefined();
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

test('I46 security-1 a Redis that does not count entries is judged by ids alone', () => {
  const { entriesAdded: _added, ...uncounted } = later();
  expect(suspicionOf(SEEN, uncounted)).toBeUndefined();
});
