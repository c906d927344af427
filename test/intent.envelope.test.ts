/** The inbound contract: what parseIntent accepts, what it refuses and why (seed "Stable Input Contract", "Catalog"). */
import fc from 'fast-check';
import type { AudienceKind, NotificationType, Producer } from '../api/catalog.ts';
import { AUDIENCE_KINDS, CATALOG, NOTIFICATION_TYPES, PRODUCERS, audiencesOf } from '../api/catalog.ts';
import type { EntryFields, Intent, MalformedIntent } from '../api/intent.ts';
import {
  INTENT_FAILURE_CODES,
  MALFORMED_CODES,
  MAX_ENTRY_BYTES,
  OPTIONAL_ENVELOPE_FIELDS,
  REQUIRED_ENVELOPE_FIELDS,
  envelopeOf,
  parseIntent,
  rawFieldsOf,
} from '../api/intent.ts';
import { MAX_JSON_DEPTH } from '../api/json.ts';

/** The seed's table "Notification Catalog", written out. */
const SEED_CATALOG: [type: string, producer: string, audiences: string[], payloadFields: string[]][] = [
  [
    'geo.review_recommended',
    'geoprofile',
    ['admin_email'],
    ['user_id', 'user_email', 'observed_country', 'usual_connection_country', 'review_reason'],
  ],
  ['game.turn.ready', 'game_master', ['user'], ['game_id', 'game_name', 'turn_number']],
  ['game.finished', 'game_master', ['user'], ['game_id', 'game_name', 'final_turn_number']],
  ['game.generation_failed', 'game_master', ['admin_email'], ['game_id', 'game_name', 'failure_reason']],
  ['lobby.runtime_paused_after_start', 'game_lobby', ['admin_email'], ['game_id', 'game_name']],
  [
    'lobby.application.submitted',
    'game_lobby',
    ['user', 'admin_email'],
    ['game_id', 'game_name', 'applicant_user_id', 'applicant_name'],
  ],
  ['lobby.membership.approved', 'game_lobby', ['user'], ['game_id', 'game_name']],
  ['lobby.membership.rejected', 'game_lobby', ['user'], ['game_id', 'game_name']],
  [
    'lobby.membership.blocked',
    'game_lobby',
    ['user'],
    ['game_id', 'game_name', 'membership_user_id', 'membership_user_name', 'reason'],
  ],
  [
    'lobby.invite.created',
    'game_lobby',
    ['user'],
    ['game_id', 'game_name', 'inviter_user_id', 'inviter_name'],
  ],
  [
    'lobby.invite.redeemed',
    'game_lobby',
    ['user'],
    ['game_id', 'game_name', 'invitee_user_id', 'invitee_name'],
  ],
  [
    'lobby.invite.expired',
    'game_lobby',
    ['user'],
    ['game_id', 'game_name', 'invitee_user_id', 'invitee_name'],
  ],
  [
    'lobby.race_name.registration_eligible',
    'game_lobby',
    ['user'],
    ['game_id', 'game_name', 'race_name', 'eligible_until_ms'],
  ],
  ['lobby.race_name.registered', 'game_lobby', ['user'], ['race_name']],
  [
    'lobby.race_name.registration_denied',
    'game_lobby',
    ['user'],
    ['game_id', 'game_name', 'race_name', 'reason'],
  ],
  ...['runtime.image_pull_failed', 'runtime.container_start_failed', 'runtime.start_config_invalid'].map(
    (type): [string, string, string[], string[]] => [
      type,
      'runtime_manager',
      ['admin_email'],
      ['game_id', 'image_ref', 'error_code', 'error_message', 'attempted_at_ms'],
    ],
  ),
];

const COUNTS = ['turn_number', 'final_turn_number'];
const TIMESTAMPS = ['eligible_until_ms', 'attempted_at_ms'];

const sampleValue = (field: string): string | number => {
  if (COUNTS.includes(field)) return 54;
  return TIMESTAMPS.includes(field) ? 1_775_121_700_000 : `some ${field}`;
};

const samplePayload = (type: NotificationType): Record<string, unknown> =>
  Object.fromEntries(Object.keys(CATALOG[type].payload).map((field) => [field, sampleValue(field)]));

type Changes = Record<string, string | Buffer | undefined>;

