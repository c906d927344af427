/** Tables of the command line. */
import { execFileSync } from 'node:child_process';
import { shellWord } from '../../client/causes.ts';
import { printable, tableOf } from '../../cli/output.ts';

test('I40 tables are cut in one column only, and nothing in them acts on the terminal', () => {
  const rows = [['1790000000000-0', printable('bad \u001b[2J\u202e text '.repeat(5))]];
  const whole = tableOf(['ID', 'MESSAGE'], rows);
  for (const dangerous of ['\u001b', '\u202e']) expect(whole).not.toContain(dangerous);
  const narrow = tableOf(['ID', 'MESSAGE'], rows, { width: 50, flexible: 1 });
  expect(narrow).toContain('1790000000000-0');
  expect(narrow).toContain('…');
  expect(Math.max(...narrow.split('\n').map((line) => line.length))).toBeLessThanOrEqual(50);
});

test('I40 colors, links, combining marks and wide characters do not shift the next column', () => {
  const link = '\u001b]8;;http://ui.test\u0007one\u001b]8;;\u0007';
  const red = '\u001b[31mdead_letter\u001b[39m';
  const cells = [link, red, 'cafe\u0301', '通知', '\u{1f4e8}'];
  const lines = tableOf(
    ['NAME', 'END'],
    cells.map((cell) => [cell, '|']),
  ).split('\n');
  expect(lines).toEqual([
    'NAME         END',
    ...[10, 2, 9, 9, 11].map((spaces, at) => `${cells[at]}${' '.repeat(spaces)}|`),
  ]);
});

test('U1 a command that is shown to be pasted holds what others chose as one word', () => {
  for (const text of ['push:user:user-1', "email:user:o'hara", 'push:user:$(touch x); `y` "z" &'])
    expect(execFileSync('sh', ['-c', `printf %s ${shellWord(text)}`], { encoding: 'utf8' })).toBe(text);
});
