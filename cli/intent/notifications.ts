/** `notifications`: what became of intents. */
import type { Command } from 'commander';
import { Option } from 'commander';
import type { OpenFilter } from '../../client/intent/open-filter.ts';
import { NOTIFICATION_STATUSES } from '../../client/intent/notification-rows.ts';
import type { NotificationFilter } from '../../client/intent/notifications.ts';
import type { ExitCode } from '../command.ts';
import { EXIT, UsageError, action, helpWith, showPage } from '../command.ts';
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
import { countOf, printJson, printLine, printTable, report } from '../output.ts';
import { startProgress } from '../progress.ts';
import { withSession } from '../session.ts';
import type { OperationCommandOptions } from '../operations.ts';
import { inGroups, operate, withOperationOptions } from '../operations.ts';
import { printNotification } from './notification-view.ts';

export function addNotificationCommands(program: Command): void {
  const notifications = program
    .command('notifications')
    .description('Accepted notifications and their routes: find, look into, cancel');

  notifications
    .command('list')
    .description('List accepted notifications, newest first.')
    .addOption(typeOption())
    .addOption(producerOption())
    .addOption(
      new Option(
        '--status <status>',
        'open: a route will still be tried; settled: none will; dead_letter: at least one route is dead',
      ).choices(NOTIFICATION_STATUSES),
    )
    .option('--key <key>', 'idempotency key')
    .option('--user <id>', 'for this user, or for the administrator with this address; see also why')
    .addOption(sinceOption('accepted'))
    .addOption(untilOption('accepted'))
    .addOption(limitOption())
    .addHelpText(
      'after',
      helpWith(
        'galaxy-notify notifications list --status open',
        'galaxy-notify notifications list --key game-7/turn-54 --json',
        'galaxy-notify notifications list --user user-17 --since 2d',
        'galaxy-notify notifications list --type game.finished --since 2026-01-31 --until 2026-02-01',
      ),
    )
    .action(
      action<
        Omit<NotificationFilter, 'idempotencyKey' | 'recipient'> & {
          key?: string;
          user?: string;
          limit: number;
        }
      >(({ key, user, ...options }) =>
        withSession(['postgres'], async ({ operator }) => {
          const filter = {
            ...options,
            ...(key === undefined ? {} : { idempotencyKey: key }),
            ...(user === undefined ? {} : { recipient: user }),
          };
          return showPage(await operator.notifications.list(filter), options, (items) =>
            printTable(
              ['ACCEPTED', 'NOTIFICATION', 'TYPE', 'OPEN', 'PUBLISHED', 'SKIPPED', 'DEAD', 'KEY'],
              items.map((item) => [
                item.acceptedAt,
                item.notificationId,
                item.type,
                item.open,
                item.published,
                item.skipped,
                item.deadLettered,
                item.idempotencyKey,
              ]),
              { flexible: 7, linked: 1, links: items.map(({ link }) => link) },
            ),
          );
        }),
      ),
    );

  notifications
    .command('show')
    .description('Show a notification: its record, its routes, and what it waits for right now.')
    .argument('<notification id>', 'id of the stream entry', parseEntryId)
    .addOption(limitOption())
    .addHelpText('after', helpWith('galaxy-notify notifications show 1790000000000-0'))
    .action(
      action<{ limit: number }, [string]>(({ json, limit }, notificationId) =>
        withSession(['postgres'], async ({ operator }) => {
          const view = await operator.notifications.show(notificationId, limit);
          if (json) printJson(view);
          else printNotification(view);
        }),
      ),
    );

  addCancel(notifications);
}

interface CancelOptions extends OperationCommandOptions, OpenFilter {
  timeout: number;
}

function addCancel(notifications: Command): void {
  withOperationOptions(notifications.command('cancel'), 'notifications', 'cancelled')
    .description(
      'Cancel notifications: routes that are not published yet are skipped for good. Without a notification id, all that match the filters now are cancelled, also those that nobody has read or accepted yet.',
    )
    .argument('[notification id]', 'id of the stream entry', parseEntryId)
    .addOption(typeOption())
    .addOption(producerOption())
    .addOption(sinceOption('accepted'))
    .addOption(untilOption('accepted'))
    .addOption(waitLimitOption('the routes of a single one to be settled'))
    .addHelpText(
      'after',
      helpWith(
        'galaxy-notify notifications cancel 1790000000000-0',
        'galaxy-notify notifications cancel --producer game_master --since 1h --dry-run',
        "galaxy-notify notifications cancel --producer game_master --since 1h --rate 200 --yes --reason 'INC-42'",
      ),
    )
    .action(
      action<CancelOptions, [string | undefined]>((options, notificationId) => {
        const filter = filterOf(options);
        const hasFilter = Object.keys(filter).length > 0;
        if (notificationId !== undefined && hasFilter) {
          throw new UsageError('a notification that is named takes no filters');
        }
        if (notificationId === undefined && !hasFilter) {
          throw new UsageError(
            'say which: a notification id, or filters; --since 30d for everything of 30 days',
          );
        }
        return notificationId === undefined
          ? cancelMany(filter, options)
          : cancelOne(notificationId, options);
      }),
    );
}

const filterOf = ({ type, producer, since, until }: CancelOptions): OpenFilter =>
  givenOf({ type, producer, since, until });

function cancelMany(filter: OpenFilter, options: CancelOptions): Promise<ExitCode> {
  return operate(options, {
    what: 'notification',
    verb: 'cancel',
    // Of what nobody has read yet only the stream knows.
    needs: ['redis'],
    count: async ({ operations }) =>
      inGroups(await operations.previewCancel(filter), ({ notifications }) => notifications),
    show: (groups) =>
      printTable(
        ['NOTIFICATIONS', 'STATE', 'TYPE', 'PRODUCER', 'OLDEST', 'NEWEST'],
        groups.map((group) => [
          ...[group.notifications, group.state === 'under_way' ? 'under way' : 'not begun'],
          ...[group.type, group.producer, group.oldest, group.newest],
        ]),
      ),
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
