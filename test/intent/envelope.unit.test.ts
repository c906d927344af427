/** Envelope, catalog and recipients: what parseIntent accepts, what it refuses and why. */
import type { Producer } from '../../api/intent/catalog.ts';
import { AUDIENCE_KINDS, expiryOf } from '../../api/intent/catalog.ts';
import type { EntryFields } from '../../api/intent/entry.ts';
import {
  MAX_ENTRY_BYTES,
  OPTIONAL_ENVELOPE_FIELDS,
  REQUIRED_ENVELOPE_FIELDS,
  envelopeOf,
} from '../../api/intent/entry.ts';
import type { Changes } from './entries.ts';
import { accepted, entryOf, expectStorable, refused, turn, turnPayload, TURN } from './entries.ts';
import { samplePayload } from './samples.ts';
import { NOTIFICATION_TYPES, PRODUCERS, audiencesOf, fieldsOf, parseIntent, specOf } from './galaxy.ts';
import { GALAXY } from '../../api/intent/galaxy.ts';

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
      // The two that the seed does not have.
      'deliver_at_ms',
      'expires_at_ms',
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
      const fields = turn({
        deliver_at_ms: '1780000000000',
        expires_at_ms: '1790000000000',
        request_id: 'request-1',
        trace_id: 'trace-1',
      });
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
    ['946684800000', 946_684_800_000],
    ['1775121700000', 1_775_121_700_000],
    ['253402300799999', 253_402_300_799_999],
  ])('I4 occurred_at_ms %s is accepted', (text, value) => {
    expect(accepted(turn({ occurred_at_ms: text })).occurredAtMs).toBe(value);
  });

  test.each(
    // prettier-ignore
    ['0', '000', '1', '1775121700', '2026', '946684799999', '-1', '+1', '1.0', '1e3', '0x10', ' 1', '1 ', '1_000', '１', 'NaN', 'Infinity', 'now', '2026-01-01',
      '253402300800000', '9007199254740993', '99999999999999999999', '1\n', '"1"'],
  )('I4 newcomer-11 occurred_at_ms %j is refused', (text) => {
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

  test('intent-D8 I41 10,000 recipients fit, UUIDs included, and the payload has its own limit', () => {
    const ids = Array.from(
      { length: 10_000 },
      (_, index) => `018f7a3e-6c1d-7e42-9b55-${String(index).padStart(12, '0')}`,
    );
    expect(accepted(turn({ recipient_user_ids_json: JSON.stringify(ids) })).recipientUserIds).toEqual(ids);

    const note = 'x'.repeat(262_144);
    expect(refused(turn({ payload_json: turnPayload(`,"note":"${note}"`) }))).toMatchObject({
      failureCode: 'invalid_payload',
      failureMessage: expect.stringMatching(/^payload_json has \d+ bytes; at most 262144 are accepted$/),
    });
  });

  test('intent-D8 I4 1 MiB of names and values are accepted, one byte more is not', () => {
    const size = (fields: EntryFields) =>
      fields.reduce((sum, [name, value]) => sum + name.length + value.length, 0);
    const room = MAX_ENTRY_BYTES - size(turn({ padding: '' }));
    expect(MAX_ENTRY_BYTES).toBe(1_048_576);

    const largest = turn({ padding: 'x'.repeat(room) });
    expect(size(largest)).toBe(1_048_576);
    expect(accepted(largest).idempotencyKey).toBe('key-1');

    const malformed = refused(turn({ padding: 'x'.repeat(room + 1) }));
    expect(malformed).toMatchObject({
      failureCode: 'entry_too_large',
      failureMessage: 'the entry has 1048577 bytes; at most 1048576 are accepted',
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
      specOf(type).producer,
      audiencesOf(type),
      fieldsOf(type),
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
    const own: Producer = specOf(type).producer;
    const others = [
      ...PRODUCERS.filter((producer) => producer !== own),
      own.toUpperCase(),
      `${own} `,
      'nobody',
    ];
    expect(others).toHaveLength(PRODUCERS.length + 2);
    for (const producer of others) {
      expect(refused(entryOf(type, { producer }))).toMatchObject({
        failureCode: 'invalid_envelope',
        failureMessage: `producer of ${type} must be ${own}`,
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
      expect(refused(fields).failureMessage).toBe(
        `audience_kind of ${type} must be ${audiencesOf(type).join(' or ')}`,
      );
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
      failureMessage: 'notification_type is not in the catalog',
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
    ['["user-1","user-2","user-1"]', 'names a user id more than once, again at position 2'],
    ['["user-1","user-\\u0031"]', 'names a user id more than once, again at position 1'],
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

describe('until when it is worth sending', () => {
  test.each([
    ['1775121700001', 1_775_121_700_001],
    ['001775121700001', 1_775_121_700_001],
    ['253402300799999', 253_402_300_799_999],
    ['', undefined],
  ])('I78 expires_at_ms %j is accepted', (text, value) => {
    const intent = accepted(turn({ expires_at_ms: text }));
    expect(intent.expiresAtMs).toBe(value);
    expect(envelopeOf(intent)['expires_at_ms']).toBe(value === undefined ? undefined : String(value));
    expect(accepted(turn(envelopeOf(intent)))).toEqual(intent);
  });

  test.each([
    ['tomorrow', 'expires_at_ms must be whole milliseconds since 1970, of the years 2000 to 9999'],
    ['-1', 'expires_at_ms must be whole milliseconds since 1970, of the years 2000 to 9999'],
    ['253402300800000', 'expires_at_ms must be whole milliseconds since 1970, of the years 2000 to 9999'],
    ['1775121760', 'expires_at_ms must be whole milliseconds since 1970, of the years 2000 to 9999'],
    ['1775121700000', 'expires_at_ms must be after occurred_at_ms'],
  ])('I78 newcomer-11 expires_at_ms %j is refused', (text, failureMessage) => {
    expect(refused(turn({ expires_at_ms: text }))).toMatchObject({
      failureCode: 'invalid_envelope',
      failureMessage,
    });
  });

  test('I89 an intent may be for later, at most a year after its event, and not until it has expired', () => {
    const intent = accepted(turn({ deliver_at_ms: '1775121760000' }));
    expect(intent.deliverAtMs).toBe(1_775_121_760_000);
    expect(accepted(turn(envelopeOf(intent)))).toEqual(intent);
    expect(accepted(turn({ deliver_at_ms: '' })).deliverAtMs).toBeUndefined();
    // A time before the event has passed, and is now.
    expect(accepted(turn({ deliver_at_ms: '1775121600000' })).deliverAtMs).toBe(1_775_121_600_000);
    const messageOf = (changes: Changes) => refused(turn(changes)).failureMessage;
    expect(messageOf({ deliver_at_ms: '1775121760' })).toBe(
      'deliver_at_ms must be whole milliseconds since 1970, of the years 2000 to 9999',
    );
    expect(messageOf({ deliver_at_ms: '1806744100001' })).toBe(
      'deliver_at_ms must be at most 366 days after occurred_at_ms',
    );
    expect(messageOf({ deliver_at_ms: '1775121760000', expires_at_ms: '1775121760000' })).toBe(
      'expires_at_ms must be after deliver_at_ms',
    );
    const types = new Map([...GALAXY.types, [TURN, { ...specOf(TURN), expiresAfterMs: 60_000 }]]);
    expect(expiryOf({ ...GALAXY, types }, intent)).toBe(1_775_121_820_000);
  });

  test('I78 a type may say how long after the event; what the intent says goes before', () => {
    const types = new Map([...GALAXY.types, [TURN, { ...specOf(TURN), expiresAfterMs: 60_000 }]]);
    const catalog = { ...GALAXY, types };
    const occurred = { notificationType: TURN, occurredAtMs: 1_000 } as const;
    expect(expiryOf(catalog, occurred)).toBe(61_000);
    expect(expiryOf(catalog, { ...occurred, expiresAtMs: 2_000 })).toBe(2_000);
    expect(expiryOf(catalog, { ...occurred, notificationType: 'game.finished' })).toBeUndefined();
    expect(expiryOf(GALAXY, occurred)).toBeUndefined();
  });
});
