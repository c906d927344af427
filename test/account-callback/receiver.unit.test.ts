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
import type { SignedCall } from '../../client/webhook-proof.ts';
import { createCallbackReceiver, memoryCallbackStore } from '../../client/account-callback/receiver.ts';
import type { BodyPage } from '../published-contract.ts';
import { publishedContract, schemaNamed } from '../published-contract.ts';
import { HOUR, MIDNIGHT, MINUTE } from './callbacks.ts';

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

const bodyOf = (values: Partial<CallbackValues> = {}, key = KEY) =>
  callbackBody({ ...key, ...VALUES, ...values });

/** As the service sends it, but for what is said otherwise. */
const requestOf = (body = bodyOf(), key = KEY, secrets: readonly string[] = [SECRET], at?: Date) => ({
  path: callbackPath(key)!,
  headers: {
    'idempotency-key': callbackIdempotencyKey(key),
    ...signedHeaders(secrets, callbackWebhookId(key), body, at),
  } as Record<string, string>,
  body,
});
const open = () => {
  const store = memoryCallbackStore();
  return { store, receiver: createCallbackReceiver({ store, log, secrets: [SECRET] }) };
};

test('C7 a callback any number of times is as good as once; the latest of a period is kept', async () => {
  const { store, receiver } = open();
  const corrected = bodyOf({ closingValue: '1' });
  for (const [body, outcome] of [
    [bodyOf(), 'stored'],
    ...Array<[string, string]>(3).fill([bodyOf(), 'unchanged']),
    [corrected, 'replaced'],
  ] as const)
    expect(await receiver.answer(requestOf(body))).toMatchObject({ status: 200, answer: { outcome } });
  expect(store.get(KEY)).toEqual(callbackSchema.parse(JSON.parse(corrected)));
  const day = { ...KEY, kind: 'daily' as const };
  expect(await receiver.answer(requestOf(bodyOf({}, day), day))).toMatchObject({
    answer: { outcome: 'stored' },
  });
  expect(store.get(day)).toBeDefined();
});

test('C7 what is no callback is refused with a logged error, and nothing is kept', async () => {
  const { store, receiver } = open();
  const changes: object[] = [
    ...['period_start_ms', 'peak_value', 'bottom_at_ms', 'closing_value'].map((field) => ({
      [field]: undefined,
    })),
    ...[10.5, '1e9', '-3.1'].map((peak_value) => ({ peak_value })),
    ...['NaN', '9'.repeat(61)].map((closing_value) => ({ closing_value })),
    { period_start_ms: MIDNIGHT + 1, period_end_ms: MIDNIGHT + 1 + HOUR },
    { period_end_ms: MIDNIGHT + 2 * HOUR },
    { peak_at_ms: MIDNIGHT + HOUR },
    { bottom_at_ms: MIDNIGHT - 1 },
    { period_start_ms: '0' },
    { filler: 'x'.repeat(5_000) },
  ];
  const good = JSON.parse(bodyOf()) as { period_start_ms: unknown };
  for (const body of [
    ...[undefined, null, 7, [], {}, '__proto__'],
    ...changes.map((change) => ({ ...good, ...change })),
  ]) {
    lines.length = 0;
    // Signed for the period that it names.
    const { period_start_ms: named } = (body ?? {}) as { period_start_ms?: unknown };
    const key = { ...KEY, periodStartMs: typeof named === 'number' ? named : MIDNIGHT };
    const answered = await receiver.answer(requestOf(JSON.stringify(body) ?? 'not JSON', key));
    expect([body, answered.status]).toEqual([body, 422]);
    expect(lines).toEqual(['account callback refused']);
  }
  const { headers } = requestOf();
  const otherKey = { ...headers, 'idempotency-key': 'another' };
  expect((await receiver.answer({ ...requestOf(), headers: otherKey })).status).toBe(422);
  for (const user of ['', '%']) {
    const path = `/api/v1/internal/portfolios/${user}/callbacks/hourly`;
    expect((await receiver.answer({ ...requestOf(), path })).status).toBe(404);
  }
  expect(store.get(KEY)).toBeUndefined();
});

test('C7 what cannot be kept is not acknowledged', async () => {
  const store = { upsert: () => Promise.reject(new Error('disk full')) };
  const receiver = createCallbackReceiver({ store, log, secrets: [SECRET] });
  expect((await receiver.answer(requestOf())).status).toBe(500);
});

describe('who calls', () => {
  const other = { ...KEY, userId: 'bob' };
  const good = requestOf();
  const withHeaders = (headers: object) => ({ ...good, headers: { ...good.headers, ...headers } });
  const sentTo = (key: CallbackKey) => ({
    ...withHeaders({ 'idempotency-key': undefined }),
    path: callbackPath(key)!,
  });
  const signedAfterMs = (ms: number) => requestOf(bodyOf(), KEY, [SECRET], new Date(Date.now() + ms));

  test.each<[string, SignedCall & { path: string }]>([
    ['without any header', { ...good, headers: {} }],
    ['without webhook-id', withHeaders({ 'webhook-id': undefined })],
    ['without webhook-timestamp', withHeaders({ 'webhook-timestamp': undefined })],
    ['without webhook-signature', withHeaders({ 'webhook-signature': undefined })],
    ['with several signatures headers', withHeaders({ 'webhook-signature': ['v1,x', 'v1,y'] })],
    ['signed with a foreign secret', requestOf(bodyOf(), KEY, [FOREIGN_SECRET])],
    ['signed six minutes ago', signedAfterMs(-6 * MINUTE)],
    ['signed six minutes ahead', signedAfterMs(6 * MINUTE)],
    ['with another body', { ...good, body: bodyOf({ peakValue: '11' }) }],
    ['with a later time', withHeaders({ 'webhook-timestamp': String(Date.now()) })],
    ['with another id', withHeaders({ 'webhook-id': callbackWebhookId(other) })],
    ['sent on to another user', sentTo(other)],
    ['sent on as a day', sentTo({ ...KEY, kind: 'daily' })],
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
      (await receiver.answer(requestOf(bodyOf(), KEY, signing))).status;
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
  const body: unknown = JSON.parse(bodyOf());
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
  const others: Partial<CallbackKey>[] = [
    { periodStartMs: MIDNIGHT + HOUR },
    { kind: 'daily' },
    { userId: 'ann' },
  ];
  const keys = [{}, ...others].map((other) => callbackIdempotencyKey({ ...KEY, ...other }));
  expect(new Set(keys).size).toBe(4);
});
