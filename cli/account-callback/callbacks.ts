/** `callbacks`: account values as they are delivered to portfolio services, and what `doctor` looks at. */
import type { Command } from 'commander';
import type { Pool } from 'pg';
import { given } from '../../api/given.ts';
import { CALLBACK_KINDS } from '../../api/account-callback/callback.ts';
import type { CallbackInput } from '../../api/account-callback/input.ts';
import { MALFORMED_INPUT_CODES, callbackInputSchema, problemOf } from '../../api/account-callback/input.ts';
import type { AccountFilter, AccountView } from '../../client/account-callback/places.ts';
import type { CallbackFilter, ShardStatus } from '../../client/account-callback/callbacks.ts';
import { listOverdue } from '../../client/account-callback/callbacks.ts';
import { appendInputs } from '../../client/account-callback/inputs.ts';
import type { CheckGroup, ConsumerGroup, Diagnosis } from '../checks.ts';
import { consumerGroup, ok, warn } from '../checks.ts';
import type { BulkOptions } from '../operations.ts';
import { bulkOptions } from '../operations.ts';
import { EXIT, UsageError, parseJson, reportMore, requireYes } from '../command.ts';
import { define, filterOf, list, option } from '../definition.ts';
import type { Requested } from '../options.ts';
import { limitOption, requestedByOption, spanOptions } from '../options.ts';
import { countOf, printHeading, printItems, printView, report } from '../output.ts';
import type { Session } from '../session.ts';

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
    options: [...Object.values(spanOptions('period that begins')), limitOption()],
    examples: ['callbacks show user-1', 'callbacks show user-1 --since 7d --json'],
    run: ({ operator }, { since, until, limit }: AccountFilter & { limit: number }, userId: string) =>
      operator.callbacks.show(userId, { ...given({ since, until }), limit }),
    print: (view, { limit }) => printAccount(view, limit),
  });

  list(callbacks, {
    name: 'failed',
    description:
      'List callbacks that failed and will be tried again; with --dead, callbacks that were given up.',
    filters: { ...filters(), dead: option('--dead', 'callbacks that were given up after their last retry') },
    examples: ['callbacks failed --kind daily', 'callbacks failed --dead --json'],
    read: ({ operator }: Session) => operator.callbacks.failed,
    print: (items, { dead }) =>
      printItems(
        items,
        [
          ...(['failedAt', 'kind', 'userId', 'periodStart', 'attempts'] as const),
          ...(dead ? [] : (['nextAttemptAt'] as const)),
          'lastError',
        ],
        2,
      ),
  });

  addReplay(callbacks);
  addTrackings(callbacks);
  const malformed = callbacks.command('malformed');
  malformed.description('Entries of the stream of extremes that break its contract');
  list(malformed, {
    description: 'List malformed entries, newest first; with --json, their fields, too.',
    filters: {
      code: option('--code <code>', 'why it was refused').choices(MALFORMED_INPUT_CODES),
      ...spanOptions('recorded'),
    },
    examples: ['callbacks malformed list --since 1h'],
    read: ({ operator }: Session) => operator.callbacks.malformed,
    columns: ['recordedAt', 'entryId', 'code', 'message'],
  });

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

const filters = () => ({
  kind: option('--kind <kind>', 'period of the callback').choices(CALLBACK_KINDS),
  userId: option('--user <id>', 'callbacks of this user'),
  ...spanOptions('failed last'),
});

function printShards(shards: ShardStatus[]): void {
  printItems(
    shards.map(({ live, ...shard }) => ({
      ...shard,
      nextAlarmAt: live?.nextAlarm && new Date(live.nextAlarm.atMs),
    })),
    [
      ...(['shard', 'users', 'caughtUpDate', 'behind', 'pending', 'failed', 'nextRetryAt'] as const),
      ...(['deadLetters', 'nextAlarmAt'] as const),
    ],
  );
  const silent = shards.filter(({ live }) => !live).map(({ shard }) => shard);
  if (silent.length > 0) report(`no answer from the workflow of shard ${silent.join(', ')}`);
  const dead = shards.reduce((sum, { deadLetters }) => sum + deadLetters, 0);
  if (dead > 0) report(`${countOf(dead, 'dead callback')}: callbacks failed --dead, callbacks replay`);
}

