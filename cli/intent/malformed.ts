/** `malformed`: stream entries that could not become a notification. */
import type { Command } from 'commander';
import { given } from '../../api/given.ts';
import { MALFORMED_CODES } from '../../api/intent/entry.ts';
import type { Correction } from '../../api/intent/mending.ts';
import type { MalformedEntry } from '../../client/intent/malformed.ts';
import { define, list, option, printRawFields } from '../definition.ts';
import type { OperationCommandOptions } from '../operations.ts';
import { addOperation } from '../operations.ts';
import { addPair, parseEntryId, producerOption, spanOptions } from '../options.ts';
import { printFields, printHeading, printView } from '../output.ts';
import type { Session } from '../session.ts';

interface Options extends OperationCommandOptions {
  set?: Record<string, string>;
  newKey?: boolean;
}

export function addTo(malformed: Command): void {
  list(malformed, {
    description: 'List malformed entries, newest first.',
    filters: filters(),
    examples: ['malformed list --since 1h', 'malformed list --code recipient_not_found --json'],
    read: ({ operator }: Session) => operator.malformed.list,
    columns: ['recordedAt', 'entryId', 'code', 'type', 'producer', 'message'],
  });

  define(malformed, {
    name: 'show',
    description: 'Show a malformed entry with its fields.',
    args: [['<entry id>', 'id of the stream entry', parseEntryId]],
    examples: ['malformed show 1790000000000-0'],
    run: ({ operator }, _options: object, entryId: string) => operator.malformed.show(entryId),
    print: printMalformed,
  });

  addOperation(malformed, {
    ...{ name: 'republish', kind: 'republish', what: 'refused intent', verb: 'republish' },
    description:
      'Correct refused entries and publish them again; the service checks each as any other. Without an entry id, all that match the filters; those that would be refused again are left alone.',
    named: { entryId: ['[entry id]', 'id of the stream entry', parseEntryId] },
    filters: filters(),
    options: [
      option('--set <field=value>', 'another value for a field of the entry; may be repeated', addPair),
      option('--new-key', 'with a new idempotency key: the old one stands for other content'),
    ],
    examples: [
      'malformed republish 1790000000000-0',
      'malformed republish 1790000000000-0 --set producer=game_master --dry-run',
      'malformed republish 1790000000000-0 --new-key',
      'malformed republish --code recipient_not_found --since 1h --dry-run',
      'malformed republish --code recipient_not_found --since 1h --rate 100 --yes',
    ],
    columns: ['entries', 'code', 'type', 'producer', 'oldest', 'newest'],
    async look(operator, { entryId }, options: Options) {
      const fields = await operator.malformed.correct(entryId!, correctionOf(options));
      if (!options.json) printFields(Object.entries(fields));
    },
    start: ({ operations }, filter, request, options) =>
      operations.republish(filter, request, correctionOf(options)),
  });
}

const filters = () => ({
  code: option('--code <code>', 'why it was refused').choices(MALFORMED_CODES),
  producer: producerOption(),
  // An entry may name a type that does not exist: that is one of the reasons.
  type: option('--type <type>', 'notification type as the entry gives it'),
  ...spanOptions('recorded'),
});

const correctionOf = ({ set, newKey }: Options): Correction => given({ set, newKey });

export function printMalformed({ entryId, rawFields, ...entry }: MalformedEntry): void {
  printHeading(`Malformed intent ${entryId}`);
  printView(entry);
  printRawFields(rawFields);
}
