/** `dead-letters`: routes that spent their budget. */
import type { Command } from 'commander';
import type { DeadLetter } from '../../client/intent/dead-letters.ts';
import { define, list, option } from '../definition.ts';
import { deadLetterFilters, parseEntryId } from '../options.ts';
import { printFields, printHeading, printItems, report } from '../output.ts';
import type { Session } from '../session.ts';

export function addTo(deadLetters: Command): void {
  list(deadLetters, {
    description: 'List dead-lettered routes, newest first.',
    filters: {
      ...deadLetterFilters(),
      all: option(
        '--all',
        'also routes that were replayed since; failure and time are those of their first death',
      ),
    },
    examples: [
      'dead-letters list --channel email --since 1h',
      'dead-letters list --all --limit 1000 --json',
      'replay --channel email --since 1h --dry-run',
    ],
    read: ({ operator }: Session) => operator.deadLetters.list,
    print: printLetters,
  });

  define(deadLetters, {
    name: 'show',
    description: 'Show the dead letters of a notification, replayed ones included, with what can be done.',
    args: [
      ['<notification id>', 'id of the stream entry', parseEntryId],
      ['[route id]', 'as dead-letters list shows it'],
    ],
    examples: ['dead-letters show 1790000000000-0 email:user:user-1'],
    run: async ({ operator }, _options: object, notificationId: string, routeId: string | undefined) => ({
      items: await operator.deadLetters.show(notificationId, routeId),
    }),
    print({ items }) {
      for (const letter of items) {
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
    },
  });
}

function printLetters(items: DeadLetter[]): void {
  printItems(
    items,
    {
      DIED: 'diedAt',
      NOTIFICATION: 'notificationId',
      ROUTE: 'routeId',
      TYPE: 'type',
      FAILURE: 'failure',
      STATUS: 'status',
      REPLAYS: 'replays',
      MESSAGE: 'message',
    },
    { flexible: 7, linked: 2 },
  );
  const dead = items.find(({ status }) => status === 'dead_letter');
  if (dead === undefined) return;
  report(`to try one again, when its cause is gone: galaxy-notify replay ${dead.notificationId}`);
  report(`to try all of a cause again: galaxy-notify replay --failure ${dead.failure} --since 7d --dry-run`);
}
