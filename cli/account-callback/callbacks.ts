/** `callbacks`: what a portfolio service is told about account values. */
import type { Command } from 'commander';
import { InvalidArgumentError, Option } from 'commander';
import { CALLBACK_KINDS } from '../../api/account-callback/callback.ts';
import type { CallbackInput } from '../../api/account-callback/input.ts';
import { problemOf } from '../../api/account-callback/input.ts';
import type {
  CallbackFilter,
  FailedCallbackView,
  ShardStatus,
} from '../../client/account-callback/callbacks.ts';
import { appendInputs } from '../../client/account-callback/inputs.ts';
import { NotFoundError } from '../../client/errors.ts';
import type { BulkOptions } from '../bulk.ts';
import { replayMatching, withBulkOptions } from '../bulk.ts';
import type { GlobalOptions } from '../command.ts';
import { UsageError, action, helpWith, showPage } from '../command.ts';
import type { Requested } from '../options.ts';
import {
  givenOf,
  limitOption,
  parseCount,
  parseTime,
  reasonOption,
  requestedByOption,
  sinceOption,
  untilOption,
} from '../options.ts';
import { countOf, printJson, printLine, printTable, report } from '../output.ts';
import { withSession } from '../session.ts';
import { addMalformedInputCommands } from './malformed.ts';
import { addShow } from './show.ts';

export function addCallbackCommands(program: Command): void {
  const callbacks = program
    .command('callbacks')
    .description('Callbacks about account values: how far they are, what failed, prices and positions');

  callbacks
    .command('status')
    .description('Show how far each shard of users is computed, and how many callbacks wait in it.')
    .addHelpText('after', helpWith('galaxy-notify callbacks status', 'galaxy-notify callbacks status --json'))
    .action(
      action(({ json }) =>
        withSession(['postgres'], async ({ operator }) => {
          const shards = await operator.callbacks.status();
          if (json) printJson({ shards });
          else printShards(shards);
        }),
      ),
    );

  addShow(callbacks);

  withFilters(callbacks.command('failed'))
    .description(
      'List callbacks that failed and will be tried again; with --dead, callbacks that were given up.',
    )
    .option('--dead', 'callbacks that were given up after their last retry')
    .addOption(limitOption())
    .addHelpText(
      'after',
      helpWith('galaxy-notify callbacks failed --kind daily', 'galaxy-notify callbacks failed --dead --json'),
    )
    .action(
      action<FilterOptions & { dead?: boolean; limit: number }>(({ dead, ...options }) =>
        withSession(['postgres'], async ({ operator }) => {
          const { failed, deadLetters } = operator.callbacks;
          const page = await (dead ? deadLetters : failed)({ ...filterOf(options), limit: options.limit });
          return showPage(page, options, (items) => printFailed(items, dead ?? false));
        }),
      ),
    );

  addReplay(callbacks);
  addSetAside(callbacks);
  addSymbols(callbacks);
  addRun(callbacks);
  addPause(callbacks);
  addMalformedInputCommands(callbacks);
  addInputs(callbacks);
}

type FilterOptions = Omit<CallbackFilter, 'userId'> & GlobalOptions & { user?: string };

const withFilters = (command: Command): Command =>
  command
    .addOption(new Option('--kind <kind>', 'period of the callback').choices(CALLBACK_KINDS))
    .option('--user <id>', 'callbacks of this user')
    .addOption(sinceOption('failed last'))
    .addOption(untilOption('failed last'));

function filterOf({ kind, user, since, until }: FilterOptions): CallbackFilter {
  return givenOf({ kind, userId: user, since, until });
}

