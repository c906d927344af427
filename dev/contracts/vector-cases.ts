/** Entries of the intent stream, each with what the contract wants to become of it. */
import type { Catalog } from '../../api/intent/catalog.ts';
import { AUDIENCE_KINDS } from '../../api/intent/catalog.ts';
import type { IntentFailureCode } from '../../api/intent/entry.ts';
import {
  MAX_DELAY_MS,
  MAX_ENTRY_BYTES,
  MAX_KEY_BYTES,
  MAX_PAYLOAD_BYTES,
  MAX_TIMESTAMP_MS,
  MIN_TIMESTAMP_MS,
  MAX_USER_ID_BYTES,
  OPTIONAL_ENVELOPE_FIELDS,
  REQUIRED_ENVELOPE_FIELDS,
} from '../../api/intent/entry.ts';
import { MAX_JSON_DEPTH, MAX_ENTRY_FIELDS } from '../../api/text.ts';

/** A piece of a value: text, text that comes again, or bytes that are no text. */
export type Part = string | { repeat: string; times: number } | { base64: string };
/** The value of a field: text, or pieces to be joined. */
export type VectorValue = string | Part[];

export interface VectorCase {
  name: string;
  fields: [name: string, value: VectorValue][];
  further_fields?: number;
  /** Absent: the service accepts it. */
  refused?: IntentFailureCode;
  /** Names of cases with the same fingerprint, and with another one. */
  sameAs?: string;
  otherThan?: string;
}

type Envelope = Record<string, VectorValue>;

const TURN = 'a turn';
const FINISHED = 'a payload with further fields';

const turn: Envelope = {
  notification_type: 'game.turn.ready',
  producer: 'game_master',
  audience_kind: 'user',
  recipient_user_ids_json: '["user-1","user-2"]',
  idempotency_key: 'game-7/turn-54',
  occurred_at_ms: '1790000000000',
  payload_json: '{"game_id":"game-7","game_name":"Andromeda","turn_number":54}',
};
const TRACEPARENT = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01';
const report: Envelope = {
  notification_type: 'game.generation_failed',
  producer: 'game_master',
  audience_kind: 'admin_email',
  idempotency_key: 'game-7/generation-54',
  occurred_at_ms: '1790000000000',
  payload_json: '{"game_id":"game-7","game_name":"Andromeda","failure_reason":"out of memory"}',
};

/** A turn with fields replaced, or with `undefined` left out. */
function changed(changes: Record<string, VectorValue | undefined>, base = turn): VectorCase['fields'] {
  return Object.entries({ ...base, ...changes }).flatMap(([name, value]) =>
    value === undefined ? [] : [[name, value]],
  );
}

/** The payload of a turn with further members of the object. */
const payloadWith = (members: string): string =>
  `{"game_id":"game-7","game_name":"Andromeda","turn_number":54,${members}}`;

function refusedAs(
  refused: IntentFailureCode,
  field: string,
  values: Record<string, VectorValue | undefined>,
): VectorCase[] {
  return Object.entries(values).map(([what, value]) => ({
    name: `${field}: ${what}`,
    fields: changed({ [field]: value }),
    refused,
  }));
}

function acceptedAs(
  field: string,
  values: Record<string, VectorValue>,
  same: Pick<VectorCase, 'sameAs' | 'otherThan'> = { otherThan: TURN },
): VectorCase[] {
  return Object.entries(values).map(([what, value]) => ({
    name: `${field}: ${what}`,
    fields: changed({ [field]: value }),
    ...same,
  }));
}

/** Each type to each of its audiences, and to one that it does not have. */
function casesOfTypes({ types }: Catalog): VectorCase[] {
  return [...types.values()].flatMap(({ type, producer, audiences, example, fields }) => {
    const entry = (audience: string, payload: object = example): VectorCase['fields'] =>
      changed({
        notification_type: type,
        producer,
        audience_kind: audience,
        recipient_user_ids_json: audience === 'user' ? '["user-42"]' : undefined,
        payload_json: JSON.stringify(payload),
      });
    const [audience] = audiences;
    return [
      ...AUDIENCE_KINDS.map((kind): VectorCase => ({
        name: `${type} to ${kind}`,
        fields: entry(kind),
        ...(audiences.includes(kind) ? {} : { refused: 'invalid_audience' }),
      })),
      ...fields.flatMap(({ name, field }): VectorCase[] => {
        const isNumber = field.type === 'integer';
        const takesZero = field.type === 'integer' && field.minimum === 0;
        const takesLines = field.type === 'string' && field.format === 'text';
        const { [name]: _left, ...without } = example;
        const withValue = (value: unknown) => entry(audience!, { ...example, [name]: value });
        return [
          { name: `${type} without ${name}`, fields: entry(audience!, without), refused: 'invalid_payload' },
          {
            name: `${type} with another type of ${name}`,
            fields: withValue(isNumber ? '54' : 54),
            refused: 'invalid_payload',
          },
          {
            name: `${type} with an unusable ${name}`,
            fields: withValue(isNumber ? -1 : ' \u00a0\ufeff'),
            refused: 'invalid_payload',
          },
          {
            name: `${type} with 0 or two lines as ${name}`,
            fields: withValue(isNumber ? 0 : 'one\n\ttwo'),
            ...(takesZero || takesLines ? {} : { refused: 'invalid_payload' }),
          },
        ];
      }),
    ];
  });
}

