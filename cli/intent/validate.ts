/** `intents validate`: the checks of the service on intents in files, without any server. */
import type { Command } from 'commander';
import type { Catalog } from '../../api/intent/catalog.ts';
import { entryFieldsOf, parseIntent } from '../../api/intent/entry.ts';
import { fingerprintOf } from '../../api/intent/fingerprint.ts';
import { isJsonObject } from '../../api/json.ts';
import { EXIT, readText } from '../command.ts';
import { defineLocal } from '../definition.ts';
import { catalogOfShell } from '../options.ts';
import { countOf, printItems, report } from '../output.ts';

const FORMS = `
A file has one intent, an array of them, or one on each line, as JSON; - reads standard input. An intent has the fields of its
stream entry, all of them text:
  {"notification_type": "game.turn.ready", "payload_json": "{\\"game_id\\": …}", …}
Exit code 1 when one of them would be refused.
`;

type Verdict = { type: string; fingerprint: string } | { code: string; problem: string };

export function addValidateCommand(intents: Command): void {
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
