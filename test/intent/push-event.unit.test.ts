/**
 * What goes out to Gateway and Mail Service: entries as the published contract judges them, and push payloads as a decoder reads
 * them that shares no code with the encoder.
 */
import type { MailCommand, PushEvent } from '../../api/intent/outbound-entries.ts';
import {
  gatewayEntryFields,
  mailCommandPayloadSchema,
  mailEntryFields,
} from '../../api/intent/outbound-entries.ts';
import { resolveLocale } from '../../api/intent/user-service.ts';
import { publishedContract } from '../published-contract.ts';
import {
  NOTIFICATION_TYPES,
  PUSH_NOTIFICATION_TYPES,
  encodePushPayload,
  fieldsOf,
  pushFieldNamesOf,
  readPushPayload,
  specOf,
} from './galaxy.ts';

function isNumberField(type: string, field: string): boolean {
  return specOf(type).fields.some(({ name, field: one }) => name === field && one.type === 'integer');
}

/** A payload with all fields of the type, its texts all different so that swapped fields show. */
function payloadOf(type: string, texts = 'text', integer = 1): Record<string, unknown> {
  return Object.fromEntries(
    fieldsOf(type).map((field) => [field, isNumberField(type, field) ? integer : `${texts} of ${field}`]),
  );
}

const SAMPLES: [what: string, texts: string, integer: number][] = [
  ['ordinary values', 'text', 12],
  ['the largest integer', 'text', Number.MAX_SAFE_INTEGER],
  ['the default of a long', 'text', 0],
  ['unicode', 'Ωrion 猫 👩‍🚀 "\\\u0001', 1],
  ['long texts', 'x'.repeat(100_000), 1],
];

describe.each(PUSH_NOTIFICATION_TYPES)('I16 push payload of %s', (type) => {
  const names = pushFieldNamesOf(type);

  it.each(SAMPLES)('is read back by the format alone: %s', (_, texts, integer) => {
    const payload = payloadOf(type, texts, integer);
    expect(readPushPayload(type, encodePushPayload(type, payload))).toEqual(
      Object.fromEntries(names.map((name) => [name, payload[name]])),
    );
  });

  it('does not carry the rest of the payload', () => {
    const rest = { game_name: 'SECRET', extra: 'SECRET', device_session_id: 'SECRET' };
    expect(Buffer.from(encodePushPayload(type, { ...payloadOf(type), ...rest })).includes('SECRET')).toBe(
      false,
    );
  });

  it.each(names)('refuses a payload without %s, or with one of another type, by name', (name) => {
    const ofOtherTypes = isNumberField(type, name) ? ['12', 1.5, 2 ** 53, NaN] : [12, ['a'], {}];
    for (const wrong of [undefined, null, ...ofOtherTypes]) {
      const payload = { ...payloadOf(type), [name]: wrong };
      expect(() => encodePushPayload(type, payload)).toThrow(`${type}: payload field ${name} must be`);
    }
  });
});

it('I16 ten types have a push event, the others are refused', () => {
  expect(PUSH_NOTIFICATION_TYPES).toHaveLength(10);
  for (const type of NOTIFICATION_TYPES.filter((type) => specOf(type).push === undefined)) {
    expect(() => encodePushPayload(type, {})).toThrow(`${type} has no push event`);
  }
});

interface ObjectSchema {
  required: string[];
  properties: Record<string, { contentSchema?: ObjectSchema }>;
}
const { document, problems } = publishedContract<{
  channels: Record<string, { address: string; messages: Record<string, { payload: ObjectSchema }> }>;
}>('intent/intents-asyncapi.yaml');

/** What the contract says about the one kind of entry of a stream. */
function contractOf(address: string) {
  const [channel, found] = Object.entries(document.channels).find(([, one]) => one.address === address)!;
  const [name, { payload }] = Object.entries(found.messages)[0]!;
  return { payload, pointer: ['channels', channel, 'messages', name, 'payload'] };
}
const namesIn = (fields: [string, unknown][]) => fields.map(([name]) => name);
/** Binary values as the contract writes them. */
const textsOf = (fields: [string, string | Buffer][]) =>
  Object.fromEntries(fields.map(([name, value]) => [name, value.toString('base64')]));

const TRACING = {
  requestId: 'request-1',
  traceId: 'trace-1',
  traceparent: '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01',
};
const UNTRACED = { requestId: null, traceId: undefined, traceparent: undefined };

describe('I17 gateway entry', () => {
  const { payload, pointer } = contractOf('gateway:client-events');
  const event: PushEvent = {
    notificationId: '1769731200000-0',
    routeId: 'push:user:user-42',
    recipientRef: 'user:user-42',
    notificationType: 'game.turn.ready',
    payloadBytes: encodePushPayload('game.turn.ready', { game_id: 'game-7', turn_number: 12 }),
    ...TRACING,
  };

  it('I17 I38 has exactly the fields of the contract, and no device session', () => {
    const fields = gatewayEntryFields(event);
    expect(fields).toEqual([
      ['event_type', 'game.turn.ready'],
      ['event_id', '1769731200000-0/push:user:user-42'],
      ['user_id', 'user-42'],
      ['payload_bytes', Buffer.from(event.payloadBytes)],
      ['request_id', 'request-1'],
      ['trace_id', 'trace-1'],
      ['traceparent', TRACING.traceparent],
    ]);
    const entry = { ...textsOf(fields), item_count: '2' };
    expect(problems(pointer, entry)).toEqual([]);
    expect(problems(pointer, { ...entry, device_session_id: 'd' })).not.toEqual([]);
    expect(Object.keys(payload.properties)).toEqual(Object.keys(entry));
  });

  it('leaves out tracing ids that the intent did not have', () => {
    const namesWith = (changes: Partial<PushEvent>) =>
      namesIn(gatewayEntryFields({ ...event, ...UNTRACED, ...changes }));
    expect(namesWith({})).toEqual(payload.required);
    expect(namesWith({ traceId: 't' })).toEqual([...payload.required, 'trace_id']);
    expect(namesWith({ requestId: 'r', traceId: '' })).toEqual([...payload.required, 'request_id']);
  });

  it('keeps bytes that are a part of a larger buffer', () => {
    const around = Buffer.concat([Buffer.from('before'), event.payloadBytes, Buffer.from('after')]);
    const part = new Uint8Array(around.buffer, around.byteOffset + 6, event.payloadBytes.length);
    const fields = new Map(gatewayEntryFields({ ...event, payloadBytes: part }));
    expect(fields.get('payload_bytes')).toEqual(Buffer.from(event.payloadBytes));
  });

  it('takes the user id as it is, and no other recipient', () => {
    const userIdOf = (recipientRef: string) =>
      new Map(gatewayEntryFields({ ...event, recipientRef })).get('user_id');
    expect(userIdOf('user:user:a/b ü')).toBe('user:a/b ü');
    for (const other of ['email:ada@example.com', 'config:game.turn.ready', 'user:', '']) {
      expect(() => userIdOf(other)).toThrow('recipient is not a user');
    }
  });
});

