/** `malformed`: stream entries that could not become a notification. */
import type { Command, Option } from 'commander';
import { MALFORMED_CODES } from '../../api/intent/entry.ts';
import type { Correction } from '../../api/intent/mending.ts';
import type { MalformedEntry, MalformedFilter } from '../../client/intent/malformed.ts';
import type { ExitCode } from '../command.ts';
import { EXIT, action } from '../command.ts';
import { define, form, list, option, printItems } from '../definition.ts';
import type { OperationCommandOptions } from '../operations.ts';
import { inGroups, isNamed, operate, operationOptions } from '../operations.ts';
import { addPair, givenOf, parseEntryId, producerOption, sinceOption, untilOption } from '../options.ts';
import { printFields, printHeading, printJson, printLine, report } from '../output.ts';
import type { Session } from '../session.ts';
import { withSession } from '../session.ts';

type Options = OperationCommandOptions &
  MalformedFilter & {
    set?: Record<string, string>;
    newKey?: boolean;
  };

export function addTo(malformed: Command): void {
  list(malformed, {
    description: 'List malformed entries, newest first.',
    options: filters(),
    examples: ['malformed list --since 1h', 'malformed list --code recipient_not_found --json'],
    read: ({ operator }: Session, options: MalformedFilter & { limit: number }) =>
      operator.malformed.list({ ...filterOf(options), limit: options.limit }),
    columns: {
      RECORDED: 'recordedAt',
      ENTRY: 'entryId',
      CODE: 'code',
      TYPE: 'type',
      PRODUCER: 'producer',
      MESSAGE: 'message',
    },
    table: { flexible: 5, linked: 1 },
  });

  define(malformed, {
    name: 'show',
    description: 'Show a malformed entry with its fields.',
    args: [['<entry id>', 'id of the stream entry', parseEntryId]],
    examples: ['malformed show 1790000000000-0'],
    run: ({ operator }, _options: object, entryId: string) => operator.malformed.show(entryId),
    print: printMalformed,
  });

  form(malformed, {
    name: 'republish',
    description:
      'Correct refused entries and publish them again; the service checks each as any other. Without an entry id, all that match the filters; those that would be refused again are left alone.',
    args: [['[entry id]', 'id of the stream entry', parseEntryId]],
    options: [
      ...filters(),
      ...operationOptions('entries', 'published again'),
      option('--set <field=value>', 'another value for a field of the entry; may be repeated', addPair),
      option('--new-key', 'with a new idempotency key: the old one stands for other content'),
    ],
    examples: [
      'malformed republish 1790000000000-0',
      'malformed republish 1790000000000-0 --set producer=game_master --dry-run',
      'malformed republish 1790000000000-0 --new-key',
      'malformed republish --code recipient_not_found --since 1h --dry-run',
      'malformed republish --code recipient_not_found --since 1h --rate 100',
    ],
  }).action(
    action<Options, [string | undefined]>((options, id) => {
      const filter = filterOf(options);
      return isNamed(id, filter, 'an entry') ? republishOne(id, options) : republishMany(filter, options);
    }),
  );
}

const filters = (): Option[] => [
  option('--code <code>', 'why it was refused').choices(MALFORMED_CODES),
  producerOption(),
  // An entry may name a type that does not exist: that is one of the reasons.
  option('--type <type>', 'notification type as the entry gives it'),
  ...[sinceOption('recorded'), untilOption('recorded')],
];

const filterOf = ({ code, type, producer, since, until }: MalformedFilter): MalformedFilter =>
  givenOf({ code, type, producer, since, until });

const correctionOf = ({ set, newKey }: Options): Correction => ({
  ...(set ? { set } : {}),
  ...(newKey ? { newKey } : {}),
});

function republishOne(entryId: string, options: Options): Promise<ExitCode> {
  const { json, dryRun, requestedBy } = options;
  return withSession(dryRun ? ['postgres'] : ['postgres', 'redis'], async ({ operator }) => {
    if (dryRun) {
      const fields = await operator.malformed.correct(entryId, correctionOf(options));
      if (json) printJson({ fields });
      else printFields(Object.entries(fields));
      return EXIT.done;
    }
    const notificationId = await operator.malformed.republish(entryId, correctionOf(options), {
      requestedBy,
    });
    if (json) printJson({ notificationId });
    else printLine(notificationId);
    report(`see notifications show ${notificationId}`);
    return EXIT.done;
  });
}

function republishMany(filter: MalformedFilter, options: Options): Promise<ExitCode> {
  return operate(options, {
    what: 'refused intent',
    verb: 'republish',
    count: async ({ operations }) =>
      inGroups(await operations.previewRepublish(filter), ({ entries }) => entries),
    show: (groups) =>
      printItems(groups, {
        ENTRIES: 'entries',
        CODE: 'code',
        TYPE: 'type',
        PRODUCER: 'producer',
        OLDEST: 'oldest',
        NEWEST: 'newest',
      }),
    nothing: 'no refused entry matches',
    begin: (operator, request) => operator.operations.republish(filter, request, correctionOf(options)),
  });
}

export function printMalformed(entry: MalformedEntry): void {
  printHeading(`Malformed intent ${entry.entryId}`);
  printFields([
    ['code', entry.code],
    ['message', entry.message],
    ['recorded', entry.recordedAt],
    ['type', entry.type],
    ['producer', entry.producer],
    ['key', entry.idempotencyKey],
    ['link', entry.link],
  ]);
  printHeading('Fields of the entry, cut where they are long');
  printFields(Object.entries(entry.rawFields));
}
