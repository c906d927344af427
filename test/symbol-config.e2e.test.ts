/** One change on its way to all targets. */
import type { SymbolRegistry } from './symbol-registry.ts';
import { namesIn, takeSymbolRegistry } from './symbol-registry.ts';
import { eventually } from './harness.ts';

let registry: SymbolRegistry;
beforeAll(async () => {
  registry = await takeSymbolRegistry();
  await registry.startService({ NOTIFICATION_SYMBOL_PUSH_TIMEOUT: '3s' });
  await registry.settled();
});
afterAll(() => registry.release());
afterEach(() => registry.targets.heal());

/** Pushes of a version, in the order in which they came. */
const pushesOf = (version: number) => registry.targets.pushes.filter((push) => push.version === version);

test('S1 S2 one change reaches all 77 targets in one round', async () => {
  const { targets } = registry.targets;
  expect(targets.filter(({ kind }) => kind === 'price_collector')).toHaveLength(7);
  expect(targets.filter(({ kind }) => kind === 'price_alert')).toHaveLength(70);
  expect(new Set(targets.map(({ geo }) => geo)).size).toBe(7);

  const before = (await registry.status()).version;
  await registry.write(['LINK']);
  const startedAt = Date.now();
  await registry.tell();
  const { version } = await registry.settled();

  expect(version).toBe(before + 1);
  const pushes = pushesOf(version);
  expect(new Set(pushes.map(({ target }) => target)).size).toBe(77);
  expect(pushes).toHaveLength(77);
  const bytes = (kind: string) =>
    new Set(
      pushes
        .filter(({ target }) => targets.find(({ name }) => name === target)!.kind === kind)
        .map((push) => push.bytes),
    );
  console.info(
    `one change to 77 targets: ${Math.max(...pushes.map(({ at }) => at)) - startedAt} ms; ` +
      `bytes per push: collectors ${[...bytes('price_collector')]}, alerts ${[...bytes('price_alert')]}`,
  );
});

test('S2 collectors get full metadata, alerts the names alone', async () => {
  const { version } = await registry.settled();
  expect(registry.targets.held('us-east-collector')).toEqual({
    source: 'push',
    version,
    symbols: expect.arrayContaining([
      { symbol: 'BTC', ticker: 'BTC-PERP', decimals: 5, priceScale: 10 },
      { symbol: 'LINK', ticker: 'LINK-PERP', decimals: 2, priceScale: 100 },
    ]),
  });
  expect(registry.targets.held('us-east-alert-1')).toEqual({
    source: 'push',
    version,
    symbols: ['BTC', 'DOGE', 'ETH', 'LINK', 'SOL'],
  });
});
