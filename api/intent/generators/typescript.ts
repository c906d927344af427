/** A catalog as JSON Schema, and in TypeScript: the document, payload types, and a constructor for each type. */
import { MAX_JSON_DEPTH, MAX_ENTRY_FIELDS } from '../../text.ts';
import type { Catalog, CatalogDocument, PayloadField, TypeSpec } from '../catalog.ts';
import { pascalCase } from '../catalog.ts';
import {
  MAX_DELAY_MS,
  MAX_ENTRY_BYTES,
  MAX_KEY_BYTES,
  MAX_PAYLOAD_BYTES,
  MAX_TIMESTAMP_MS,
  MAX_USER_ID_BYTES,
  MIN_TIMESTAMP_MS,
} from '../entry.ts';

/** The limits of an entry, which the clients in Go and Python check as well. */
export const LIMITS = {
  MAX_DELAY_MS,
  MAX_ENTRY_BYTES,
  MAX_ENTRY_FIELDS,
  MAX_JSON_DEPTH,
  MAX_KEY_BYTES,
  MAX_PAYLOAD_BYTES,
  MAX_TIMESTAMP_MS,
  MAX_USER_ID_BYTES,
  MIN_TIMESTAMP_MS,
};

/** The comment of a field in generated code, without a full stop; empty if its type says everything. */
export function noteOf(field: PayloadField): string {
  if (field.type === 'boolean') return '';
  if (field.type === 'integer') {
    if (field.format === 'unix-ms') return 'Unix milliseconds';
    return field.minimum === undefined ? '' : `from ${field.minimum}`;
  }
  if (field.enum !== undefined) return `one of ${field.enum.join(', ')}`;
  if (field.format === undefined) return '';
  return field.format === 'line' ? 'one line, not blank' : 'may have several lines, not blank';
}

const kindOf = (field: PayloadField): string => {
  if (field.type === 'string' && field.enum !== undefined)
    return field.enum.map((value) => JSON.stringify(value)).join(' | ');
  return { string: 'string', integer: 'number', boolean: 'boolean' }[field.type];
};

function payloadType({ type, fields }: TypeSpec): string[] {
  return [
    `/** The payload of \`${type}\`; further fields pass through to the mail template. */`,
    `export interface ${pascalCase(type)}Payload {`,
    ...fields.flatMap(({ name, field, isRequired }) => [
      ...(noteOf(field) === '' ? [] : [`  /** ${noteOf(field)} */`]),
      `  ${name}${isRequired ? '' : '?'}: ${kindOf(field)};`,
    ]),
    '}',
    '',
  ];
}

function constructorOf(catalogName: string, { type, summary, audiences }: TypeSpec): string[] {
  const name = pascalCase(type);
  const kinds = audiences.map((audience) => `'${audience}'`).join(' | ');
  return [
    `/** ${summary} */`,
    `export const new${name} = constructorIn<${name}Payload, ${kinds}>(${catalogName}, '${type}');`,
    '',
  ];
}

/**
 * @param document of the catalog, which the module holds. @param name of the constant with the catalog.
 * @param module that is imported for `constructorIn` and `defineCatalog`.
 */
export function typeScriptFile(
  catalog: Catalog,
  document: CatalogDocument,
  { name = 'CATALOG', module = 'galaxy-notify' } = {},
): string {
  const types = [...catalog.types.values()];
  return [
    '// Made from the catalog by galaxy-notify catalog clients. Changes are lost.',
    `import { constructorIn, defineCatalog } from '${module}';`,
    '',
    '/** The catalog that these types are of. */',
    `export const ${name} = defineCatalog(${JSON.stringify(document, null, 2)});`,
    '',
    '/** The names of its types. */',
    `export type NotificationType =${types.map(({ type }) => `\n  | '${type}'`).join('')};`,
    '',
    ...types.flatMap((spec) => [...payloadType(spec), ...constructorOf(name, spec)]),
  ]
    .join('\n')
    .trimEnd()
    .concat('\n');
}

/** White space is spelled out: what `\s` means differs between dialects of regular expressions. */
const SPACE = '\\t\\n\\u000b\\f\\r \\u00a0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000\\ufeff';
const NOT_BLANK = `[^${SPACE}]`;
const BIDI = '\\u061c\\u200e\\u200f\\u202a-\\u202e';

const FORMATS = {
  line: {
    pattern: NOT_BLANK,
    not: { pattern: `[\\u0000-\\u0008\\u000a-\\u001f\\u007f-\\u009f\\u2028\\u2029${BIDI}]` },
    description:
      'Not blank; one line. A tab and closed bidi isolates are taken, other control and bidi characters are not.',
  },
  text: {
    pattern: NOT_BLANK,
    not: { pattern: `[\\u0000-\\u0008\\u000b\\u000c\\u000e-\\u001f\\u007f-\\u009f${BIDI}]` },
    description:
      'Not blank; may have line breaks. A tab and closed bidi isolates are taken, other control and bidi characters are not.',
  },
};

/** A field without the formats of the catalog, which other validators do not know. */
function schemaOf(field: PayloadField): object {
  if (field.type === 'boolean') return field;
  const { format, ...form } = field;
  if (form.type === 'string')
    return { ...form, ...(format === undefined ? {} : FORMATS[format as 'line' | 'text']) };
  return {
    ...form,
    maximum: form.maximum ?? Number.MAX_SAFE_INTEGER,
    ...(format === undefined ? {} : { description: 'Unix milliseconds.' }),
  };
}

/** Plain JSON Schema of payloads, for validators that do not read AsyncAPI. @returns `<type>.schema.json` and its text for each type. */
export function schemaFiles({ types }: Catalog): [name: string, text: string][] {
  return [...types.values()].map(({ type, summary, fields, example }) => {
    const schema = {
      $schema: 'https://json-schema.org/draft/2020-12/schema',
      $id: `${type}.schema.json`,
      title: `${pascalCase(type)}Payload`,
      description: `${summary} The object in payload_json of an intent; further fields pass through to the mail template.`,
      type: 'object',
      required: fields.flatMap(({ name, isRequired }) => (isRequired ? [name] : [])),
      properties: Object.fromEntries(fields.map(({ name, field }) => [name, schemaOf(field)])),
      examples: [example],
    };
    return [`${type}.schema.json`, `${JSON.stringify(schema, null, 2)}\n`];
  });
}
