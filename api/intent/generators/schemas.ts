/** Plain JSON Schema of each type's payload, for generators and validators that do not read AsyncAPI. */
import type { Catalog, PayloadField } from '../catalog.ts';
import { pascalCase } from '../catalog.ts';

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

/** @returns `<type>.schema.json` and its text for each type. */
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