function envelopeCases(): VectorCase[] {
  return [
    { name: TURN, fields: changed({}) },
    { name: 'a report', fields: changed({}, report) },
    { name: 'fields in another order', fields: changed({}).reverse(), sameAs: TURN },
    { name: 'no field at all', fields: [], refused: 'invalid_envelope' },
    ...REQUIRED_ENVELOPE_FIELDS.flatMap((field): VectorCase[] => [
      { name: `without ${field}`, fields: changed({ [field]: undefined }), refused: 'invalid_envelope' },
      ...refusedAs('invalid_envelope', field, {
        empty: '',
        blank: ' \t\u2003\ufeff',
        'not UTF-8': ['a', { base64: '/w==' }],
        'a surrogate in UTF-8': [{ base64: '7aCA' }],
      }),
    ]),
    ...[...REQUIRED_ENVELOPE_FIELDS, ...OPTIONAL_ENVELOPE_FIELDS].map((field): VectorCase => ({
      name: `${field} twice`,
      fields: [...changed({ [field]: 'one' }), [field, 'one']],
      refused: 'invalid_envelope',
    })),
    {
      name: 'an unknown field twice, with bytes that are no text',
      fields: [...changed({}), ['further', 'x'], ['further', [{ base64: '/w==' }]]],
      sameAs: TURN,
    },
    {
      name: 'fields that look like members of every object',
      fields: [...changed({}), ['__proto__', 'x'], ['constructor', 'x'], ['', 'x']],
      sameAs: TURN,
    },
    { name: 'tracing', fields: changed({ request_id: 'r-1', trace_id: 't-1' }), sameAs: TURN },
    { name: 'empty tracing', fields: changed({ request_id: '', trace_id: '' }), sameAs: TURN },
    ...acceptedAs(
      'traceparent',
      {
        'a span': TRACEPARENT,
        'a span that is not sampled, with an unknown flag': TRACEPARENT.replace(/01$/, 'fe'),
        empty: '',
        'no trace': TRACEPARENT.replace(/-[0-9a-f]{32}-/, `-${'0'.repeat(32)}-`),
        'no span': TRACEPARENT.replace(/-[0-9a-f]{16}-/, `-${'0'.repeat(16)}-`),
        'another version': TRACEPARENT.replace(/^00/, '01'),
        'more behind it': `${TRACEPARENT}-00`,
        'a line break behind it': `${TRACEPARENT}\n`,
        'capital letters': TRACEPARENT.toUpperCase(),
        'not UTF-8': [{ base64: '/w==' }],
        'very long': long(100_000),
      },
      { sameAs: TURN },
    ),
    {
      name: 'traceparent twice',
      fields: [...changed({ traceparent: TRACEPARENT }), ['traceparent', TRACEPARENT]],
      sameAs: TURN,
    },
    ...refusedAs('invalid_envelope', 'request_id', {
      'a line break': 'a\nb',
      'too long': long(MAX_KEY_BYTES + 1),
    }),
    ...refusedAs('invalid_envelope', 'trace_id', {
      'a control character': 'a\u0085b',
      'not UTF-8': [{ base64: 'wA==' }],
    }),
    ...refusedAs('invalid_envelope', 'idempotency_key', {
      'a control character': 'a\u007fb',
      'too long': long(MAX_KEY_BYTES + 1),
      'too long in bytes': ['x', { repeat: 'é', times: MAX_KEY_BYTES / 2 }],
    }),
    ...acceptedAs('idempotency_key', {
      'as long as it may be': long(MAX_KEY_BYTES),
      'any text': 'Ключ 🪐 "\\/\u2028\u200b',
      'spaces around': ' game-7/turn-54 ',
    }),
    ...refusedAs('invalid_envelope', 'occurred_at_ms', {
      zero: '0',
      negative: '-1',
      'a sign': '+1790000000000',
      'a fraction': '1790000000000.0',
      'an exponent': '1e12',
      'a space': ' 1790000000000',
      'a line break': '1790000000000\n',
      'other digits': '١٧٩٠٠٠٠٠٠٠٠٠٠',
      'after the year 9999': String(MAX_TIMESTAMP_MS + 1),
      'sixteen digits': '0001790000000000',
      'in seconds': '1790000000',
      'before the year 2000': String(MIN_TIMESTAMP_MS - 1),
    }),
    ...acceptedAs('occurred_at_ms', {
      'the first': String(MIN_TIMESTAMP_MS),
      'the last': String(MAX_TIMESTAMP_MS),
    }),
    ...acceptedAs('occurred_at_ms', { 'leading zeros': '001790000000000' }, { sameAs: TURN }),
    ...refusedAs('invalid_envelope', 'deliver_at_ms', {
      blank: ' ',
      'a fraction': '1790000000001.0',
      'a date': '2026-09-21T14:13:20Z',
      'after the year 9999': String(MAX_TIMESTAMP_MS + 1),
      'more than a year after the event': String(1_790_000_000_000 + MAX_DELAY_MS + 1),
    }),
    ...acceptedAs(
      'deliver_at_ms',
      {
        'a year after the event': String(1_790_000_000_000 + MAX_DELAY_MS),
        'before the event': '1789000000000',
        empty: '',
      },
      { sameAs: TURN },
    ),
    {
      name: 'it expires before it is delivered',
      fields: changed({ deliver_at_ms: '1790000000002', expires_at_ms: '1790000000002' }),
      refused: 'invalid_envelope',
    },
    ...refusedAs('invalid_envelope', 'expires_at_ms', {
      blank: ' ',
      zero: '0',
      negative: '-1',
      'a fraction': '1790000000001.0',
      'an exponent': '1e13',
      'a line break': '1790000000001\n',
      'other digits': '١٧٩٠٠٠٠٠٠٠٠٠١',
      'a date': '2026-09-21T14:13:20Z',
      'sixteen digits': '0001790000000001',
      'after the year 9999': String(MAX_TIMESTAMP_MS + 1),
      'in seconds': '1790000060',
      'the time of the event': '1790000000000',
      'not UTF-8': [{ base64: '/w==' }],
    }),
    ...acceptedAs(
      'expires_at_ms',
      {
        'a millisecond after the event': '1790000000001',
        'leading zeros': '001790000000001',
        'the last': String(MAX_TIMESTAMP_MS),
        empty: '',
      },
      { sameAs: TURN },
    ),
    ...refusedAs('unknown_notification_type', 'notification_type', {
      unknown: 'game.turn.lost',
      'a member of every object': '__proto__',
      'another case': 'Game.Turn.Ready',
      'spaces around': ' game.turn.ready',
      long: long(5_000),
    }),
    ...refusedAs('invalid_envelope', 'producer', { 'another one': 'game_lobby', unknown: 'constructor' }),
    ...refusedAs('invalid_audience', 'audience_kind', { 'not of the type': 'admin_email', unknown: 'users' }),
  ];
}

