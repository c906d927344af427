/** What makes two intents the same intent. */
import { createHash } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';
import fc from 'fast-check';
import { fingerprintOf } from '../../api/intent/fingerprint.ts';
import type { Intent } from '../../api/intent/entry.ts';
import { parseIntent } from './galaxy.ts';

const ENVELOPE = {
  notification_type: 'game.turn.ready',
  producer: 'game_master',
  audience_kind: 'user',
  recipient_user_ids_json: '["user-1","user-2","user-3"]',
  idempotency_key: 'key-1',
  occurred_at_ms: '1775121700000',
  payload_json: '{"game_id":"g","game_name":"n","turn_number":54}',
};

function intentOf(changes: Record<string, string> = {}, entryId = '1-0'): Intent {
  const fields = Object.entries({ ...ENVELOPE, ...changes });
  const parsed = parseIntent(
    entryId,
    fields.map(([name, value]) => [Buffer.from(name), Buffer.from(value)]),
  );
  if (!parsed.ok) throw new Error(parsed.malformed.failureMessage);
  return parsed.intent;
}

const fingerprint = (changes: Record<string, string> = {}, entryId?: string): string =>
  fingerprintOf(intentOf(changes, entryId));

type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
const isArray = (value: Json): value is Json[] => Array.isArray(value);

const number = fc.oneof(
  fc.integer(),
  fc.maxSafeInteger(),
  fc
    .double({ noNaN: true, noDefaultInfinity: true })
    .filter((value) => !Number.isInteger(value) || Number.isSafeInteger(value)),
);
const text = fc.string({ unit: 'binary', maxLength: 8 }).filter((value) => !value.includes('\0'));
const { value: json } = fc.letrec<{ value: Json }>((tie) => ({
  value: fc.oneof(
    { maxDepth: 3, depthSize: 'small' },
    fc.constant(null),
    fc.boolean(),
    number,
    text,
    fc.array(tie('value'), { maxLength: 4 }),
    fc.dictionary(text, tie('value'), { maxKeys: 4 }),
  ),
}));
const payloads = fc
  .dictionary(text, json, { maxKeys: 5 })
  .map((extra) => ({ ...extra, game_id: 'g', game_name: 'n', turn_number: 54 }));

type Choose = <T>(options: readonly T[]) => T;
const chooser = (gen: fc.GeneratorValue): Choose => {
  return (options) => options[gen(fc.nat, { max: options.length - 1 })]!;
};

/** The same JSON value, written in one of its many ways. */
function write(value: Json, choose: Choose): string {
  const space = () => choose(['', '', ' ', '\n\t', '\r\n  ']);
  const around = (inner: string) => space() + inner + space();
  if (typeof value === 'string')
    return around(`"${[...value].map((character) => writeCharacter(character, choose)).join('')}"`);
  if (typeof value === 'number') return around(choose(notationsOf(value)));
  if (value === null || typeof value === 'boolean') return around(String(value));
  if (isArray(value)) return around(`[${value.map((item) => write(item, choose)).join(',') || space()}]`);
  const rest = Object.keys(value);
  const members: string[] = [];
  while (rest.length > 0) {
    const [key = ''] = rest.splice(choose([...rest.keys()]), 1);
    members.push(write(key, choose) + ':' + write(value[key]!, choose));
  }
  return around(`{${members.join(',') || space()}}`);
}

