/** The vectors and schemas that clients in all languages are tested and generated with. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { Ajv2020 } from 'ajv/dist/2020.js';
import type { AnySchemaObject, ValidateFunction } from 'ajv/dist/2020.js';
import { derivedFiles } from '../../dev/contracts/derived-files.ts';
import type { Vector, Vectors } from '../../dev/contracts/vectors.ts';
import { entryOfVector } from '../../dev/contracts/vectors.ts';
import { INTENT_FAILURE_CODES, fieldNamedIn, fingerprintOf } from '../../api/intent/entry.ts';
import { NOTIFICATION_TYPES, PUSH_NOTIFICATION_TYPES, decodePushPayload, parseIntent } from './galaxy.ts';

const ROOT = path.join(import.meta.dirname, '../..');
const read = (file: string): string => readFileSync(path.join(ROOT, file), 'utf8');
const { entries, push_payloads: pushes } = JSON.parse(read('api/intent/vectors.json')) as Vectors;

test('I70 what is generated from the contract is committed as it would be generated', () => {
  const outdated = derivedFiles().filter(([file, text]) => read(file) !== text);
  expect(outdated.map(([file]) => `${file}: npm run generate`)).toEqual([]);
});

test('I70 I4 I6 I8 the service decides every vector as the committed file says, with its fingerprint', () => {
  const decided = entries.map(({ name, fields, further_fields = 0 }): Vector => {
    const given = { name, fields, ...(further_fields === 0 ? {} : { further_fields }) };
    const parsed = parseIntent('1-0', entryOfVector(given));
    if (!parsed.ok) {
      const { failureCode, failureMessage } = parsed.malformed;
      const names = fieldNamedIn(failureMessage) ?? 'the entry';
      return { ...given, refused: { code: failureCode as (typeof INTENT_FAILURE_CODES)[number], names } };
    }
    const { payloadJson, recipientUserIds, expiresAtMs, traceparent } = parsed.intent;
    return {
      ...given,
      accepted: {
        fingerprint: fingerprintOf(parsed.intent),
        payload_json: payloadJson,
        recipient_user_ids: recipientUserIds,
        ...(expiresAtMs === undefined ? {} : { expires_at_ms: expiresAtMs }),
        ...(traceparent === undefined ? {} : { traceparent }),
      },
    };
  });
  // A long payload or audience is left out of the file, and intents for administrators name no user.
  expect(decided).toMatchObject(entries);
});

test('I70 vectors have every code, every field that can be wrong, and every type with each of its fields', () => {
  const refused = entries.flatMap((entry) => entry.refused ?? []);
  expect([...new Set(refused.map(({ code }) => code))].sort()).toEqual([...INTENT_FAILURE_CODES].sort());
  for (const type of NOTIFICATION_TYPES) {
    const own = entries.filter(({ name }) => name.startsWith(`${type} `));
    expect(own.some(({ accepted }) => accepted)).toBe(true);
    expect(own.some((entry) => entry.refused?.code === 'invalid_payload')).toBe(true);
  }
});

test('I70 I16 there is a push payload for each type that has one, and it says what its fields say', () => {
  expect(pushes.map(({ type }) => type)).toEqual(PUSH_NOTIFICATION_TYPES);
  for (const { type, fields, base64 } of pushes) {
    expect(decodePushPayload(type, Buffer.from(base64, 'base64'))).toEqual(fields);
  }
});

const ajv = new Ajv2020({ allErrors: true });
const schemas = new Map<string, { schema: AnySchemaObject; validate: ValidateFunction }>(
  NOTIFICATION_TYPES.map((type) => {
    const schema = JSON.parse(read(`api/intent/schemas/${type}.schema.json`)) as AnySchemaObject;
    return [type, { schema, validate: ajv.compile(schema) }];
  }),
);

const textOf = (vector: Vector, name: string): string =>
  entryOfVector(vector)
    .find(([field]) => field.toString() === name)![1]
    .toString();

/** A pattern does not count. */
const MORE_THAN_A_SCHEMA_SAYS = [
  'payload_json: an open isolate in a name',
  'payload_json: an isolate in a name that ends before it begins',
];

test('I70 I38 bug-P8 the JSON Schema of a type judges payloads as the service does', () => {
  let judged = { valid: 0, invalid: 0 };
  for (const vector of entries) {
    const isAboutField = vector.refused?.names.startsWith('payload_json.') === true;
    if (vector.accepted === undefined && !isAboutField) continue;
    const { validate } = schemas.get(textOf(vector, 'notification_type'))!;
    const isValid = validate(JSON.parse(textOf(vector, 'payload_json')));
    const isAccepted = !isAboutField || MORE_THAN_A_SCHEMA_SAYS.includes(vector.name);
    expect([vector.name, isValid]).toEqual([vector.name, isAccepted]);
    judged = { valid: judged.valid + Number(isValid), invalid: judged.invalid + Number(!isValid) };
  }
  expect(judged.valid).toBeGreaterThan(50);
  expect(judged.invalid).toBeGreaterThan(200);
  for (const { schema, validate } of schemas.values()) {
    for (const example of schema['examples'] as unknown[]) expect(validate(example)).toBe(true);
  }
});