/** A valid entry of a type, with fields replaced, added or (undefined) left out. */
function entryOf(
  type: NotificationType,
  changes: Changes = {},
  audience = audiencesOf(type)[0]!,
): EntryFields {
  const fields: Changes = {
    notification_type: type,
    producer: CATALOG[type].producer,
    audience_kind: audience,
    ...(audience === 'user' ? { recipient_user_ids_json: '["user-1","user-2"]' } : {}),
    idempotency_key: 'key-1',
    occurred_at_ms: '1775121700000',
    payload_json: JSON.stringify(samplePayload(type)),
    ...changes,
  };
  return Object.entries(fields).flatMap(([name, value]) =>
    value === undefined ? [] : [[Buffer.from(name), Buffer.from(value as string)] as const],
  );
}

const TURN = 'game.turn.ready';
const turn = (changes: Changes = {}): EntryFields => entryOf(TURN, changes);
const turnPayload = (extra: string): string => `{"game_id":"g","game_name":"n","turn_number":1${extra}}`;

function accepted(fields: EntryFields): Intent {
  const parsed = parseIntent('1775121700000-0', fields);
  if (!parsed.ok)
    throw new Error(`refused: ${parsed.malformed.failureCode} ${parsed.malformed.failureMessage}`);
  return parsed.intent;
}

function refused(fields: EntryFields): MalformedIntent {
  const parsed = parseIntent('1775121700000-0', fields);
  if (parsed.ok) throw new Error(`accepted: ${JSON.stringify(parsed.intent).slice(0, 500)}`);
  return parsed.malformed;
}

/** PostgreSQL's text and jsonb take neither NUL nor lone surrogates. */
function expectStorable(malformed: MalformedIntent): void {
  const texts = [
    malformed.streamEntryId,
    malformed.failureMessage,
    malformed.notificationType ?? '',
    malformed.producer ?? '',
    malformed.idempotencyKey ?? '',
    ...Object.entries(malformed.rawFields).flat(),
  ];
  for (const text of texts) {
    expect(text).not.toContain('\0');
    expect(text.isWellFormed()).toBe(true);
  }
  for (const column of [malformed.notificationType, malformed.producer, malformed.idempotencyKey]) {
    expect((column ?? '').length).toBeLessThanOrEqual(256);
  }
  expect(malformed.failureMessage.length).toBeLessThan(1_024);
  // 16 KiB, and names and notes of up to 64 fields that come after those are used up.
  expect(Buffer.byteLength(Object.entries(malformed.rawFields).flat().join(''))).toBeLessThan(32 * 1024);
  expect(JSON.parse(JSON.stringify(malformed.rawFields))).toEqual(malformed.rawFields);
}

