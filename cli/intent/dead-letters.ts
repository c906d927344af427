/** `dead-letters`: routes that spent their budget. */
import type { Command } from 'commander';
import type { DeadLetterFilter } from '../../client/intent/dead-letters.ts';
import { action, helpWith, showPage } from '../command.ts';
import { limitOption, parseEntryId, withDeadLetterFilters } from '../options.ts';
import { printFields, printHeading, printJson, printTable, report } from '../output.ts';
import { withSession } from '../session.ts';

export function addDeadLetterCommands(program: Command): void {
  const deadLetters = program
    .command('dead-letters')
    .description('Routes that spent their budget: what failed, and why');

  withDeadLetterFilters(deadLetters.command('list'))
    .description('List dead-lettered routes, newest first.')
    .option('--all', 'also routes that were replayed since; failure and time are those of their first death')
    .addOption(limitOption())
    .addHelpText(
      'after',
      helpWith(
        'galaxy-notify dead-letters list --channel email --since 1h',
        'galaxy-notify dead-letters list --all --limit 1000 --json',
        'galaxy-notify replay --channel email --since 1h --dry-run',
      ),
    )
    .action(
      action<DeadLetterFilter & { all?: boolean; limit: number }>((options) =>
        withSession(['postgres'], async ({ operator }) =>
          showPage(await operator.deadLetters.list(options), options, (items) => {
            printTable(
              ['DIED', 'NOTIFICATION', 'ROUTE', 'TYPE', 'FAILURE', 'STATUS', 'REPLAYS', 'MESSAGE'],
              items.map((item) => [
                item.diedAt,
                item.notificationId,
                item.routeId,
                item.type,
                item.failure,
                item.status,
                item.replays,
                item.message,
              ]),
              { flexible: 7, linked: 2, links: items.map(({ link }) => link) },
            );
            if (items.every(({ status }) => status !== 'dead_letter')) return;
            report(
              'to try them again: galaxy-notify replay <notification id> [route id], or with these filters',
            );
          }),
        ),
      ),
    );

  deadLetters
    .command('show')
    .description('Show the dead letters of a notification, replayed ones included, with what can be done.')
    .argument('<notification id>', 'id of the stream entry', parseEntryId)
    .argument('[route id]', 'as dead-letters list shows it')
    .addHelpText('after', helpWith('galaxy-notify dead-letters show 1790000000000-0 email:user:user-1'))
    .action(
      action<object, [string, string | undefined]>(({ json }, notificationId, routeId) =>
        withSession(['postgres'], async ({ operator }) => {
          const letters = await operator.deadLetters.show(notificationId, routeId);
          if (json) return printJson({ items: letters });
          for (const letter of letters) {
            printHeading(`${letter.routeId} of ${letter.notificationId}`);
            printFields([
              ['type', letter.type],
              ['status now', letter.status],
              ['died', letter.diedAt],
              ['attempts', `${letter.attempts} of ${letter.maxAttempts}`],
              ['failure', letter.failure],
              ['message', letter.message],
              ['hint', letter.recoveryHint],
              ['replays', letter.replays],
              ['link', letter.link],
              ['runbook', letter.runbook],
            ]);
          }
        }),
      ),
    );
}
