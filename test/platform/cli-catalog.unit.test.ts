/** `catalog` and what commands say about types, in this process, without any server. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { startCommand } from '../command-line.ts';
import { scratchFolder } from '../scratch.ts';

const ROOT = path.join(import.meta.dirname, '../..');
const SHOP = path.join(ROOT, 'catalog/shop.yaml');
const { dir: folder, write: fileOf } = scratchFolder('catalog');

const cli = (args: string[], env: Record<string, string> = {}) => startCommand(args, env).ended;

test('I76 check names every fault, and what would break those who know an older catalog', async () => {
  const text = readFileSync(SHOP, 'utf8');
  const wrong = fileOf('wrong.yaml', text.replace('carrier: { type: string', 'carrier: { type: text'));
  const other = fileOf('other.yaml', text.replace('producer: billing', 'producer: finance'));

  expect(await cli(['catalog', 'check', SHOP])).toMatchObject({ code: 0, stdout: '' });
  expect(await cli(['catalog', 'check', wrong])).toMatchObject({
    code: 1,
    stdout: expect.stringContaining('types.shop.order.shipped.payload.properties.carrier'),
  });
  const against = await cli(['catalog', 'check', other, '--against', SHOP, '--json']);
  expect(JSON.parse(against.stdout)).toEqual({
    problems: ['types.billing.payment.failed.producer: was billing, is finance'],
  });
  const missing = await cli(['catalog', 'check', path.join(folder, 'none.yaml')]);
  expect(missing).toMatchObject({ code: 2, stderr: expect.stringContaining('cannot read') });
});

test('I76 the sample is a valid catalog, and fbs prints its tables', async () => {
  const { stdout } = await cli(['catalog', 'sample']);
  expect((await cli(['catalog', 'check', fileOf('sample.yaml', stdout)])).code).toBe(0);
  expect((await cli(['catalog', 'fbs', SHOP])).stdout).toContain(
    'table OrderShippedEvent {\n  order_id: string;\n  /// Milliseconds since the Unix epoch.\n  eta_ms: long;\n}',
  );
});

test('I76 clients are written to a folder', async () => {
  const out = path.join(folder, 'clients');
  const { stdout } = await cli(['catalog', 'clients', SHOP, '--language', 'typescript', '--out', out]);
  expect(stdout.trim()).toBe(path.join(out, 'catalog.ts'));
  expect(readFileSync(path.join(out, 'catalog.ts'), 'utf8')).toContain('export const newShopOrderShipped');
});

test('I76 commands know the types of the configured catalog, and help with a name that is nearly one', async () => {
  const env = { NOTIFICATION_CATALOG_FILE: SHOP };
  const { stdout } = await cli(['intents', 'sample', '--json'], env);
  expect(JSON.parse(stdout)).toMatchObject({
    items: [
      { type: 'shop.order.shipped', producer: 'shop' },
      { type: 'shop.price.changed', producer: 'shop' },
      { type: 'billing.payment.failed' },
    ],
  });
  const { code, stderr } = await cli(['intents', 'sample', 'shop.order.shiped'], env);
  expect({ code, stderr }).toEqual({
    code: 2,
    stderr: expect.stringContaining('did you mean shop.order.shipped?'),
  });
  const broken = await cli(['intents', 'sample'], {
    NOTIFICATION_CATALOG_FILE: fileOf('b.yaml', 'version: 2'),
  });
  expect(broken).toMatchObject({ code: 1, stderr: expect.stringContaining('b.yaml: version') });
});
