/** The YAML contracts, the zod schemas, the catalog, the FlatBuffers schema and the code say the same. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { z } from 'zod';
import type { NotificationType } from '../../api/intent/catalog.ts';
import {
  OPTIONAL_ENVELOPE_FIELDS,
  REQUIRED_ENVELOPE_FIELDS,
  TRACEPARENT_FIELD,
  entryFieldsOf,
} from '../../api/intent/entry.ts';
import { GALAXY } from '../../api/intent/galaxy.ts';
import { flatBuffersSchemaOf } from '../../api/intent/outbound-entries.ts';
import {
  emailAddressSchema,
  subjectNotFoundSchema,
  userPath,
  userSchema,
} from '../../api/intent/user-service.ts';
import type { Vectors } from '../../dev/contracts/vectors.ts';
import { entryOfVector } from '../../dev/contracts/vectors.ts';
import { publishedContract, schemaNamed } from '../published-contract.ts';
import { NOTIFICATION_TYPES, audiencesOf, channelsOf, parseIntent, schemaOf, specOf } from './galaxy.ts';

/** As much of JSON Schema as is looked into here. */
interface Schema {
  $ref?: string;
  type?: string;
  required?: string[];
  properties?: Record<string, Schema>;
  contentSchema?: Schema;
  examples?: object[];
}
interface Message {
  'x-channels'?: Record<string, string[]>;
  'x-priority'?: string;
  payload: Schema;
  examples?: { payload: Record<string, string> }[];
}
interface AsyncApi {
  channels: Record<string, { address: string; messages: Record<string, Message> }>;
  components: { schemas: Record<string, Schema> };
}
interface MediaType {
  schema: Schema;
  example?: unknown;
  examples?: Record<string, { value: unknown }>;
}
interface OpenApi {
  paths: Record<
    string,
    { get: { responses: Record<string, { content: { 'application/json': MediaType } }> } }
  >;
  components: { schemas: Record<string, Schema> };
}

const API = path.join(import.meta.dirname, '../../api');

const { entries: vectors } = JSON.parse(
  readFileSync(path.join(API, 'intent/vectors.json'), 'utf8'),
) as Vectors;
const { document: asyncApi, problems } = publishedContract<AsyncApi>('intent/intents-asyncapi.yaml');
const probes = publishedContract<OpenApi>('probe-openapi.yaml');
const users = publishedContract<OpenApi>('intent/user-service-openapi.yaml');

/** What a schema is, or refers to. */
const resolved = (schema: Schema = {}): Schema =>
  schema.$ref === undefined ? schema : resolved(asyncApi.components.schemas[schema.$ref.split('/').at(-1)!]);

const MESSAGES = asyncApi.channels['intents']!.messages;

const entryPointer = (type: NotificationType) => ['channels', 'intents', 'messages', type, 'payload'];
const payloadPointer = (type: NotificationType) => [
  ...entryPointer(type),
  ...['properties', 'payload_json', 'contentSchema'],
];
const payloadSchemaOf = (type: NotificationType): Schema =>
  resolved(MESSAGES[type]!.payload.properties?.['payload_json']?.contentSchema);

const textsOf = (vector: Vectors['entries'][number]): Record<string, string> =>
  Object.fromEntries(entryOfVector(vector).map(([name, value]) => [String(name), String(value)]));

it('I38 the contract has the messages of the catalog and no other', () => {
  expect(asyncApi.channels['intents']!.address).toBe('notification:intents');
  expect(Object.keys(MESSAGES).sort()).toEqual([...NOTIFICATION_TYPES].sort());
  expect(NOTIFICATION_TYPES).toHaveLength(18);
});

it('I38 I4 the envelope has the fields of the code', () => {
  const envelope = resolved(asyncApi.components.schemas['AnyIntent']);
  expect(envelope.required?.toSorted()).toEqual([...REQUIRED_ENVELOPE_FIELDS].sort());
  expect(Object.keys(envelope.properties ?? {}).sort()).toEqual(
    [...REQUIRED_ENVELOPE_FIELDS, ...OPTIONAL_ENVELOPE_FIELDS, TRACEPARENT_FIELD].sort(),
  );
});

