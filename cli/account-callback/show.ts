/** `callbacks show`: one account, and why a value is what it is. */
import type { Command } from 'commander';
import { Option } from 'commander';
import type { CallbackKind } from '../../api/account-callback/callback.ts';
import { CALLBACK_KINDS } from '../../api/account-callback/callback.ts';
import type {
  AccountFilter,
  AccountView,
  CallbackView,
  PeriodView,
  PositionView,
  ValueView,
} from '../../client/account-callback/account.ts';
import { TELLING_STATUSES } from '../../client/account-callback/account.ts';
import { UsageError, action, helpWith } from '../command.ts';
import { givenOf, limitOption, parseTime, sinceOption, untilOption } from '../options.ts';
import { capital, printFields, printHeading, printJson, printTable, report } from '../output.ts';
import { withSession } from '../session.ts';

interface ShowOptions extends AccountFilter {
  limit: number;
  period?: Date;
}

export function addShow(callbacks: Command): void {
  callbacks
    .command('show')
    .description(
      'Show the account of a user: how far it is, what it holds, what was told and what is not told yet; with --period, why the values of an hour or a day are what they are.',
    )
    .argument('<user id>', 'whose account')
    .addOption(new Option('--kind <kind>', 'period of the callback').choices(CALLBACK_KINDS))
    .addOption(new Option('--status <status>', 'what became of the callback').choices(TELLING_STATUSES))
    .addOption(sinceOption('period that begins'))
    .addOption(untilOption('period that begins'))
    .addOption(
      new Option(
        '--period <time>',
        'why the values of this hour, or with --kind daily of this day, are what they are; any time in it',
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

function printAccount({ userId, tracking, positions, callbacks }: AccountView, limit: number): void {
  printHeading(`Account of ${userId}`);
  printFields([
    ['shard', tracking?.shard],
    ['paused by', tracking?.pausedBy],
    ['tracked since', tracking?.since],
    ['computed up to', tracking?.computedUpTo],
    ['last day', tracking?.dailyDate],
    ['tracked', tracking ? undefined : 'not any more: it was closed for long'],
    ['set aside', tracking?.setAside?.since],
    ['hour that failed', tracking?.setAside?.hourStart],
    ['failures', tracking?.setAside?.failures],
    ['reason', tracking?.setAside?.reason],
    ['next try', tracking?.setAside && (tracking.setAside.nextTryAt ?? 'with callbacks take-up')],
    ['link', tracking?.link],
  ]);
  printHeading('What it holds, and since when');
  if (positions.items.length === 0) report('nothing is known of it');
  else {
    printTable(
      ['SINCE', 'CASH', 'HELD'],
      positions.items.map((position) => [position.at, position.cash, heldOf(position)]),
      { flexible: 2 },
    );
  }
  printHeading('Callbacks');
  if (callbacks.items.length === 0) report('nothing matched');
  else printCallbacks(callbacks.items);
  if (positions.hasMore || callbacks.hasMore) {
    report(`the newest ${limit} are shown, there are more: narrow it down, or raise --limit`);
  }
}

const heldOf = ({ coefficients }: PositionView): string =>
  coefficients === undefined
    ? 'closed'
    : Object.entries(coefficients)
        .map(([symbol, coefficient]) => `${symbol}=${coefficient}`)
        .join(' ');

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
      item.lastError,
    ]),
    { flexible: 9 },
  );
}

function printPeriod({ userId, kind, periodStart, why, callback, values }: PeriodView): void {
  const nameOf: Record<CallbackKind, string> = { hourly: 'Hour', daily: 'Day' };
  printHeading(`${nameOf[kind]} of ${userId} from ${periodStart.toISOString()}`);
  printFields([
    ['status', callback?.status ?? 'nothing to tell'],
    ['why', why],
  ]);
  values.forEach(printValue);
}

function printValue({ what, at, value, why, position, legs }: ValueView): void {
  printHeading(`${capital(what)} ${value}`);
  printFields([
    ['at', at],
    ['why', why],
    ['held since', position?.at],
    ['cash', position?.cash],
  ]);
  if (legs.length === 0) return;
  printTable(
    ['SYMBOL', 'HELD', 'PRICE', 'PRICE OF'],
    legs.map((leg) => [leg.symbol, leg.coefficient, leg.price, leg.priceAt]),
  );
}