function printAccount({ userId, tracking, callbacks }: AccountView, limit: number): void {
  printHeading(`Account of ${userId}`);
  if (tracking) printView(tracking);
  printHeading('Callbacks');
  if (callbacks.items.length === 0) report('nothing matched');
  else {
    printItems(callbacks.items, [
      ...([
        'periodStart',
        'kind',
        'status',
        'peakValue',
        'bottomValue',
        'closingValue',
        'settledAt',
      ] as const),
      ...(['attempts', 'nextAttemptAt', 'lateEntries', 'lateValues', 'lastError'] as const),
    ]);
  }
  reportMore(callbacks.hasMore, limit);
}

interface ReplayOptions extends BulkOptions {
  all?: boolean;
}

function addReplay(callbacks: Command): void {
  const choices = filters();
  define(callbacks, {
    name: 'replay',
    description:
      'Send callbacks that were given up again, with their old content and a fresh ladder of retries.',
    options: [
      ...[...Object.values(choices), ...bulkOptions('callbacks')],
      option('--all', 'all callbacks that were given up, without a filter'),
    ],
    examples: ['callbacks replay --user user-1 --yes', 'callbacks replay --kind daily --since 6h --dry-run'],
    needs: ['postgres', 'temporal'],
    async run({ operator }, options: ReplayOptions) {
      const { dryRun, requestedBy, limit = Infinity } = options;
      const filter = filterOf<CallbackFilter>(choices, options);
      if (!dryRun) return { replayed: await operator.callbacks.replay(filter, { requestedBy, limit }) };
      const matching = await operator.callbacks.countReplayable(filter);
      return { matching, wouldReplay: Math.min(matching, limit) };
    },
    check(options) {
      if (!options.all && Object.keys(filterOf(choices, options)).length === 0)
        throw new UsageError('say which: with filters, or --all');
      if (!options.dryRun) requireYes('this would replay dead callbacks', options);
    },
    print: (made) =>
      'replayed' in made
        ? `${countOf(made.replayed, 'callback')} tried again; see callbacks failed`
        : undefined,
    end(made) {
      if ('replayed' in made) return EXIT.done;
      report(`${countOf(made.wouldReplay, 'dead callback')} would be replayed; nothing was done`);
      return made.matching === 0 ? EXIT.nothing : EXIT.done;
    },
  });
}

function addTrackings(callbacks: Command): void {
  list(callbacks, {
    name: 'overdue',
    description:
      'List trackings that did not catch up in time. Daily callbacks of their shards wait for them.',
    examples: ['callbacks overdue'],
    read: ({ operator }: Session) => operator.callbacks.overdue,
    columns: ['userId', 'shard', 'caughtUpDate', 'changedAt'],
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

/** At most so many trackings are named. */
const NAMED = 5;

/** What can be wrong with account callbacks: the consumer group, and trackings that others wait for. */
export const callbackChecks = (db: Pool, group: ConsumerGroup): CheckGroup => [
  ['callbacks: consumer group', () => consumerGroup(group, 'account-callback')],
  ['callbacks: trackings', () => diagnoseTrackings(db)],
];

/** Names trackings that did not catch up in time: daily callbacks of their shards wait for them. */
async function diagnoseTrackings(db: Pool): Promise<Diagnosis> {
  const { items, hasMore } = await listOverdue(db, { limit: NAMED });
  if (items.length === 0) return ok('all have caught up');
  const named = items.map(({ userId, caughtUpDate }) => `${userId} (${caughtUpDate})`);
  return warn(
    `not caught up in time: ${named.join(', ')}${hasMore ? ' and others' : ''}`,
    'their producer must send the missing days; else see callbacks overdue, and callbacks release',
  );
}

function inputOf(text: string): CallbackInput {
  const value = parseJson(text, 'the entry');
  const problem = problemOf(value, Date.now());
  if (problem !== undefined) throw new UsageError(`the service would refuse this: ${problem}`);
  return callbackInputSchema.parse(value);
}