it.each([
  ...REQUIRED_ENVELOPE_FIELDS.map((field) => `without ${field}`),
  ...['users without recipients', 'administrators with recipients'],
  ...['producer: another one', 'producer: unknown', 'audience_kind: not of the type'],
])('I38 I4 the contract refuses an intent %s, as the service does', (name) => {
  const vector = vectors.find((one) => one.name === name)!;
  expect(vector.refused).toBeDefined();
  const entry = textsOf(vector);
  const type = entry['notification_type'] ?? 'game.turn.ready';
  expect(problems(entryPointer(type), entry)).not.toEqual([]);
});

describe.each(NOTIFICATION_TYPES)('I38 I5 %s', (type) => {
  const { properties, required } = z.toJSONSchema(schemaOf(type)) as Schema;

  it('I87 names type, producer, channels and priority as the catalog does', () => {
    const message = MESSAGES[type]!;
    expect(message.payload.properties).toMatchObject({
      notification_type: { const: type },
      producer: { const: specOf(type).producer },
    });
    expect(message['x-channels']).toEqual(
      Object.fromEntries(audiencesOf(type).map((audience) => [audience, channelsOf(type, audience)])),
    );
    expect(message['x-priority']).toBe(specOf(type).isUrgent ? 'urgent' : undefined);
  });

  it('has the payload fields of the zod schema, all required', () => {
    const schema = payloadSchemaOf(type);
    expect(schema.required).toEqual(required);
    const typesIn = (schemas: Record<string, Schema> = {}) =>
      Object.fromEntries(Object.entries(schemas).map(([field, schema]) => [field, resolved(schema).type]));
    expect(typesIn(schema.properties)).toEqual(typesIn(properties));
  });

  it('has an example that contract and zod accept, also with further fields', () => {
    const [example] = payloadSchemaOf(type).examples!;
    for (const payload of [example, { ...example, further: { reason: 5 } }]) {
      expect(problems(payloadPointer(type), payload)).toEqual([]);
      expect(schemaOf(type).parse(payload)).toEqual(payload);
    }
  });

  it('the contract judges the vectors of the type as the service does', () => {
    const own = vectors.filter(({ name }) => name.startsWith(`${type} `));
    expect(own.length).toBeGreaterThan(2 + 3 * Object.keys(properties ?? {}).length);
    for (const vector of own) {
      const entry = textsOf(vector);
      const found = [
        ...problems(entryPointer(type), entry),
        ...problems(payloadPointer(type), JSON.parse(entry['payload_json']!)),
      ];
      expect([vector.name, found.length === 0]).toEqual([vector.name, vector.accepted !== undefined]);
    }
  });
});

