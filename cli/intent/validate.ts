/** `intents validate`: the checks of the service on intents in files, without any server. */
import { isUtf8 } from 'node:buffer';
import { createReadStream } from 'node:fs';
import type { Command } from 'commander';
import type { Catalog } from '../../api/intent/catalog.ts';
import type { EntryFields } from '../../api/intent/entry.ts';
import { ENVELOPE_FIELDS, entryFieldsOf, fieldNamedIn, parseIntent } from '../../api/intent/entry.ts';
import { fingerprintOf } from '../../api/intent/fingerprint.ts';
import { isJsonObject } from '../../api/json.ts';
import { nearestOf } from '../../api/text.ts';
import { EXIT, UsageError } from '../command.ts';
import { defineLocal } from '../definition.ts';
import { shell } from '../invocation.ts';
import { catalogOfShell } from '../options.ts';
import { countOf, printItems, report } from '../output.ts';

/** A file is read as a whole. */
const MAX_FILE_BYTES = 64 * 1024 * 1024;

const FORMS = `
A file has one intent, an array of them, or one on each line, as JSON in one of two forms; - reads standard input.
  the entry      {"notification_type": "game.turn.ready", "payload_json": "{\\"game_id\\": …}", …}
                 as fields of the stream, all of them text
  the intent     {"notification_type": "game.turn.ready", "payload": {"game_id": …}, "idempotency_key": "game-7/turn-54",
                 "occurred_at_ms": 1790000000000, "recipient_user_ids": ["user-1"]}
                 producer and, where the type leaves no choice, audience_kind may be left out
Exit code 1 when one of them would be refused.
`;

type Verdict = { file: string; intent: number } & (
  | { isValid: true; type: string; fingerprint: string }
  | { isValid: false; code: string; field?: string; problem: string }
);

export function addValidateCommand(intents: Command): void {
  defineLocal(intents, {
    name: 'validate',
    description: 'Check intents in files as the service does, without any server.',
    args: [['<files...>', 'files with intents as JSON']],
    above: FORMS,
    examples: ['intents validate intents/*.json', 'intents validate --json - < intent.json'],
    async run(_session, _options: object, files: string[]) {
      const catalog = catalogOfShell();
      const items: Verdict[] = [];
      for (const file of files) items.push(...verdictsOf(catalog, file, await textOf(file)));
      return { items };
    },
    print({ items }) {
      if (items.length === 0) return;
      printItems(items, {
        FILE: 'file',
        INTENT: 'intent',
        VERDICT: (verdict) => (verdict.isValid ? 'valid' : verdict.code),
        'TYPE OR PROBLEM': (verdict) => (verdict.isValid ? verdict.type : verdict.problem),
      });
    },
    end({ items }) {
      const refused = items.filter(({ isValid }) => !isValid).length;
      report(`${countOf(items.length, 'intent')}, ${refused} would be refused`);
      if (items.length === 0) return EXIT.nothing;
      return refused > 0 ? EXIT.failed : EXIT.done;
    },
  });
}

/** @throws UsageError for a file that cannot be read, or is too large. */
async function textOf(file: string): Promise<string> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  try {
    const input = file === '-' ? shell().stdin : createReadStream(file);
    for await (const chunk of input as AsyncIterable<Buffer>) {
      bytes += chunk.length;
      if (bytes > MAX_FILE_BYTES) throw new Error(`it has more than ${MAX_FILE_BYTES} bytes`);
      chunks.push(chunk);
    }
  } catch (error) {
    throw new UsageError(`cannot read ${file}: ${(error as Error).message}`);
  }
  const content = Buffer.concat(chunks);
  if (!isUtf8(content)) throw new UsageError(`cannot read ${file}: it is not UTF-8`);
  return content.toString('utf8');
}

/** @returns a verdict for each intent in the text of a file, of any form; what is wrong is told without quoting it. */
export function verdictsOf(catalog: Catalog, file: string, text: string): Verdict[] {
  const values = valuesIn(text);
  if (values === undefined) {
    return [
      { file, intent: 1, isValid: false, code: 'invalid_envelope', problem: 'the file is not valid JSON' },
    ];
  }
  return values.map((value, index) => ({ file, intent: index + 1, ...verdictOf(catalog, value) }));
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

function verdictOf(catalog: Catalog, value: unknown) {
  const entry = entryIn(catalog, value);
  if (typeof entry === 'string') {
    return { isValid: false as const, code: 'invalid_envelope', ...fieldOf(entry), problem: entry };
  }
  const parsed = parseIntent(catalog, '0-0', entry);
  if (parsed.ok) {
    const { intent } = parsed;
    return { isValid: true as const, type: intent.notificationType, fingerprint: fingerprintOf(intent) };
  }
  const { failureCode: code, failureMessage, notificationType = '' } = parsed.malformed;
  const meant =
    code === 'unknown_notification_type' ? nearestOf(notificationType, catalog.types.keys()) : undefined;
  const problem = meant === undefined ? failureMessage : `${failureMessage}: did you mean ${meant}?`;
  return { isValid: false as const, code, ...fieldOf(problem), problem };
}

function fieldOf(problem: string): { field?: string } {
  const field = fieldNamedIn(problem);
  return field === undefined ? {} : { field };
}

/** What an intent is in the stream, or why it is nothing. */
function entryIn(catalog: Catalog, value: unknown): EntryFields | string {
  if (!isJsonObject(value)) return 'an intent must be a JSON object';
  const { payload, recipient_user_ids: recipients, ...fields } = value;
  const entry: Record<string, unknown> = { ...fields };
  if (payload !== undefined)
    Object.assign(entry, { ...implied(catalog, fields), payload_json: jsonOf(payload) });
  if (recipients !== undefined) entry['recipient_user_ids_json'] = jsonOf(recipients);
  for (const name of ENVELOPE_FIELDS.filter((field) => field.endsWith('_at_ms')))
    if (typeof entry[name] === 'number') entry[name] = String(entry[name]);
  const noText = Object.entries(entry).find(
    ([, field]) => typeof field !== 'string' || !field.isWellFormed(),
  );
  if (noText) return `${noText[0]} must be well-formed text`;
  return entryFieldsOf(entry as Record<string, string>);
}

/** What a producer's constructor would add. */
function implied({ types }: Catalog, fields: Record<string, unknown>): Record<string, unknown> {
  const { notification_type: type, producer, audience_kind: audience } = fields;
  if (typeof type !== 'string') return {};
  const spec = types.get(type);
  // An unknown type has any: that it is unknown is what is wrong.
  if (spec === undefined) return { producer: producer ?? 'any', audience_kind: audience ?? 'any' };
  const [only, ...others] = spec.audiences;
  return {
    producer: producer ?? spec.producer,
    ...(audience === undefined && others.length === 0 ? { audience_kind: only } : {}),
  };
}

/** An overflow would be written as null: a number that is refused takes its place. */
const jsonOf = (value: unknown): string =>
  JSON.stringify(value, (_, inner: unknown) =>
    typeof inner === 'number' && !Number.isFinite(inner) ? Number.MAX_VALUE : inner,
  );