function printShards(shards: ShardStatus[]): void {
  printTable(
    [
      ...['SHARD', 'USERS', 'COMPUTED UP TO', 'LAST DAY', 'PENDING', 'FAILED', 'NEXT RETRY', 'DEAD'],
      ...['NEXT ALARM', 'INTERVAL'],
    ],
    shards.map(({ live, ...shard }) => [
      shard.shard,
      shard.users,
      shard.caughtUpTo,
      shard.dailyDate,
      shard.pending,
      shard.failed,
      shard.nextRetryAt,
      shard.deadLetters,
      live?.nextAlarm && new Date(live.nextAlarm.atMs),
      shard.paused ? 'paused' : live ? (live.nextAlarm?.interval ?? 'at work') : undefined,
    ]),
    { links: shards.map(({ link }) => link) },
  );
  for (const { shard, paused } of shards) {
    if (!paused) continue;
    const why = paused.reason === undefined ? '' : `: ${paused.reason}`;
    report(
      `shard ${shard} is paused since ${paused.since.toISOString()} by ${paused.by}${why}; callbacks resume ${shard}`,
    );
  }
  const silent = shards.filter(({ live }) => !live).map(({ shard }) => shard);
  if (silent.length > 0) report(`no answer from the workflow of shard ${silent.join(', ')}`);
  const dead = shards.reduce((sum, { deadLetters }) => sum + deadLetters, 0);
  if (dead > 0) report(`${countOf(dead, 'dead callback')}: callbacks failed --dead, callbacks replay`);
}

function printFailed(items: FailedCallbackView[], isDead: boolean): void {
  printTable(
    [
      isDead ? 'DROPPED' : 'FAILED',
      ...['KIND', 'USER', 'PERIOD', 'ATTEMPTS', isDead ? 'REPLAYED' : 'NEXT ATTEMPT', 'LAST ERROR'],
    ],
    items.map((item) => [
      item.failedAt,
      item.kind,
      item.userId,
      item.periodStart,
      item.attempts,
      isDead ? item.replayedAt : item.nextAttemptAt,
      item.lastError,
    ]),
    { flexible: 6, linked: 2, links: items.map(({ link }) => link) },
  );
}

interface ReplayOptions extends FilterOptions, BulkOptions {
  all?: boolean;
}

function addReplay(callbacks: Command): void {
  withBulkOptions(withFilters(callbacks.command('replay')), 'callbacks')
    .description(
      'Send callbacks that were given up again, with their old content and a fresh ladder of retries.',
    )
    .option('--all', 'all callbacks that were given up, without a filter')
    .addHelpText(
      'after',
      helpWith(
        'galaxy-notify callbacks replay --user user-1 --yes',
        'galaxy-notify callbacks replay --kind daily --since 6h --dry-run',
      ),
    )
    .action(
      action<ReplayOptions>((options) => {
        const filter = filterOf(options);
        if (Object.keys(filter).length === 0 && !options.all) {
          throw new UsageError('say which: with filters, or --all');
        }
        return withSession(['postgres', 'temporal'], async ({ operator }) => {
          const matching = await operator.callbacks.countReplayable(filter);
          return replayMatching({ what: 'dead callback', matching }, options, async (run) => {
            const { requestedBy } = options;
            const replayed = await operator.callbacks.replay(filter, { requestedBy, ...run });
            return { replayed, line: `${countOf(replayed, 'callback')} tried again; see callbacks failed` };
          });
        });
      }),
    );
}

function addSetAside(callbacks: Command): void {
  callbacks
    .command('set-aside')
    .description('List accounts of which an hour could not be computed. The others go on without them.')
    .addOption(limitOption())
    .addHelpText('after', helpWith('galaxy-notify callbacks set-aside'))
    .action(
      action<{ limit: number }>((options) =>
        withSession(['postgres'], async ({ operator }) => {
          const page = await operator.callbacks.setAside({ limit: options.limit });
          return showPage(page, options, (items) =>
            printTable(
              ['SET ASIDE', 'USER', 'HOUR', 'FAILURES', 'NEXT TRY', 'REASON'],
              items.map((item) => [
                item.setAsideAt,
                item.userId,
                item.hourStart,
                item.failures,
                item.nextTryAt,
                item.reason,
              ]),
              { flexible: 5 },
            ),
          );
        }),
      ),
    );

  callbacks
    .command('take-up')
    .description('Compute accounts again that were set aside, once what was wrong with them is mended.')
    .argument('[user id]', 'whose account')
    .option('--all', 'all accounts that are set aside')
    .addOption(requestedByOption())
    .addHelpText(
      'after',
      helpWith('galaxy-notify callbacks take-up user-1', 'galaxy-notify callbacks take-up --all'),
    )
    .action(
      action<{ all?: boolean } & Requested, [string | undefined]>(({ all, json, requestedBy }, user) => {
        if ((user === undefined) === !all) throw new UsageError('say which: one user, or --all');
        return withSession(['postgres', 'temporal'], async ({ operator, config }) => {
          const maxAgeMs = config.values.NOTIFICATION_CALLBACK_SNAPSHOT_RETENTION;
          const takenUp = await operator.callbacks.takeUp(user, { maxAgeMs, requestedBy });
          if (json) printJson({ takenUp });
          else printLine(`${countOf(takenUp, 'account')} taken up`);
        });
      }),
    );
}

