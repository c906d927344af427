/** The command line as a whole: help of every command, what a mistyped word is answered with, completion. */
import { execFileSync } from 'node:child_process';
import { commandsBelow, pathOf } from '../../cli/definition.ts';
import { completionFor, programOf } from '../../cli/program.ts';
import { startCommand } from '../command-line.ts';

test('kinds-5 mandatory options are marked in the help of their command, others are not', async () => {
  const program = programOf();
  let mandatory = 0;
  for (const command of [program, ...commandsBelow(program)]) {
    const marked = [...command.helpInformation().matchAll(/^ +(\S.*?) \(required\)/gm)].map(
      ([, flags]) => flags,
    );
    const wanted = command.options.filter((option) => option.mandatory).map(({ flags }) => flags);
    expect([command.name(), marked]).toEqual([command.name(), wanted]);
    mandatory += wanted.length;
  }
  expect(mandatory).toBeGreaterThan(5);
});

/** Names of commands that change nothing. */
const LOOKS: readonly string[] = [
  ...['list', 'show', 'status', 'statistics', 'waiting', 'failed', 'overdue', 'doctor', 'top', 'why'],
  ...['views', 'completion', 'mcp', 'check', 'sample', 'fbs', 'clients', 'validate', 'sql'],
];

/** They bring in what a producer or a user would, or prepare servers: what they do is no change of what is under way. */
const WITHOUT_AUTHOR = [
  'setup',
  'intents publish',
  'mobile send',
  'callbacks append',
  // They speak to a database of a producer, which has no row for it.
  'outbox relay',
];

test('U7 every command that changes something asks who wants it', async () => {
  const changing = commandsBelow(programOf()).filter(
    (command) => command.commands.length === 0 && !LOOKS.includes(command.name()),
  );
  const anonymous = changing
    .filter(({ options }) => !options.some(({ long }) => long === '--requested-by'))
    .map(pathOf);
  expect(anonymous.sort()).toEqual([...WITHOUT_AUTHOR].sort());
});

test('I40 help and version of the program, and a line without a command', async () => {
  const help = await startCommand(['--help'], {}).ended;
  expect(help).toMatchObject({ code: 0, stderr: '' });
  for (const part of ['doctor', 'Exit codes:']) expect(help.stdout).toContain(part);
  expect(await startCommand(['--version'], {}).ended).toMatchObject({ code: 0, stdout: '0.1.0\n' });
  expect(await startCommand([], {}).ended).toMatchObject({ code: 2, stdout: '' });
});

test('I40 every command explains itself with examples', async () => {
  const commands = commandsBelow(programOf()).filter((one) => one.commands.length === 0);
  for (const command of commands) {
    let help = '';
    command.configureOutput({ writeOut: (text) => (help += text) }).outputHelp();
    const isExplained = /Examples:\n {2}galaxy-notify /.test(help) && help.includes('galaxy-notify --help');
    expect([pathOf(command), isExplained, command.description() !== '']).toEqual([
      pathOf(command),
      true,
      true,
    ]);
    expect(help).not.toContain('Exit codes:');
  }
});

const COMPLETE = ['--field', 'game_id=g', '--field', 'game_name=A', '--field', 'turn_number=3'];

test.each([
  ['notificaions list', 'Did you mean notifications?'],
  ['notifications lsit', 'Did you mean list?'],
  ['notifications list --statsu open', 'Did you mean --status?'],
  ['notifications list --status deadletter', 'Allowed choices are open, settled, dead_letter.'],
  ['why user-1 --type game.turn.redy', "argument 'game.turn.redy' is invalid. did you mean game.turn.ready?"],
  [
    'intents publish game.turn.redy --sample',
    "value 'game.turn.redy' is invalid for argument 'type'. did you mean game.turn.ready?",
  ],
  ['channels pause sms', "value 'sms' is invalid for argument 'channel'. Allowed choices are push, email."],
  ['intents publish game.turn.ready', 'give --key, or --sample'],
  [
    `intents publish game.turn.ready --key k ${COMPLETE.join(' ')}`,
    'recipient_user_ids_json is required for audience_kind user',
  ],
  [
    `intents publish game.turn.ready --key k --to u ${COMPLETE.join(' ')} --field turn_number=x`,
    'payload_json field turn_number: ',
  ],
  ['notifications show abc', 'abc'],
  ['notifications list --since yesterday', 'yesterday'],
])('I40 %s is answered in the words that were typed', async (line, answer) => {
  const { code, stdout, stderr } = await startCommand(line.split(' '), {}).ended;
  expect({ code, stdout }).toEqual({ code: 2, stdout: '' });
  expect(stderr).toContain(answer);
  expect(stderr).not.toContain('    at ');
});

const script = completionFor(programOf(), 'bash');

/** What bash proposes at the end of a command line. */
function proposed(...words: string[]): string[] {
  const typed = ['galaxy-notify', ...words].map((word) => `'${word}'`).join(' ');
  const ask = `COMP_WORDS=(${typed}); COMP_CWORD=${words.length}; _galaxy_notify; printf '%s\\n' "\${COMPREPLY[@]}"`;
  const output = execFileSync('bash', ['-c', `${script}\n${ask}`], { encoding: 'utf8' });
  return output.split('\n').filter((word) => word !== '');
}

test('U6 bash completes commands, their options, and what an option may be', () => {
  expect(proposed('notif')).toEqual(['notifications']);
  expect(proposed('notifications', '')).toEqual(expect.arrayContaining(['list', 'show', 'cancel', '--json']));
  expect(proposed('notifications', 'list', '--st')).toEqual(['--status']);
  expect(proposed('--json', 'notifications', 'list', '--status', 'd')).toEqual(['dead_letter']);
  expect(proposed('channels', 'pause', 'e')).toEqual(['email']);
  expect(proposed('views', '--sa')).toEqual(['--save']);
  // What only its author knows is left to the shell.
  expect(proposed('notifications', 'list', '--key', '')).toEqual([]);
});
