/** `notifications`: what became of intents. */
import type { Command } from 'commander';
import type { OpenFilter } from '../../client/intent/waiting.ts';
import { NOTIFICATION_STATUSES } from '../../client/intent/notifications.ts';
import type { ExitCode } from '../command.ts';
import { EXIT } from '../command.ts';
import { define, list, option } from '../definition.ts';
import {
  limitOption,
  parseEntryId,
  producerOption,
  spanOptions,
  typeOption,
  waitLimitOption,
} from '../options.ts';
import { countOf, printJson, printLine, report } from '../output.ts';
import { withProgress } from '../progress.ts';
import { withSession } from '../session.ts';
import type { OperationCommandOptions } from '../operations.ts';
import { addOneOrMany, inGroups } from '../operations.ts';
import { printNotification } from './notification-view.ts';
import type { Session } from '../session.ts';

interface CancelOptions extends OperationCommandOptions {
  timeout: number;
}

export function addTo(notifications: Command): void {
  list(notifications, {
    description: 'List accepted notifications, newest first.',
    filters: {
      ...{ type: typeOption(), producer: producerOption() },
      status: option(
        '--status <status>',
        'open: a route will still be tried; settled: none will; dead_letter: at least one route is dead',
      ).choices(NOTIFICATION_STATUSES),
      idempotencyKey: option('--key <key>', 'idempotency key'),
      recipient: option(
        '--user <id>',
        'for this user, or for the administrator with this address; see also why',
      ),
      ...spanOptions('accepted'),
    },
    examples: [
      'notifications list --status open',
      'notifications list --key game-7/turn-54 --json',
      'notifications list --user user-17 --since 2d',
      'notifications list --type game.finished --since 2026-01-31 --until 2026-02-01',
    ],
    read: ({ operator }: Session) => operator.notifications.list,
    columns: {
      ACCEPTED: 'acceptedAt',
      NOTIFICATION: 'notificationId',
      TYPE: 'type',
      OPEN: 'open',
      PUBLISHED: 'published',
      SKIPPED: 'skipped',
      DEAD: 'deadLettered',
      KEY: 'idempotencyKey',
    },
    table: { flexible: 7, linked: 1 },
  });

  define(notifications, {
    name: 'show',
    description: 'Show a notification: its record, its routes, and what it waits for right now.',
    args: [['<notification id>', 'id of the stream entry', parseEntryId]],
    options: [limitOption()],
    examples: ['notifications show 1790000000000-0'],
    run: ({ operator }, { limit }: { limit: number }, id: string) => operator.notifications.show(id, limit),
    print: printNotification,
  });

  addOneOrMany(notifications, {
    name: 'cancel',
    description:
      'Cancel notifications: routes that are not published yet are skipped for good. Without a notification id, all that match the filters now are cancelled, also those that were not read or accepted yet.',
    id: ['[notification id]', 'id of the stream entry', parseEntryId],
    ...{ a: 'a notification', things: 'notifications', done: 'cancelled' },
    filters: { type: typeOption(), producer: producerOption(), ...spanOptions('accepted') },
    options: [waitLimitOption('the routes of a single one to be settled')],
    examples: [
      'notifications cancel 1790000000000-0',
      'notifications cancel --producer game_master --since 1h --dry-run',
      "notifications cancel --producer game_master --since 1h --rate 200 --yes --reason 'INC-42'",
    ],
    one: cancelOne,
    many: (filter: OpenFilter) => ({
      ...{ what: 'notification', verb: 'cancel' },
      // Only the stream knows of entries that were not read yet.
      needs: ['redis'],
      count: async ({ operations }) =>
        inGroups(await operations.previewCancel(filter), ({ notifications: count }) => count),
      columns: {
        NOTIFICATIONS: 'notifications',
        STATE: ({ state }) => (state === 'under_way' ? 'under way' : 'not begun'),
        ...{ TYPE: 'type', PRODUCER: 'producer', OLDEST: 'oldest', NEWEST: 'newest' },
      },
      nothing: 'no notification that is under way or has not begun matches',
      start: (operator, request) => operator.operations.cancel(filter, request),
    }),
  });
}

function cancelOne(
  notificationId: string,
  { json, timeout, requestedBy, reason }: CancelOptions,
): Promise<ExitCode> {
  return withSession(['postgres', 'temporal'], async ({ operator }) => {
    const cancelled = await withProgress(1, 'notifications settled', (update) =>
      operator.notifications.cancel(notificationId, {
        ...{ limitMs: timeout, requestedBy, reason },
        onProgress: ({ settled, open }) => update(settled, `${countOf(open, 'route')} open`),
      }),
    );
    const { status, published, skipped, deadLettered, open } = cancelled;
    if (json) printJson(cancelled);
    else {
      printLine(
        `${notificationId} is ${status}: ${published} published, ${skipped} skipped, ${deadLettered} dead, ${open} open`,
      );
    }
    if (status !== 'RUNNING' && open === 0) return EXIT.done;
    report('the cancellation is requested and not finished: is a worker running? See notifications show');
    return EXIT.failed;
  });
}
