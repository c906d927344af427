/** Help of every command: what must be given is marked. */
import { commandsBelow, isLook, pathOf } from '../../cli/looks.ts';
import { programOf } from '../../cli/program.ts';

test('kinds-5 mandatory options are marked in the help of their command, others are not', () => {
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

test('U7 every command that changes something asks who wants it', () => {
  const changing = commandsBelow(programOf()).filter(
    (command) => command.commands.length === 0 && !isLook(command),
  );
  const anonymous = changing
    .filter(({ options }) => !options.some(({ long }) => long === '--requested-by'))
    .map(pathOf);
  expect(anonymous.sort()).toEqual([...WITHOUT_AUTHOR].sort());
});
