/** The receiver that portfolio services use: what it keeps, and what it refuses; and the published contract. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { Ajv2020 } from 'ajv/dist/2020.js';
import { parse } from 'yaml';
import type { CallbackKey, CallbackValues } from '../../api/account-callback/callback.ts';
import {
  PERIOD_MS,
  callbackBody,
  callbackIdempotencyKey,
  callbackPath,
  callbackSchema,
  parseCallbackPath,
} from '../../api/account-callback/callback.ts';
import { createCallbackReceiver, memoryCallbackStore } from '../../client/account-callback/receiver.ts';
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

const requestOf = (values: Partial<CallbackValues> = {}, key = KEY) => ({
  path: callbackPath(key)!,
  idempotencyKey: callbackIdempotencyKey(key),
  body: callbackBody(key, { ...VALUES, ...values }),
});
const open = () => {
  const store = memoryCallbackStore();
  return { store, receiver: createCallbackReceiver({ store, log }) };
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
  expect(await receiver.apply(requestOf({}, day))).toMatchObject({ outcome: 'stored', key: day });
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
    const answered = await receiver.answer({ ...requestOf(), body: JSON.stringify(body) ?? 'not JSON' });
    expect([body, answered.status]).toEqual([body, 422]);
    expect(lines).toEqual(['account callback refused']);
  }
  expect((await receiver.answer({ ...requestOf(), idempotencyKey: 'another' })).status).toBe(422);
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
  const receiver = createCallbackReceiver({ store, log });
  expect((await receiver.answer(requestOf())).status).toBe(500);
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

describe('contract', () => {
  interface Page {
    paths: Record<
      string,
      {
        post: {
          requestBody: { content: { 'application/json': { examples: Record<string, { value: unknown }> } } };
        };
      }
    >;
    components: object;
  }
  const page = parse(
    readFileSync(path.join(import.meta.dirname, '../../api/account-callback/callback-openapi.yaml'), 'utf8'),
  ) as Page;
  const ajv = new Ajv2020({ strict: false }).addSchema({ $id: 'page', components: page.components });

  test('C7 what is sent fits the published contract and the schema, and the examples are callbacks', () => {
    const validate = ajv.getSchema('page#/components/schemas/Callback')!;
    const body: unknown = JSON.parse(requestOf().body);
    expect([validate(body), validate.errors]).toEqual([true, null]);
    expect(validate({ ...(body as object), peak_value: 1 })).toBe(false);
    const [route] = Object.values(page.paths);
    expect(Object.keys(page.paths)).toEqual(['/api/v1/internal/portfolios/{user_id}/callbacks/{kind}']);
    for (const { value } of Object.values(route!.post.requestBody.content['application/json'].examples)) {
      const example = callbackSchema.parse(value);
      expect(Object.values(PERIOD_MS)).toContain(example.period_end_ms - example.period_start_ms);
    }
  });
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
