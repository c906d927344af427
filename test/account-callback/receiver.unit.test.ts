/** The receiver that portfolio services use: what it keeps, and what it refuses; and the published contract. */
import type { CallbackKey, CallbackValues } from '../../api/account-callback/callback.ts';
import {
  PERIOD_MS,
  callbackBody,
  callbackIdempotencyKey,
  callbackPath,
  callbackSchema,
  callbackWebhookId,
  parseCallbackPath,
} from '../../api/account-callback/callback.ts';
import { signedHeaders } from '../../api/webhooks.ts';
import { createCallbackReceiver, memoryCallbackStore } from '../../client/account-callback/receiver.ts';
import type { BodyPage } from '../published-contract.ts';
import { publishedContract, schemaNamed } from '../published-contract.ts';
import { HOUR, MIDNIGHT } from './callbacks.ts';

const KEY: CallbackKey = { kind: 'hourly', userId: 'ann/é', periodStartMs: MIDNIGHT };
const VALUES: CallbackValues = {
  peakValue: '10.5',
  peakAtMs: MIDNIGHT + 1,
  bottomValue: '-3',
  bottomAtMs: MIDNIGHT,
  closingValue: '0.000000000000000001',
};
const lines: string[] = [];
const log = { info: () => undefined, error: (_: object, message: string) => void lines.push(message) };

const [SECRET, NEXT_SECRET, FOREIGN_SECRET] = ['own', 'next', 'foreign'].map(
  (name) => `whsec_${Buffer.from(name.padEnd(32, '.')).toString('base64')}`,
) as [string, string, string];

interface Signing {
  key?: CallbackKey;
  secrets?: readonly string[];
  body?: string;
  at?: Date;
}

/** As the service sends it, but for what is said otherwise. */
const requestOf = (values: Partial<CallbackValues> = {}, signing: Signing = {}) => {
  const {
    key = KEY,
    secrets = [SECRET],
    body = callbackBody({ ...key, ...VALUES, ...values }),
    at,
  } = signing;
  return {
    path: callbackPath(key)!,
    headers: {
      'idempotency-key': callbackIdempotencyKey(key),
      ...signedHeaders(secrets, callbackWebhookId(key), body, at),
    } as Record<string, string>,
    body,
  };
};
const open = () => {
  const store = memoryCallbackStore();
  return { store, receiver: createCallbackReceiver({ store, log, secrets: [SECRET] }) };
};

test('C7 a callback any number of times is as good as once; the latest of a period is kept', async () => {
  const { store, receiver } = open();
  expect(await receiver.answer(requestOf())).toMatchObject({ status: 200, answer: { outcome: 'stored' } });
  for (let again = 0; again < 3; again += 1) {
    expect(await receiver.answer(requestOf())).toMatchObject({
      status: 200,
      answer: { outcome: 'unchanged' },
    });
  }
  expect(await receiver.answer(requestOf({ closingValue: '1' }))).toMatchObject({
    status: 200,
    answer: { outcome: 'replaced' },
  });
  expect(store.get(KEY)).toEqual(callbackSchema.parse(JSON.parse(requestOf({ closingValue: '1' }).body)));
  const day = { ...KEY, kind: 'daily' as const };
  expect(await receiver.answer(requestOf({}, { key: day }))).toMatchObject({ answer: { outcome: 'stored' } });
  expect(store.get(day)).toBeDefined();
});

test('C7 what is no callback is refused with a logged error, and nothing is kept', async () => {
  const { store, receiver } = open();
  const good = JSON.parse(requestOf().body) as Record<string, unknown>;
  const bodies: unknown[] = [
    ...[undefined, null, 7, [], {}, '__proto__'],
    ...['period_start_ms', 'peak_value', 'bottom_at_ms', 'closing_value'].map((field) => ({
      ...good,
      [field]: undefined,
    })),
    { ...good, peak_value: 10.5 },
    { ...good, peak_value: '1e9' },
    { ...good, closing_value: 'NaN' },
    { ...good, closing_value: '9'.repeat(61) },
    { ...good, peak_value: '-3.1' },
    { ...good, period_start_ms: MIDNIGHT + 1, period_end_ms: MIDNIGHT + 1 + HOUR },
    { ...good, period_end_ms: MIDNIGHT + 2 * HOUR },
    { ...good, peak_at_ms: MIDNIGHT + HOUR },
    { ...good, bottom_at_ms: MIDNIGHT - 1 },
    { ...good, period_start_ms: '0' },
    { ...good, filler: 'x'.repeat(5_000) },
  ];
  for (const body of bodies) {
    lines.length = 0;
    // Signed for the period that it names.
    const { period_start_ms: named } = (body ?? {}) as { period_start_ms?: unknown };
    const key = { ...KEY, periodStartMs: typeof named === 'number' ? named : MIDNIGHT };
    const text = JSON.stringify(body) ?? 'not JSON';
    const answered = await receiver.answer(requestOf({}, { key, body: text }));
    expect([body, answered.status]).toEqual([body, 422]);
    expect(lines).toEqual(['account callback refused']);
  }
  const { headers } = requestOf();
  const otherKey = { ...headers, 'idempotency-key': 'another' };
  expect((await receiver.answer({ ...requestOf(), headers: otherKey })).status).toBe(422);
  for (const path_ of [
    '/',
    '/api/v1/internal/portfolios//callbacks/hourly',
    '/api/v1/internal/portfolios/%/callbacks/daily',
  ]) {
    expect((await receiver.answer({ ...requestOf(), path: path_ })).status).toBe(404);
  }
  expect(store.get(KEY)).toBeUndefined();
});