describe('envelope', () => {
  test('I4 I7 a full entry becomes an intent whose id is the id of the entry', () => {
    const fields = turn({
      request_id: 'request-1',
      trace_id: 'trace-1',
      payload_json: ' {"turn_number":54.0,\n"game_name":"n","game_id":"g"}',
    });

    expect(parseIntent('1775121700000-7', fields)).toEqual({
      ok: true,
      intent: {
        notificationId: '1775121700000-7',
        notificationType: 'game.turn.ready',
        producer: 'game_master',
        audienceKind: 'user',
        recipientUserIds: ['user-1', 'user-2'],
        idempotencyKey: 'key-1',
        occurredAtMs: 1_775_121_700_000,
        payloadJson: '{"game_id":"g","game_name":"n","turn_number":54}',
        requestId: 'request-1',
        traceId: 'trace-1',
      },
    });
  });

  test('I4 the fields are the ones of the seed', () => {
    expect([...REQUIRED_ENVELOPE_FIELDS].sort()).toEqual([
      'audience_kind',
      'idempotency_key',
      'notification_type',
      'occurred_at_ms',
      'payload_json',
      'producer',
    ]);
    expect([...OPTIONAL_ENVELOPE_FIELDS].sort()).toEqual([
      'recipient_user_ids_json',
      'request_id',
      'trace_id',
    ]);
  });

  test.each(REQUIRED_ENVELOPE_FIELDS)('I4 a missing, empty or blank %s is refused by name', (name) => {
    expect(refused(turn({ [name]: undefined }))).toMatchObject({
      failureCode: 'invalid_envelope',
      failureMessage: `${name} is missing`,
    });
    for (const blank of ['', ' ', '\t\n', '\u00a0']) {
      expect(refused(turn({ [name]: blank }))).toMatchObject({
        failureCode: 'invalid_envelope',
        failureMessage: `${name} is empty`,
      });
    }
  });

  test.each([...REQUIRED_ENVELOPE_FIELDS, ...OPTIONAL_ENVELOPE_FIELDS])(
    'I4 I6 %s given twice is refused, even with the same value',
    (name) => {
      const fields = turn({ request_id: 'request-1', trace_id: 'trace-1' });
      const again = fields.find(([field]) => field.toString() === name)!;

      const malformed = refused([...fields, again]);

      expect(malformed).toMatchObject({
        failureCode: 'invalid_envelope',
        failureMessage: `${name} is given more than once`,
      });
      expect(malformed.rawFields[name]).toBe(again[1].toString());
      expect(malformed.rawFields[`${name} (2)`]).toBe(again[1].toString());
    },
  );

  test.each([...REQUIRED_ENVELOPE_FIELDS, ...OPTIONAL_ENVELOPE_FIELDS])(
    'I4 I6 %s that is not UTF-8 is refused and kept in a storable form',
    (name) => {
      const malformed = refused(turn({ [name]: Buffer.from([0x61, 0xff, 0xc0, 0x62]) }));

      expect(malformed).toMatchObject({
        failureCode: 'invalid_envelope',
        failureMessage: `${name} is not UTF-8`,
      });
      expect(malformed.rawFields[name]).toBe('a\ufffd\ufffdb');
      expectStorable(malformed);
    },
  );

  test.each([...REQUIRED_ENVELOPE_FIELDS, 'recipient_user_ids_json', 'request_id', 'trace_id'])(
    'I4 I6 a NUL character in %s is refused and kept in a storable form',
    (name) => {
      const malformed = refused(turn({ [name]: 'a\0b' }));

      expect(malformed.rawFields[name]).toBe('a\ufffdb');
      expectStorable(malformed);
    },
  );

  test.each(['idempotency_key', 'request_id', 'trace_id'])(
    'I4 %s has at most 1024 bytes and no control characters',
    (name) => {
      expect(envelopeOf(accepted(turn({ [name]: 'ü'.repeat(512) })))[name]).toBe('ü'.repeat(512));
      for (const value of [`${'ü'.repeat(512)}a`, 'x'.repeat(1_025)]) {
        expect(refused(turn({ [name]: value }))).toMatchObject({
          failureCode: 'invalid_envelope',
          failureMessage: `${name} is longer than 1024 bytes`,
        });
      }
      for (const value of ['a\nb', 'a\u007f', '\u0085a']) {
        expect(refused(turn({ [name]: value }))).toMatchObject({
          failureCode: 'invalid_envelope',
          failureMessage: `${name} has control characters`,
        });
      }
    },
  );

  test('I4 an empty optional field counts as absent, and unknown fields are ignored', () => {
    const intent = accepted(turn({ request_id: '', trace_id: '', colour: 'blue', ['__proto__']: 'x' }));

    expect(Object.keys(intent)).not.toContain('requestId');
    expect(Object.keys(intent)).not.toContain('traceId');
    expect(
      accepted(entryOf('game.generation_failed', { recipient_user_ids_json: '' })).recipientUserIds,
    ).toEqual([]);
    expect(refused(turn({ recipient_user_ids_json: '' })).failureCode).toBe('invalid_recipients');
  });

  test('I4 names of fields are compared exactly', () => {
    expect(refused(turn({ payload_json: undefined, PAYLOAD_JSON: turnPayload('') })).failureMessage).toBe(
      'payload_json is missing',
    );
    expect(refused(turn({ producer: undefined, 'producer ': 'game_master' })).failureMessage).toBe(
      'producer is missing',
    );
  });

  test('I4 the order of fields makes no difference', () => {
    expect(accepted([...turn()].reverse())).toEqual(accepted(turn()));
  });

  test.each([
    ['1', 1],
    ['1775121700000', 1_775_121_700_000],
    ['253402300799999', 253_402_300_799_999],
  ])('I4 occurred_at_ms %s is accepted', (text, value) => {
    expect(accepted(turn({ occurred_at_ms: text })).occurredAtMs).toBe(value);
  });

  test.each(
    // prettier-ignore
    ['0', '000', '-1', '+1', '1.0', '1e3', '0x10', ' 1', '1 ', '1_000', '１', 'NaN', 'Infinity', 'now', '2026-01-01',
      '253402300800000', '9007199254740993', '99999999999999999999', '1\n', '"1"'],
  )('I4 occurred_at_ms %j is refused', (text) => {
    const malformed = refused(turn({ occurred_at_ms: text }));

    expect(malformed.failureCode).toBe('invalid_envelope');
    expect(malformed.failureMessage).toMatch(/^occurred_at_ms must be whole milliseconds/);
  });

  test('I4 I6 an entry without any field is refused', () => {
    expect(parseIntent('5-5', [])).toEqual({
      ok: false,
      malformed: {
        streamEntryId: '5-5',
        failureCode: 'invalid_envelope',
        failureMessage: 'notification_type is missing',
        rawFields: {},
      },
    });
  });

  test('I4 256 KiB of names and values are accepted, one byte more is not', () => {
    const size = (fields: EntryFields) =>
      fields.reduce((sum, [name, value]) => sum + name.length + value.length, 0);
    const room = MAX_ENTRY_BYTES - size(turn({ padding: '' }));
    expect(MAX_ENTRY_BYTES).toBe(262_144);

    const largest = turn({ padding: 'x'.repeat(room) });
    expect(size(largest)).toBe(262_144);
    expect(accepted(largest).idempotencyKey).toBe('key-1');

    const malformed = refused(turn({ padding: 'x'.repeat(room + 1) }));
    expect(malformed).toMatchObject({
      failureCode: 'entry_too_large',
      failureMessage: 'the entry has 262145 bytes; at most 262144 are accepted',
      notificationType: TURN,
      producer: 'game_master',
      idempotencyKey: 'key-1',
    });
    expectStorable(malformed);
  });
});

