/** `actions`: who asked for what. */
import type { Command } from 'commander';
import type { ActionFilter } from '../client/actions.ts';
import { action, helpWith, showPage } from './command.ts';
import { givenOf, limitOption, sinceOption, untilOption } from './options.ts';
import { printTable } from './output.ts';
import { withSession } from './session.ts';

interface ListOptions extends Omit<ActionFilter, 'requestedBy'> {
  by?: string;
  limit: number;
}

export function addActionCommands(program: Command): void {
  program
    .command('actions')
    .description('What operators asked for')
    .command('list')
    .description(
      'List what operators asked for, newest first: pauses, replays, cancellations and all other changes, by whom and why.',
    )
    .option('--action <command>', 'this command only, such as "mobile cancel"')
    .option('--target <text>', 'what it was done to')
    .option('--by <name>', 'who asked')
    .addOption(sinceOption('asked'))
    .addOption(untilOption('asked'))
    .addOption(limitOption())
    .addHelpText(
      'after',
      helpWith('galaxy-notify actions list --since 7d', 'galaxy-notify actions list --target game_lobby'),
    )
    .action(
      action<ListOptions>(({ by, ...options }) =>
        withSession(['postgres'], async ({ operator }) => {
          const { action: name, target, since, until, limit } = options;
          const filter = givenOf({ action: name, target, requestedBy: by, since, until });
          const page = await operator.actions.list({ ...filter, limit });
          return showPage(page, options, (items) =>
            printTable(
              ['ASKED FOR', 'BY', 'DATABASE ROLE', 'ACTION', 'TARGET', 'DETAIL'],
              items.map(({ actedAt, requestedBy, dbUser, action: done, target: what, detail }) => [
                ...[actedAt, requestedBy, dbUser, done, what, detail],
              ]),
              { flexible: 5 },
            ),
          );
        }),
      ),
    );
}