describe('I18 mail entry', () => {
  const { payload, pointer } = contractOf('mail:delivery_commands');
  const command: MailCommand = {
    notificationId: '1769731200000-0',
    routeId: 'email:user:user-42',
    templateId: 'game.turn.ready',
    email: 'ada@example.com',
    locale: 'en',
    acceptedAtMs: 1_769_731_200_123,
    payloadJson: '{"game_id":"game-7","game_name":"Orion","turn_number":12}',
    ...TRACING,
  };
  const payloadJsonOf = (command: MailCommand): string =>
    String(new Map(mailEntryFields(command)).get('payload_json'));
  const mail = {
    to: ['ada@example.com'],
    cc: [],
    bcc: [],
    reply_to: [],
    attachments: [],
    template_id: 'game.turn.ready',
    locale: 'en',
    variables: { game_id: 'game-7', game_name: 'Orion', turn_number: 12 },
  };

  it('I18 I38 has exactly the fields of the contract, tracing ids where the intent had them', () => {
    const fields = mailEntryFields(command);
    expect(fields).toEqual([
      ['delivery_id', '1769731200000-0/email:user:user-42'],
      ['source', 'notification'],
      ['payload_mode', 'template'],
      ['idempotency_key', 'notification:1769731200000-0/email:user:user-42'],
      ['requested_at_ms', '1769731200123'],
      ['payload_json', expect.any(String)],
      ['request_id', 'request-1'],
      ['trace_id', 'trace-1'],
      ['traceparent', TRACING.traceparent],
    ]);
    expect(problems(pointer, textsOf(fields))).toEqual([]);
    expect(Object.keys(payload.properties)).toEqual(namesIn(fields));
    expect(namesIn(mailEntryFields({ ...command, ...UNTRACED }))).toEqual(payload.required);
  });

  it('asks for one mail to one recipient from the template of the type', () => {
    expect(JSON.parse(payloadJsonOf(command))).toEqual(mail);
  });

  it('I18 I38 has a payload about which contract and zod say the same', () => {
    const schema = payload.properties['payload_json']!.contentSchema!;
    expect(schema.required).toEqual(Object.keys(mailCommandPayloadSchema.shape));
    expect(Object.keys(schema.properties)).toEqual(schema.required);
    const judge = (variant: unknown) => [
      problems([...pointer, 'properties', 'payload_json', 'contentSchema'], variant).length === 0,
      mailCommandPayloadSchema.safeParse(variant).success,
    ];
    for (const change of [{}, { variables: { any: 'thing' } }])
      expect(judge({ ...mail, ...change })).toEqual([true, true]);
    for (const change of [
      ...Object.keys(mail).map((field) => ({ [field]: undefined })),
      ...['cc', 'bcc', 'reply_to', 'attachments'].map((field) => ({ [field]: ['a@example.com'] })),
      ...[{ to: [] }, { to: ['a@example.com', 'b@example.com'] }, { locale: 'de' }, { variables: [] }],
    ]) {
      const variant: unknown = JSON.parse(JSON.stringify({ ...mail, ...change }));
      expect([change, ...judge(variant)]).toEqual([change, false, false]);
    }
  });

  it('passes all variables through, whatever they are called', () => {
    const payloadJson =
      '{"__proto__":{"a":1},"constructor":2,"extra":[null,{"deep":"ü"}],"game_id":"game-7"}';
    const sent = payloadJsonOf({ ...command, payloadJson });
    expect(sent).toContain(`"variables":${payloadJson}`);
    const received = mailCommandPayloadSchema.parse(JSON.parse(sent));
    expect(JSON.stringify(received.variables)).toBe(payloadJson);
  });

  it.each(['', 'nobody', 'a@b@c', 'a,b@c', 'a@b;c', '<a@b>', 'a@b\r\nBcc: c@d', 'a@b\0', 'a @b'])(
    'refuses the recipient %j',
    (email) => {
      expect(() => mailEntryFields({ ...command, email })).toThrow('must be one e-mail address');
    },
  );

  it.each(['[]', 'null', '"text"', '{', ''])('refuses the variables %j', (payloadJson) => {
    expect(() => mailEntryFields({ ...command, payloadJson })).toThrow();
  });
});

it('I13 a preferred language that is not exactly a supported one gives locale en', () => {
  for (const preferred of ['en', 'EN', 'en-US', 'de', '', undefined, null, 7])
    expect(resolveLocale(preferred)).toBe('en');
});