describe('I38 examples', () => {
  const entries = Object.entries(asyncApi.channels).flatMap(([channel, { messages }]) =>
    Object.entries(messages).flatMap(([name, message]) =>
      (message.examples ?? []).map(({ payload }) => ({ channel, name, payload, schema: message.payload })),
    ),
  );

  it('there are some for every channel', () => {
    expect([...new Set(entries.map(({ channel }) => channel))].sort()).toEqual(
      Object.keys(asyncApi.channels).sort(),
    );
  });

  it.each(entries)(
    '$channel $name is valid, and so is the JSON in it; the service accepts it if it is an intent',
    ({ channel, name, payload, schema }) => {
      const pointer = ['channels', channel, 'messages', name, 'payload'];
      expect(problems(pointer, payload)).toEqual([]);
      for (const [field, { contentSchema }] of Object.entries(schema.properties ?? {})) {
        if (contentSchema === undefined) continue;
        const content: unknown = JSON.parse(payload[field] ?? '');
        expect(problems([...pointer, 'properties', field, 'contentSchema'], content)).toEqual([]);
      }
      if (channel === 'intents')
        expect(parseIntent('1-0', entryFieldsOf(payload))).toMatchObject({ ok: true });
    },
  );

  const responses = [
    ...Object.entries(probes.document.paths),
    ...Object.entries(users.document.paths),
  ].flatMap(([route, { get }]) =>
    Object.entries(get.responses).flatMap(([status, { content }]) => {
      const { schema, example, examples = {} } = content['application/json'];
      const values = Object.values(examples).map(({ value }) => value);
      return { route, status, schema, values: example === undefined ? values : [example, ...values] };
    }),
  );

  it('I31 the probes answer as the seed says', () => {
    const answers = responses.filter(({ route }) => route in probes.document.paths);
    expect(answers.map(({ route, status, values }) => [route, status, ...values])).toEqual([
      ['/healthz', '200', { status: 'ok' }],
      ['/readyz', '200', { status: 'ready' }],
      ['/readyz', '503', { status: 'not_ready' }],
    ]);
  });

  it.each(responses)('$route $status', ({ route, schema, values }) => {
    const contract = route in probes.document.paths ? probes : users;
    expect(values).not.toEqual([]);
    for (const value of values) {
      expect(contract.problems((schema.$ref ?? '').split('/').slice(1), value)).toEqual([]);
    }
  });
});

describe('I38 I11 User Service', () => {
  const judge = (schema: string, zod: z.ZodType, value: unknown) => ({
    contract: users.problems(schemaNamed(schema), value).length === 0,
    zod: zod.safeParse(value).success,
  });

  it.each([
    [true, { email: 'ada@example.com', preferred_language: 'en' }],
    [true, { email: 'ada@example.com', preferred_language: 'tlh', id: 1 }],
    [true, { email: 'jürgen+x@müller.example' }],
    [true, { email: 'ada@example.com', preferred_language: null }],
    [true, { email: 'ada@localhost', preferred_language: 7 }],
    [false, { preferred_language: 'en' }],
    [false, { email: null }],
    [false, { email: 'a@b.example, c@d.example' }],
    [false, { email: `${'a'.repeat(320)}@example.com` }],
    [false, []],
    [false, null],
  ])('%p: the user %j', (contract, user) => {
    expect(judge('User', userSchema, user)).toEqual({ contract, zod: contract });
  });

  it.each([
    [true, { error: { code: 'subject_not_found', message: 'user-404' } }],
    [true, { error: { code: 'subject_not_found' } }],
    [false, { error: { code: 'route_not_found', message: 'no such path' } }],
    [false, { error: 'subject_not_found' }],
    [false, { code: 'subject_not_found' }],
    [false, undefined],
  ])('%p: the error %j says that there is no such user', (contract, error) => {
    expect(judge('SubjectNotFound', subjectNotFoundSchema, error)).toEqual({ contract, zod: contract });
  });

  it('the path is the one of the contract', () => {
    const [path] = Object.keys(users.document.paths);
    expect(userPath('user-42')).toBe(path?.replace('{user_id}', 'user-42'));
  });

  it('the contract has the rule for addresses that the code has', () => {
    const { pattern, maxLength } = z.toJSONSchema(emailAddressSchema);
    expect(users.document.components.schemas['User']?.properties?.['email']).toMatchObject({
      pattern,
      maxLength,
    });
  });
});

it('I38 I16 notification.fbs has the tables of the catalog, and nothing that would tell them apart in the bytes', () => {
  const committed = readFileSync(path.join(API, 'intent', 'notification.fbs'), 'utf8');
  expect(committed).toBe(flatBuffersSchemaOf(GALAXY));
  const schema = committed.replaceAll(/\/\/.*/g, '');
  expect(schema).toMatch(/^namespace notification;$/m);
  expect(schema).not.toMatch(/\b(union|root_type|file_identifier|struct|enum)\b/);
});
