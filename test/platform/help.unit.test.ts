/** Help of every command: what must be given is marked. */
import { commandsBelow } from '../../cli/looks.ts';
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
