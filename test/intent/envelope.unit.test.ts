/** How an entry becomes an intent, and what is kept of one that is refused. What is refused, the vectors say (vectors.unit). */
import type { EntryFields } from '../../api/intent/entry.ts';
import {
  INTENT_FAILURE_CODES,
  MAX_ENTRY_BYTES,
  OPTIONAL_ENVELOPE_FIELDS,
  REQUIRED_ENVELOPE_FIELDS,
  envelopeOf,
  expiryOf,
  rawFieldsOf,
} from '../../api/intent/entry.ts';
import { GALAXY } from '../../api/intent/galaxy.ts';
import { MAX_JSON_DEPTH } from '../../api/text.ts';
import { accepted, entryOf, expectStorable, refused, turn, turnPayload, TURN } from './entries.ts';
import { NOTIFICATION_TYPES, audiencesOf, fieldsOf, parseIntent, specOf } from './galaxy.ts';

/** The seed's table "Notification Catalog", written out: type, producer, audiences, fields of the payload. */
const SEED_CATALOG = `
geo.review_recommended | geoprofile | admin_email | user_id user_email observed_country usual_connection_country review_reason
game.turn.ready | game_master | user | game_id game_name turn_number
game.finished | game_master | user | game_id game_name final_turn_number
game.generation_failed | game_master | admin_email | game_id game_name failure_reason
lobby.runtime_paused_after_start | game_lobby | admin_email | game_id game_name
lobby.application.submitted | game_lobby | user admin_email | game_id game_name applicant_user_id applicant_name
lobby.membership.approved | game_lobby | user | game_id game_name
lobby.membership.rejected | game_lobby | user | game_id game_name
lobby.membership.blocked | game_lobby | user | game_id game_name membership_user_id membership_user_name reason
lobby.invite.created | game_lobby | user | game_id game_name inviter_user_id inviter_name
lobby.invite.redeemed | game_lobby | user | game_id game_name invitee_user_id invitee_name
lobby.invite.expired | game_lobby | user | game_id game_name invitee_user_id invitee_name
lobby.race_name.registration_eligible | game_lobby | user | game_id game_name race_name eligible_until_ms
lobby.race_name.registered | game_lobby | user | race_name
lobby.race_name.registration_denied | game_lobby | user | game_id game_name race_name reason
runtime.image_pull_failed | runtime_manager | admin_email | game_id image_ref error_code error_message attempted_at_ms
runtime.container_start_failed | runtime_manager | admin_email | game_id image_ref error_code error_message attempted_at_ms
runtime.start_config_invalid | runtime_manager | admin_email | game_id image_ref error_code error_message attempted_at_ms`;

