/** A catalog in TypeScript: the document, payload types, and a constructor for each type. */
import type { Catalog, CatalogDocument, PayloadField, TypeSpec } from '../catalog.ts';
import { pascalCase } from '../catalog.ts';
import { noteOf } from './contract.ts';

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
