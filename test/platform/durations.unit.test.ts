/** Durations are read alike in variables and on the command line. */
import { parseDuration, parseFuture, parseTime } from '../../cli/options.ts';
import { loadConfig } from '../../config/load.ts';
import { problemsOf } from './config-problems.ts';

const NAME = 'NOTIFICATION_RECORD_RETENTION';

test.each([
  ['1ms', 1],
  ['250ms', 250],
  ['1.5s', 1_500],
  ['1m30s', 90_000],
  ['1h1m1s1ms', 3_661_001],
  ['168h', 604_800_000],
  ['7d', 604_800_000],
  ['1d12h', 129_600_000],
  ['3650d', 315_360_000_000],
])('I30 U7 %s is as long in a variable as in an option', (text, ms) => {
  expect(parseDuration(text)).toBe(ms);
  expect(loadConfig({ [NAME]: text }).values[NAME]).toBe(ms);
});

test.each([
  ...'0 0s 0ms 0.4ms 5 -5s +5s 1w s 1s1 .5s 1e3s 5S 5µs forever 3651d 9999999999999h'.split(' '),
  ...['5 s', ' 5s', '5s '],
])('I30 U7 %j is no duration in a variable and in an option', (text) => {
  expect(() => parseDuration(text)).toThrow(/^Give a duration such as /);
  expect(problemsOf({ [NAME]: text })).toEqual([
    `${NAME} must be a duration above zero such as 250ms, 90s, 1m30s, 2h or 7d (got ${JSON.stringify(text)})`,
  ]);
});

test('U7 times may be durations from now, of any form', () => {
  const near = (time: Date, ms: number) => Math.abs(time.getTime() - Date.now() - ms) < 5_000;
  expect(near(parseTime('1d12h'), -129_600_000)).toBe(true);
  expect(near(parseFuture('1h30m'), 5_400_000)).toBe(true);
  expect(parseTime('2026-01-31T12:00Z').toISOString()).toBe('2026-01-31T12:00:00.000Z');
  for (const text of ['2026-01-31 12:00', '2026-01-31T14:00:00.0+0200'])
    expect(parseTime(text).toISOString()).toBe('2026-01-31T12:00:00.000Z');
  expect(parseTime('2026-01-31').toISOString()).toBe('2026-01-31T00:00:00.000Z');
  // A zone that is not understood must not be left out.
  for (const text of ['yesterday', '2026-01', '2026-01-31 12:00 GMT+3', '2026-01-31 12:00 CET'])
    expect(() => parseTime(text)).toThrow('Give a time before now');
});
