/** The receiver that targets use: what it takes, what it refuses, and what it starts with. */
import { mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, rmdirSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { SymbolMetadata } from '../../api/symbol-config/push.ts';
import {
  PUSH_SCHEMAS,
  TARGET_KINDS,
  heldVersionIn,
  pushBodyOf,
  pushWebhookId,
} from '../../api/symbol-config/push.ts';
import { signedHeaders, webhookIdOf } from '../../api/webhooks.ts';
import type { ReceiverOptions } from '../../client/symbol-config/receiver.ts';
import {
  createAlertReceiver,
  createCollectorReceiver,
  fileSymbolStore,
} from '../../client/symbol-config/receiver.ts';
import type { BodyPage } from '../published-contract.ts';
import { publishedContract, schemaNamed } from '../published-contract.ts';

const BTC: SymbolMetadata = { symbol: 'BTC', ticker: 'BTC-PERP', decimals: 5, priceScale: 10 };
const ETH: SymbolMetadata = { symbol: 'ETH', ticker: 'ETH-PERP', decimals: 4, priceScale: 100 };
const DEFAULTS = [BTC];

const [SECRET, FOREIGN_SECRET] = ['own', 'foreign'].map(
  (name) => `whsec_${Buffer.from(name.padEnd(32, '.')).toString('base64')}`,
) as [string, string];

/** As the service sends it, but for what is said otherwise. */
const signed = (body: string, secret = SECRET, id = pushWebhookId('alert', 1)) => ({
  headers: signedHeaders([secret], id, body),
  body,
});

let dir: string;
let file: string;
const lines: { level: 'info' | 'error'; message: string }[] = [];
const log = {
  info: (_fields: object, message: string) => void lines.push({ level: 'info', message }),
  error: (_fields: object, message: string) => void lines.push({ level: 'error', message }),
};

beforeEach(() => {
  dir = mkdtempSync(path.join(tmpdir(), 'galaxy-notify-receiver-'));
  file = path.join(dir, 'symbols.json');
  lines.length = 0;
});
afterEach(() => rmSync(dir, { recursive: true, force: true }));

const startAlert = (options: Partial<ReceiverOptions<'price_alert'>> = {}) =>
  createAlertReceiver({
    ...{ store: fileSymbolStore(file), log, secrets: [SECRET], ...options },
  } as ReceiverOptions<'price_alert'>);
const startCollector = (options: Partial<ReceiverOptions<'price_collector'>> = {}) =>
  createCollectorReceiver({
    ...{ store: fileSymbolStore(file), log, secrets: [SECRET], ...options },
    defaults: DEFAULTS,
  } as ReceiverOptions<'price_collector'> & { defaults: SymbolMetadata[] });

const errors = () => lines.filter(({ level }) => level === 'error').map(({ message }) => message);
const stored = (): unknown => JSON.parse(readFileSync(file, 'utf8'));
const alertPush = (version: number, ...symbols: string[]) => ({ version, symbols });
const unreachable = () => Promise.reject(new Error('the registry is away'));

describe('pushes', () => {
  test('S5 S6 each outcome has its HTTP status; repeats and what is refused change nothing', async () => {
    const alert = await startAlert();
    const answerTo = async (body: unknown) => {
      const { status, answer } = await alert.answer(signed(JSON.stringify(body) ?? 'not JSON'));
      const { outcome, error } = answer as { outcome?: string; error?: { code: string } };
      return [status, outcome ?? error?.code, heldVersionIn(JSON.stringify(answer))];
    };
    const push = alertPush(5, 'BTC', 'ETH');
    expect(await answerTo(push)).toEqual([200, 'applied', undefined]);
    for (let again = 0; again < 3; again += 1) {
      expect(await answerTo(push)).toEqual([200, 'unchanged', undefined]);
    }
    expect(await answerTo(alertPush(4, 'BTC'))).toEqual([409, 'older_version', 5]);
    expect(await answerTo(alertPush(6))).toEqual([422, 'empty_symbols', undefined]);
    const wrongSymbols: unknown[] = ['BTC', [BTC]];
    for (const body of [
      ...[undefined, null, 7, {}, { version: 0, symbols: ['BTC'] }],
      ...wrongSymbols.map((symbols) => ({ version: 6, symbols })),
    ]) {
      lines.length = 0;
      expect(await answerTo(body)).toEqual([422, 'invalid_push', undefined]);
      expect(lines).toEqual([{ level: 'error', message: 'symbols refused' }]);
    }
    expect(alert.held()).toEqual({ source: 'push', ...push });
    expect(stored()).toEqual(push);
    expect(await (await startCollector()).apply(alertPush(1, 'BTC'))).toMatchObject({
      outcome: 'invalid_push',
    });
  });

  test('S5 an older version changes nothing, however the pushes cross', async () => {
    const alert = await startAlert();
    const receipts = await Promise.all([
      alert.apply(alertPush(2, 'BTC')),
      alert.apply(alertPush(4, 'ETH')),
      alert.apply(alertPush(3, 'SOL')),
    ]);
    expect(receipts.map(({ outcome }) => outcome)).toEqual(['applied', 'applied', 'older_version']);
    expect(alert.held()).toEqual({ source: 'push', version: 4, symbols: ['ETH'] });
    expect(stored()).toEqual(alertPush(4, 'ETH'));
  });

  test.each([
    undefined,
    '',
    'not JSON',
    'null',
    '{"error":{"heldVersion":"9"}}',
    '{"error":{"heldVersion":-1}}',
  ])('kinds-V8 a refusal that does not say which version is held: %s', (body) =>
    expect(heldVersionIn(body)).toBeUndefined(),
  );

  test('S6 a list that cannot be kept is not acknowledged, and not used', async () => {
    const store = { load: async () => undefined, save: () => Promise.reject(new Error('disk full')) };
    const alert = await startAlert({ store });
    expect(await alert.answer(signed(JSON.stringify(alertPush(1, 'BTC'))))).toMatchObject({ status: 500 });
    expect(alert.held()).toEqual({ source: 'allow_all' });
  });
});

/** The proof itself is tried with the other receiver, which has the same: test/account-callback/receiver.unit.test.ts. */
test.each([
  ['signed with a foreign secret', FOREIGN_SECRET, pushWebhookId('alert', 1)],
  ['signed for something else', SECRET, webhookIdOf('callback', 'x')],
])('security-10 a push %s is refused, and nothing changes', async (_, secret, id) => {
  const alert = await startAlert();
  expect(await alert.answer(signed(JSON.stringify(alertPush(3, 'BTC')), secret, id))).toMatchObject({
    status: 401,
    answer: { error: { code: 'not_authentic' } },
  });
  expect(lines.at(-1)).toEqual({ level: 'error', message: 'symbols refused' });
  expect(alert.held()).toEqual({ source: 'allow_all' });
});

describe('starts', () => {
  test('S6 with a store: the list is back without asking anybody, and guards against older ones', async () => {
    await (await startCollector()).apply({ version: 7, symbols: [ETH] });
    const collector = await startCollector({ askRegistry: unreachable });
    expect(collector.held()).toEqual({ source: 'store', version: 7, symbols: [ETH] });
    expect(await collector.apply({ version: 6, symbols: [BTC] })).toMatchObject({ outcome: 'older_version' });

    await (await startAlert({ store: fileSymbolStore(`${file}.alert`) })).apply(alertPush(7, 'ETH'));
    const alert = await startAlert({ store: fileSymbolStore(`${file}.alert`) });
    expect([alert.allows('ETH'), alert.allows('BTC')]).toEqual([true, false]);
  });

  test('kinds-smaller a store that fails to replace its file leaves one draft at most', async () => {
    mkdirSync(file);
    const store = fileSymbolStore(file);
    for (const version of [1, 2]) {
      await expect(store.save(alertPush(version, 'BTC'))).rejects.toThrow();
    }
    expect(readdirSync(dir).filter((name) => name !== path.basename(file)).length).toBeLessThanOrEqual(1);
    rmdirSync(file);
    await store.save(alertPush(3, 'BTC'));
    expect(readdirSync(dir)).toEqual([path.basename(file)]);
  });

  test('S6 without a store but with a registry: its list is used, and kept', async () => {
    const collector = await startCollector({ askRegistry: async () => ({ version: 9, symbols: [ETH] }) });
    expect(collector.held()).toEqual({ source: 'registry', version: 9, symbols: [ETH] });
    expect(stored()).toEqual({ version: 9, symbols: [ETH] });
  });

  test('kinds-S6 kinds-V10 with a full disk: the list of the registry is used, and kept once there is room', async () => {
    let isFull = true;
    const kept: unknown[] = [];
    const store = {
      load: async () => undefined,
      save: async (push: unknown) => {
        if (isFull) throw new Error('disk full');
        kept.push(push);
      },
    };
    const alert = await startAlert({ store, askRegistry: async () => alertPush(9, 'ETH') });
    expect(alert.held()).toEqual({ source: 'registry', ...alertPush(9, 'ETH') });
    expect(alert.allows('BTC')).toBe(false);
    expect(lines).toContainEqual({ level: 'error', message: 'symbols could not be kept' });

    isFull = false;
    expect(await alert.apply(alertPush(9, 'ETH'))).toEqual({ outcome: 'applied', version: 9 });
    expect(kept).toEqual([alertPush(9, 'ETH')]);
  });

  test('kinds-S6 a store and a registry that do not answer hold up no start', async () => {
    const silent = () => new Promise<never>(() => undefined);
    const store = { load: silent, save: async () => undefined };
    const alert = await startAlert({ store, askRegistry: silent, startLimitMs: 20 });
    expect(alert.held()).toEqual({ source: 'allow_all' });
    expect(errors()).toEqual(['stored symbols cannot be used', 'symbols cannot be had from the registry']);
  });

  test('S6 with neither: a collector has its static defaults, an alert allows every symbol', async () => {
    const collector = await startCollector({ askRegistry: unreachable });
    expect(collector.held()).toEqual({ source: 'defaults', symbols: DEFAULTS });
    expect([collector.allows('BTC'), collector.allows('ETH')]).toEqual([true, false]);
    expect(lines).toContainEqual({ level: 'error', message: 'symbols cannot be had from the registry' });

    const alert = await startAlert();
    expect(alert.held()).toEqual({ source: 'allow_all' });
    expect(alert.allows('whatever')).toBe(true);
    expect(await alert.apply(alertPush(1, 'BTC'))).toEqual({ outcome: 'applied', version: 1 });
    expect(alert.allows('whatever')).toBe(false);
  });

  test.each([
    ['broken JSON', '{"version":'],
    ['an empty list', '{"version":3,"symbols":[]}'],
    ['a list of the other kind', '{"version":3,"symbols":["BTC"]}'],
  ])('S6 a store with %s is reported and passed over', async (_what, content) => {
    writeFileSync(file, content);
    const collector = await startCollector({ askRegistry: async () => ({ version: 9, symbols: [] }) });
    expect(collector.held()).toEqual({ source: 'defaults', symbols: DEFAULTS });
    expect(errors()).toEqual(['stored symbols cannot be used', 'symbols cannot be had from the registry']);
  });
});

describe('contract', () => {
  const { document, problems } = publishedContract<BodyPage<'put'>>('symbol-config/push-openapi.yaml');
  const SCHEMA_NAMES = { price_collector: 'CollectorPush', price_alert: 'AlertPush' } as const;

  test.each(TARGET_KINDS)('S2 what is pushed to a %s fits the published contract and the schema', (kind) => {
    const schema = schemaNamed(SCHEMA_NAMES[kind]);
    const body = pushBodyOf(kind, 7, [BTC, ETH]);
    expect(problems(schema, body)).toEqual([]);
    expect(problems(schema, { ...body, symbols: [] })).not.toEqual([]);
    expect(PUSH_SCHEMAS[kind].parse(body)).toEqual(body);
  });

  test('S2 the examples of the contract are pushes', () => {
    const { examples } = document.paths['/symbols']!.put.requestBody.content['application/json'];
    expect(PUSH_SCHEMAS.price_collector.safeParse(examples['collector']!.value).success).toBe(true);
    expect(PUSH_SCHEMAS.price_alert.safeParse(examples['alert']!.value).success).toBe(true);
  });
});