describe('catalog', () => {
  test('I5 exactly the eighteen types of the seed, with their producers, audiences and payload fields', () => {
    const rows = NOTIFICATION_TYPES.map((type) => [
      type,
      CATALOG[type].producer,
      audiencesOf(type),
      Object.keys(CATALOG[type].payload),
    ]);

    expect(rows).toHaveLength(18);
    expect(rows).toEqual(SEED_CATALOG);
  });

  test.each(NOTIFICATION_TYPES)('I5 %s is accepted for each of its audiences', (type) => {
    for (const audience of audiencesOf(type)) {
      const intent = accepted(entryOf(type, {}, audience));

      expect(intent).toMatchObject({ notificationType: type, audienceKind: audience });
      expect(intent.recipientUserIds).toEqual(audience === 'user' ? ['user-1', 'user-2'] : []);
      expect(JSON.parse(intent.payloadJson)).toEqual(samplePayload(type));
    }
  });

  test.each(NOTIFICATION_TYPES)('I5 %s is refused from every other producer', (type) => {
    const own: Producer = CATALOG[type].producer;
    const others = [
      ...PRODUCERS.filter((producer) => producer !== own),
      own.toUpperCase(),
      `${own} `,
      'nobody',
    ];
    expect(others).toHaveLength(6);
    for (const producer of others) {
      expect(refused(entryOf(type, { producer }))).toMatchObject({
        failureCode: 'invalid_envelope',
        failureMessage: `producer of ${type} must be ${own}, not ${JSON.stringify(producer)}`,
        producer,
      });
    }
  });

  test.each(NOTIFICATION_TYPES)('I5 %s is refused for every other audience', (type) => {
    const wrong: string[] = AUDIENCE_KINDS.filter((audience) => !audiencesOf(type).includes(audience));
    for (const audience of [...wrong, 'USER', 'user ', 'push', 'constructor']) {
      const recipients = audience === 'admin_email' ? undefined : '["user-1"]';
      const fields = entryOf(type, { audience_kind: audience, recipient_user_ids_json: recipients });

      expect(refused(fields).failureCode).toBe('invalid_audience');
      expect(refused(fields).failureMessage).toContain(`audience_kind of ${type}`);
      expect(refused(fields).failureMessage).toContain(JSON.stringify(audience));
    }
  });

  test.each([
    'lobby.invite.revoked',
    'auth.login_code',
    'game.turn.Ready',
    'game.turn.ready ',
    'constructor',
    '__proto__',
    'toString',
  ])('I5 I42 the type %j is not in the catalog', (type) => {
    expect(refused(turn({ notification_type: type }))).toMatchObject({
      failureCode: 'unknown_notification_type',
      failureMessage: `notification_type ${JSON.stringify(type)} is not in the catalog`,
      notificationType: type,
    });
  });
});

