/** `notifications`: what became of intents. */
import type { Command } from 'commander';
import type { OpenFilter } from '../../client/intent/choices.ts';
import { NOTIFICATION_STATUSES } from '../../client/intent/notification-rows.ts';
import type { NotificationFilter } from '../../client/intent/notifications.ts';
import type { ExitCode } from '../command.ts';
import { EXIT, action } from '../command.ts';
import { define, form, list, option, printItems } from '../definition.ts';
import {
  givenOf,
  limitOption,
  parseEntryId,
  producerOption,
  sinceOption,
  typeOption,
  untilOption,
  waitLimitOption,
} from '../options.ts';
import { countOf, printJson, printLine, report } from '../output.ts';
import { startProgress } from '../progress.ts';
import type { Session } from '../session.ts';
import { withSession } from '../session.ts';
import type { OperationCommandOptions } from '../operations.ts';
import { inGroups, isNamed, operate, operationOptions } from '../operations.ts';
import { printNotification } from './notification-view.ts';

type ListOptions = Omit<NotificationFilter, 'idempotencyKey' | 'recipient'> & { key?: string; user?: string };

interface CancelOptions extends OperationCommandOptions, OpenFilter {
  timeout: number;
}

export function addTo(notifications: Command): void {
  list(notifications, {
    description: 'List accepted notifications, newest first.',
    options: [
      ...[typeOption(), producerOption()],
      option(
        '--status <status>',
        'open: a route will still be tried; settled: none will; dead_letter: at least one route is dead',
      ).choices(NOTIFICATION_STATUSES),
      option('--key <key>', 'idempotency key'),
      option('--user <id>', 'for this user, or for the administrator with this address; see also why'),
      ...[sinceOption('accepted'), untilOption('accepted')],
    ],
    examples: [
      'notifications list --status open',
      'notifications list --key game-7/turn-54 --json',
      'notifications list --user user-17 --since 2d',
      'notifications list --type game.finished --since 2026-01-31 --until 2026-02-01',
    ],
    read: ({ operator }: Session, { key, user, ...options }: ListOptions & { limit: number }) =>
      operator.notifications.list({ ...options, ...givenOf({ idempotencyKey: key, recipient: user }) }),
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

  form(notifications, {
    name: 'cancel',
    description:
      'Cancel notifications: routes that are not published yet are skipped for good. Without a notification id, all that match the filters now are cancelled, also those that were not read or accepted yet.',
    args: [['[notification id]', 'id of the stream entry', parseEntryId]],
    options: [
      ...operationOptions('notifications', 'cancelled'),
      ...[typeOption(), producerOption(), sinceOption('accepted'), untilOption('accepted')],
      waitLimitOption('the routes of a single one to be settled'),
    ],
    examples: [
      'notifications cancel 1790000000000-0',
      'notifications cancel --producer game_master --since 1h --dry-run',
      "notifications cancel --producer game_master --since 1h --rate 200 --yes --reason 'INC-42'",
    ],
  }).action(
    action<CancelOptions, [string | undefined]>((options, id) => {
      const { type, producer, since, until } = options;
      const filter = givenOf({ type, producer, since, until });
      return isNamed(id, filter, 'a notification') ? cancelOne(id, options) : cancelMany(filter, options);
    }),
  );
}

function cancelMany(filter: OpenFilter, options: CancelOptions): Promise<ExitCode> {
  return operate(options, {
    what: 'notification',
    verb: 'cancel',
    // Only the stream knows of entries that were not read yet.
    needs: ['redis'],
    count: async ({ operations }) =>
      inGroups(await operations.previewCancel(filter), ({ notifications }) => notifications),
    show: (groups) =>
      printItems(groups, {
        NOTIFICATIONS: 'notifications',
        STATE: ({ state }) => (state === 'under_way' ? 'under way' : 'not begun'),
        ...{ TYPE: 'type', PRODUCER: 'producer', OLDEST: 'oldest', NEWEST: 'newest' },
      }),
    nothing: 'no notification that is under way or has not begun matches',
    begin: (operator, request) => operator.operations.cancel(filter, request),
  });
}

function cancelOne(
  notificationId: string,
  { json, timeout, requestedBy, reason }: CancelOptions,
): Promise<ExitCode> {
  return withSession(['postgres', 'temporal'], async ({ operator }) => {
    const progress = startProgress(1, 'notifications settled');
    const cancelled = await operator.notifications
      .cancel(notificationId, {
        ...{ limitMs: timeout, requestedBy, reason },
        onProgress: ({ settled, open }) => progress.update(settled, `${countOf(open, 'route')} open`),
      })
      .finally(() => progress.end());
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
