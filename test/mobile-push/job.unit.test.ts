/** The contract of the stream of jobs: what parseMobileJob accepts, refuses and why (seed mobile-push, "Processing Flow" 1). */
import path from 'node:path';
import fc from 'fast-check';
import type { MalformedJob, MobileJob } from '../../api/mobile-push/job.ts';
import { JOB_FIELDS, MAX_JOB_BYTES, PAYLOAD_FIELD, parseMobileJob } from '../../api/mobile-push/job.ts';
import { publishedContract, schemaNamed } from '../published-contract.ts';

const ID = '1775121700000-0';
type Changes = Record<string, string | Buffer | undefined>;

const REQUIRED = { userId: 'user-1', title: 'Your turn', body: 'Turn 3 is ready', channel: 'turns' };

const entry = (fields: Changes) =>
  Object.entries(fields).flatMap(([name, value]) =>
    value === undefined ? [] : [[Buffer.from(name), Buffer.from(value as string)] as const],
  );
const flat = (changes: Changes = {}) => entry({ ...REQUIRED, ...changes });
const payload = (changes: object = {}, beside: Changes = {}) =>
  entry({ payload: JSON.stringify({ ...REQUIRED, ...changes }), ...beside });

function accepted(fields: ReturnType<typeof entry>): MobileJob {
  const parsed = parseMobileJob(ID, fields);
  if (!parsed.ok) throw new Error(`refused: ${parsed.malformed.failureMessage}`);
  return parsed.job;
}

function refused(fields: ReturnType<typeof entry>): MalformedJob {
  const parsed = parseMobileJob(ID, fields);
  if (parsed.ok) throw new Error(`accepted: ${JSON.stringify(parsed.job).slice(0, 500)}`);
  return parsed.malformed;
}

const { userId, ...shown } = REQUIRED;

describe('accepted', () => {
  test('M1 flat fields', () => {
    expect(accepted(flat({ badge: '3', data: '{"game":"g-1","turn":3}' }))).toEqual({
      jobId: ID,
      userId,
      content: { ...shown, badge: 3, data: { game: 'g-1', turn: 3 } },
    });
  });

  test('bug-P10 a time of expiry, as text and as a number', () => {
    const expiresAtMs = 1_790_000_000_000;
    for (const fields of [
      flat({ expires_at_ms: String(expiresAtMs) }),
      payload({ expires_at_ms: expiresAtMs }),
      payload({ expires_at_ms: String(expiresAtMs) }),
    ]) {
      expect(accepted(fields).content).toEqual({ ...shown, data: {}, expiresAtMs });
    }
  });

  test('M1 one payload field', () => {
    expect(accepted(flat({ priority: 'normal' })).content.priority).toBe('normal');
    expect(accepted(payload({ badge: 3, data: { deep: [{ a: null }] } }))).toEqual({
      jobId: ID,
      userId,
      content: { ...shown, badge: 3, data: { deep: [{ a: null }] } },
    });
  });

  test.each([
    ['flat, empty', flat({ badge: '', data: '', expires_at_ms: ' ' })],
    ['in the payload, null', payload({ badge: null, data: null, expires_at_ms: null })],
    ['left out', flat()],
  ])('M1 optional fields that are %s count as absent', (_, fields) => {
    expect(accepted(fields).content).toEqual({ ...shown, data: {} });
  });

  test('kinds-M1 M1 numbers stand for the text that they are written as, and a badge may be text', () => {
    const fields = { userId: 42, title: 7, body: 1.5, channel: 3, badge: '3' };
    expect(accepted(entry({ payload: JSON.stringify(fields) }))).toEqual({
      jobId: ID,
      userId: '42',
      content: { title: '7', body: '1.5', channel: '3', badge: 3, data: {} },
    });
  });

  test.each([
    ['flat', entry({ userId: 'u', data: '{"sync":1}' }), { data: { sync: 1 } }],
    ['in the payload', entry({ payload: '{"userId":"u","data":{"sync":1}}' }), { data: { sync: 1 } }],
    ['with a badge only', entry({ userId: 'u', badge: '0' }), { badge: 0, data: {} }],
    ['with blank texts', entry({ userId: 'u', title: ' ', body: '', data: '{}' }), { data: {} }],
  ])('kinds-M1 M1 a silent push needs neither title nor body nor channel, %s', (_, fields, content) => {
    expect(accepted(fields)).toEqual({ jobId: ID, userId: 'u', content });
  });

  test('M1 unknown fields are ignored, in either shape', () => {
    expect(accepted(flat({ trace_id: 't', sound: 'x' })).content).toEqual({ ...shown, data: {} });
    expect(accepted(payload({ sound: 'x' }, { trace_id: 't' })).content).toEqual({ ...shown, data: {} });
  });

  test('M1 a data key __proto__ is a key like any other', () => {
    const { data } = accepted(flat({ data: '{"__proto__":{"polluted":true}}' })).content;
    expect(Object.keys(data)).toEqual(['__proto__']);
    expect(Object.getPrototypeOf(data)).toBe(Object.prototype);
    expect(({} as Record<string, unknown>)['polluted']).toBeUndefined();
  });

  test('M1 both shapes of the same job are the same', () => {
    const text = fc.string({ unit: 'grapheme', minLength: 1 }).map((some) => `x${some.replaceAll('\0', '')}`);
    const job = fc.record(
      {
        userId: fc.stringMatching(/^[a-z0-9-]{1,40}$/),
        title: text,
        body: text,
        channel: fc.stringMatching(/^[a-z_]{1,40}$/),
        badge: fc.integer({ min: 0, max: 999_999_999 }),
        data: fc.dictionary(
          fc.stringMatching(/^[a-z]{1,10}$/),
          fc.oneof(text, fc.integer(), fc.boolean(), fc.constant(null)),
        ),
      },
      { requiredKeys: ['userId', 'title', 'body', 'channel'] },
    );
    fc.assert(
      fc.property(job, ({ badge, data, ...rest }) => {
        const asFlat = entry({
          ...rest,
          ...(badge === undefined ? {} : { badge: String(badge) }),
          ...(data === undefined ? {} : { data: JSON.stringify(data) }),
        });
        const asPayload = entry({ payload: JSON.stringify({ ...rest, badge, data }) });
        expect(accepted(asFlat)).toEqual(accepted(asPayload));
      }),
    );
  });
});