describe('recipients', () => {
  const refusal = (text: string | undefined) => refused(turn({ recipient_user_ids_json: text }));

  test('I4 audience user requires recipients', () => {
    expect(refusal(undefined)).toMatchObject({
      failureCode: 'invalid_recipients',
      failureMessage: 'recipient_user_ids_json is required for audience_kind user',
    });
  });

  test.each(NOTIFICATION_TYPES.filter((type) => audiencesOf(type).includes('admin_email')))(
    'I4 audience admin_email forbids recipients: %s',
    (type) => {
      for (const recipients of ['["user-1"]', '[]', ' ', 'null']) {
        expect(refused(entryOf(type, { recipient_user_ids_json: recipients }, 'admin_email'))).toMatchObject({
          failureCode: 'invalid_recipients',
          failureMessage: 'recipient_user_ids_json is not allowed for audience_kind admin_email',
        });
      }
    },
  );

  test.each([
    ['[]', 'at least one user id'],
    ['{}', 'at least one user id'],
    ['"user-1"', 'at least one user id'],
    ['null', 'at least one user id'],
    ['7', 'at least one user id'],
    ['[""]', 'no user id at position 0'],
    ['["user-1","  "]', 'no user id at position 1'],
    ['["user-1",7]', 'no user id at position 1'],
    ['[null]', 'no user id at position 0'],
    ['[["user-1"]]', 'no user id at position 0'],
    ['["user-1","user-2","user-1"]', 'names "user-1" more than once'],
    ['["user-1","user-\\u0031"]', 'names "user-1" more than once'],
    ['["."]', 'unusable user id at position 0'],
    ['["user-1",".."]', 'unusable user id at position 1'],
    ['["a\\nb"]', 'unusable user id at position 0'],
    ['["a\\u0000b"]', 'NUL character'],
    ['["\\ud800"]', 'lone surrogate'],
    ['["user-1"', 'not valid JSON'],
    ["['user-1']", 'not valid JSON'],
    [' ', 'not valid JSON'],
  ])('I4 recipients %s are refused', (text, problem) => {
    const malformed = refusal(text);

    expect(malformed.failureCode).toBe('invalid_recipients');
    expect(malformed.failureMessage).toMatch(/^recipient_user_ids_json /);
    expect(malformed.failureMessage).toContain(problem);
    expectStorable(malformed);
  });

  test('I4 a user id has at most 512 bytes', () => {
    const longest = 'ü'.repeat(256);
    expect(accepted(turn({ recipient_user_ids_json: JSON.stringify([longest]) })).recipientUserIds).toEqual([
      longest,
    ]);
    expect(refusal(JSON.stringify(['user-1', `${longest}a`])).failureMessage).toBe(
      'recipient_user_ids_json has a user id longer than 512 bytes at position 1',
    );
  });

  test('I4 unusual user ids are kept as they are', () => {
    const ids = ['a/b c', '日本', 'Ünï@x?#%', '...', ' padded ', '👩‍🚀', '__proto__'];
    expect(accepted(turn({ recipient_user_ids_json: JSON.stringify(ids) })).recipientUserIds).toEqual(ids);
  });

  test('I4 I41 ten thousand recipients fit', () => {
    const ids = Array.from({ length: 10_000 }, (_, index) => `user-${index + 1}`);
    expect(accepted(turn({ recipient_user_ids_json: JSON.stringify(ids) })).recipientUserIds).toEqual(ids);
  });
});

