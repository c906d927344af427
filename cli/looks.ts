/**
 * Commands that only look. They are all that `--read-only` lets through, and they have `--watch`, which looks again and
 * again; `top` does so by itself.
 */
import type { Command } from 'commander';
import { Option } from 'commander';
import { UsageError } from './command.ts';
import { parseDuration } from './options.ts';

/** Whoever adds a command that changes nothing adds it here; one that is forgotten is refused under `--read-only`. */
export const LOOKS: readonly string[] = [
  'doctor',
  'top',
  'why',
  'notifications list',
  'notifications show',
  'dead-letters list',
  'dead-letters show',
  'operations list',
  'operations show',
  'malformed list',
  'malformed show',
  'channels list',
  'producers list',
  'bridge status',
  'intents waiting',
  'outbox status',
  'outbox list',
  'mobile list',
  'mobile show',
  'symbols list',
  'symbols status',
  'callbacks status',
  'callbacks show',
  'callbacks failed',
  'callbacks overdue',
  'callbacks malformed list',
  'callbacks malformed show',
  'subscriptions list',
  'subscriptions show',
  'subscriptions status',
  'subscriptions statistics',
  'keys status',
  'actions list',
];
/** They have no servers to look at, so nothing changes while one watches. */
const WITHOUT_SERVERS: readonly string[] = [
  'views',
  'intents sample',
  'intents validate',
  'outbox sql',
  'completion',
];

/** The names that lead to a command, without the program's: `notifications list`. */
export function pathOf(command: Command): string {
  const above = command.parent?.parent ? `${pathOf(command.parent)} ` : '';
  return `${above}${command.name()}`;
}

/** Gives the commands that look their options, once all are there. */
export function addLooks(program: Command): void {
  program
    .option('--read-only', 'refuse commands that change something; --dry-run stays possible')
    .hook('preAction', (_, command) => {
      const { readOnly, dryRun } = command.optsWithGlobals<{ readOnly?: boolean; dryRun?: boolean }>();
      if (!readOnly || dryRun || isLook(command)) return;
      throw new UsageError(`${pathOf(command)} changes something, which --read-only refuses`);
    });
  for (const command of commandsBelow(program)) {
    if (!LOOKS.includes(pathOf(command)) || pathOf(command) === 'top') continue;
    command.addOption(
      new Option('--watch [interval]', 'look again and again, until Ctrl-C')
        .argParser(parseDuration)
        .preset('2s'),
    );
  }
}

/** Whether it changes nothing. A router that is tried gets a queue and loses it again. */
export function isLook(command: Command): boolean {
  const path = pathOf(command);
  if (path === 'doctor') return command.opts<{ router?: string }>().router === undefined;
  return LOOKS.includes(path) || WITHOUT_SERVERS.includes(path);
}

export function commandsBelow(command: Command): Command[] {
  return command.commands.flatMap((one) => [one, ...commandsBelow(one)]);
}
