/** `malformed`: stream entries that could not become a notification. */
import type { Command } from 'commander';
import { Option } from 'commander';
import { MALFORMED_CODES } from '../../api/intent/entry.ts';
import type { MalformedEntry, MalformedFilter } from '../../client/intent/malformed.ts';
import { action, helpWith, showPage } from '../command.ts';
import type { Requested } from '../options.ts';
import {
  addPair,
  limitOption,
  parseEntryId,
  producerOption,
  requestedByOption,
  sinceOption,
  untilOption,
} from '../options.ts';
import { printFields, printHeading, printJson, printLine, printTable, report } from '../output.ts';
import { withSession } from '../session.ts';

export function addMalformedCommands(program: Command): void {
  const malformed = program
    .command('malformed')
    .description('Stream entries that could not become a notification');

  malformed
    .command('list')
    .description('List malformed entries, newest first.')
    .addOption(new Option('--code <code>', 'why it was refused').choices(MALFORMED_CODES))
    .addOption(producerOption())
    // An entry may name a type that does not exist: that is one of the reasons.
    .option('--type <type>', 'notification type as the entry gives it')
    .addOption(sinceOption('recorded'))
    .addOption(untilOption('recorded'))
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
          showPage(await operator.malformed.list(options), options, (items) =>
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

interface RepublishOptions extends Requested {
  set: Record<string, string>;
  newKey?: boolean;
  dryRun?: boolean;
}

function addRepublish(malformed: Command): void {
  malformed
    .command('republish')
    .description('Publish an entry again that was refused, mended; the service checks it as any other.')
    .argument('<entry id>', 'id of the stream entry', parseEntryId)
    .option('--set <field=value>', 'another value for a field of the entry; may be repeated', addPair, {})
    .option('--new-key', 'with an idempotency key of its own: the old one stands for other content')
    .option('--dry-run', 'show what would be published, and publish nothing')
    .addOption(requestedByOption())
    .addHelpText(
      'after',
      helpWith(
        'galaxy-notify malformed republish 1790000000000-0',
        'galaxy-notify malformed republish 1790000000000-0 --set producer=game_master --dry-run',
        'galaxy-notify malformed republish 1790000000000-0 --new-key',
      ),
    )
    .action(
      action<RepublishOptions, [string]>(({ json, set, newKey = false, dryRun, requestedBy }, entryId) =>
        withSession(dryRun ? ['postgres'] : ['postgres', 'redis'], async ({ operator }) => {
          if (dryRun) {
            const fields = await operator.malformed.mend(entryId, { set, newKey });
            if (json) printJson({ fields });
            else printFields(Object.entries(fields));
            return;
          }
          const notificationId = await operator.malformed.republish(entryId, { set, newKey });
          await operator.actions.note({
            ...{ action: 'malformed republish', target: entryId, requestedBy },
            detail: `as ${notificationId}`,
          });
          if (json) printJson({ notificationId });
          else printLine(notificationId);
          report(`see notifications show ${notificationId}`);
        }),
      ),
    );
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