describe('refused', () => {
  const deep = (levels: number) => '{"a":'.repeat(levels) + '1' + '}'.repeat(levels);

  type Refusal = [code: string, message: string, fields: ReturnType<typeof entry>];
  const invalidField =
    (message: string) =>
    (fields: ReturnType<typeof entry>): Refusal => ['invalid_field', message, fields];

  test.each<Refusal>([
    ['missing_field', 'userId is missing', entry({})],
    ['missing_field', 'userId is missing', flat({ userId: undefined })],
    ['missing_field', 'userId is missing', payload({ userId: null })],
    ['invalid_field', 'userId is empty', flat({ userId: ' ' })],
    ...['userId', 'title', 'body', 'channel'].flatMap((name): Refusal[] => [
      ['invalid_field', `${name} must be a string`, payload({ [name]: [7] })],
      ['invalid_field', `${name} must be a string`, payload({ [name]: true })],
      ['invalid_entry', `${name} is given more than once`, [...flat(), ...entry({ [name]: 'x' })]],
      ['invalid_entry', `${name} is not UTF-8`, flat({ [name]: Buffer.from([0xff]) })],
      ['invalid_entry', `${name} has a NUL character`, flat({ [name]: 'a\0b' })],
      [
        'invalid_entry',
        `${name} is given beside payload; give one or the other`,
        payload({}, { [name]: 'x' }),
      ],
    ]),
    [
      'missing_field',
      'title, body, badge, data are all missing',
      flat({ title: undefined, body: undefined }),
    ],
    ['invalid_payload', 'payload is not valid JSON', entry({ payload: '{' })],
    ['invalid_payload', 'payload is not valid JSON', entry({ payload: '' })],
    ['invalid_payload', 'payload must be a JSON object', entry({ payload: '[]' })],
    ['invalid_payload', 'payload has a lone surrogate at title', entry({ payload: '{"title":"\\ud800"}' })],
    ['invalid_payload', 'payload has a NUL character at body', entry({ payload: '{"body":"\\u0000"}' })],
    ['invalid_payload', 'payload is nested deeper than 32 levels', entry({ payload: deep(40) })],
    ['invalid_field', 'data is nested deeper than 32 levels', flat({ data: deep(40) })],
    ['invalid_field', 'data is not valid JSON', flat({ data: 'game=1' })],
    ['invalid_field', 'data must be a JSON object', flat({ data: '"text"' })],
    ['invalid_field', 'data must be a JSON object', payload({ data: [1] })],
    ['invalid_field', 'userId has control characters', flat({ userId: 'a\nb' })],
    ['invalid_field', 'userId is longer than 512 bytes', flat({ userId: 'x'.repeat(513) })],
    ['invalid_field', 'channel is longer than 200 bytes', flat({ channel: 'x'.repeat(201) })],
    ...[
      ...['-1', '1.5', '1e3', ' 1', 'one', '1234567890'].map((badge) => flat({ badge })),
      ...[-1, 1.5, '1.5', true, 1e9].map((badge) => payload({ badge })),
    ].map(invalidField('badge must be a whole number from 0 to 999999999')),
    ...[flat({ priority: 'urgent' }), payload({ priority: 10 })].map(
      invalidField('priority must be high or normal'),
    ),
    ...[
      ...['0', '-1', '1e12', '1.5', 'soon', '1'.repeat(16)].map((wrong) => flat({ expires_at_ms: wrong })),
      payload({ expires_at_ms: [1] }),
    ].map(invalidField('expires_at_ms must be Unix milliseconds, a whole number above zero')),
    [
      'entry_too_large',
      `the entry has ${MAX_JOB_BYTES + 1} bytes; at most ${MAX_JOB_BYTES} are accepted`,
      entry({ x: 'x'.repeat(MAX_JOB_BYTES) }),
    ],
  ])('M1 %s: %s', (failureCode, failureMessage, fields) => {
    expect(refused(fields)).toMatchObject({ jobId: ID, failureCode, failureMessage });
  });
});

