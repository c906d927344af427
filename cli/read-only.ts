/**
 * Commands that change nothing. They are all that `--read-only` lets through, and they have `--watch`, which repeats them;
 * `top` does so by itself.
 */
import type { Argument, Command } from 'commander';
import { InvalidArgumentError, Option } from 'commander';
import { UsageError } from './command.ts';
import { adviceFor, parseDuration } from './options.ts';

/** Names of commands that change nothing. A command with another name is refused under `--read-only`. */
const LOOKS: readonly string[] = [
  ...['list', 'show', 'status', 'statistics', 'waiting', 'failed', 'overdue', 'doctor', 'top', 'why'],
];
/** They have no servers to look at, so nothing changes while one watches. */
const WITHOUT_SERVERS: readonly string[] = [
  'views',
  ...['catalog check', 'catalog sample', 'catalog fbs', 'catalog clients'],
  ...['intents sample', 'intents validate'],
  'outbox sql',
  'completion',
];

/** Whether a command looks at servers, and changes nothing. */
export const isLook = (command: Command): boolean =>
  command.commands.length === 0 && LOOKS.includes(command.name());

/** The names that lead to a command, without the program's: `notifications list`. */
export function pathOf(command: Command): string {
  const above = command.parent?.parent ? `${pathOf(command.parent)} ` : '';
  return `${above}${command.name()}`;
}

/** @throws UsageError for a command that `--read-only` refuses. */
export function refuseChange(command: Command): void {
  const { readOnly, dryRun } = command.optsWithGlobals<{ readOnly?: boolean; dryRun?: boolean }>();
  if (!readOnly || dryRun || isReadOnly(command)) return;
  throw new UsageError(`${pathOf(command)} changes something, which --read-only refuses`);
}

/** Gives a command and those below it what the table of commands adds: errors in its words, and `--watch` where they change nothing. */
export function complete(whole: Command): void {
  for (const command of [whole, ...commandsBelow(whole)]) {
    for (const option of command.options) {
      explain(option, option.long!);
      // Commander does so before a command of the table is loaded.
      if (option.negate) command.setOptionValueWithSource(option.attributeName(), true, 'default');
    }
    for (const argument of command.registeredArguments) explain(argument, argument.name());
    if (!isLook(command) || command.name() === 'top') continue;
    command.addOption(
      new Option('--watch [interval]', 'look again and again, until Ctrl-C')
        .argParser(parseDuration)
        .preset('2s'),
    );
  }
}

/** A wrong value is answered under the name that the person typed, with what it may have meant. */
function explain(valued: Option | Argument, name: string): void {
  const { argChoices, parseArg } = valued;
  if (parseArg === undefined) return;
  valued.argParser((given: string, before: unknown) => {
    try {
      return parseArg.call(valued, given, before);
    } catch (error) {
      if (!(error instanceof InvalidArgumentError)) throw error;
      throw new UsageError(
        `${name} cannot be ${given}: ${argChoices ? adviceFor(given, argChoices) : error.message}`,
      );
    }
  });
}

/** Whether it changes nothing, with its options. A router that is tried gets a queue and loses it again. */
export function isReadOnly(command: Command): boolean {
  const { router, reset, allowChanges } = command.opts<{
    router?: string;
    reset?: boolean;
    allowChanges?: boolean;
  }>();
  if (router !== undefined || reset || allowChanges) return false;
  return isLook(command) || [...WITHOUT_SERVERS, 'mcp'].includes(pathOf(command));
}

export function commandsBelow(command: Command): Command[] {
  return command.commands.flatMap((one) => [one, ...commandsBelow(one)]);
}
