/** `callbacks`: account values as they are delivered to portfolio services. */
import type { Command } from 'commander';
import { given } from '../../api/given.ts';
import { CALLBACK_KINDS } from '../../api/account-callback/callback.ts';
import type { CallbackInput } from '../../api/account-callback/input.ts';
import { MALFORMED_INPUT_CODES, callbackInputSchema, problemOf } from '../../api/account-callback/input.ts';
import type { AccountFilter, AccountView, CallbackView } from '../../client/account-callback/account.ts';
import { TELLING_STATUSES } from '../../client/account-callback/account.ts';
import type {
  CallbackFilter,
  FailedCallbackView,
  ShardStatus,
} from '../../client/account-callback/callbacks.ts';
import { appendInputs } from '../../client/account-callback/inputs.ts';
import { NotFoundError } from '../../client/errors.ts';
import type { BulkOptions } from '../operations.ts';
import { bulkOptions, endBeforeBulk, totalOf } from '../operations.ts';
import type { ExitCode } from '../command.ts';
import { EXIT, UsageError, action, parseJson, reportMore } from '../command.ts';
import { define, filterOf, form, list, option, printRawFields } from '../definition.ts';
import type { Requested } from '../options.ts';
import {
  limitOption,
  parseCount,
  parseEntryId,
  reasonOption,
  requestOf,
  requestedByOption,
  spanOptions,
} from '../options.ts';
import type { Columns } from '../output.ts';
import { countOf, printFields, printHeading, printItems, printJson, printLine, report } from '../output.ts';
import { untilInterrupted, withProgress } from '../progress.ts';
import type { Session } from '../session.ts';
import { withSession } from '../session.ts';

export function addTo(callbacks: Command): void {
  define(callbacks, {
    name: 'status',
    description: 'Show how far each shard of users has caught up, and how many callbacks wait in it.',
    examples: ['callbacks status', 'callbacks status --json'],
    run: async ({ operator }) => ({ shards: await operator.callbacks.status() }),
    print: ({ shards }) => printShards(shards),
  });

  define(callbacks, {
    name: 'show',
    description: 'Show the account of a user: its tracking and its callbacks.',
    args: [['<user id>', 'whose account']],
    options: [
      kindOption(),
      option('--status <status>', 'what became of the callback').choices(TELLING_STATUSES),
      ...[...Object.values(spanOptions('period that begins')), limitOption()],
    ],
    examples: [
      'callbacks show user-1',
      'callbacks show user-1 --status dead',
      'callbacks show user-1 --kind daily --since 7d --json',
    ],
    run: ({ operator }, options: AccountFilter & { limit: number }, userId: string) => {
      const { kind, status, since, until, limit } = options;
      return operator.callbacks.show(userId, { ...given({ kind, status, since, until }), limit });
    },
    print: (view, { limit }) => printAccount(view, limit),
  });

  list(callbacks, {
    name: 'failed',
    description:
      'List callbacks that failed and will be tried again; with --dead, callbacks that were given up.',
    filters: { ...filters(), dead: option('--dead', 'callbacks that were given up after their last retry') },
    examples: ['callbacks failed --kind daily', 'callbacks failed --dead --json'],
    read:
      ({ operator: { callbacks: of } }: Session) =>
      ({ dead, ...filter }: CallbackFilter & { dead?: boolean; limit: number }) =>
        (dead ? of.deadLetters : of.failed)(filter),
    print: (items, { dead }) => printItems(items, dead ? DEAD : FAILED, { flexible: 6, linked: 2 }),
  });

  addReplay(callbacks);
  addTrackings(callbacks);
  addRun(callbacks);
  addPause(callbacks);
  addMalformedInputCommands(callbacks.command('malformed'));

  define(callbacks, {
    name: 'append',
    description: 'Append an entry to the stream of extremes, and print its id. The service checks it again.',
    args: [['<json>', 'kind, user_id and the fields of the kind: hour, day, track or untrack']],
    examples: [`callbacks append '{"kind":"track","user_id":"user-1","from_ms":1790000000000}'`],
    needs: ['redis'],
    async run({ resources }, _options: object, json: string) {
      const [entryId] = await appendInputs(resources.redis, [inputOf(json)]);
      return { entryId };
    },
    check: (_, [json]) => void inputOf(json),
    print: ({ entryId }) => entryId,
  });
}

const kindOption = () => option('--kind <kind>', 'period of the callback').choices(CALLBACK_KINDS);

const filters = () => ({
  ...{ kind: kindOption(), userId: option('--user <id>', 'callbacks of this user') },
  ...spanOptions('failed last'),
});

