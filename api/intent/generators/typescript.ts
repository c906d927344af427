/** A catalog in TypeScript: the document, payload types, and a constructor for each type. */
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