test('C7 what cannot be kept is not acknowledged', async () => {
  const store = { upsert: () => Promise.reject(new Error('disk full')) };
  const receiver = createCallbackReceiver({ store, log, secrets: [SECRET] });
  expect((await receiver.answer(requestOf())).status).toBe(500);
});

describe('who calls', () => {
  const MINUTE = 60_000;
  const other = { ...KEY, userId: 'bob' };
  const good = requestOf();
  const without = (name: string) => ({ ...good, headers: { ...good.headers, [name]: undefined } });

  test.each([
    ['without any header', { ...good, headers: {} }],
    ['without webhook-id', without('webhook-id')],
    ['without webhook-timestamp', without('webhook-timestamp')],
    ['without webhook-signature', without('webhook-signature')],
    [
      'with several signatures headers',
      { ...good, headers: { ...good.headers, 'webhook-signature': ['v1,x', 'v1,y'] } },
    ],
    ['signed with a foreign secret', requestOf({}, { secrets: [FOREIGN_SECRET] })],
    ['signed six minutes ago', requestOf({}, { at: new Date(Date.now() - 6 * MINUTE) })],
    ['signed six minutes ahead', requestOf({}, { at: new Date(Date.now() + 6 * MINUTE) })],
    ['with another body', { ...good, body: requestOf({ peakValue: '11' }).body }],
    ['with a later time', { ...good, headers: { ...good.headers, 'webhook-timestamp': String(Date.now()) } }],
    ['with another id', { ...good, headers: { ...good.headers, 'webhook-id': callbackWebhookId(other) } }],
    [
      'sent on to another user',
      { ...good, path: callbackPath(other)!, headers: { ...good.headers, 'idempotency-key': undefined } },
    ],
    [
      'sent on as a day',
      {
        ...good,
        path: callbackPath({ ...KEY, kind: 'daily' })!,
        headers: { ...good.headers, 'idempotency-key': undefined },
      },
    ],
  ])('security-10 a callback %s is refused, and nothing is kept', async (_, request) => {
    const { store, receiver } = open();
    expect(await receiver.answer(request)).toMatchObject({
      status: 401,
      answer: { error: { code: 'not_authentic' } },
    });
    expect([store.get(KEY), store.get(other)]).toEqual([undefined, undefined]);
  });

  test('security-10 a secret changes: what both sign, and what one of them signs, is taken', async () => {
    const secrets = [SECRET];
    const receiver = createCallbackReceiver({ store: memoryCallbackStore(), log, secrets: () => secrets });
    const statusOf = async (...signing: string[]) =>
      (await receiver.answer(requestOf({}, { secrets: signing }))).status;
    expect(await statusOf(SECRET, NEXT_SECRET)).toBe(200);
    expect(await statusOf(NEXT_SECRET)).toBe(401);
    secrets.unshift(NEXT_SECRET);
    expect(await statusOf(NEXT_SECRET)).toBe(200);
    secrets.pop();
    expect(await statusOf(SECRET)).toBe(401);
  });

  test('security-10 a receiver without a secret is made on purpose only', async () => {
    const store = memoryCallbackStore();
    expect(() => createCallbackReceiver({ store, log, secrets: [] })).toThrow('needs a secret');
    expect(() => createCallbackReceiver({ store, log, secrets: ['s3cret'] })).toThrow('whsec_');
    const receiver = createCallbackReceiver({ store, log, acceptsUnsigned: true });
    expect((await receiver.answer({ ...requestOf(), headers: {} })).status).toBe(200);
  });
});

test('C7 users of every name have a path and a key, but those that no path can name', () => {
  for (const userId of ['a', 'ann/é', '../x', 'a b?c#d%2F', '%', '😀', '__proto__']) {
    const named = callbackPath({ kind: 'daily', userId })!;
    expect(new URL(named, 'http://p.test').pathname).toBe(named);
    expect(parseCallbackPath(named)).toEqual({ kind: 'daily', userId });
    expect(callbackIdempotencyKey({ ...KEY, userId })).toMatch(/^[\x21-\x7e]+$/);
  }
  for (const userId of ['', '.', '..', '\ud800'])
    expect(callbackPath({ kind: 'daily', userId })).toBeUndefined();
});

test('C7 what is sent fits the published contract and the schema, and the examples are callbacks', () => {
  const { document, problems } = publishedContract<BodyPage<'post'>>(
    'account-callback/callback-openapi.yaml',
  );
  const body: unknown = JSON.parse(requestOf().body);
  expect(problems(schemaNamed('Callback'), body)).toEqual([]);
  expect(problems(schemaNamed('Callback'), { ...(body as object), peak_value: 1 })).not.toEqual([]);
  const [route] = Object.values(document.paths);
  expect(Object.keys(document.paths)).toEqual(['/api/v1/internal/portfolios/{user_id}/callbacks/{kind}']);
  for (const { value } of Object.values(route!.post.requestBody.content['application/json'].examples)) {
    const example = callbackSchema.parse(value);
    expect(Object.values(PERIOD_MS)).toContain(example.period_end_ms - example.period_start_ms);
  }
});

test('C7 no two callbacks share a key: a repeat is told from the next period by it', () => {
  const keys = [
    KEY,
    { ...KEY, periodStartMs: MIDNIGHT + HOUR },
    { ...KEY, kind: 'daily' as const },
    { ...KEY, userId: 'ann' },
  ];
  expect(new Set(keys.map(callbackIdempotencyKey)).size).toBe(keys.length);
  expect(callbackIdempotencyKey({ ...KEY })).toBe(callbackIdempotencyKey(KEY));
});