const long = (bytes: number): VectorValue => [{ repeat: 'x', times: bytes }];

function recipientCases(): VectorCase[] {
  const field = 'recipient_user_ids_json';
  return [
    {
      name: 'users without recipients',
      fields: changed({ [field]: undefined }),
      refused: 'invalid_recipients',
    },
    {
      name: 'administrators with recipients',
      fields: changed({ [field]: '["user-1"]' }, report),
      refused: 'invalid_recipients',
    },
    {
      name: 'administrators with empty recipients',
      fields: changed({ [field]: '' }, report),
      sameAs: 'a report',
    },
    ...refusedAs('invalid_recipients', field, {
      empty: '',
      'no recipient': '[]',
      'no array': '{"0":"user-1"}',
      'a text': '"user-1"',
      null: 'null',
      'no JSON': '["user-1",]',
      'a number': '["user-1",2]',
      'an array': '[["user-1"]]',
      'a blank id': '["user-1"," \\u00a0"]',
      'one twice': '["user-1","user-2","user-1"]',
      'one twice, written otherwise': '["user-1","\\u0075ser-1"]',
      'too long': ['["', { repeat: 'é', times: MAX_USER_ID_BYTES / 2 }, 'x"]'],
      'a control character': '["user\\u0007"]',
      'a NUL character': '["user\\u0000"]',
      'a lone surrogate': '["user\\ud800"]',
      'a dot': '["."]',
      'two dots': '["user-1",".."]',
      'too deep': ['["user-1",', { repeat: '[', times: 50_000 }, { repeat: ']', times: 50_000 }, ']'],
      'never closed': [{ repeat: '[', times: 100_000 }],
      'a byte order mark': '\ufeff["user-1"]',
    }),
    ...acceptedAs(field, { 'another order': ' [ "user-2",\n\t"user-1" ]\r' }, { sameAs: TURN }),
    ...acceptedAs(field, {
      'one of them': '["user-1"]',
      'as long as it may be': ['["', { repeat: 'é', times: MAX_USER_ID_BYTES / 2 }, '"]'],
      'three dots': '["..."]',
      'spaces around': '[" user-1","user-1","user-1 "]',
      'in the order of UTF-16': '["\ufb33","\ud83d\ude00","z","é","Z"]',
      'composed and not': '["é","e\u0301"]',
    }),
  ];
}

