/** `intents`: its commands, examples of intents, and which ones wait. */
import type { Command } from 'commander';
import { Argument } from 'commander';
import type { NotificationType } from '../../api/intent/catalog.ts';
import { typeIn } from '../../api/intent/catalog.ts';
import { envelopeOf } from '../../api/intent/entry.ts';
import { sampleIntentOf } from '../../client/intent/sample-intents.ts';
import { action, helpWith, showPage } from '../command.ts';
import { catalogOfShell, limitOption, parseType } from '../options.ts';
import { printHeading, printJson, printLine, printTable } from '../output.ts';
import { withSession } from '../session.ts';
import { addPublishCommand } from './publish.ts';
import { addValidateCommand } from './validate.ts';

export function addIntentCommands(program: Command): void {
  const intents = program
    .command('intents')
    .description('Check and publish intents by hand, see examples of them, and which ones wait');

  addPublishCommand(intents);
  addValidateCommand(intents);

  intents
    .command('waiting')
    .description('List intents that were tried and are neither accepted nor refused yet, longest first.')
    .addOption(limitOption())
    .addHelpText(
      'after',
      helpWith('galaxy-notify intents waiting', 'galaxy-notify notifications cancel 1790000000000-0'),
    )
    .action(
      action<{ limit: number }>((options) =>
        withSession(['postgres'], async ({ operator }) =>
          showPage(await operator.intents.waiting(options), options, (items) =>
            printTable(
              ['SINCE', 'NOTIFICATION', 'TYPE', 'ATTEMPT', 'KEY', 'REASON'],
              items.map((item) => [
                item.waitingSince,
                item.notificationId,
                item.type,
                item.attempt,
                item.idempotencyKey,
                item.reason ?? 'its turn has not come',
              ]),
              { flexible: 5, linked: 1, links: items.map(({ link }) => link) },
            ),
          ),
        ),
      ),
    );

  intents
    .command('sample')
    .description('Show an example of a type, ready to be published; without a type, list all types.')
    .addArgument(new Argument('[type]', 'notification type').argParser(parseType))
    .addHelpText(
      'after',
      helpWith('galaxy-notify intents sample', 'galaxy-notify intents sample lobby.invite.created'),
    )
    .action(
      action<object, [NotificationType | undefined]>(async ({ json }, type) =>
        type === undefined ? listTypes(json) : showSamples(type, json),
      ),
    );
}

function listTypes(json: boolean | undefined): void {
  const items = [...catalogOfShell().types.values()].map(
    ({ type, producer, audiences, channels, fields, isRetired }) => ({
      ...{ type, producer, audiences },
      channels: Object.fromEntries(audiences.map((audience) => [audience, channels[audience]])),
      fields: fields.flatMap(({ name, isRequired }) => (isRequired ? [name] : [])),
      ...(isRetired ? { isRetired } : {}),
    }),
  );
  if (json) return printJson({ items });
  printTable(
    ['TYPE', 'PRODUCER', 'AUDIENCE: CHANNELS', 'FIELDS'],
    items.map(({ type, producer, channels, fields }) => [
      type,
      producer,
      Object.entries(channels)
        .map(([audience, names]) => `${audience}: ${names.join(', ')}`)
        .join('; '),
      fields.join(', '),
    ]),
    { flexible: 3 },
  );
}

function showSamples(type: NotificationType, json: boolean | undefined): void {
  const catalog = catalogOfShell();
  const samples = typeIn(catalog, type).audiences.map((audience) => ({
    audience,
    fields: envelopeOf(sampleIntentOf(catalog, type, audience, `sample/${Date.now()}`)),
  }));
  if (json) return printJson({ type, samples });
  for (const { audience, fields } of samples) {
    printHeading(`${type} to ${audience === 'user' ? 'users' : 'administrators'}`);
    const recipients = audience === 'user' ? '--to user-1,user-4' : '--audience admin_email';
    printLine(
      `galaxy-notify intents publish ${type} ${recipients} --key ${fields['idempotency_key']} --payload ${quoted(fields['payload_json']!)}`,
    );
    printLine();
    const pairs = Object.entries(fields).map(([name, value]) => `  ${name} ${quoted(value)}`);
    printLine(`redis-cli XADD notification:intents '*' \\\n${pairs.join(' \\\n')}`);
  }
}

/** As one word for a shell. */
const quoted = (word: string): string =>
  /^[\w./:@-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
