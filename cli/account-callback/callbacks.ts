/** `callbacks`: account values as they are delivered to portfolio services. */
import type { Command } from 'commander';
import { Argument, Option } from 'commander';
import { CALLBACK_KINDS } from '../../api/account-callback/callback.ts';
import type { CallbackInput } from '../../api/account-callback/input.ts';
import { callbackInputSchema, problemOf } from '../../api/account-callback/input.ts';
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
import { addHoldCommand } from '../holds.ts';
import type { Requested } from '../options.ts';
import {
  givenOf,
  limitOption,
  parseCount,
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
    .description('Callbacks about account values: their progress, failures, trackings and entries');

  callbacks
    .command('status')
    .description('Show how far each shard of users has caught up, and how many callbacks wait in it.')
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
  addTrackings(callbacks);
  addRun(callbacks);
  addPause(callbacks);
  addMalformedInputCommands(callbacks);
  addAppend(callbacks);
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
      ...['SHARD', 'USERS', 'CAUGHT UP', 'BEHIND', 'PENDING', 'FAILED', 'NEXT RETRY', 'DEAD'],
      ...['NEXT ALARM', 'INTERVAL'],
    ],
    shards.map(({ live, ...shard }) => [
      shard.shard,
      shard.users,
      shard.caughtUpDate,
      shard.behind,
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

function addTrackings(callbacks: Command): void {
  callbacks
    .command('overdue')
    .description(
      'List trackings that did not catch up in time. Daily callbacks of their shards wait for them.',
    )
    .addOption(limitOption())
    .addHelpText('after', helpWith('galaxy-notify callbacks overdue'))
    .action(
      action<{ limit: number }>((options) =>
        withSession(['postgres'], async ({ operator }) => {
          const page = await operator.callbacks.overdue({ limit: options.limit });
          return showPage(page, options, (items) =>
            printTable(
              ['USER', 'SHARD', 'CAUGHT UP', 'LAST CHANGE'],
              items.map((item) => [item.userId, item.shard, item.caughtUpDate, item.changedAt]),
            ),
          );
        }),
      ),
    );

  callbacks
    .command('release')
    .description(
      'Let daily callbacks go on without trackings that did not catch up. The next day or track of a user undoes it.',
    )
    .argument('[user id...]', 'whose trackings')
    .option('--overdue', 'all trackings that did not catch up in time')
    .addOption(requestedByOption())
    .addHelpText(
      'after',
      helpWith('galaxy-notify callbacks release user-1', 'galaxy-notify callbacks release --overdue'),
    )
    .action(
      action<{ overdue?: boolean } & Requested, [string[]]>(({ overdue, json, requestedBy }, users) => {
        if ((users.length === 0) === !overdue) throw new UsageError('say which: users, or --overdue');
        return withSession(['postgres', 'temporal'], async ({ operator }) => {
          const which = overdue ? 'overdue' : users;
          const released = await operator.callbacks.release(which, { requestedBy });
          if (json) printJson({ released });
          else printLine(`${countOf(released, 'tracking')} released`);
        });
      }),
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
            ['SHARD', 'RESUMED', 'DAILY', 'HOURLY', 'NEXT ALARM', 'INTERVAL'],
            states.map(({ shard: of, lastAlarm, nextAlarm }) => [
              of,
              lastAlarm?.resumed,
              lastAlarm?.daily,
              lastAlarm?.hourly,
              nextAlarm && new Date(nextAlarm.atMs),
              nextAlarm?.interval,
            ]),
          );
          const paused = states.filter((state) => state.paused).map(({ shard: of }) => of);
          if (paused.length > 0) report(`paused, and delivers nothing: shard ${paused.join(', ')}`);
        }),
      ),
    );
}

function addPause(callbacks: Command): void {
  const command = (verb: 'pause' | 'resume', description: string, example: string) =>
    addHoldCommand(callbacks, verb, {
      ...{ description, example },
      argument: new Argument('<shard>', 'its number, see callbacks status').argParser(parseCount(0, 999)),
      options: [reasonOption()],
      needs: ['postgres', 'temporal'],
      change: (operator, request, shard: number) => operator.callbacks[verb](shard, request),
      print: ({ paused }, shard) => printLine(`shard ${shard} is ${paused ? 'paused' : 'open'}`),
    });

  command(
    'pause',
    'Pause a shard until it is resumed, also over restarts: nothing is delivered to its users.',
    "2 --reason 'the portfolio service is being moved'",
  );
  command('resume', 'Resume a shard. Callbacks that waited are delivered in order, each once.', '2');
}

function addAppend(callbacks: Command): void {
  callbacks
    .command('append')
    .description('Append an entry to the stream of extremes, and print its id. The service checks it again.')
    .argument('<json>', 'kind, user_id and the fields of the kind: hour, day, track or untrack')
    .addHelpText(
      'after',
      helpWith(
        `galaxy-notify callbacks append '{"kind":"track","user_id":"user-1","from_ms":1790000000000}'`,
      ),
    )
    .action(
      action<GlobalOptions, [string]>(async ({ json }, text) => {
        const input = inputOf(text);
        await withSession(['redis'], async ({ resources }) => {
          const [entryId] = await appendInputs(resources.redis, [input]);
          if (json) printJson({ entryId });
          else printLine(entryId);
        });
      }),
    );
}

function inputOf(text: string): CallbackInput {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw new UsageError('the entry is no JSON');
  }
  const problem = problemOf(value, Date.now());
  if (problem !== undefined) throw new UsageError(`the service would refuse this: ${problem}`);
  return callbackInputSchema.parse(value);
}