describe('payload', () => {
  const requiredFields = NOTIFICATION_TYPES.flatMap((type) =>
    Object.keys(CATALOG[type].payload).map((field): [NotificationType, string] => [type, field]),
  );

  const wrongValues = (field: string): unknown[] => {
    if (COUNTS.includes(field)) return [null, '1', '', true, [], {}, -1, 1.5];
    if (TIMESTAMPS.includes(field)) return [null, '1', '', true, [], {}, -1, 1.5, 0];
    return [null, '', ' ', '\t\n', 7, false, [], ['x'], {}];
  };

  test.each(requiredFields)('I5 payload of %s: %s is required and checked', (type, field) => {
    const { [field]: _left, ...rest } = samplePayload(type);
    const payloads = [rest, ...wrongValues(field).map((value) => ({ ...rest, [field]: value }))];
    for (const payload of payloads) {
      const malformed = refused(entryOf(type, { payload_json: JSON.stringify(payload) }));

      expect(malformed.failureCode).toBe('invalid_payload');
      expect(malformed.failureMessage).toMatch(new RegExp(`^payload_json field ${field}: .+`));
      expect(malformed.rawFields['payload_json']).toBe(JSON.stringify(payload));
    }
  });

  test('I5 turn 0 is a turn', () => {
    const payload = { ...samplePayload(TURN), turn_number: 0 };
    expect(accepted(turn({ payload_json: JSON.stringify(payload) })).payloadJson).toContain(
      '"turn_number":0',
    );
  });

  test('I5 required fields are not found on the prototype', () => {
    const payload = '{"__proto__":{"game_id":"g"},"game_name":"n","turn_number":1}';
    expect(refused(turn({ payload_json: payload })).failureMessage).toMatch(/^payload_json field game_id: /);
  });

  test.each(NOTIFICATION_TYPES)('I5 further fields of %s pass through untouched', (type) => {
    const extra =
      '"extra":{"b":[1,{"y":null,"x":true}],"a":"ü"},"__proto__":{"polluted":true},"constructor":"c"';
    const text = JSON.stringify(samplePayload(type)).replace(/}$/, `,${extra}}`);

    const { payloadJson } = accepted(entryOf(type, { payload_json: text }));

    expect(payloadJson).toContain('"__proto__":{"polluted":true}');
    expect(payloadJson).toContain('"extra":{"a":"ü","b":[1,{"x":true,"y":null}]}');
    const read = JSON.parse(payloadJson) as object;
    expect(Object.entries(read).sort()).toEqual(Object.entries(JSON.parse(text) as object).sort());
    expect(({} as Record<string, unknown>)['polluted']).toBeUndefined();
  });

  test.each(['[]', '"text"', 'null', '7', 'true', '[{}]'])('I4 payload_json %s is no object', (text) => {
    expect(refused(turn({ payload_json: text }))).toMatchObject({
      failureCode: 'invalid_payload',
      failureMessage: 'payload_json must be a JSON object',
    });
  });

  test.each([
    ['{', 'is not valid JSON'],
    ['{}{}', 'is not valid JSON'],
    ["{'game_id':'g'}", 'is not valid JSON'],
    [turnPayload(',}'), 'is not valid JSON'],
    [`\ufeff${turnPayload('')}`, 'is not valid JSON'],
    [turnPayload(',"x":NaN'), 'is not valid JSON'],
    [turnPayload(',"x":"\\ud800"'), 'has a lone surrogate at x'],
    [turnPayload(',"x":["\\udc00\\ud800"]'), 'has a lone surrogate at x.0'],
    [turnPayload(',"\\ud83d":1'), 'has a lone surrogate at key of the top level'],
    [turnPayload(',"x":{"\\ud83d":1}'), 'has a lone surrogate at key of x'],
    [turnPayload(',"x":"a\\u0000b"'), 'has a NUL character at x'],
    [turnPayload(',"a\\u0000b":1'), 'has a NUL character at key of the top level'],
    [turnPayload(',"x":9007199254740992'), 'has a number that JSON cannot carry exactly at x'],
    [turnPayload(',"x":-9007199254740992'), 'has a number that JSON cannot carry exactly at x'],
    [turnPayload(',"x":9007199254740993'), 'has a number that JSON cannot carry exactly at x'],
    [turnPayload(',"x":[{"y":1e400}]'), 'has a number that JSON cannot carry exactly at x.0.y'],
    [turnPayload(',"x":1e22'), 'has a number that JSON cannot carry exactly at x'],
  ])('I4 I6 payload_json %s is refused with the place', (text, problem) => {
    const malformed = refused(turn({ payload_json: text }));

    expect(malformed.failureCode).toBe('invalid_payload');
    expect(malformed.failureMessage).toContain(`payload_json ${problem}`);
    expectStorable(malformed);
  });

  test('I4 the largest exact integers and well-formed pairs pass', () => {
    const text = turnPayload(
      ',"big":9007199254740991,"small":-9007199254740991,"pair":"\\ud83d\\ude80","f":0.1',
    );
    expect(accepted(turn({ payload_json: text })).payloadJson).toBe(
      '{"big":9007199254740991,"f":0.1,"game_id":"g","game_name":"n","pair":"🚀","small":-9007199254740991,"turn_number":1}',
    );
  });

  test('I4 nesting is limited, and no depth overflows the stack', () => {
    const nested = (levels: number) => turnPayload(`,"x":${'['.repeat(levels)}${']'.repeat(levels)}`);
    expect(
      JSON.parse(accepted(turn({ payload_json: nested(MAX_JSON_DEPTH - 1) })).payloadJson),
    ).toHaveProperty('x');
    for (const text of [nested(MAX_JSON_DEPTH), nested(100 * 1024)]) {
      expect(refused(turn({ payload_json: text }))).toMatchObject({
        failureCode: 'invalid_payload',
        failureMessage: `payload_json is nested deeper than ${MAX_JSON_DEPTH} levels`,
      });
    }
    for (const name of ['payload_json', 'recipient_user_ids_json']) {
      const malformed = refused(turn({ [name]: '['.repeat(200 * 1024) }));
      expect(malformed.failureMessage).toBe(`${name} is not valid JSON`);
      expectStorable(malformed);
    }
  });
});