function jsonCases(): VectorCase[] {
  const nested = (depth: number): Part[] => [
    '{"game_id":"game-7","game_name":"Andromeda","turn_number":54,"deep":',
    { repeat: '[', times: depth },
    { repeat: ']', times: depth },
    '}',
  ];
  const padded = (bytes: number): VectorValue => {
    const [start, end] = [payloadWith('"pad":"').replace(/}$/, ''), '"}'];
    return [start, { repeat: 'x', times: bytes - start.length - end.length }, end];
  };
  const field = 'payload_json';
  return [
    ...refusedAs('invalid_payload', field, {
      'an array': '[]',
      null: 'null',
      'a number': '7',
      'an empty object': '{}',
      cut: '{"game_id":"game-7"',
      'a trailing comma': payloadWith('').replace(/,}$/, ',}'),
      'something behind it': `${payloadWith('"a":1')}x`,
      'single quotes': "{'game_id':'game-7'}",
      'a comment': payloadWith('"a":1/**/'),
      NaN: payloadWith('"a":NaN'),
      Infinity: payloadWith('"a":-Infinity'),
      'a leading zero': payloadWith('"a":01'),
      'a leading plus': payloadWith('"a":+1'),
      'a bare point': payloadWith('"a":1.'),
      'a point first': payloadWith('"a":.5'),
      'an exponent without digits': payloadWith('"a":1e'),
      'a raw line break in a text': payloadWith('"a":"\n"'),
      'an unknown escape': payloadWith('"a":"\\x41"'),
      'half an escape': payloadWith('"a":"\\u12"'),
      'white space outside JSON': `\u00a0${payloadWith('"a":1')}`,
      'a byte order mark': `\ufeff${payloadWith('"a":1')}`,
      'a missing colon': payloadWith('"a" 1'),
      'a key that is no text': payloadWith('1:1'),
      'a literal in capitals': payloadWith('"a":True'),
      'brackets that do not match': payloadWith('"a":[1}'),
      'a NUL character': payloadWith('"a":"\\u0000"'),
      'a NUL character in a key': payloadWith('"\\u0000":1'),
      'a lone surrogate': payloadWith('"a":"\\udc00x"'),
      'a lone surrogate in a key': payloadWith('"\\ud83d":1'),
      'surrogates the wrong way round': payloadWith('"a":"\\ude00\\ud83d"'),
      'an integer beyond 2^53': payloadWith('"a":[0,9007199254740992]'),
      'an integer beyond all': payloadWith(`"a":${'9'.repeat(400)}`),
      'an integer as a power': payloadWith('"a":1e16'),
      'an overflow': payloadWith('"a":-1e400'),
      'a turn that is a fraction': '{"game_id":"g","game_name":"n","turn_number":1.5}',
      'a turn beyond 2^53': '{"game_id":"g","game_name":"n","turn_number":9007199254740993}',
      'a field that only a prototype has': '{"__proto__":{"game_id":"g"},"game_name":"n","turn_number":1}',
      'a direction in a name': '{"game_id":"g","game_name":"a\\u202eb","turn_number":1}',
      'a direction in a name that ends': '{"game_id":"g","game_name":"\\u202eb\\u202c","turn_number":1}',
      'a mark of direction in a name': '{"game_id":"g","game_name":"a\\u200fb","turn_number":1}',
      'an Arabic letter mark in a name': '{"game_id":"g","game_name":"a\\u061cb","turn_number":1}',
      'an open isolate in a name': '{"game_id":"g","game_name":"\\u2067b","turn_number":1}',
      'an isolate in a name that ends before it begins':
        '{"game_id":"g","game_name":"\\u2069b\\u2067","turn_number":1}',
      'a separator in a name': '{"game_id":"g","game_name":"a\\u2028b","turn_number":1}',
      'a name that is overridden by null': payloadWith('"game_name":null'),
      'too deep': nested(MAX_JSON_DEPTH),
      'much too deep': nested(20_000),
      'an overridden value that is too deep': [
        '{"a":',
        { repeat: '[', times: 30_000 },
        { repeat: ']', times: 30_000 },
        payloadWith('"a":1').replace('{', ','),
      ],
      'never closed': [{ repeat: '[', times: 100_000 }],
      'too long': padded(MAX_PAYLOAD_BYTES + 1),
    }),
    ...acceptedAs(field, {
      'as long as it may be': padded(MAX_PAYLOAD_BYTES),
      'as deep as it may be': nested(MAX_JSON_DEPTH - 1),
      'isolates in a name': '{"game_id":"g","game_name":"\\u2067\\u2066a\\u2069b\\u2069","turn_number":1}',
      'a tab in a name': '{"game_id":"g","game_name":"a\\tb","turn_number":1}',
    }),
    ...acceptedAs(
      field,
      {
        'another order of keys': ' {"turn_number" : 54 ,\r\n"game_name":"Andromeda","game_id":"game-7"}\t',
        'other notations': '{"game_\\u0069d":"game-7","game_name":"\\u0041ndromeda","turn_number":5.4e1}',
        'overridden values':
          '{"turn_number":1e400,"game_id":"\\ud800","game_id":"game-7","game_name":"Andromeda","turn_number":54.0}',
      },
      { sameAs: TURN },
    ),
    ...acceptedAs(field, {
      'further values of all kinds': payloadWith(
        '"b":[1,{"y":null,"x":true}],"a":{"":false},"__proto__":{"c":[]},"constructor":"c"',
      ),
      numbers: payloadWith(
        '"n":[0,-0,-0.0,0e5,1.0,-1,0.1,1e-6,1e-7,1.5e-10,0.00001234,123456.789,5e-324,1e-400,4503599627370495.5,9007199254740991,-9007199254740991,1E2,1e+2,2.2250738585072014e-308,0.30000000000000004,100000000000000.02]',
      ),
      texts: payloadWith(
        '"t":"\\"\\\\\\/\\b\\f\\n\\r\\t\\u0001\\u001f\\u007f\\u0080\\u2028\\u2029\\ufeff\\ufffd<>&\'é\\u00e9\\ud83d\\ude00😀"',
      ),
      'keys in the order of UTF-16': payloadWith(
        '"\ufb33":1,"\ud83d\ude00":2,"€":3,"\\r":4,"1":5,"10":6,"2":7,"ö":8,"Z":9',
      ),
      'a zero-width space as a name': '{"game_id":"g","game_name":"\u200b","turn_number":0}',
      'the largest turn': '{"game_id":"g","game_name":"n","turn_number":9007199254740991}',
      'minus zero': '{"game_id":"g","game_name":"n","turn_number":-0}',
    }),
    { name: FINISHED, fields: changed({ payload_json: payloadWith('"a":[1,2]') }) },
    {
      name: 'another order of an array',
      fields: changed({ payload_json: payloadWith('"a":[2,1]') }),
      otherThan: FINISHED,
    },
    {
      name: 'text instead of a number',
      fields: changed({ payload_json: payloadWith('"a":["1","2"]') }),
      otherThan: FINISHED,
    },
  ];
}

function sizeCases(): VectorCase[] {
  const fields = changed({});
  const size = fields.reduce((bytes, [name, value]) => bytes + name.length + value.length, 0);
  return [
    {
      name: 'an entry as large as it may be',
      fields: [...fields, ['further', long(MAX_ENTRY_BYTES - size - 'further'.length)]],
      sameAs: TURN,
    },
    {
      name: 'an entry that is too large',
      fields: [...fields, ['further', long(MAX_ENTRY_BYTES - size - 'further'.length + 1)]],
      refused: 'entry_too_large',
    },
    {
      name: 'as many fields as there may be',
      fields,
      further_fields: MAX_ENTRY_FIELDS - fields.length,
      sameAs: TURN,
    },
    {
      name: 'too many fields',
      fields,
      further_fields: MAX_ENTRY_FIELDS - fields.length + 1,
      refused: 'entry_too_large',
    },
  ];
}

/** All cases, with unique names. */
export function vectorCases(catalog: Catalog): VectorCase[] {
  return [...envelopeCases(), ...recipientCases(), ...jsonCases(), ...sizeCases(), ...casesOfTypes(catalog)];
}
