/** A catalog in Go: payload types, constructors, and the rows that validation reads. */
import type { Catalog, PayloadField, TypeSpec } from '../catalog.ts';
import { pascalCase } from '../catalog.ts';
import { LIMITS, noteOf } from './typescript.ts';

/** Where `go get` finds the client. */
const MODULE = 'github.com/galaxy-notify/galaxy-notify/clients/go';

const TYPES = { string: 'string', integer: 'int64', boolean: 'bool' };

/** `game_id` as Go writes it: `GameID`. */
export const goName = (name: string): string =>
  pascalCase(name).replaceAll(/(Id|Json)(?=[A-Z]|$)/g, (initialism) => initialism.toUpperCase());

/** Cells as gofmt aligns them. */
function aligned(rows: readonly (readonly string[])[], indent: string): string[] {
  const width = (column: number) =>
    Math.max(...rows.map((cells) => (column < cells.length - 1 ? cells[column]!.length : 0)));
  return rows.map(
    (cells) =>
      indent +
      cells
        .map((cell, column) => (column === cells.length - 1 ? cell : cell.padEnd(width(column))))
        .join(' '),
  );
}

const comment = (text: string): string[] => {
  const lines: string[] = [];
  for (const word of text.split(' ')) {
    const last = lines.at(-1);
    if (last !== undefined && last.length + word.length < 100) lines[lines.length - 1] = `${last} ${word}`;
    else lines.push(`// ${word}`);
  }
  return lines;
};

/** Optional fields are pointers. */
function payloadType({ type, fields }: TypeSpec, own: string): string[] {
  const name = pascalCase(type);
  const required = fields.filter(({ isRequired }) => isRequired);
  const optional = fields.filter(({ isRequired }) => !isRequired);
  const members = [
    ...fields.map(({ name: field, field: form, isRequired }) => {
      const notes = [...(isRequired ? [] : ['optional']), ...(noteOf(form) === '' ? [] : [noteOf(form)])];
      const type = `${isRequired ? '' : '*'}${TYPES[form.type]}`;
      return [goName(field), type, ...(notes.length === 0 ? [] : [`// ${notes.join(', ')}`])];
    }),
    ['Further', 'map[string]any', '// further fields, which pass through to the mail template'],
  ];
  const values = required
    .map(({ name: field }) => `{Name: "${field}", Value: p.${goName(field)}}`)
    .join(', ');
  return [
    `// ${name}Payload is the payload of ${type}.`,
    `type ${name}Payload struct {`,
    ...aligned(members, '\t'),
    '}',
    '',
    '// Members are the fields of the type, and further ones.',
    `func (p ${name}Payload) Members() ([]${own}Member, map[string]any) {`,
    ...(optional.length === 0
      ? [`\treturn []${own}Member{${values}}, p.Further`]
      : [
          `\tmembers := []${own}Member{${values}}`,
          ...optional.flatMap(({ name: field }) => [
            `\tif p.${goName(field)} != nil {`,
            `\t\tmembers = append(members, ${own}Member{Name: "${field}", Value: *p.${goName(field)}})`,
            '\t}',
          ]),
          '\treturn members, p.Further',
        ]),
    '}',
    '',
  ];
}

function constructors({ type, summary, audiences }: TypeSpec, own: string): string[] {
  const name = pascalCase(type);
  const constructor = (suffix: string, parameter: string, audience: string, recipients: string) => [
    ...comment(`New${name}${suffix} makes an intent of the type ${type}. ${summary}`),
    `// It returns an *${own}InvalidIntentError for what the service would refuse.`,
    `func New${name}${suffix}(event ${own}Event, ${parameter}payload ${name}Payload) (${own}Intent, error) {`,
    `\treturn ${own}NewIntent(Catalog, "${type}", ${own}${audience}, ${recipients}, event, payload)`,
    '}',
    '',
  ];
  return audiences.flatMap((audience) =>
    audience === 'user'
      ? constructor('', 'recipientUserIDs []string, ', 'AudienceUser', 'recipientUserIDs')
      : constructor(audiences.length === 1 ? '' : 'ToAdministrators', '', 'AudienceAdminEmail', 'nil'),
  );
}

/** The form of a field as a literal of `PayloadField`. */
function formOf(name: string, field: PayloadField, isRequired: boolean, own: string): string {
  const parts = [`Name: "${name}"`, `Type: ${own}${pascalCase(field.type)}Field`];
  if (!isRequired) parts.push('Optional: true');
  if (field.type === 'string') {
    if (field.format !== undefined)
      parts.push(`Format: ${own}${field.format === 'line' ? 'Line' : 'Lines'}Format`);
    if (field.minLength !== undefined) parts.push(`Min: ${own}Limit(${field.minLength})`);
    if (field.maxLength !== undefined) parts.push(`Max: ${own}Limit(${field.maxLength})`);
    if (field.enum !== undefined)
      parts.push(`Enum: []string{${field.enum.map((value) => JSON.stringify(value)).join(', ')}}`);
  } else if (field.type === 'integer') {
    if (field.minimum !== undefined) parts.push(`Min: ${own}Limit(${field.minimum})`);
    if (field.maximum !== undefined) parts.push(`Max: ${own}Limit(${field.maximum})`);
  }
  return `{${parts.join(', ')}}`;
}

function catalogRow({ type, producer, audiences, fields, isRetired }: TypeSpec, own: string): string[] {
  const names = audiences.map(
    (audience) => own + (audience === 'user' ? 'AudienceUser' : 'AudienceAdminEmail'),
  );
  return [
    `\t"${type}": {`,
    ...aligned(
      [
        ['Producer:', `"${producer}",`],
        ['Audiences:', `[]${own}AudienceKind{${names.join(', ')}},`],
        ...(isRetired ? [['Retired:', 'true,']] : []),
      ],
      '\t\t',
    ),
    `\t\tFields: []${own}PayloadField{`,
    ...fields.map(({ name, field, isRequired }) => `\t\t\t${formOf(name, field, isRequired, own)},`),
    '\t\t},',
    '\t},',
  ];
}

/**
 * @param of the package that the file belongs to; undefined: the client itself, with its limits.
 * @returns the text of catalog_generated.go, as gofmt wants it.
 */
export function goFile({ types }: Catalog, of?: string): string {
  const own = of === undefined ? '' : 'notificationintent.';
  const limits = [
    'const (',
    ...aligned(
      Object.entries(LIMITS).map(([name, value]) => [
        goName(name.toLowerCase()).replace(/^M/, 'm'),
        `= ${value}`,
      ]),
      '\t',
    ),
    ')',
  ];
  return [
    '// Code generated by galaxy-notify catalog clients from the catalog. DO NOT EDIT.',
    '',
    `package ${of ?? 'notificationintent'}`,
    '',
    ...(of === undefined ? limits : [`import notificationintent "${MODULE}"`]),
    '',
    '// Catalog has the types that the service knows.',
    `var Catalog = ${own}TypeCatalog{`,
    ...[...types.values()].flatMap((spec) => catalogRow(spec, own)),
    '}',
    '',
    ...[...types.values()].flatMap((spec) => [...payloadType(spec, own), ...constructors(spec, own)]),
  ]
    .join('\n')
    .replace(/\n+$/, '\n');
}
