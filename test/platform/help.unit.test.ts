/** Help of every command: what must be given is marked. */
import type { Command } from 'commander';
import { programOf } from '../../cli/program.ts';

const commandsOf = (command: Command): Command[] => [command, ...command.commands.flatMap(commandsOf)];

test('kinds-5 mandatory options are marked in the help of their command, others are not', () => {
  let mandatory = 0;
  for (const command of commandsOf(programOf())) {
    const marked = [...command.helpInformation().matchAll(/^ +(\S.*?) \(required\)/gm)].map(
      ([, flags]) => flags,
    );
    const wanted = command.options.filter((option) => option.mandatory).map(({ flags }) => flags);
    expect([command.name(), marked]).toEqual([command.name(), wanted]);
    mandatory += wanted.length;
  }
  expect(mandatory).toBeGreaterThan(5);
});