function addSymbols(callbacks: Command): void {
  callbacks
    .command('symbols')
    .description('List symbols by the time of their last price, the oldest first: hours wait for them.')
    .addOption(limitOption())
    .addHelpText('after', helpWith('galaxy-notify callbacks symbols'))
    .action(
      action<{ limit: number }>((options) =>
        withSession(['postgres'], async ({ operator }) => {
          const page = await operator.callbacks.symbols({ limit: options.limit });
          return showPage(page, options, (items) =>
            printTable(
              ['SYMBOL', 'LAST PRICE', 'FORGOTTEN'],
              items.map(({ symbol, lastPriceAt, forgottenAt }) => [symbol, lastPriceAt, forgottenAt]),
            ),
          );
        }),
      ),
    );

  callbacks
    .command('forget')
    .description(
      'Wait no more for prices of a symbol, such as a delisted one. Its last price stays; a new one is waited for.',
    )
    .argument('<symbol>', 'its name')
    .addOption(requestedByOption())
    .addHelpText('after', helpWith('galaxy-notify callbacks forget TYPO'))
    .action(
      action<Requested, [string]>(({ json, requestedBy }, symbol) =>
        withSession(['postgres'], async ({ operator }) => {
          await operator.callbacks.forgetSymbol(symbol, { requestedBy });
          if (json) printJson({ symbol });
          else printLine(`no hour waits for ${symbol} any more`);
        }),
      ),
    );
}

function addRun(callbacks: Command): void {
  callbacks
    .command('run')
    .description('Run the alarm of every shard now, and show what it did.')
    .option('--shard <n>', 'this shard only', parseCount(0, 999))
    .addOption(requestedByOption())
    .addHelpText('after', helpWith('galaxy-notify callbacks run', 'galaxy-notify callbacks run --shard 2'))
    .action(
      action<{ shard?: number } & Requested>(({ json, shard, requestedBy }) =>
        withSession(['postgres', 'temporal'], async ({ operator }) => {
          const all = (await operator.callbacks.status()).map((status) => status.shard);
          if (shard !== undefined && !all.includes(shard))
            throw new NotFoundError(`there is no shard ${shard}`);
          const states = await Promise.all(
            (shard === undefined ? all : [shard]).map((one) => operator.callbacks.run(one, { requestedBy })),
          );
          if (json) return printJson({ shards: states });
          printTable(
            ['SHARD', 'RESUMED', 'DAILY', 'HOURLY', 'COMPUTED', 'DELETED', 'NEXT ALARM', 'INTERVAL'],
            states.map(({ shard: of, lastAlarm, nextAlarm }) => [
              of,
              lastAlarm?.resumed,
              lastAlarm?.daily,
              lastAlarm?.hourly,
              lastAlarm?.computed,
              lastAlarm?.cleaned,
              nextAlarm && new Date(nextAlarm.atMs),
              nextAlarm?.interval,
            ]),
          );
          const paused = states.filter((state) => state.paused).map(({ shard: of }) => of);
          if (paused.length > 0) report(`paused, and computes and tells nothing: shard ${paused.join(', ')}`);
        }),
      ),
    );
}

interface SteeringOptions extends Requested {
  reason?: string;
}