describe('accepted', () => {
  test('I4 I7 a full entry becomes an intent whose id is the id of the entry', () => {
    const fields = turn({
      ...{ request_id: 'request-1', trace_id: 'trace-1' },
      payload_json: ' {"turn_number":54.0,\n"game_name":"n","game_id":"g"}',
    });

    expect(parseIntent('1775121700000-7', fields)).toMatchObject({
      ok: true,
      intent: {
        ...{ notificationId: '1775121700000-7', occurredAtMs: 1_775_121_700_000 },
        ...{ requestId: 'request-1', traceId: 'trace-1' },
        payloadJson: '{"game_id":"g","game_name":"n","turn_number":54}',
      },
    });
  });

  test('intent-D8 I41 10,000 recipients fit, UUIDs included', () => {
    const ids = Array.from(
      { length: 10_000 },
      (_, index) => `018f7a3e-6c1d-7e42-9b55-${String(index).padStart(12, '0')}`,
    );
    expect(accepted(turn({ recipient_user_ids_json: JSON.stringify(ids) })).recipientUserIds).toEqual(ids);
  });

  test('I5 exactly the eighteen types of the seed, with their producers, audiences and payload fields', () => {
    const rows = NOTIFICATION_TYPES.map((type) =>
      [type, specOf(type).producer, audiencesOf(type).join(' '), fieldsOf(type).join(' ')].join(' | '),
    );
    expect(rows).toHaveLength(18);
    expect(rows).toEqual(SEED_CATALOG.trim().split('\n'));
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

  test.each([...REQUIRED_ENVELOPE_FIELDS, ...OPTIONAL_ENVELOPE_FIELDS])(
    'I4 I6 %s that is given twice, is not UTF-8 or has NUL is refused by name, and kept in a storable form',
    (name) => {
      const fields = turn({
        ...{ deliver_at_ms: '1780000000000', expires_at_ms: '1790000000000' },
        ...{ request_id: 'request-1', trace_id: 'trace-1' },
      });
      const again = fields.find(([field]) => field.toString() === name)!;
      const value = String(again[1]);
      expect(refused([...fields, again])).toMatchObject({
        failureMessage: `${name} is given more than once`,
        rawFields: { [name]: value, [`${name} (2)`]: value },
      });
      const bytes = refused(turn({ [name]: Buffer.from([0x61, 0xff, 0xc0, 0x62]) }));
      expect(bytes.failureMessage).toBe(`${name} is not UTF-8`);
      expect(bytes.rawFields[name]).toBe('a\ufffd\ufffdb');
      expectStorable(bytes);
      const nul = refused(turn({ [name]: 'a\0b' }));
      expect(nul.rawFields[name]).toBe('a\ufffdb');
      expectStorable(nul);
    },
  );

  test.each([
    [turnPayload(',}'), 'is not valid JSON'],
    [turnPayload(',"x":["\\udc00\\ud800"]'), 'has a lone surrogate at x.0'],
    [turnPayload(',"\\ud83d":1'), 'has a lone surrogate at key of the top level'],
    [turnPayload(',"x":{"\\ud83d":1}'), 'has a lone surrogate at key of x'],
    // A key that is no name of a field may be a value.
    [turnPayload(',"x":{"alice@example.com":["\\u0000"]}'), 'has a NUL character at x.….0'],
    [turnPayload(',"x":[{"y":1e400}]'), 'has a number that JSON cannot carry exactly at x.0.y'],
  ])('I4 I6 payload_json %s is refused with the place', (text, problem) => {
    const malformed = refused(turn({ payload_json: text }));
    expect(malformed.failureCode).toBe('invalid_payload');
    expect(malformed.failureMessage).toContain(`payload_json ${problem}`);
    expectStorable(malformed);
  });

  test('I4 security-18 nesting is limited before it is parsed', () => {
    const parse = jest.spyOn(JSON, 'parse');
    for (const name of ['payload_json', 'recipient_user_ids_json']) {
      const malformed = refused(turn({ [name]: '['.repeat(200 * 1024) }));
      expect(malformed.failureMessage).toBe(`${name} is nested deeper than ${MAX_JSON_DEPTH} levels`);
      expectStorable(malformed);
      // A megabyte of brackets takes the parser up to a second.
      expect(parse.mock.calls.filter(([text]) => text.startsWith('[['))).toEqual([]);
    }
  });

  test.each(INTENT_FAILURE_CODES)(
    'I6 %s comes with a message, the known columns and the raw fields',
    (code) => {
      const malformed = refused(examples[code]);
      const { notification_type, idempotency_key } = malformed.rawFields;
      expect(malformed).toMatchObject({
        ...{
          failureCode: code,
          streamEntryId: '1775121700000-0',
          failureMessage: expect.stringMatching(/./),
        },
        ...{ notificationType: notification_type, idempotencyKey: idempotency_key },
      });
      expect(Object.keys(malformed.rawFields)).toEqual(examples[code].map(([name]) => name.toString()));
      expectStorable(malformed);
    },
  );

  test('I6 raw fields are bounded in number and size and say what was cut', () => {
    const many: EntryFields = Array.from({ length: 1_000 }, (_, index) => [
      Buffer.from(`field-${index}-${'n'.repeat(120)}`),
      Buffer.alloc(120, 'v'),
    ]);
    const malformed = refused(many);
    expect(Object.keys(malformed.rawFields)).toHaveLength(65);
    expect(malformed.rawFields['…']).toBe('936 further fields');
    expectStorable(malformed);

    // The note displaces no field.
    const noted: EntryFields = many
      .slice(0, 70)
      .map(([name, value], n) => [n === 0 ? Buffer.from('…') : name, value]);
    expect(refused(noted).rawFields).toMatchObject({ '…': 'v'.repeat(120), '… (2)': '6 further fields' });

    const long = refused(turn({ payload_json: `[${'x'.repeat(50_000)}` }));
    expect(long.rawFields['payload_json']).toBe(`[${'x'.repeat(4_095)}… (cut, 50001 bytes in all)`);

    // Bytes that are no UTF-8 grow when they are shown.
    const bytes = Buffer.alloc(4_096, 0xff);
    const grown = refused(Array.from({ length: 64 }, (_, n) => [bytes.subarray(0, 120 + n), bytes]));
    expect(Object.values(grown.rawFields)[0]).toBe(`${'\ufffd'.repeat(1_365)}… (cut, 4096 bytes in all)`);
    expectStorable(grown);

    const eight = Object.fromEntries([...'abcdefgh'].map((name) => [name, 'x'.repeat(30_000)]));
    const total = refused(turn({ ...eight, producer: 'nobody' }));
    expect(Buffer.byteLength(Object.values(total.rawFields).join(''))).toBeLessThan(20 * 1024);
  });

  test('I6 values, and those of columns, are cut between characters', () => {
    const cutAt = (text: string) => refused(turn({ producer: 'nobody', text })).rawFields['text'];

    for (const before of [4_093, 4_094, 4_095]) {
      expect(cutAt(`${'x'.repeat(before)}🚀`)).toBe(
        `${'x'.repeat(before)}… (cut, ${before + 4} bytes in all)`,
      );
    }
    expect(cutAt(`${'x'.repeat(4_092)}🚀`)).toBe(`${'x'.repeat(4_092)}🚀`);
    const malformed = refused(turn({ notification_type: `${'x'.repeat(255)}🚀🚀` }));
    expect(malformed.notificationType).toBe(`${'x'.repeat(255)}…`);
    expectStorable(malformed);
  });

  test('I6 a field named __proto__ is a field like any other', () => {
    const proto = [Buffer.from('__proto__'), Buffer.from('x')] as const;
    const { rawFields } = refused([proto, ...turn({ producer: 'nobody' })]);
    expect(Object.entries(rawFields)[0]).toEqual(['__proto__', 'x']);
    expect(JSON.stringify(rawFields)).toContain('"__proto__":"x"');
  });

  test('I6 the raw fields of an accepted intent are those of its entry', () => {
    const intent = accepted(turn({ request_id: 'request-1' }));

    expect(rawFieldsOf(intent)).toEqual(envelopeOf(intent));
    expect(rawFieldsOf(accepted(entryOf('game.generation_failed')))).not.toHaveProperty(
      'recipient_user_ids_json',
    );
  });
});

describe('until when it is worth sending', () => {
  test('I78 I89 a type may say how long after the event, or its time of delivery; what the intent says goes before', () => {
    const types = new Map([...GALAXY.types, [TURN, { ...specOf(TURN), expiresAfterMs: 60_000 }]]);
    const catalog = { ...GALAXY, types };
    const occurred = { notificationType: TURN, occurredAtMs: 1_000 } as const;
    expect(expiryOf(catalog, occurred)).toBe(61_000);
    expect(expiryOf(catalog, { ...occurred, expiresAtMs: 2_000 })).toBe(2_000);
    expect(expiryOf(catalog, { ...occurred, notificationType: 'game.finished' })).toBeUndefined();
    expect(expiryOf(GALAXY, occurred)).toBeUndefined();
    const later = accepted(turn({ deliver_at_ms: '1775121760000' }));
    expect(expiryOf(catalog, later)).toBe(1_775_121_820_000);
    expect(accepted(turn(envelopeOf(later)))).toEqual(later);
  });
});
