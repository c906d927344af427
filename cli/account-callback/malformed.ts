/** `callbacks malformed`: stream entries that are neither prices nor positions. */
import type { Command } from 'commander';
import { Option } from 'commander';
import { MALFORMED_INPUT_CODES } from '../../api/account-callback/input.ts';
import type { MalformedInputFilter } from '../../client/account-callback/malformed.ts';
import { action, helpWith, showPage } from '../command.ts';
import { limitOption, parseEntryId, sinceOption, untilOption } from '../options.ts';
import { printFields, printHeading, printJson, printTable } from '../output.ts';
import { withSession } from '../session.ts';

export function addMalformedInputCommands(callbacks: Command): void {
  const malformed = callbacks
    .command('malformed')
    .description('Stream entries that are neither prices nor positions');

  malformed
    .command('list')
    .description('List malformed entries, newest first.')
    .addOption(new Option('--code <code>', 'why it was refused').choices(MALFORMED_INPUT_CODES))
    .addOption(sinceOption('recorded'))
    .addOption(untilOption('recorded'))
    .addOption(limitOption())
    .addHelpText('after', helpWith('galaxy-notify callbacks malformed list --since 1h'))
    .action(
      action<MalformedInputFilter & { limit: number }>((options) =>
        withSession(['postgres'], async ({ operator }) =>
          showPage(await operator.callbacks.malformed.list(options), options, (items) =>
            printTable(
              ['RECORDED', 'ENTRY', 'CODE', 'MESSAGE'],
              items.map(({ recordedAt, entryId, code, message }) => [recordedAt, entryId, code, message]),
              { flexible: 3 },
            ),
          ),
        ),
      ),
    );

  malformed
    .command('show')
    .description('Show a malformed entry with its fields.')
    .argument('<entry id>', 'id of the stream entry', parseEntryId)
    .addHelpText('after', helpWith('galaxy-notify callbacks malformed show 1790000000000-0'))
    .action(
      action<object, [string]>(({ json }, entryId) =>
        withSession(['postgres'], async ({ operator }) => {
          const entry = await operator.callbacks.malformed.show(entryId);
          if (json) return printJson(entry);
          printHeading(`Malformed account input ${entry.entryId}`);
          printFields([
            ['code', entry.code],
            ['message', entry.message],
            ['recorded', entry.recordedAt],
          ]);
          printHeading('Fields of the entry, cut where they are long');
          printFields(Object.entries(entry.rawFields));
        }),
      ),
    );
}
