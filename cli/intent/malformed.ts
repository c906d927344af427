/** `malformed`: stream entries that could not become a notification. */
import type { Command } from 'commander';
import { Option } from 'commander';
import { MALFORMED_CODES } from '../../api/intent/entry.ts';
import type { Mending } from '../../api/intent/mending.ts';
import type { MalformedEntry, MalformedFilter } from '../../client/intent/malformed.ts';
import type { ExitCode } from '../command.ts';
import { EXIT, UsageError, action, helpWith, showPage } from '../command.ts';
import type { OperationCommandOptions } from '../operations.ts';
import { inGroups, operate, withOperationOptions } from '../operations.ts';
import {
  addPair,
  givenOf,
  limitOption,
  parseEntryId,
  producerOption,
  sinceOption,
  untilOption,
} from '../options.ts';
import { printFields, printHeading, printJson, printLine, printTable, report } from '../output.ts';
import { withSession } from '../session.ts';

export function addMalformedCommands(program: Command): void {
  const malformed = program
    .command('malformed')
    .description('Stream entries that could not become a notification');

  withFilters(malformed.command('list'))
    .description('List malformed entries, newest first.')
    .addOption(limitOption())
    .addHelpText(
      'after',
      helpWith(
        'galaxy-notify malformed list --since 1h',
        'galaxy-notify malformed list --code recipient_not_found --json',
      ),
    )
    .action(
      action<MalformedFilter & { limit: number }>((options) =>
        withSession(['postgres'], async ({ operator }) =>
          showPage(
            await operator.malformed.list({ ...filterOf(options), limit: options.limit }),
            options,
            (items) =>
              printTable(
                ['RECORDED', 'ENTRY', 'CODE', 'TYPE', 'PRODUCER', 'MESSAGE'],
                items.map((item) => [
                  item.recordedAt,
                  item.entryId,
                  item.code,
                  item.type,
                  item.producer,
                  item.message,
                ]),
                { flexible: 5, linked: 1, links: items.map(({ link }) => link) },
              ),
          ),
        ),
      ),
    );

  malformed
    .command('show')
    .description('Show a malformed entry with its fields.')
    .argument('<entry id>', 'id of the stream entry', parseEntryId)
    .addHelpText('after', helpWith('galaxy-notify malformed show 1790000000000-0'))
    .action(
      action<object, [string]>(({ json }, entryId) =>
        withSession(['postgres'], async ({ operator }) => {
          const entry = await operator.malformed.show(entryId);
          if (json) printJson(entry);
          else printMalformed(entry);
        }),
      ),
    );

  addRepublish(malformed);
}

const withFilters = (command: Command): Command =>
  command
    .addOption(new Option('--code <code>', 'why it was refused').choices(MALFORMED_CODES))
    .addOption(producerOption())
    // An entry may name a type that does not exist: that is one of the reasons.
    .option('--type <type>', 'notification type as the entry gives it')
    .addOption(sinceOption('recorded'))
    .addOption(untilOption('recorded'));

const filterOf = ({ code, type, producer, since, until }: MalformedFilter): MalformedFilter =>
  givenOf({ code, type, producer, since, until });

type Options = OperationCommandOptions &
  MalformedFilter & {
    set: Record<string, string>;
    newKey?: boolean;
  };

function addRepublish(malformed: Command): void {
  withOperationOptions(withFilters(malformed.command('republish')), 'entries', 'published again')
    .description(
      'Publish entries again that were refused, mended; the service checks each as any other. Without an entry id, all that match the filters; those that would be refused again are left alone.',
    )
    .argument('[entry id]', 'id of the stream entry', parseEntryId)
    .option('--set <field=value>', 'another value for a field of the entry; may be repeated', addPair, {})
    .option('--new-key', 'with an idempotency key of its own: the old one stands for other content')
    .addHelpText(
      'after',
      helpWith(
        'galaxy-notify malformed republish 1790000000000-0',
        'galaxy-notify malformed republish 1790000000000-0 --set producer=game_master --dry-run',
        'galaxy-notify malformed republish 1790000000000-0 --new-key',
        'galaxy-notify malformed republish --code recipient_not_found --since 1h --dry-run',
        'galaxy-notify malformed republish --code recipient_not_found --since 1h --rate 100',
      ),
    )
    .action(
      action<Options, [string | undefined]>((options, entryId) => {
        const filter = filterOf(options);
        const hasFilter = Object.keys(filter).length > 0;
        if (entryId !== undefined && hasFilter)
          throw new UsageError('an entry that is named takes no filters');
        if (entryId === undefined && !hasFilter) {
          throw new UsageError('say which: an entry id, or filters; --since 30d for everything of 30 days');
        }
        return entryId === undefined ? republishMany(filter, options) : republishOne(entryId, options);
      }),
    );
}

const mendingOf = ({ set, newKey }: Options): Mending => ({
  ...(Object.keys(set).length > 0 ? { set } : {}),
  ...(newKey ? { newKey } : {}),
});

function republishOne(entryId: string, options: Options): Promise<ExitCode> {
  const { json, dryRun, requestedBy } = options;
  return withSession(dryRun ? ['postgres'] : ['postgres', 'redis'], async ({ operator }) => {
    if (dryRun) {
      const fields = await operator.malformed.mend(entryId, mendingOf(options));
      if (json) printJson({ fields });
      else printFields(Object.entries(fields));
      return EXIT.done;
    }
    const notificationId = await operator.malformed.republish(entryId, mendingOf(options), { requestedBy });
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
      printTable(
        ['ENTRIES', 'CODE', 'TYPE', 'PRODUCER', 'OLDEST', 'NEWEST'],
        groups.map(({ entries, code, type, producer, oldest, newest }) => [
          entries,
          code,
          type ?? undefined,
          producer ?? undefined,
          oldest,
          newest,
        ]),
      ),
    nothing: 'no refused entry matches',
    begin: (operator, request) => operator.operations.republish(filter, request, mendingOf(options)),
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
