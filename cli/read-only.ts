/**
 * Commands that change nothing. They are all that `--read-only` lets through, and they have `--watch`, which repeats them;
 * `top` does so by itself.
 */
import type { Argument, Command } from 'commander';
import { InvalidArgumentError, Option } from 'commander';
import { UsageError } from './command.ts';
import { showGroup } from './definition.ts';
import { adviceFor, parseDuration } from './options.ts';

/** Commands that change nothing, by their groups. A command that is missing here is refused under `--read-only`. */
const LOOKS: Readonly<Record<string, readonly string[]>> = {
  notifications: ['list', 'show'],
  'dead-letters': ['list', 'show'],
  operations: ['list', 'show'],
  malformed: ['list', 'show'],
  channels: ['list'],
  producers: ['list'],
  bridge: ['status'],
  intents: ['waiting'],
  outbox: ['status', 'list'],
  mobile: ['list', 'show'],
  symbols: ['list', 'status'],
  callbacks: ['status', 'show', 'failed', 'overdue', 'malformed list', 'malformed show'],
  subscriptions: ['list', 'show', 'status', 'statistics'],
  keys: ['status'],
  actions: ['list'],
};
export const READ_ONLY: readonly string[] = [
  ...['doctor', 'top', 'why'],
  ...Object.entries(LOOKS).flatMap(([group, commands]) => commands.map((name) => `${group} ${name}`)),
];
/** They have no servers to look at, so nothing changes while one watches. */
const WITHOUT_SERVERS: readonly string[] = [
  'views',
  ...['catalog check', 'catalog sample', 'catalog fbs', 'catalog clients'],
  ...['intents sample', 'intents validate'],
  'outbox sql',
  'completion',
];

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
    showGroup(command);
    for (const option of command.options) {
      explain(option, option.long!);
      // Commander does so before a command of the table is loaded.
      if (option.negate) command.setOptionValueWithSource(option.attributeName(), true, 'default');
    }
    for (const argument of command.registeredArguments) explain(argument, argument.name());
    if (!READ_ONLY.includes(pathOf(command)) || pathOf(command) === 'top') continue;
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

/** Whether it changes nothing. A router that is tried gets a queue and loses it again. */
export function isReadOnly(command: Command): boolean {
  const path = pathOf(command);
  if (path === 'doctor') return command.opts<{ router?: string }>().router === undefined;
  if (path === 'mcp') return command.opts<{ allowChanges?: boolean }>().allowChanges !== true;
  return READ_ONLY.includes(path) || WITHOUT_SERVERS.includes(path);
}

export function commandsBelow(command: Command): Command[] {
  return command.commands.flatMap((one) => [one, ...commandsBelow(one)]);
}
