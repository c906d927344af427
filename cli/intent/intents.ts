/** `intents`: its commands, examples of intents, and which ones wait. */
import type { Command } from 'commander';
import type { NotificationType } from '../../api/intent/catalog.ts';
import { typeIn } from '../../api/intent/catalog.ts';
import { envelopeOf } from '../../api/intent/entry.ts';
import { shellWord } from '../../client/causes.ts';
import { sampleIntentOf } from '../../client/intent/sample-intents.ts';
import { action } from '../command.ts';
import { form, list } from '../definition.ts';
import { catalogOfShell, parseType } from '../options.ts';
import { printHeading, printItems, printJson, printLine } from '../output.ts';
import { addPublishCommand } from './publish.ts';
import { addValidateCommand } from './validate.ts';
import type { Session } from '../session.ts';

export function addTo(intents: Command): void {
  addPublishCommand(intents);
  addValidateCommand(intents);

  list(intents, {
    name: 'waiting',
    description: 'List intents that were tried and are neither accepted nor refused yet, longest first.',
    examples: ['intents waiting', 'notifications cancel 1790000000000-0'],
    read: ({ operator }: Session) => operator.intents.waiting,
    columns: {
      SINCE: 'waitingSince',
      NOTIFICATION: 'notificationId',
      TYPE: 'type',
      ATTEMPT: 'attempt',
      KEY: 'idempotencyKey',
      REASON: ({ reason }) => reason ?? 'its turn has not come',
    },
  });

  form(intents, {
    name: 'sample',
    description: 'Show an example of a type, ready to be published; without a type, list all types.',
    args: [['[type]', 'one type', parseType]],
    examples: ['intents sample', 'intents sample lobby.invite.created'],
  }).action(
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
  printItems(items, {
    TYPE: 'type',
    PRODUCER: 'producer',
    'AUDIENCE: CHANNELS': ({ channels }) =>
      Object.entries(channels)
        .map(([audience, names]) => `${audience}: ${names.join(', ')}`)
        .join('; '),
    FIELDS: ({ fields }) => fields.join(', '),
  });
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
      `galaxy-notify intents publish ${type} ${recipients} --key ${fields['idempotency_key']} --payload ${shellWord(fields['payload_json']!)}`,
    );
    printLine();
    const pairs = Object.entries(fields).map(([name, value]) => `  ${name} ${shellWord(value)}`);
    printLine(`redis-cli XADD notification:intents '*' \\\n${pairs.join(' \\\n')}`);
  }
}