describe('mobile-job-asyncapi.yaml', () => {
  interface Message {
    payload: { $ref: string };
    examples: { payload: Record<string, string> }[];
  }
  interface Document {
    channels: Record<string, { address: string }>;
    components: {
      schemas: Record<string, { required?: string[]; properties?: object }>;
      messages: Record<string, Message>;
    };
  }
  const { document, problems } = publishedContract<Document>('mobile-push/job-asyncapi.yaml');
  const { schemas, messages } = document.components;
  const isValid = (schema: string, value: unknown) => problems(schemaNamed(schema), value).length === 0;

  test('M1 it names the stream and the fields that the code names', () => {
    expect(document.channels['jobs']?.address).toBe('stream.notifications.jobs');
    for (const schema of [schemas['FlatJob'], schemas['Job']]) {
      expect(schema?.required).toEqual(['userId']);
      expect(Object.keys(schema?.properties ?? {}).sort()).toEqual([...JOB_FIELDS].sort());
    }
    expect(Object.keys(schemas['PayloadJob']?.properties ?? {})).toEqual([PAYLOAD_FIELD]);
  });

  test.each(Object.keys(messages))('M1 the examples of %s fit their schema and are accepted', (name) => {
    const { examples, payload: schema } = messages[name]!;
    expect(examples.length).toBeGreaterThan(0);
    for (const { payload: example } of examples) {
      expect(isValid(path.basename(schema.$ref), example)).toBe(true);
      const { content, userId: of } = accepted(entry(example));
      expect(isValid('Job', { userId: of, ...content })).toBe(true);
    }
  });

  test.each([
    ['a missing user', { userId: undefined }],
    ['an empty user', { userId: ' ' }],
    ['a badge that is no number', { badge: 'x' }],
  ])('M1 it refuses %s, as the code does', (_, change) => {
    const fields = { ...REQUIRED, ...change };
    expect(isValid('FlatJob', JSON.parse(JSON.stringify(fields)))).toBe(false);
    refused(entry(fields));
  });
});
