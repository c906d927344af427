/** Durations are read alike in variables and on the command line. */
import { Command } from 'commander';
import { durationMs } from '../../api/durations.ts';
import { parseDuration, parseFuture, parseTime } from '../../cli/options.ts';
import { loadConfig } from '../../config/load.ts';

const NAME = 'NOTIFICATION_RECORD_RETENTION';

test.each([
  '1ms',
  '90s',
  '1.5h',
  '1m30s',
  '7d',
  '3650d',
  '0.4ms',
  '0s',
  '5',
  '1w',
  '',
  '-1s',
  '1 s',
  '3651d',
])('U7 %j means the same in a variable and in an option', (text) => {
  const ms = durationMs(text);
  if (text === '') return expect(ms).toBeUndefined();
  if (ms === undefined) {
    expect(() => parseDuration(text)).toThrow(/^Give a duration such as /);
    expect(() => loadConfig({ [NAME]: text })).toThrow(`${NAME} must be a duration above zero such as`);
    return undefined;
  }
  expect(parseDuration(text)).toBe(ms);
  expect(loadConfig({ [NAME]: text }).values[NAME]).toBe(ms);
  return undefined;
});

test('U7 a wrong duration is said with the name of its option', () => {
  const command = new Command().exitOverride().configureOutput({ writeErr: () => undefined });
  command.option('--timeout <duration>', 'longest wait', parseDuration);
  expect(() => command.parse(['--timeout', 'soon'], { from: 'user' })).toThrow(
    "option '--timeout <duration>' argument 'soon' is invalid. Give a duration such as 250ms, 90s, 1m30s, 2h or 7d.",
  );
});

test('U7 times may be durations from now, of any form', () => {
  const near = (time: Date, ms: number) => Math.abs(time.getTime() - Date.now() - ms) < 5_000;
  expect(near(parseTime('1d12h'), -129_600_000)).toBe(true);
  expect(near(parseFuture('1h30m'), 5_400_000)).toBe(true);
  expect(parseTime('2026-01-31T12:00Z').toISOString()).toBe('2026-01-31T12:00:00.000Z');
  expect(() => parseTime('yesterday')).toThrow('Give a time before now');
});