function printShards(shards: ShardStatus[]): void {
  printItems(shards, {
    SHARD: 'shard',
    USERS: 'users',
    'CAUGHT UP': 'caughtUpDate',
    BEHIND: 'behind',
    PENDING: 'pending',
    FAILED: 'failed',
    'NEXT RETRY': 'nextRetryAt',
    DEAD: 'deadLetters',
    'NEXT ALARM': ({ live }) => live?.nextAlarm && new Date(live.nextAlarm.atMs),
    INTERVAL: ({ live, paused }) =>
      paused ? 'paused' : live ? (live.nextAlarm?.interval ?? 'at work') : undefined,
  });
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

const CALLBACK: Columns<FailedCallbackView> = {
  KIND: 'kind',
  USER: 'userId',
  PERIOD: 'periodStart',
  ATTEMPTS: 'attempts',
};
const FAILED: Columns<FailedCallbackView> = {
  FAILED: 'failedAt',
  ...CALLBACK,
  'NEXT ATTEMPT': 'nextAttemptAt',
  'LAST ERROR': 'lastError',
};
const DEAD: Columns<FailedCallbackView> = {
  DROPPED: 'failedAt',
  ...CALLBACK,
  REPLAYED: 'replayedAt',
  'LAST ERROR': 'lastError',
};

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
  else printItems(callbacks.items, CALLBACKS, { flexible: 10 });
  reportMore(callbacks.hasMore, limit);
}

const CALLBACKS: Columns<CallbackView> = {
  PERIOD: 'periodStart',
  KIND: 'kind',
  STATUS: 'status',
  PEAK: 'peakValue',
  BOTTOM: 'bottomValue',
  CLOSING: 'closingValue',
  SETTLED: 'settledAt',
  ATTEMPTS: 'attempts',
  'NEXT TRY': 'nextAttemptAt',
  LATE: ({ lateEntries, lateValues }) => lateValues && `${lateEntries}: ${JSON.stringify(lateValues)}`,
  'LAST ERROR': 'lastError',
};

function addReplay(callbacks: Command): void {
  const choices = filters();
  form(callbacks, {
    name: 'replay',
    description:
      'Send callbacks that were given up again, with their old content and a fresh ladder of retries.',
    options: [
      ...[...Object.values(choices), ...bulkOptions('callbacks')],
      option('--all', 'all callbacks that were given up, without a filter'),
    ],
    examples: ['callbacks replay --user user-1 --yes', 'callbacks replay --kind daily --since 6h --dry-run'],
  }).action(
    action<BulkOptions & { all?: boolean }>((options) => {
      const filter = filterOf<CallbackFilter>(choices, options);
      if (Object.keys(filter).length === 0 && !options.all) {
        throw new UsageError('say which: with filters, or --all');
      }
      return withSession(['postgres', 'temporal'], ({ operator }) => replay(operator, filter, options));
    }),
  );
}

async function replay(
  { callbacks }: Session['operator'],
  filter: CallbackFilter,
  options: BulkOptions,
): Promise<ExitCode> {
  const matching = await callbacks.countReplayable(filter);
  const nothing = 'no dead callback that can be replayed matches';
  const end = await endBeforeBulk({ what: 'dead callback', verb: 'replay', nothing, matching }, options);
  if (end !== undefined) return end;
  const limit = totalOf(matching, options);
  const { requestedBy, json } = options;
  return untilInterrupted(async (signal) => {
    const replayed = await withProgress(limit, 'dead callbacks replayed', (onReplayed) =>
      callbacks.replay(filter, { requestedBy, limit, signal, onReplayed }),
    );
    if (json) printJson({ replayed });
    else printLine(`${countOf(replayed, 'callback')} tried again; see callbacks failed`);
    if (!signal.aborted) return EXIT.done;
    report(`${replayed} of ${limit} done; the same command continues with the rest`);
    return EXIT.interrupted;
  });
}

function addTrackings(callbacks: Command): void {
  list(callbacks, {
    name: 'overdue',
    description:
      'List trackings that did not catch up in time. Daily callbacks of their shards wait for them.',
    examples: ['callbacks overdue'],
    read: ({ operator }: Session) => operator.callbacks.overdue,
    columns: { USER: 'userId', SHARD: 'shard', 'CAUGHT UP': 'caughtUpDate', 'LAST CHANGE': 'changedAt' },
  });

  define(callbacks, {
    name: 'release',
    description:
      'Let daily callbacks go on without trackings that did not catch up. The next day or track of a user undoes it.',
    args: [['[user id...]', 'whose trackings']],
    options: [option('--overdue', 'all trackings that did not catch up in time'), requestedByOption()],
    examples: ['callbacks release user-1', 'callbacks release --overdue'],
    needs: ['postgres', 'temporal'],
    run: async (
      { operator },
      { overdue, requestedBy }: { overdue?: boolean } & Requested,
      users: string[],
    ) => ({ released: await operator.callbacks.release(overdue ? 'overdue' : users, { requestedBy }) }),
    check({ overdue }, [users]) {
      if ((users.length === 0) === !overdue) throw new UsageError('say which: users, or --overdue');
    },
    print: ({ released }) => `${countOf(released, 'tracking')} released`,
  });
}

