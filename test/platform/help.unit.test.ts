/** Help of every command: what must be given is marked; and what a mistyped word is answered with. */
import { commandsBelow, isReadOnly, pathOf } from '../../cli/read-only.ts';
import { programOf, wholeProgram } from '../../cli/program.ts';
import { startCommand } from '../command-line.ts';

test('kinds-5 mandatory options are marked in the help of their command, others are not', async () => {
  const program = await wholeProgram();
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

/** They bring in what a producer or a user would, or prepare servers: what they do is no change of what is under way. */
const WITHOUT_AUTHOR = [
  'setup',
  'intents publish',
  'mobile send',
  'callbacks append',
  // They speak to a database of a producer, which has no row for it.
  'outbox install',
  'outbox relay',
  'outbox republish',
  // They change nothing, and are no looks: routers hear of them.
  'subscriptions routers',
  'tokens check',
];

test('U7 every command that changes something asks who wants it', async () => {
  const changing = commandsBelow(await wholeProgram()).filter(
    (command) => command.commands.length === 0 && !isReadOnly(command),
  );
  const anonymous = changing
    .filter(({ options }) => !options.some(({ long }) => long === '--requested-by'))
    .map(pathOf);
  expect(anonymous.sort()).toEqual([...WITHOUT_AUTHOR].sort());
});

test('I40 the help of the program imports no command, and names what each is for', async () => {
  const program = programOf();
  expect(program.commands.filter(({ commands, options }) => commands.length + options.length > 0)).toEqual(
    [],
  );

  const summaries = (one: typeof program) =>
    one.commands.map((command) => [command.name(), command.summary()]);
  const whole = await wholeProgram();
  expect(program.commands.map((command) => [command.name(), command.description()])).toEqual(
    summaries(whole),
  );
});

test('I40 every group shows an example, and a default is written as a person writes it', async () => {
  const commands = commandsBelow(await wholeProgram());
  for (const command of commands) {
    let help = '';
    command.configureOutput({ writeOut: (text) => (help += text) }).outputHelp();
    expect([pathOf(command), help]).toEqual([
      pathOf(command),
      expect.stringMatching(/Examples:\n {2}galaxy-notify /),
    ]);
  }
  const raw = commands.flatMap((command) =>
    command.options.flatMap(({ defaultValue, defaultValueDescription, long }) =>
      defaultValueDescription === undefined &&
      (typeof defaultValue === 'object' || Number(defaultValue) >= 1_000)
        ? [`${pathOf(command)} ${long}`]
        : [],
    ),
  );
  expect(raw).toEqual([]);
});

test('I40 help before a command is its --help', async () => {
  const [before, behind] = await Promise.all(
    [
      ['help', 'notifications', 'list'],
      ['notifications', 'list', '--help'],
    ].map((args) => startCommand(args, {}).ended),
  );
  expect(before).toMatchObject({ code: 0, stderr: '' });
  expect(before!.stdout).toBe(behind!.stdout);
});

const COMPLETE = ['--field', 'game_id=g', '--field', 'game_name=A', '--field', 'turn_number=3'];

test.each([
  ['notificaions list', 'Did you mean notifications?'],
  ['notifications lsit', 'Did you mean list?'],
  ['notifications list --statsu open', 'Did you mean --status?'],
  ['notifications list --status deadletter', '--status cannot be deadletter: did you mean dead_letter?'],
  ['why user-1 --type game.turn.redy', '--type cannot be game.turn.redy: did you mean game.turn.ready?'],
  ['intents publish game.turn.redy --sample', 'type cannot be game.turn.redy: did you mean game.turn.ready?'],
  ['channels pause sms', 'channel cannot be sms: possible are push, email'],
  ['intents publish game.turn.ready', 'give --key, or --sample'],
  [
    'intents publish game.turn.ready --key k --field game_nam=x',
    'needs --field game_id, --field game_name, --field turn_number; game_nam: did you mean game_name?',
  ],
  [
    'intents publish game.turn.ready --sample --field game_nam=x',
    'game.turn.ready has no --field game_nam: did you mean game_name?',
  ],
  [`intents publish game.turn.ready --key k ${COMPLETE.join(' ')}`, '--to is required for --audience user'],
  [
    `intents publish game.turn.ready --key k --to u ${COMPLETE.join(' ')} --field turn_number=x`,
    '--field turn_number: ',
  ],
])('I40 %s is answered in the words that were typed', async (line, answer) => {
  const { code, stdout, stderr } = await startCommand(line.split(' '), {}).ended;
  expect({ code, stdout }).toEqual({ code: 2, stdout: '' });
  expect(stderr).toContain(answer);
});

test('I40 a mistyped variable stops a command, with the variable that was meant', async () => {
  const { code, stderr } = await startCommand(['notifications', 'list'], {
    NOTIFICATION_REDIS_MASTER_ADDRESS: 'x',
  }).ended;
  expect(code).toBe(1);
  expect(stderr).toContain(
    'NOTIFICATION_REDIS_MASTER_ADDRESS has no effect: did you mean NOTIFICATION_REDIS_MASTER_ADDR?',
  );
});

test('I40 a value that a variable cannot have is answered with those that it can', async () => {
  const { code, stderr } = await startCommand(['top', '--once'], { NOTIFICATION_LOG_LEVEL: 'loud' }).ended;
  expect(code).toBe(1);
  expect(stderr).toContain(
    'NOTIFICATION_LOG_LEVEL must be one of trace, debug, info, warn, error, fatal (got "loud")',
  );
});