test('I4 I6 the cost of reading a payload grows with its size only', () => {
  const list = (key: string) => turnPayload(`,"${key}":[${Array(60_000).fill(1).join(',')}]`);
  const cpuMsOf = (text: string) => {
    const before = process.cpuUsage();
    accepted(turn({ payload_json: text }));
    const { user, system } = process.cpuUsage(before);
    return (user + system) / 1_000;
  };
  cpuMsOf(list('k'));

  // Paths that were written out for each of the values took more than a hundred times as long.
  expect(cpuMsOf(list('k'.repeat(130_000)))).toBeLessThan(20 * cpuMsOf(list('k')) + 100);
});

describe('malformed intents', () => {
  const examples: Record<(typeof INTENT_FAILURE_CODES)[number], EntryFields> = {
    invalid_envelope: turn({ idempotency_key: '' }),
    unknown_notification_type: turn({ notification_type: 'lobby.invite.revoked' }),
    invalid_audience: turn({ audience_kind: 'everybody' }),
    invalid_recipients: turn({ recipient_user_ids_json: '[]' }),
    invalid_payload: turn({ payload_json: '{}' }),
    entry_too_large: turn({ padding: 'x'.repeat(MAX_ENTRY_BYTES) }),
  };

  test.each(INTENT_FAILURE_CODES)(
    'I6 %s comes with a message, the known columns and the raw fields',
    (code) => {
      const malformed = refused(examples[code]);

      expect(malformed.failureCode).toBe(code);
      expect(malformed.streamEntryId).toBe('1775121700000-0');
      expect(malformed.failureMessage).not.toBe('');
      expect(malformed.notificationType).toBe(malformed.rawFields['notification_type']);
      expect(malformed.idempotencyKey).toBe(malformed.rawFields['idempotency_key']);
      expect(Object.keys(malformed.rawFields)).toEqual(examples[code].map(([name]) => name.toString()));
      expectStorable(malformed);
    },
  );

  test('I6 acceptance adds the two codes that the seed names', () => {
    expect(
      MALFORMED_CODES.filter((code) => !(INTENT_FAILURE_CODES as readonly string[]).includes(code)),
    ).toEqual(['idempotency_conflict', 'recipient_not_found']);
  });

  test('I6 raw fields are bounded in number and size and say what was cut', () => {
    const many: EntryFields = Array.from({ length: 1_000 }, (_, index) => [
      Buffer.from(`field-${index}-${'n'.repeat(120)}`),
      Buffer.alloc(120, 'v'),
    ]);
    const malformed = refused(many);
    expect(Object.keys(malformed.rawFields)).toHaveLength(65);
    expect(malformed.rawFields['…']).toBe('936 further fields');
    expectStorable(malformed);

    const long = refused(turn({ payload_json: `[${'x'.repeat(50_000)}` }));
    expect(long.rawFields['payload_json']).toBe(`[${'x'.repeat(4_095)}… (cut, 50001 bytes in all)`);

    const eight = Object.fromEntries([...'abcdefgh'].map((name) => [name, 'x'.repeat(30_000)]));
    const total = refused(turn({ ...eight, producer: 'nobody' }));
    expect(Buffer.byteLength(Object.values(total.rawFields).join(''))).toBeLessThan(20 * 1024);
  });

  test('I6 bytes that grow when they are shown stay within the bounds', () => {
    const malformed = refused(
      Array.from({ length: 64 }, (_, index) => [Buffer.alloc(120 + index, 0xff), Buffer.alloc(4_096, 0xff)]),
    );

    expect(Object.values(malformed.rawFields)[0]).toBe(`${'\ufffd'.repeat(1_365)}… (cut, 4096 bytes in all)`);
    expectStorable(malformed);
  });

  test('I6 values are cut between characters', () => {
    const cutAt = (text: string) => refused(turn({ producer: 'nobody', text })).rawFields['text'];

    for (const before of [4_093, 4_094, 4_095]) {
      expect(cutAt(`${'x'.repeat(before)}🚀`)).toBe(
        `${'x'.repeat(before)}… (cut, ${before + 4} bytes in all)`,
      );
    }
    expect(cutAt(`${'x'.repeat(4_092)}🚀`)).toBe(`${'x'.repeat(4_092)}🚀`);
  });

  test('I6 the note about further fields displaces no field', () => {
    const fields: EntryFields = Array.from({ length: 70 }, (_, index) => [
      Buffer.from(index === 0 ? '…' : `field-${index}`),
      Buffer.from('v'),
    ]);

    expect(refused(fields).rawFields).toMatchObject({ '…': 'v', '… (2)': '6 further fields' });
  });

  test('I6 a field named __proto__ is a field like any other', () => {
    const malformed = refused([
      [Buffer.from('__proto__'), Buffer.from('x')],
      ...turn({ producer: 'nobody' }),
    ]);

    expect(Object.entries(malformed.rawFields)[0]).toEqual(['__proto__', 'x']);
    expect(JSON.stringify(malformed.rawFields)).toContain('"__proto__":"x"');
  });

  test('I6 long values of columns are cut between characters', () => {
    const malformed = refused(turn({ notification_type: `${'x'.repeat(255)}🚀🚀` }));

    expect(malformed.notificationType).toBe(`${'x'.repeat(255)}…`);
    expectStorable(malformed);
  });

  test('I6 the raw fields of an accepted intent are those of its entry', () => {
    const intent = accepted(turn({ request_id: 'request-1' }));

    expect(rawFieldsOf(intent)).toEqual(envelopeOf(intent));
    expect(rawFieldsOf(accepted(entryOf('game.generation_failed')))).not.toHaveProperty(
      'recipient_user_ids_json',
    );
  });

  const bytes = (size: number) => fc.uint8Array({ maxLength: size }).map((array) => Buffer.from(array));
  const utf8 = fc.string({ unit: 'binary', maxLength: 60 }).map((text) => Buffer.from(text));
  const json = fc.json({ stringUnit: 'binary' }).map((text) => Buffer.from(text));
  const fieldName = fc.oneof(
    fc
      .constantFrom(...REQUIRED_ENVELOPE_FIELDS, ...OPTIONAL_ENVELOPE_FIELDS, '__proto__', '…')
      .map((name) => Buffer.from(name)),
    bytes(200),
    utf8,
  );
  const fieldValue = fc.oneof(bytes(6_000), utf8, json);

  test('I4 I6 no sequence of bytes makes parseIntent throw or escape the bounds', () => {
    fc.assert(
      fc.property(fc.array(fc.tuple(fieldName, fieldValue), { maxLength: 80 }), (fields) => {
        expectStorable(refused(fields));
      }),
      { numRuns: 300 },
    );
  });

  test('I4 I6 a valid entry with any field replaced is an intent that reads back, or malformed', () => {
    const audienceAndType = fc
      .constantFrom(...NOTIFICATION_TYPES)
      .chain((type) => fc.tuple(fc.constant(type), fc.constantFrom<AudienceKind>(...audiencesOf(type))));
    const replacement = fc.dictionary(
      fc.constantFrom(...REQUIRED_ENVELOPE_FIELDS, ...OPTIONAL_ENVELOPE_FIELDS),
      fieldValue,
      { maxKeys: 2 },
    );
    fc.assert(
      fc.property(audienceAndType, replacement, ([type, audience], changes) => {
        const parsed = parseIntent('1-1', entryOf(type, changes, audience));
        if (!parsed.ok) return expectStorable(parsed.malformed);
        const again = Object.entries(envelopeOf(parsed.intent)).map(
          ([name, value]) => [Buffer.from(name), Buffer.from(value)] as const,
        );
        expect(parseIntent('1-1', again)).toEqual(parsed);
      }),
      { numRuns: 500 },
    );
  });
});