function addRun(callbacks: Command): void {
  define(callbacks, {
    name: 'run',
    description: 'Run the alarm of every shard now, and show what it did.',
    options: [option('--shard <n>', 'this shard only', parseCount(0, 999)), requestedByOption()],
    examples: ['callbacks run', 'callbacks run --shard 2'],
    needs: ['postgres', 'temporal'],
    async run({ operator }, { shard, requestedBy }: { shard?: number } & Requested) {
      const all = (await operator.callbacks.status()).map((status) => status.shard);
      if (shard !== undefined && !all.includes(shard)) throw new NotFoundError(`there is no shard ${shard}`);
      const shards = await Promise.all(
        (shard === undefined ? all : [shard]).map((one) => operator.callbacks.run(one, { requestedBy })),
      );
      return { shards };
    },
    print({ shards }) {
      printItems(shards, {
        SHARD: 'shard',
        RESUMED: ({ lastAlarm }) => lastAlarm?.resumed,
        DAILY: ({ lastAlarm }) => lastAlarm?.daily,
        HOURLY: ({ lastAlarm }) => lastAlarm?.hourly,
        'NEXT ALARM': ({ nextAlarm }) => nextAlarm && new Date(nextAlarm.atMs),
        INTERVAL: ({ nextAlarm }) => nextAlarm?.interval,
      });
      const paused = shards.filter((state) => state.paused).map(({ shard }) => shard);
      if (paused.length > 0) report(`paused, and delivers nothing: shard ${paused.join(', ')}`);
    },
  });
}

function addPause(callbacks: Command): void {
  for (const [name, description, example] of [
    [
      'pause',
      'Pause a shard until it is resumed, also over restarts: nothing is delivered to its users.',
      "2 --reason 'the portfolio service is being moved'",
    ],
    ['resume', 'Resume a shard. Callbacks that waited are delivered in order, each once.', '2'],
  ] as const) {
    define(callbacks, {
      ...{ name, description, examples: [`callbacks ${name} ${example}`] },
      args: [['<shard>', 'its number, see callbacks status', parseCount(0, 999)]],
      options: [reasonOption(), requestedByOption()],
      needs: ['postgres', 'temporal'],
      run: ({ operator }, options: Requested, shard: number) =>
        operator.callbacks[name](shard, requestOf(options)),
      print: ({ paused }, _options, [shard]) => `shard ${shard} is ${paused ? 'paused' : 'open'}`,
    });
  }
}

/** Stream entries that are neither prices nor positions. */
function addMalformedInputCommands(malformed: Command): void {
  malformed.description('Stream entries that are neither prices nor positions');
  list(malformed, {
    description: 'List malformed entries, newest first.',
    filters: {
      code: option('--code <code>', 'why it was refused').choices(MALFORMED_INPUT_CODES),
      ...spanOptions('recorded'),
    },
    examples: ['callbacks malformed list --since 1h'],
    read: ({ operator }: Session) => operator.callbacks.malformed.list,
    columns: { RECORDED: 'recordedAt', ENTRY: 'entryId', CODE: 'code', MESSAGE: 'message' },
  });

  define(malformed, {
    name: 'show',
    description: 'Show a malformed entry with its fields.',
    args: [['<entry id>', 'id of the stream entry', parseEntryId]],
    examples: ['callbacks malformed show 1790000000000-0'],
    run: ({ operator }, _options: object, entryId: string) => operator.callbacks.malformed.show(entryId),
    print({ entryId, code, message, recordedAt, rawFields }) {
      printHeading(`Malformed account input ${entryId}`);
      printFields([
        ['code', code],
        ['message', message],
        ['recorded', recordedAt],
      ]);
      printRawFields(rawFields);
    },
  });
}

function inputOf(text: string): CallbackInput {
  const value = parseJson(text, 'the entry');
  const problem = problemOf(value, Date.now());
  if (problem !== undefined) throw new UsageError(`the service would refuse this: ${problem}`);
  return callbackInputSchema.parse(value);
}
