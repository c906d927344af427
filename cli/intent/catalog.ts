/** `catalog`: checks a file of notification types, and writes what consumers and producers need of it. */
import { mkdir, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import type { Command } from 'commander';
import type { Catalog, CatalogDocument, PayloadField, TypeSpec } from '../../api/intent/catalog.ts';
import { CatalogError, catalogOf, rangeOf } from '../../api/intent/catalog.ts';
import { GALAXY_FILE, documentOf, parseCatalog } from '../../api/intent/galaxy.ts';
import { goFile } from '../../api/intent/generators/go.ts';
import { pythonFiles } from '../../api/intent/generators/python.ts';
import { typeScriptFile } from '../../api/intent/generators/typescript.ts';
import { flatBuffersSchemaOf } from '../../api/intent/outbound-entries.ts';
import { EXIT, UsageError, readText } from '../command.ts';
import { defineLocal, option } from '../definition.ts';
import { shell } from '../invocation.ts';
import { countOf, printLine, report } from '../output.ts';

const LANGUAGES = ['typescript', 'go', 'python'] as const;
type Language = (typeof LANGUAGES)[number];

const FILE = 'YAML or JSON; default: NOTIFICATION_CATALOG_FILE, or the types of Galaxy';

export function addTo(catalog: Command): void {
  defineLocal(catalog, {
    name: 'check',
    description:
      'Check a catalog without any server: every fault with its place. Exit code 1 when there is one.',
    args: [['[file]', FILE]],
    options: [
      option('--against <file>', 'an older catalog: what would break its producers and consumers is a fault'),
    ],
    examples: ['catalog check catalog.yaml', 'catalog check catalog.yaml --against deployed.yaml'],
    run: async (_, { against }: { against?: string }, file?: string) => ({
      problems: await problemsOf(file, against),
    }),
    print: ({ problems }) => problems.forEach(printLine),
    end({ problems: { length } }) {
      report(length === 0 ? 'the catalog is valid' : countOf(length, 'problem'));
      return length === 0 ? EXIT.done : EXIT.failed;
    },
  });

  defineLocal(catalog, {
    name: 'sample',
    description: 'Print a small catalog to begin with.',
    examples: ['catalog sample > catalog.yaml'],
    run: () => readText(path.join(path.dirname(GALAXY_FILE), 'shop.yaml')),
    print: (text) => text.trimEnd(),
  });

  defineLocal(catalog, {
    name: 'fbs',
    description: 'Print the FlatBuffers schema of the push events of a catalog.',
    args: [['[file]', FILE]],
    examples: ['catalog fbs catalog.yaml > notification.fbs'],
    run: async (_, _options: object, file?: string) => flatBuffersSchemaOf(await readCatalog(file)),
    print: (schema) => schema.trimEnd(),
  });

  defineLocal(catalog, {
    name: 'clients',
    description: 'Write payload types and constructors of a catalog in a language.',
    args: [['[file]', FILE]],
    options: [
      option('--language <language>', 'of the code').choices(LANGUAGES).makeOptionMandatory(),
      option(
        '--out <folder>',
        'where the files are written; in Go and Python it gives the package its name',
      ).makeOptionMandatory(),
    ],
    examples: ['catalog clients catalog.yaml --language typescript --out src/notifications'],
    async run(_, { language, out }: { language: Language; out: string }, file?: string) {
      const text = await readText(fileOf(file));
      const document = orUsage(() => documentOf(text) as CatalogDocument);
      const catalog = orUsage(() => catalogOf(document));
      const files = filesIn(language, out, catalog, document);
      await mkdir(out, { recursive: true });
      for (const [name, content] of files) await writeFile(path.join(out, name), content);
      return { written: files.map(([name]) => path.join(out, name)) };
    },
    print: ({ written }) => written.forEach(printLine),
  });
}

function filesIn(
  language: Language,
  out: string,
  catalog: Catalog,
  document: CatalogDocument,
): [name: string, text: string][] {
  switch (language) {
    case 'typescript':
      return [['catalog.ts', typeScriptFile(catalog, document)]];
    case 'go':
      return [['catalog_generated.go', goFile(catalog, packageName('go', out))]];
    case 'python':
      packageName('python', out);
      return pythonFiles(catalog);
  }
}

/** As Go wants it, in lower-case letters and digits. @throws UsageError when no package can have the folder's name. */
function packageName(language: 'go' | 'python', folder: string): string {
  const name = path.basename(path.resolve(folder));
  const fit = language === 'go' ? name.toLowerCase().replaceAll(/[^a-z0-9]/g, '') : name;
  if (/^[a-z_]\w*$/i.test(fit)) return fit;
  const of = language === 'go' ? 'Go' : 'Python';
  throw new UsageError(
    `the folder gives the package its name, and ${of} has no package ${name}: name another --out`,
  );
}

const fileOf = (file: string | undefined): string =>
  file ?? (shell().env['NOTIFICATION_CATALOG_FILE'] || GALAXY_FILE);

/** @throws UsageError where the work finds no catalog. */
function orUsage<T>(work: () => T): T {
  try {
    return work();
  } catch (error) {
    throw error instanceof CatalogError ? new UsageError(error.message) : error;
  }
}

async function readCatalog(file: string | undefined): Promise<Catalog> {
  const text = await readText(fileOf(file));
  return orUsage(() => parseCatalog(text));
}

async function problemsOf(file: string | undefined, against: string | undefined): Promise<string[]> {
  const text = await readText(fileOf(file));
  try {
    const catalog = parseCatalog(text);
    return against === undefined ? [] : breakingChanges(await readCatalog(against), catalog);
  } catch (error) {
    if (error instanceof CatalogError) return [...error.problems];
    throw error;
  }
}

// --- What a new catalog would break for those who know an older one -----------------------------------------------

/** @returns one line for each change that breaks a producer or a receiver; none when the new catalog can take the place of the old one. */
export function breakingChanges(before: Catalog, after: Catalog): string[] {
  return [...before.types.values()].flatMap((old) => {
    const now = after.types.get(old.type);
    if (now === undefined)
      return [`types.${old.type}: is gone; retired: true refuses new intents and delivers what was accepted`];
    return changesOf(old, now).map((change) => `types.${old.type}.${change}`);
  });
}

const when = (isBroken: boolean, change: string): string[] => (isBroken ? [change] : []);

function changesOf(old: TypeSpec, now: TypeSpec): string[] {
  const lost = old.audiences.filter((audience) => !now.audiences.includes(audience));
  return [
    ...when(now.producer !== old.producer, `producer: was ${old.producer}, is ${now.producer}`),
    ...lost.map((audience) => `audiences: ${audience} is gone`),
    ...now.fields.flatMap(({ name, field, isRequired }) => {
      const known = old.fields.find((other) => other.name === name);
      if (isRequired && known?.isRequired !== true) return [`payload.required: ${name} is new`];
      return known !== undefined && isNarrower(known.field, field)
        ? [`payload.properties.${name}: refuses what was accepted before`]
        : [];
    }),
    ...pushChanges(old, now),
  ];
}

/** A consumer knows a field by its slot: those that were there stay where they were. */
function pushChanges({ push: old }: TypeSpec, { push: now }: TypeSpec): string[] {
  if (old === undefined) return [];
  if (now === undefined) return ['push: is gone'];
  return [
    ...when(now.encoding !== old.encoding, `push.encoding: was ${old.encoding}, is ${now.encoding}`),
    ...when(now.table !== old.table, `push.table: was ${old.table}, is ${now.table}`),
    ...old.fields.flatMap((field, slot) =>
      when(
        !isDeepStrictEqual(field, now.fields[slot]),
        `push.fields: slot ${slot} was ${slotOf(field)}, is ${slotOf(now.fields[slot])}`,
      ),
    ),
  ];
}

const slotOf = (field: { name: string; type: string } | undefined): string =>
  field === undefined ? 'gone' : `${field.name} (${field.type})`;

function isNarrower(old: PayloadField, now: PayloadField): boolean {
  if (old.type !== now.type) return true;
  const [oldRange, range] = [rangeOf(old), rangeOf(now)];
  if (range.least > oldRange.least || range.most < oldRange.most) return true;
  if (old.type !== 'string' || now.type !== 'string') return false;
  const formats = ['line', 'text', undefined];
  return (
    formats.indexOf(now.format) < formats.indexOf(old.format) ||
    (now.enum !== undefined &&
      (old.enum === undefined || old.enum.some((value) => !now.enum!.includes(value))))
  );
}
