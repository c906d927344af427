/** What goes out to Gateway and Mail Service, read back by decoders that share no code with the encoder. */
import {
  mailCommandPayloadSchema,
  mailEntryFields,
  gatewayEntryFields,
} from '../../api/intent/outbound-entries.ts';
import { resolveLocale } from '../../api/intent/user-service.ts';
import type { MailCommand, PushEvent } from '../../api/intent/outbound-entries.ts';
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
function payloadOf(type: string, texts: string, integer: number): Record<string, unknown> {
  return Object.fromEntries(
    fieldsOf(type).map((field) => [field, isNumberField(type, field) ? integer : `${texts} of ${field}`]),
  );
}

const pushFieldsOf = (type: string, payload: Record<string, unknown>): Record<string, unknown> =>
  Object.fromEntries(pushFieldNamesOf(type).map((field) => [field, payload[field]]));

const SAMPLES: [what: string, texts: string, integer: number][] = [
  ['ordinary values', 'text', 12],
  ['the largest integer', 'text', Number.MAX_SAFE_INTEGER],
  ['the default of a long', 'text', 0],
  ['unicode', 'Ωrion 猫 👩‍🚀 "\\\u0001', 1],
  ['long texts', 'x'.repeat(100_000), 1],
];

describe.each(PUSH_NOTIFICATION_TYPES)('I16 push payload of %s', (type) => {
  const fields = pushFieldNamesOf(type).map((name) => ({ name, long: isNumberField(type, name) }));

  it.each(SAMPLES)('is read back by the format alone: %s', (_, texts, integer) => {
    const payload = payloadOf(type, texts, integer);
    expect(readPushPayload(type, encodePushPayload(type, payload))).toEqual(pushFieldsOf(type, payload));
  });

  it('does not carry the rest of the payload', () => {
    const payload = payloadOf(type, 'text', 1);
    const padded = { ...payload, game_name: 'SECRET', extra: 'SECRET', device_session_id: 'SECRET' };
    expect(Buffer.from(encodePushPayload(type, padded)).includes('SECRET')).toBe(false);
  });

  it.each(fields)(
    'refuses a payload without $name, or with one of another type, by name',
    ({ name, long }) => {
      for (const wrong of [undefined, null, ...(long ? ['12', 1.5, 2 ** 53, NaN] : [12, ['a'], {}])]) {
        const payload = { ...payloadOf(type, 'text', 1), [name]: wrong };
        expect(() => encodePushPayload(type, payload)).toThrow(`${type}: payload field ${name} must be`);
      }
    },
  );
});

it('I16 ten types have a push event, the others are refused', () => {
  expect(PUSH_NOTIFICATION_TYPES).toHaveLength(10);
  for (const type of NOTIFICATION_TYPES.filter((type) => specOf(type).push === undefined)) {
    expect(() => encodePushPayload(type, {})).toThrow(`${type} has no push event`);
  }
});

describe('I17 gateway entry', () => {
  const event: PushEvent = {
    notificationId: '1769731200000-0',
    routeId: 'push:user:user-42',
    recipientRef: 'user:user-42',
    notificationType: 'game.turn.ready',
    payloadBytes: encodePushPayload('game.turn.ready', { game_id: 'game-7', turn_number: 12 }),
    requestId: 'request-1',
    traceId: 'trace-1',
  };

  it('has exactly the fields of the contract', () => {
    expect(gatewayEntryFields(event)).toEqual([
      ['event_type', 'game.turn.ready'],
      ['event_id', '1769731200000-0/push:user:user-42'],
      ['user_id', 'user-42'],
      ['payload_bytes', Buffer.from(event.payloadBytes)],
      ['request_id', 'request-1'],
      ['trace_id', 'trace-1'],
    ]);
  });

  it('leaves out tracing ids that the intent did not have', () => {
    const names = ({ requestId, traceId }: Pick<PushEvent, 'requestId' | 'traceId'>) =>
      gatewayEntryFields({ ...event, requestId, traceId }).map(([name]) => name);
    const required = ['event_type', 'event_id', 'user_id', 'payload_bytes'];
    expect(names({ requestId: null, traceId: null })).toEqual(required);
    expect(names({ requestId: undefined, traceId: 't' })).toEqual([...required, 'trace_id']);
    expect(names({ requestId: 'r', traceId: '' })).toEqual([...required, 'request_id']);
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
  const command: MailCommand = {
    notificationId: '1769731200000-0',
    routeId: 'email:user:user-42',
    templateId: 'game.turn.ready',
    email: 'ada@example.com',
    locale: 'en',
    acceptedAtMs: 1_769_731_200_123,
    payloadJson: '{"game_id":"game-7","game_name":"Orion","turn_number":12}',
    requestId: 'request-1',
    traceId: 'trace-1',
  };
  const payloadJsonOf = (command: MailCommand): string =>
    String(new Map(mailEntryFields(command)).get('payload_json'));

  it('has exactly the fields of the contract', () => {
    expect(mailEntryFields(command)).toEqual([
      ['delivery_id', '1769731200000-0/email:user:user-42'],
      ['source', 'notification'],
      ['payload_mode', 'template'],
      ['idempotency_key', 'notification:1769731200000-0/email:user:user-42'],
      ['requested_at_ms', '1769731200123'],
      ['payload_json', expect.any(String)],
      ['request_id', 'request-1'],
      ['trace_id', 'trace-1'],
    ]);
    expect(mailEntryFields({ ...command, requestId: null, traceId: undefined })).toHaveLength(6);
  });

  it('asks for one mail to one recipient from the template of the type', () => {
    expect(JSON.parse(payloadJsonOf(command))).toEqual({
      to: ['ada@example.com'],
      cc: [],
      bcc: [],
      reply_to: [],
      attachments: [],
      template_id: 'game.turn.ready',
      locale: 'en',
      variables: { game_id: 'game-7', game_name: 'Orion', turn_number: 12 },
    });
  });

  it('passes all variables through, whatever they are called', () => {
    const payloadJson =
      '{"__proto__":{"a":1},"constructor":2,"extra":[null,{"deep":"ü"}],"game_id":"game-7"}';
    const sent = payloadJsonOf({ ...command, payloadJson });
    expect(sent).toContain(`"variables":${payloadJson}`);
    const received = mailCommandPayloadSchema.parse(JSON.parse(sent));
    expect(JSON.stringify(received.variables)).toBe(payloadJson);
  });

  it.each([
    '',
    'nobody',
    'a@b@c',
    'a@b,c@d',
    'a@b;c@d',
    'Ada <a@b>',
    'a@b\r\nBcc: c@d',
    'a@b\0',
    'a @b',
    'a,b@c',
    'a@b;c',
    '<a@b>',
  ])('refuses the recipient %j', (email) => {
    expect(() => mailEntryFields({ ...command, email })).toThrow('must be one e-mail address');
  });

  it.each(['[]', 'null', '"text"', '{', ''])('refuses the variables %j', (payloadJson) => {
    expect(() => mailEntryFields({ ...command, payloadJson })).toThrow();
  });
});

it.each([
  ['en', 'en'],
  ['EN', 'en'],
  ['en-US', 'en'],
  ['de', 'en'],
  ['', 'en'],
  [undefined, 'en'],
  [null, 'en'],
  [7, 'en'],
])('I13 preferred language %p gives locale %s', (preferred, locale) => {
  expect(resolveLocale(preferred)).toBe(locale);
});
