/** `intents`: checks of the service on intents in files, examples of intents, and which ones wait. */
import type { Command } from 'commander';
import type { Catalog, NotificationType } from '../../api/intent/catalog.ts';
import { typeIn } from '../../api/intent/catalog.ts';
import { entryFieldsOf, envelopeOf, parseIntent, fingerprintOf } from '../../api/intent/entry.ts';
import { isJsonObject } from '../../api/text.ts';
import { shellWord } from '../../client/causes.ts';
import { sampleIntentOf } from '../../client/intent/sample-intents.ts';
import { EXIT, action, readText } from '../command.ts';
import { defineLocal, form, list } from '../definition.ts';
import { catalogOfShell, parseType } from '../options.ts';
import { countOf, printHeading, printItems, printJson, printLine, report } from '../output.ts';
import { addPublishCommand } from './publish.ts';
import type { Session } from '../session.ts';

const FORMS = `
A file has one intent, an array of them, or one on each line, as JSON; - reads standard input. An intent has the fields of its
stream entry, all of them text:
  {"notification_type": "game.turn.ready", "payload_json": "{\\"game_id\\": …}", …}
Exit code 1 when one of them would be refused.
`;

type Verdict = { type: string; fingerprint: string } | { code: string; problem: string };

export function addTo(intents: Command): void {
  addPublishCommand(intents);

  defineLocal(intents, {
    name: 'validate',
    description: 'Check intents in files as the service does, without any server.',
    args: [['<files...>', 'files with intents as JSON']],
    above: FORMS,
    examples: ['intents validate intents/*.json', 'intents validate --json - < intent.json'],
    async run(_session, _options: object, files: string[]) {
      const catalog = catalogOfShell();
      const verdicts = files.map(async (file) =>
        verdictsOf(catalog, await readText(file)).map((verdict, index) => ({
          ...{ file, intent: index + 1 },
          ...verdict,
        })),
      );
      return { items: (await Promise.all(verdicts)).flat() };
    },
    print({ items }) {
      if (items.length === 0) return;
      printItems(items, {
        FILE: 'file',
        INTENT: 'intent',
        VERDICT: (verdict) => ('code' in verdict ? verdict.code : 'valid'),
        'TYPE OR PROBLEM': (verdict) => ('code' in verdict ? verdict.problem : verdict.type),
      });
    },
    end({ items }) {
      const refused = items.filter((verdict) => 'code' in verdict).length;
      report(`${countOf(items.length, 'intent')}, ${refused} would be refused`);
      if (items.length === 0) return EXIT.nothing;
      return refused > 0 ? EXIT.failed : EXIT.done;
    },
  });

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

/** @returns a verdict for each intent in a text of any form; what is wrong is told without quoting it. */
export function verdictsOf(catalog: Catalog, text: string): Verdict[] {
  const values = valuesIn(text);
  return values === undefined
    ? [{ code: 'invalid_envelope', problem: 'the file is not valid JSON' }]
    : values.map((value) => verdictOf(catalog, value));
}

/** The values of one JSON text, or of one on each line; undefined when it is neither. */
function valuesIn(text: string): unknown[] | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return Array.isArray(value) ? (value as unknown[]) : [value];
  } catch {
    try {
      return text
        .split('\n')
        .filter((line) => line.trim() !== '')
        .map((line): unknown => JSON.parse(line));
    } catch {
      return undefined;
    }
  }
}

function verdictOf(catalog: Catalog, value: unknown): Verdict {
  const isEntry =
    isJsonObject(value) &&
    Object.values(value).every((field) => typeof field === 'string' && field.isWellFormed());
  if (!isEntry) return { code: 'invalid_envelope', problem: 'an intent must be a JSON object of texts' };
  const parsed = parseIntent(catalog, '0-0', entryFieldsOf(value as Record<string, string>));
  if (!parsed.ok) {
    return { code: parsed.malformed.failureCode, problem: parsed.malformed.failureMessage };
  }
  return { type: parsed.intent.notificationType, fingerprint: fingerprintOf(parsed.intent) };
}