function addPause(callbacks: Command): void {
  const command = (verb: 'pause' | 'resume', description: string, ...examples: string[]) =>
    callbacks
      .command(verb)
      .description(description)
      .argument('<shard>', 'its number, see callbacks status', parseCount(0, 999))
      .addOption(reasonOption())
      .addOption(requestedByOption())
      .addHelpText('after', helpWith(...examples))
      .action(
        action<SteeringOptions, [number]>(({ json, reason, requestedBy }, shard) =>
          withSession(['postgres', 'temporal'], async ({ operator }) => {
            const request = { requestedBy, ...(reason === undefined ? {} : { reason }) };
            const state = await operator.callbacks[verb](shard, request);
            if (json) printJson(state);
            else printLine(`shard ${shard} is ${state.paused ? 'paused' : 'open'}`);
          }),
        ),
      );

  command(
    'pause',
    'Pause a shard until it is resumed, also over restarts: nothing of its users is computed or told.',
    "galaxy-notify callbacks pause 2 --reason 'the portfolio service is being moved'",
  );
  command(
    'resume',
    'Resume a shard. What waited is computed and told in order, each once.',
    'galaxy-notify callbacks resume 2',
  );
}

interface InputOptions extends GlobalOptions {
  at?: Date;
}

function addInputs(callbacks: Command): void {
  const atOption = () =>
    new Option(
      '--at <time>',
      'since when it holds: 10m for 10 minutes ago, or an ISO time; default: now',
    ).argParser(parseTime);

  callbacks
    .command('price')
    .description('Append the price of a symbol, and print the id of the stream entry.')
    .argument('<symbol>', 'its name')
    .argument('<price>', 'a decimal')
    .addOption(atOption())
    .addHelpText('after', helpWith('galaxy-notify callbacks price BTC 65000.5'))
    .action(
      action<InputOptions, [string, string]>((options, symbol, price) =>
        append({ type: 'price', symbol, price, at_ms: timeOf(options) }, options),
      ),
    );

  callbacks
    .command('positions')
    .description(
      'Append the whole position of a user. Callbacks about a new user begin with the hour of the position.',
    )
    .argument('<user id>', 'whose position')
    .argument('[symbol=coefficient...]', 'how much the user holds of each symbol', parseCoefficient)
    .requiredOption('--cash <decimal>', 'cash')
    .option('--closed', 'the account is closed and has no value any more')
    .addOption(atOption())
    .addHelpText(
      'after',
      helpWith(
        'galaxy-notify callbacks positions user-1 BTC=0.5 ETH=-2 --cash 1000.50',
        'galaxy-notify callbacks positions user-1 --cash 0 --closed',
      ),
    )
    .action(
      action<InputOptions & { cash: string; closed?: boolean }, [string, Record<string, string> | undefined]>(
        (options, user, coefficients = {}) => {
          if (options.closed && Object.keys(coefficients).length > 0) {
            throw new UsageError('a closed account holds nothing');
          }
          const input: CallbackInput = {
            type: 'positions',
            user_id: user,
            cash: options.cash,
            coefficients: options.closed ? null : coefficients,
            at_ms: timeOf(options),
          };
          return append(input, options);
        },
      ),
    );
}

const timeOf = ({ at }: InputOptions): number => (at ?? new Date()).getTime();

function parseCoefficient(text: string, before: Record<string, string> = {}): Record<string, string> {
  const [, symbol, coefficient] = /^([^=]+)=(.+)$/.exec(text) ?? [];
  if (symbol === undefined || coefficient === undefined) {
    throw new InvalidArgumentError('Give a symbol and its coefficient, such as BTC=0.5.');
  }
  if (Object.hasOwn(before, symbol)) throw new InvalidArgumentError(`${symbol} is given twice.`);
  return { ...before, [symbol]: coefficient };
}

async function append(input: CallbackInput, { json }: GlobalOptions): Promise<void> {
  const problem = problemOf(input, Date.now());
  if (problem !== undefined) throw new UsageError(`the service would refuse this: ${problem}`);
  await withSession(['redis'], async ({ resources, config }) => {
    const stream = config.values.NOTIFICATION_CALLBACK_STREAM;
    const [entryId] = await appendInputs(resources.redis, [input], { stream });
    if (json) printJson({ entryId });
    else printLine(entryId);
  });
}
