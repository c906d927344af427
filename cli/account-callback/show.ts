/** `callbacks show`: one account and its callbacks. */
import type { Command } from 'commander';
import { Option } from 'commander';
import { CALLBACK_KINDS } from '../../api/account-callback/callback.ts';
import type { AccountFilter, AccountView, CallbackView } from '../../client/account-callback/account.ts';
import { TELLING_STATUSES } from '../../client/account-callback/account.ts';
import { action, helpWith } from '../command.ts';
import { givenOf, limitOption, sinceOption, untilOption } from '../options.ts';
import { printFields, printHeading, printJson, printTable, report } from '../output.ts';
import { withSession } from '../session.ts';

interface ShowOptions extends AccountFilter {
  limit: number;
}

export function addShow(callbacks: Command): void {
  callbacks
    .command('show')
    .description('Show the account of a user: its tracking and its callbacks.')
    .argument('<user id>', 'whose account')
    .addOption(new Option('--kind <kind>', 'period of the callback').choices(CALLBACK_KINDS))
    .addOption(new Option('--status <status>', 'what became of the callback').choices(TELLING_STATUSES))
    .addOption(sinceOption('period that begins'))
    .addOption(untilOption('period that begins'))
    .addOption(limitOption())
    .addHelpText(
      'after',
      helpWith(
        'galaxy-notify callbacks show user-1',
        'galaxy-notify callbacks show user-1 --status dead',
        'galaxy-notify callbacks show user-1 --kind daily --since 7d --json',
      ),
    )
    .action(
      action<ShowOptions, [string]>(({ json, kind, status, since, until, limit }, userId) => {
        return withSession(['postgres'], async ({ operator }) => {
          const filter = givenOf({ kind, status, since, until });
          const view = await operator.callbacks.show(userId, { ...filter, limit });
          return json ? printJson(view) : printAccount(view, limit);
        });
      }),
    );
}

function printAccount({ userId, tracking, callbacks }: AccountView, limit: number): void {
  printHeading(`Account of ${userId}`);
  printFields([
    ['shard', tracking?.shard],
    ['paused by', tracking?.pausedBy],
    ['takes part', tracking && (tracking.until === undefined ? 'yes' : 'not any more')],
    ['until', tracking?.until],
    ['waited for', tracking && (tracking.isWaitedFor ? 'yes' : 'no')],
    ['caught up', tracking?.caughtUpDate],
    ['last day', tracking?.dailyDate],
    ['changed', tracking?.changedAt],
    ['link', tracking?.link],
  ]);
  printHeading('Callbacks');
  if (callbacks.items.length === 0) report('nothing matched');
  else printCallbacks(callbacks.items);
  if (callbacks.hasMore) {
    report(`the newest ${limit} are shown, there are more: narrow it down, or raise --limit`);
  }
}

function printCallbacks(items: CallbackView[]): void {
  printTable(
    [
      'PERIOD',
      'KIND',
      'STATUS',
      'PEAK',
      'BOTTOM',
      'CLOSING',
      'SETTLED',
      'ATTEMPTS',
      'NEXT TRY',
      'LATE',
      'LAST ERROR',
    ],
    items.map((item) => [
      item.periodStart,
      item.kind,
      item.status,
      item.peakValue,
      item.bottomValue,
      item.closingValue,
      item.settledAt,
      item.attempts,
      item.nextAttemptAt,
      item.lateValues && `${item.lateEntries}: ${JSON.stringify(item.lateValues)}`,
      item.lastError,
    ]),
    { flexible: 10 },
  );
}
