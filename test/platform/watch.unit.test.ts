/** Which commands change nothing, and how a shell completes all of them. */
import { execFileSync } from 'node:child_process';
import { scriptFor } from '../../cli/completion.ts';
import { READ_ONLY, commandsBelow, pathOf } from '../../cli/read-only.ts';
import { wholeProgram } from '../../cli/program.ts';

const program = await wholeProgram();
const script = scriptFor(program, 'bash');

/** What bash proposes at the end of a command line. */
function proposed(...words: string[]): string[] {
  const typed = ['galaxy-notify', ...words].map((word) => `'${word}'`).join(' ');
  const ask = `COMP_WORDS=(${typed}); COMP_CWORD=${words.length}; _galaxy_notify; printf '%s\\n' "\${COMPREPLY[@]}"`;
  const output = execFileSync('bash', ['-c', `${script}\n${ask}`], { encoding: 'utf8' });
  return output.split('\n').filter((word) => word !== '');
}

test('U6 every command that changes nothing is there, and has --watch, top its own; no other has', () => {
  const watching = commandsBelow(program).filter(({ options }) =>
    options.some(({ long }) => long === '--watch'),
  );
  expect(watching.map(pathOf).sort()).toEqual(READ_ONLY.filter((path) => path !== 'top').sort());
});

test('U6 every list, and all that shows how something stands, is a look', () => {
  const shows = commandsBelow(program)
    .filter(({ commands }) => commands.length === 0)
    .map(pathOf)
    .filter((path) => /(^| )(list|show|status|waiting|statistics|failed)$/.test(path));
  expect(shows.filter((path) => !READ_ONLY.includes(path))).toEqual([]);
});

test('U6 bash completes commands, their options, and what an option may be', () => {
  expect(proposed('notif')).toEqual(['notifications']);
  expect(proposed('notifications', '')).toEqual(expect.arrayContaining(['list', 'show', 'cancel', '--json']));
  expect(proposed('notifications', 'list', '--st')).toEqual(['--status']);
  expect(proposed('--json', 'notifications', 'list', '--status', 'd')).toEqual(['dead_letter']);
  expect(proposed('channels', 'pause', 'e')).toEqual(['email']);
  expect(proposed('top', '--on')).toEqual(['--once']);
  // What only its author knows is left to the shell.
  expect(proposed('notifications', 'list', '--key', '')).toEqual([]);
});