function writeCharacter(character: string, choose: Choose): string {
  const escaped = character
    .split('')
    .map((unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`)
    .join('');
  return choose([JSON.stringify(character).slice(1, -1), escaped]);
}

function notationsOf(value: number): string[] {
  const plain = Object.is(value, -0) ? '-0' : String(value);
  const notations = [plain, value.toExponential(), value.toExponential().replace('e+', 'E')];
  if (/^-?\d+$/.test(plain)) notations.push(`${plain}.0`, `${plain}.000`, `${plain}e0`, `${plain}E+00`);
  if (/^-?\d+\.\d+$/.test(plain)) notations.push(`${plain}0`, `${plain}e0`);
  return notations;
}

/** The value with one leaf, key or array changed. */
function changed(value: Json, choose: Choose): Json {
  if (isArray(value)) {
    const other = [...value];
    if (other.length === 0 || choose([true, false, false])) return [...other, 'added'];
    const index = choose([...other.keys()]);
    other[index] = changed(other[index]!, choose);
    return other;
  }
  if (typeof value === 'object' && value !== null) {
    const keys = Object.keys(value);
    if (keys.length === 0 || choose([true, false, false]))
      return { ...value, [`added-${keys.length}`]: null };
    const key = choose(keys);
    return Object.fromEntries(
      Object.entries(value).map(([name, child]) => [name, name === key ? changed(child, choose) : child]),
    );
  }
  if (typeof value === 'string') return choose([`${value}x`, ` ${value}`, null, [value]]);
  if (typeof value === 'number')
    return choose([Math.abs(value) < 1e6 ? value + 1 : 0.5, String(value), null]);
  return choose(['null', 0, value === null ? false : !value, value === true ? 1 : '']);
}

describe('fingerprint', () => {
  test('I8 it is the SHA-256 of the canonical content, in a form that stored fingerprints rely on', () => {
    const content =
      '{"audience_kind":"user","idempotency_key":"key-1","notification_type":"game.turn.ready",' +
      '"occurred_at_ms":1775121700000,' +
      '"payload":"{\\"game_id\\":\\"g\\",\\"game_name\\":\\"n\\",\\"turn_number\\":54}",' +
      '"producer":"game_master","recipient_user_ids":["user-1","user-2","user-3"]}';

    expect(fingerprint()).toBe(createHash('sha256').update(content).digest('hex'));
  });

  test('I8 white space, key order, number notation and escapes of the payload make no difference', () => {
    fc.assert(
      fc.property(payloads, fc.gen(), (payload, gen) => {
        const rewritten = write(payload, chooser(gen));
        expect(fingerprint({ payload_json: rewritten })).toBe(
          fingerprint({ payload_json: JSON.stringify(payload) }),
        );
      }),
      { numRuns: 300 },
    );
  });

  test.each(['1', '1.0', '1e0', '1E+0', '10e-1', '0.1e1', ' 1 '])('I8 the number %j is one', (notation) => {
    const payload = (turn: string) => ({
      payload_json: `{"game_id":"g","game_name":"n","turn_number":${turn}}`,
    });

    expect(fingerprint(payload(notation))).toBe(fingerprint(payload('1')));
    expect(fingerprint(payload(notation))).not.toBe(fingerprint(payload('2')));
  });

  test('I8 the order of recipients makes no difference', () => {
    const ids = fc.uniqueArray(
      text.filter((id) => /^[^\p{Cc}]+$/u.test(id) && id.trim() !== '' && id !== '.' && id !== '..'),
      { minLength: 1, maxLength: 8 },
    );
    const shuffled = ids.chain((list) =>
      fc.tuple(fc.constant(list), fc.shuffledSubarray(list, { minLength: list.length })),
    );
    fc.assert(
      fc.property(shuffled, ([list, other]) => {
        expect(fingerprint({ recipient_user_ids_json: JSON.stringify(other) })).toBe(
          fingerprint({ recipient_user_ids_json: JSON.stringify(list) }),
        );
      }),
    );
  });

  test('I8 request_id, trace_id and the id of the entry make no difference', () => {
    const identifiers = fc.string({ minLength: 1, maxLength: 40 });
    fc.assert(
      fc.property(identifiers, identifiers, fc.nat(), (requestId, traceId, sequence) => {
        expect(fingerprint({ request_id: requestId, trace_id: traceId }, `7-${sequence}`)).toBe(
          fingerprint(),
        );
      }),
    );
  });

  test('I8 any change of the payload makes a difference', () => {
    fc.assert(
      fc.property(payloads, fc.gen(), (payload, gen) => {
        // The required fields keep their form; what is around them changes.
        const before = { ...payload, extra: payload };
        const after = { ...payload, extra: changed(payload, chooser(gen)) };
        fc.pre(!isDeepStrictEqual(JSON.parse(JSON.stringify(before)), JSON.parse(JSON.stringify(after))));
        expect(fingerprint({ payload_json: JSON.stringify(after) })).not.toBe(
          fingerprint({ payload_json: JSON.stringify(before) }),
        );
      }),
      { numRuns: 300 },
    );
  });

  test('I8 the order of arrays makes a difference', () => {
    const withArray = (list: Json[]) => ({
      payload_json: `{"game_id":"g","game_name":"n","turn_number":54,"list":${JSON.stringify(list)}}`,
    });
    const list = fc.array(json, { minLength: 2, maxLength: 5 });
    fc.assert(
      fc.property(list, (items) => {
        const reversed = [...items].reverse();
        fc.pre(JSON.stringify(items) !== JSON.stringify(reversed));
        expect(fingerprint(withArray(reversed))).not.toBe(fingerprint(withArray(items)));
      }),
    );
  });

  test.each([
    ['occurred_at_ms', { occurred_at_ms: '1775121700001' }],
    ['idempotency_key', { idempotency_key: 'key-2' }],
    ['a recipient more', { recipient_user_ids_json: '["user-1","user-2","user-3","user-4"]' }],
    ['a recipient less', { recipient_user_ids_json: '["user-1","user-2"]' }],
    ['another recipient', { recipient_user_ids_json: '["user-1","user-2","user-03"]' }],
    ['recipients joined', { recipient_user_ids_json: '["user-1,user-2","user-3"]' }],
    [
      'the type',
      {
        notification_type: 'game.finished',
        payload_json: '{"game_id":"g","game_name":"n","turn_number":54,"final_turn_number":1}',
      },
    ],
    ['a payload field more', { payload_json: '{"game_id":"g","game_name":"n","turn_number":54,"x":null}' }],
    [
      'a payload field named __proto__',
      { payload_json: '{"game_id":"g","game_name":"n","turn_number":54,"__proto__":1}' },
    ],
    ['the case of a key', { payload_json: '{"game_id":"g","game_name":"n","turn_number":54,"Game_id":"g"}' }],
    ['the form of a character', { payload_json: '{"game_id":"g","game_name":"n\\u0301","turn_number":54}' }],
  ])('I8 %s makes a difference', (_what, changes) => {
    expect(fingerprint(changes)).not.toBe(fingerprint());
  });

  test('I8 the type alone and the audience alone make a difference', () => {
    const intent = intentOf();
    const application = {
      ...intent,
      notificationType: 'lobby.application.submitted',
      producer: 'game_lobby',
    } as const;

    const fingerprints = [
      intent,
      { ...intent, notificationType: 'game.finished' } as const,
      application,
      { ...application, audienceKind: 'admin_email' } as const,
      { ...application, recipientUserIds: [] },
      { ...application, producer: 'geoprofile' } as const,
    ].map(fingerprintOf);
    expect(new Set(fingerprints).size).toBe(6);
  });

  test('I8 any other time or key is another intent', () => {
    const key = fc.string({ minLength: 1, maxLength: 60 }).filter((value) => value.trim() !== '');
    const time = fc.integer({ min: 946_684_800_000, max: 253_402_300_799_999 });
    fc.assert(
      fc.property(key, key, time, time, (key1, key2, time1, time2) => {
        const of = (idempotencyKey: string, ms: number) =>
          fingerprint({ idempotency_key: idempotencyKey, occurred_at_ms: String(ms) });
        expect(of(key1, time1) === of(key2, time1)).toBe(key1 === key2);
        expect(of(key1, time1) === of(key1, time2)).toBe(time1 === time2);
      }),
    );
  });
});

test('I8 I78 until when it is worth sending makes no difference', () => {
  expect(fingerprint({ deliver_at_ms: '1775121700001' })).toBe(fingerprint());
  expect(fingerprint({ expires_at_ms: '1775121700001' })).toBe(fingerprint());
  expect(fingerprint({ expires_at_ms: '1775999999999' })).toBe(fingerprint());
});
