/** `catalog`, `intents validate` and what commands say about types, in this process, without any server. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { Readable } from 'node:stream';
import { startCommand } from '../command-line.ts';
import { NOTIFICATION_TYPES } from '../intent/galaxy.ts';
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

test.each([
  ['typescript', 'catalog.ts', 'export const newShopOrderShipped', undefined],
  ['go', 'catalog_generated.go', 'Gift    *bool          // optional', '2types'],
  ['python', 'constructors.py', 'gift: bool | None = None', 'my-types'],
])(
  'I76 clients in %s have optional fields, and a package that can be imported',
  async (language, file, field, unfit) => {
    const write = (name: string) =>
      cli(['catalog', 'clients', SHOP, '--language', language, '--out', path.join(folder, language, name)]);
    expect(await write('shop')).toMatchObject({ code: 0 });
    expect(readFileSync(path.join(folder, language, 'shop', file), 'utf8')).toContain(field);
    if (unfit !== undefined) expect((await write(unfit)).stderr).toContain(`no package ${unfit}`);
  },
);

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
  const said = (text: RegExp, code = 2) => ({ code, stderr: expect.stringMatching(text) as string });
  expect(await cli(['intents', 'sample', 'shop.order.shiped'], env)).toMatchObject(
    said(/did you mean shop\.order\.shipped\?/),
  );
  expect(await cli(['intents', 'sample', 'shop.order.shipped'])).toMatchObject(
    said(/without NOTIFICATION_CATALOG_FILE/),
  );
  const broken = { NOTIFICATION_CATALOG_FILE: fileOf('b.yaml', 'version: 2') };
  expect(await cli(['intents', 'sample'], broken)).toMatchObject(said(/CATALOG_FILE version: .*b\.yaml/, 1));
});

test('I70 validate decides as the service does', async () => {
  const entry = {
    notification_type: 'game.turn.ready',
    producer: 'game_master',
    audience_kind: 'user',
    idempotency_key: 'game-7/turn-54',
    occurred_at_ms: '1790000000000',
    recipient_user_ids_json: '["user-1","user-2"]',
    payload_json: '{"turn_number":54,"game_name":"Andromeda","game_id":"game-7"}',
  };
  const validate = async (...files: string[]) => {
    const { code, stdout } = await cli(['intents', 'validate', '--json', ...files]);
    return { code, items: (JSON.parse(stdout) as { items: Record<string, unknown>[] }).items };
  };

  const same = {
    ...entry,
    recipient_user_ids_json: '["user-2", "user-1"]',
    payload_json: '{ "game_id": "game-7", "game_name": "Andromeda", "turn_number": 54 }',
  };
  const good = fileOf('good.json', JSON.stringify([entry, same]));
  const accepted = await validate(good, fileOf('one.json', JSON.stringify(entry)));
  expect(accepted.code).toBe(0);
  expect(accepted.items.map(({ intent }) => intent)).toEqual([1, 2, 1]);
  expect(new Set(accepted.items.map(({ fingerprint }) => fingerprint)).size).toBe(1);

  const bad = [{ ...entry, recipient_user_ids_json: '["a","a"]' }, { ...entry, producer: '\ud800' }, 7];
  const refused = await validate(fileOf('bad.json', JSON.stringify(bad)), fileOf('broken.json', '{"a":'));
  expect(refused.code).toBe(1);
  expect(refused.items.map(({ code }) => code)).toEqual([
    'invalid_recipients',
    ...Array<string>(3).fill('invalid_envelope'),
  ]);

  const refusedEntry = JSON.stringify({ ...entry, payload_json: entry.payload_json.replace('54', '"54"') });
  const input = Readable.from(Buffer.from(refusedEntry));
  const shown = await startCommand(['intents', 'validate', '-'], {}, { input }).ended;
  expect(shown.code).toBe(1);
  expect(shown.stdout).toMatch(/-\s+1\s+invalid_payload\s+payload_json field turn_number: /);
  expect(shown.stderr).toBe('1 intent, 1 would be refused\n');
  expect((await cli(['intents', 'validate', fileOf('none.json', '[]')])).code).toBe(3);
  const unreadable = await cli(['intents', 'validate', '/no/such/file']);
  expect(unreadable).toMatchObject({ code: 2, stdout: '' });
  expect(unreadable.stderr).toContain('cannot read /no/such/file');
});

test('I5 I37 there is a sample of each type, and every one of them is accepted by the checks', async () => {
  const { stdout } = await cli(['intents', 'sample', '--json']);
  const { items } = JSON.parse(stdout) as { items: { type: string }[] };
  expect(items.map(({ type }) => type)).toEqual(NOTIFICATION_TYPES);
  const one = await cli(['intents', 'sample', 'lobby.application.submitted']);
  expect(one.code).toBe(0);
  expect(one.stdout).toContain("redis-cli XADD notification:intents '*'");
  expect(one.stdout).toContain('--audience admin_email');
});
