/** The payload of an intent, and what is kept of an entry that is refused. */
import fc from 'fast-check';
import type { AudienceKind, NotificationType } from '../../api/intent/catalog.ts';
import type { EntryFields } from '../../api/intent/entry.ts';
import {
  INTENT_FAILURE_CODES,
  MALFORMED_CODES,
  MAX_ENTRY_BYTES,
  OPTIONAL_ENVELOPE_FIELDS,
  REQUIRED_ENVELOPE_FIELDS,
  envelopeOf,
  rawFieldsOf,
} from '../../api/intent/entry.ts';
import { MAX_JSON_DEPTH } from '../../api/json.ts';
import { accepted, entryOf, expectStorable, refused, turn, turnPayload, TURN } from './entries.ts';
import { samplePayload } from './samples.ts';
import { NOTIFICATION_TYPES, audiencesOf, fieldsOf, parseIntent } from './galaxy.ts';

describe('payload', () => {
  const requiredFields = NOTIFICATION_TYPES.flatMap((type) =>
    fieldsOf(type).map((field): [NotificationType, string] => [type, field]),
  );

  const wrongValues = (field: string, sample: unknown): unknown[] => {
    if (typeof sample !== 'number') return [null, '', ' ', '\t\n', 7, false, [], ['x'], {}];
    const neverIntegers = [null, '1', '', true, [], {}, -1, 1.5];
    // A count may be 0, a time not.
    return field.endsWith('_ms') ? [...neverIntegers, 0] : neverIntegers;
  };

  test.each([
    ['\u2067\u2066Orion\u2069 II\u2069', undefined],
    ['Orion\tII', undefined],
    ['Orion\u2067', 'payload_json field game_name: must close each bidi isolate'],
    ['\u2069Orion\u2067', 'payload_json field game_name: must close each bidi isolate'],
    ['\u202eOrion\u202c', 'payload_json field game_name: must have no control or bidi characters'],
  ])('bug-P8 the name %j: %s', (name, failureMessage) => {
    const fields = turn({
      payload_json: JSON.stringify({ ...samplePayload('game.turn.ready'), game_name: name }),
    });
    if (failureMessage === undefined) expect(accepted(fields).payloadJson).toContain(JSON.stringify(name));
    else expect(refused(fields)).toMatchObject({ failureCode: 'invalid_payload', failureMessage });
  });

  test.each(['\u061c', '\u200e', '\u200f'])('security-15 a name with the mark of direction %j', (mark) => {
    const payload = { ...samplePayload('game.turn.ready'), game_name: `a${mark}b` };
    expect(refused(turn({ payload_json: JSON.stringify(payload) }))).toMatchObject({
      failureCode: 'invalid_payload',
      failureMessage: 'payload_json field game_name: must have no control or bidi characters',
    });
  });

  test.each(requiredFields)('I5 payload of %s: %s is required and checked', (type, field) => {
    const { [field]: sample, ...rest } = samplePayload(type) as Record<string, unknown>;
    const payloads = [rest, ...wrongValues(field, sample).map((value) => ({ ...rest, [field]: value }))];
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
    // A key that is no name of a field may be a value.
    [turnPayload(',"x":{"alice@example.com":["\\u0000"]}'), 'has a NUL character at x.….0'],
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

  test('I4 security-18 nesting is limited before it is parsed, and no depth overflows the stack', () => {
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
    const parse = jest.spyOn(JSON, 'parse');
    for (const name of ['payload_json', 'recipient_user_ids_json']) {
      const malformed = refused(turn({ [name]: '['.repeat(200 * 1024) }));
      expect(malformed.failureMessage).toBe(`${name} is nested deeper than ${MAX_JSON_DEPTH} levels`);
      expectStorable(malformed);
      // A megabyte of brackets takes the parser up to a second.
      expect(parse.mock.calls.filter(([text]) => text.startsWith('[['))).toEqual([]);
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

  test('I6 I53 acceptance adds the two codes that the seed names, and those of rows', () => {
    expect(
      MALFORMED_CODES.filter((code) => !(INTENT_FAILURE_CODES as readonly string[]).includes(code)),
    ).toEqual(['idempotency_conflict', 'recipient_not_found', 'entry_id_reused', 'unstorable']);
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
