/** `callbacks show`: one account, and what became of one callback. */
import type { Command } from 'commander';
import { Option } from 'commander';
import type { CallbackKind } from '../../api/account-callback/callback.ts';
import { CALLBACK_KINDS } from '../../api/account-callback/callback.ts';
import type {
  AccountFilter,
  AccountView,
  CallbackView,
  PeriodView,
} from '../../client/account-callback/account.ts';
import { TELLING_STATUSES } from '../../client/account-callback/account.ts';
import { UsageError, action, helpWith } from '../command.ts';
import { givenOf, limitOption, parseTime, sinceOption, untilOption } from '../options.ts';
import { printFields, printHeading, printJson, printTable, report } from '../output.ts';
import { withSession } from '../session.ts';

interface ShowOptions extends AccountFilter {
  limit: number;
  period?: Date;
}

export function addShow(callbacks: Command): void {
  callbacks
    .command('show')
    .description(
      'Show the account of a user: its tracking and its callbacks; with --period, what became of the callback of an hour or a day.',
    )
    .argument('<user id>', 'whose account')
    .addOption(new Option('--kind <kind>', 'period of the callback').choices(CALLBACK_KINDS))
    .addOption(new Option('--status <status>', 'what became of the callback').choices(TELLING_STATUSES))
    .addOption(sinceOption('period that begins'))
    .addOption(untilOption('period that begins'))
    .addOption(
      new Option(
        '--period <time>',
        'what became of the callback of this hour, or with --kind daily of this day; any time in it',
      ).argParser(parseTime),
    )
    .addOption(limitOption())
    .addHelpText(
      'after',
      helpWith(
        'galaxy-notify callbacks show user-1',
        'galaxy-notify callbacks show user-1 --status dead',
        'galaxy-notify callbacks show user-1 --period 2026-01-31T12:00Z',
        'galaxy-notify callbacks show user-1 --kind daily --period 2026-01-31 --json',
      ),
    )
    .action(
      action<ShowOptions, [string]>(({ json, kind, period, status, since, until, limit }, userId) => {
        if (period !== undefined && (status ?? since ?? until) !== undefined) {
          throw new UsageError('--period is one hour or day, and takes no other filter than --kind');
        }
        return withSession(['postgres'], async ({ operator }) => {
          if (period !== undefined) {
            const view = await operator.callbacks.explain(userId, { kind: kind ?? 'hourly', at: period });
            return json ? printJson(view) : printPeriod(view);
          }
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
      item.lateEntries === 0 ? undefined : item.lateEntries,
      item.lastError,
    ]),
    { flexible: 10 },
  );
}

function printPeriod({ userId, kind, periodStart, why, callback }: PeriodView): void {
  const nameOf: Record<CallbackKind, string> = { hourly: 'Hour', daily: 'Day' };
  printHeading(`${nameOf[kind]} of ${userId} from ${periodStart.toISOString()}`);
  printFields([
    ['status', callback?.status ?? 'nothing to deliver'],
    ['why', why],
    ['peak', callback && `${callback.peakValue} at ${callback.peakAt.toISOString()}`],
    ['bottom', callback && `${callback.bottomValue} at ${callback.bottomAt.toISOString()}`],
    ['closing', callback?.closingValue],
    ['late entries', callback && callback.lateEntries > 0 ? callback.lateEntries : undefined],
    ['newest of them', callback?.lateEntryId],
    ['its values', callback?.lateValues && JSON.stringify(callback.lateValues)],
  ]);
}
