/** A catalog of an installation's own: what is refused, what would break those who know an older one, and what follows from it. */
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { CatalogError, isUrgentType, typeIn } from '../../api/intent/catalog.ts';
import type { Catalog, CatalogDocument } from '../../api/intent/catalog.ts';
import { breakingChanges } from '../../cli/intent/catalog.ts';
import { entryFieldsOf, parseIntent } from '../../api/intent/entry.ts';
import { GALAXY, parseCatalog } from '../../api/intent/galaxy.ts';
import { typeScriptFile } from '../../api/intent/generators/typescript.ts';
import { encodePushPayload, flatBuffersSchemaOf } from '../../api/intent/outbound-entries.ts';
import { createMemoryStream } from '../../client/testing.ts';
import { newIntent, publishIntent } from '../../client/notificationintent.ts';
import { loadConfig } from '../../config/load.ts';
import { GALAXY as OF_CLIENTS } from '../../client/generated/galaxy.ts';
import { readPushPayload } from '../../dev/push-payload.ts';
import { scratchFolder } from '../scratch.ts';

const SHOP_FILE = path.join(import.meta.dirname, '../../catalog/shop.yaml');
const SHOP = parseCatalog(readFileSync(SHOP_FILE, 'utf8'));
const SHIPPED = 'shop.order.shipped';
const hasFlatc = spawnSync('flatc', ['--version']).status === 0;

type Row = CatalogDocument['types'][string];

const ROW: Row = {
  producer: 'shop',
  audiences: { user: ['push', 'email'] },
  payload: {
    type: 'object',
    required: ['id'],
    properties: { id: { type: 'string' }, at: { type: 'integer' } },
  },
  push: { table: 'Shipped', fields: ['id'] },
};
/** The payload of that row, with further or other fields. */
const payloadOf = (properties: object, required = ['id']) => ({
  payload: { type: 'object', required, properties: { ...ROW.payload.properties, ...properties } },
});
const BOOLEAN = { type: 'boolean' };
const pushOf = (...fields: string[]) => ({ push: { table: 'Shipped', fields } });
const collapse = (changes: object) => ({ collapse: { key: 'id', window: '5m', ...changes } });
const throttle = (changes: object) => ({
  throttle: { limit: 1, window: '1h', per: ['recipient'], ...changes },
});
const idOf = (form: object) => payloadOf({ id: { type: 'string', ...form } });
const documentWith = (changes: object, type = 'a.b') => ({
  version: 1,
  types: { [type]: { ...ROW, ...changes } },
});
const catalogWith = (changes: object, type?: string): Catalog =>
  parseCatalog(JSON.stringify(documentWith(changes, type)));

function problemsOf(text: string): readonly string[] {
  try {
    parseCatalog(text);
  } catch (error) {
    if (error instanceof CatalogError) return error.problems;
    throw error;
  }
  return [];
}

describe('I76 newcomer-2 what is wrong with a file is said with its place', () => {
  test.each<[object, string]>([
    [{ producer: 'The Shop' }, '.producer: must be lower-case words with underscores'],
    [{ producr: 'shop' }, ': has no key producr, did you mean producer?'],
    [{ icon: 3 }, ': has no key icon'],
    [throttle({ limit: undefined }), '.throttle.limit: is required'],
    [
      payloadOf({ Sum: { type: 'integer' } }),
      '.payload.properties.Sum: the name must be lower-case words with underscores',
    ],
    [
      payloadOf({ sum: { type: 'number' } }),
      '.payload.properties.sum.type: must be string or integer or boolean',
    ],
    [{ audiences: {} }, '.audiences: must name an audience'],
    [{ audiences: { admin_email: ['push'] } }, '.audiences.admin_email.0: Invalid input: expected "email"'],
    [{ push: undefined }, '.push: is required by the channel push'],
    [{ audiences: { user: ['email'] } }, '.push: no audience has the channel push'],
    [pushOf('at'), '.push.fields: at must be a required field of the payload'],
    [pushOf('id', 'id'), '.push.fields: each field once'],
    [{ expires_after: 'soon' }, '.expires_after: must be a duration such as 250ms, 90s, 1m30s, 2h or 7d'],
    [collapse({ key: 'at' }), '.collapse.key: at must be a required field of the payload'],
    [collapse({ key: ['id', 'id'] }), '.collapse.key: each field once'],
    [collapse({ key: 7 }), '.collapse.key: must be a field of the payload, or a list of them'],
    [
      collapse({ digest: { items: 0, bytes: 1 } }),
      '.collapse.digest.items: Too small: expected number to be >=1',
    ],
    [
      {
        ...collapse({ key: 'items', digest: { items: 5, bytes: 999 } }),
        ...payloadOf({ items: { type: 'string' } }, ['id', 'items']),
      },
      '.collapse.digest: adds items to the payload, which has a field of this name',
    ],
    [collapse({ window: '8d' }), '.collapse.window: must be more than 0 and at most 7d'],
    [
      { ...collapse({ window: '2h' }), expires_after: '2h' },
      '.collapse.window: must be shorter than expires_after',
    ],
    [throttle({ limit: 0 }), '.throttle.limit: Too small: expected number to be >=1'],
    ...['soon', '999ms', '32d'].map((window): [object, string] => [
      throttle({ window }),
      '.throttle.window: must be a duration such as 250ms, 90s, 1m30s, 2h or 7d, from 1s to 31d',
    ]),
    ...[[], ['id'], ['recipient', 'id', 'at'], 'recipient'].map((per): [object, string] => [
      throttle({ per }),
      '.throttle.per: must be [recipient], or [recipient, <field of the payload>]',
    ]),
    [throttle({ per: ['recipient', 'at'] }), '.throttle.per: at must be a required field of the payload'],
    [{ example: { id: 7 } }, '.example.id: Invalid input: expected string, received number'],
    [payloadOf({}, ['id', 'other']), '.payload.required: other is not among the properties'],
    [idOf({ minLength: 3, maxLength: 2 }), '.payload.properties.id: nothing is between 3 and 2'],
    [idOf({ enum: ['a'], maxLength: 2 }), '.payload.properties.id.maxLength: does not go together with enum'],
  ])('%j', (changes, problem) => {
    expect(problemsOf(JSON.stringify(documentWith(changes)))).toEqual([`types.a.b${problem}`]);
  });

  test('all together: what contradicts itself, beside a type that is misshapen', () => {
    const { types } = documentWith(pushOf('at'));
    expect(problemsOf(JSON.stringify({ version: 1, types: { ...types, 'a.c': {} } }))).toEqual([
      'types.a.b.push.fields: at must be a required field of the payload',
      'types.a.c.producer: is required',
      'types.a.c.audiences: is required',
      'types.a.c.payload: is required',
    ]);
  });

  test('two types that would get one name', () => {
    const { types } = documentWith({ push: { fields: ['id'] } });
    const text = JSON.stringify({ version: 1, types: { ...types, a_b: types['a.b'] } });
    expect(problemsOf(text)).toEqual([
      'types.a_b: AB is the name of a.b as well',
      'types.a_b: ABEvent is the name of a.b as well',
    ]);
  });

  test.each(['', '[]', 'types: {', 'version: 1\ntypes: {}', '{"version":2,"types":{}}', '\0', '&a [*a]'])(
    '%j is no catalog',
    (text) => {
      expect(problemsOf(text)).not.toEqual([]);
    },
  );

  test('aliases do not multiply without end', () => {
    const lines = Array.from({ length: 9 }, (_, level) => {
      const items = Array.from({ length: 12 }, () => (level === 0 ? 'x' : `*a${level - 1}`));
      return `a${level}: &a${level} [${items.join(', ')}]`;
    });
    expect(problemsOf(lines.join('\n'))[0]).toContain('the file is no YAML');
  });

  test('the service does not start with it, and names the variable', () => {
    const read = (file: string) => {
      if (file === '/catalog.yaml') return 'version: 1\ntypes: { a.b: { producer: shop } }';
      throw new Error(`no ${file}`);
    };
    const load = () => loadConfig({ NOTIFICATION_CATALOG_FILE: '/catalog.yaml' }, read);
    expect(load).toThrow(/NOTIFICATION_CATALOG_FILE types\.a\.b\.audiences/);
  });
});

describe('an installation has its own types', () => {
  const scratch = scratchFolder('catalog');
  /** What the service says of an intent with this payload. */
  const verdict = (payload: object): string => {
    const entry = entryFieldsOf({
      ...{ notification_type: SHIPPED, producer: 'shop', audience_kind: 'user' },
      ...{ recipient_user_ids_json: '["user-1"]', idempotency_key: 'k', occurred_at_ms: '1790000000000' },
      payload_json: JSON.stringify(payload),
    });
    const parsed = parseIntent(SHOP, '1-0', entry);
    return parsed.ok ? 'accepted' : `${parsed.malformed.failureCode}: ${parsed.malformed.failureMessage}`;
  };
  const shipped = typeIn(SHOP, SHIPPED).example;

  test.each<[object, string]>([
    [{}, 'accepted'],
    [{ gift: true, more: { is: ['passed', 'through'] } }, 'accepted'],
    [{ gift: 'yes' }, 'invalid_payload: payload_json field gift: '],
    [{ carrier: 'pigeon' }, 'invalid_payload: payload_json field carrier: '],
    [{ order_id: 'x'.repeat(65) }, 'invalid_payload: payload_json field order_id: '],
    [{ order_id: 'two\nlines' }, 'invalid_payload: payload_json field order_id: must have no control'],
    [{ eta_ms: 0 }, 'invalid_payload: payload_json field eta_ms: '],
    [{ eta_ms: 1.5 }, 'invalid_payload: payload_json field eta_ms: '],
    [{ eta_ms: undefined }, 'invalid_payload: payload_json field eta_ms: '],
  ])('a payload with %j', (changes, expected) => {
    expect(verdict({ ...shipped, ...changes })).toMatch(new RegExp(`^${expected}`));
  });

  test('a producer makes and tests intents of it', async () => {
    const stream = createMemoryStream({ catalog: SHOP });
    const options = { idempotencyKey: 'k', occurredAt: 1_790_000_000_000, payload: shipped };
    await publishIntent(stream, newIntent(SHOP, SHIPPED, { ...options, recipientUserIds: ['user-1'] }));
    expect(stream.published[0]?.intent).toMatchObject({ notificationType: SHIPPED, producer: 'shop' });
    const make = (type: string, changes: object) => () => newIntent(SHOP, type, { ...options, ...changes });
    expect(make(SHIPPED, { payload: {}, recipientUserIds: ['u'] })).toThrow('order_id');
    expect(make('shop.order.lost', {})).toThrow('shop.order.lost is not in the catalog');
  });

  test('types without an example get one that is valid', () => {
    const { example, schema } = typeIn(SHOP, 'billing.payment.failed');
    expect(schema.parse(example)).toEqual({ invoice_id: 'invoice_id', amount_cents: 1, reason: 'reason' });
    expect(isUrgentType(SHOP, 'billing.payment.failed')).toBe(true);
  });

  test('its administrators have variables; those of Galaxy mean nothing then', () => {
    const env = {
      NOTIFICATION_CATALOG_FILE: SHOP_FILE,
      NOTIFICATION_ADMIN_EMAILS_BILLING_PAYMENT_FAILED: 'cfo@example.com',
    };
    expect([...loadConfig(env).adminEmails]).toEqual([['billing.payment.failed', ['cfo@example.com']]]);
    const wrong = { ...env, NOTIFICATION_ADMIN_EMAILS_GAME_GENERATION_FAILED: 'ops@example.com' };
    expect(() => loadConfig(wrong)).toThrow('NOTIFICATION_ADMIN_EMAILS_GAME_GENERATION_FAILED has no effect');
  });

  test('a throttle counts by recipient, and by a field', () => {
    const throttleBy = (...per: string[]) =>
      typeIn(catalogWith(throttle({ limit: 3, window: '1m30s', per })), 'a.b').throttle;
    const all = { limit: 3, windowMs: 90_000, summary: 'at most 3 in 1m30s reach a recipient' };
    expect(throttleBy('recipient')).toEqual(all);
    const summary = 'at most 3 in 1m30s reach a recipient with the same id';
    expect(throttleBy('recipient', 'id')).toEqual({ ...all, field: 'id', summary });
    expect(typeIn(catalogWith({}), 'a.b').throttle).toBeUndefined();
  });

  test('push events come back, in both encodings', () => {
    const fields = { order_id: 'order-7', eta_ms: 1_790_000_000_000 };
    expect(readPushPayload(SHOP, SHIPPED, encodePushPayload(SHOP, SHIPPED, shipped))).toEqual(fields);
    const asJson = catalogWith({ push: { encoding: 'json', fields: ['id'] } });
    expect(Buffer.from(encodePushPayload(asJson, 'a.b', { id: 'x', at: 3 })).toString()).toBe('{"id":"x"}');
    expect(readPushPayload(asJson, 'a.b', Buffer.from('{"id":"x"}'))).toEqual({ id: 'x' });
  });

  (hasFlatc ? test : test.failing)('flatc reads a table with the printed schema', () => {
    const catalog = catalogWith({
      ...payloadOf({ is_gift: BOOLEAN, is_new: BOOLEAN }, ['id', 'at', 'is_gift', 'is_new']),
      ...pushOf('is_gift', 'id', 'is_new', 'at'),
    });
    const payload = { id: 'Ü', at: -(2 ** 53) + 1, is_gift: true, is_new: false };
    const schema = scratch.write('x.fbs', flatBuffersSchemaOf(catalog));
    const binary = scratch.write('x.bin', Buffer.from(encodePushPayload(catalog, 'a.b', payload)));
    const options = ['--json', '--strict-json', '--raw-binary', '--defaults-json', '-o', scratch.dir];
    const root = ['--root-type', 'notification.Shipped'];
    const { stderr } = spawnSync('flatc', [...options, ...root, schema, '--', binary], {
      encoding: 'utf8',
    });
    expect(stderr).toBe('');
    expect(JSON.parse(readFileSync(path.join(scratch.dir, 'x.json'), 'utf8'))).toEqual(payload);
    expect(readPushPayload(catalog, 'a.b', encodePushPayload(catalog, 'a.b', payload))).toEqual(payload);
  });

  test('constructors in TypeScript carry its payload types', () => {
    const document = JSON.parse(JSON.stringify(documentWith({}))) as CatalogDocument;
    const text = typeScriptFile(catalogWith({}), document);
    expect(text).toContain("import { constructorIn, defineCatalog } from 'galaxy-notify';");
    expect(text).toContain('export interface ABPayload {\n  id: string;\n  at?: number;\n}');
    expect(text).toContain("export const newAB = constructorIn<ABPayload, 'user'>(CATALOG, 'a.b');");
  });

  test('clients have the catalog of the service', () => {
    const comparable = ({ types }: Catalog) =>
      [...types.values()].map((spec) => ({ ...spec, schema: undefined }));
    expect(comparable(OF_CLIENTS)).toEqual(comparable(GALAXY));
  });
});

describe('what a new catalog would break', () => {
  const LONGER = { ...payloadOf({}, ['id', 'at']), ...pushOf('id', 'at') };

  test.each<[string, object, ...string[]]>([
    ['nothing', {}],
    ['an optional field', payloadOf({ more: BOOLEAN })],
    ['a longer push event', LONGER, 'payload.required: at is new'],
    ['a required field', payloadOf({ more: BOOLEAN }, ['id', 'more']), 'payload.required: more is new'],
    ['another producer', { producer: 'billing' }, 'producer: was shop, is billing'],
    ['another table', { push: { table: 'Sent', fields: ['id'] } }, 'push.table: was Shipped, is Sent'],
    ['no push', { audiences: { user: ['email'] }, push: undefined }, 'push: is gone'],
    [
      'no users',
      { audiences: { admin_email: ['email'] }, push: undefined },
      'audiences: user is gone',
      'push: is gone',
    ],
    ['retired', { retired: true }],
    ['a throttle', throttle({})],
  ])('%s', (_, changes, ...expected) => {
    expect(breakingChanges(catalogWith({}), catalogWith(changes))).toEqual(
      expected.map((change) => `types.a.b.${change}`),
    );
  });

  test.each<[string, object]>([
    ['id', { type: 'string', maxLength: 3 }],
    ['id', { type: 'string', format: 'line' }],
    ['id', { type: 'string', enum: ['a'] }],
    ['at', { type: 'string' }],
    ['at', { type: 'integer', minimum: 1 }],
  ])('a narrower field: %s as %j', (field, form) => {
    const problem = `types.a.b.payload.properties.${field}: refuses what was accepted before`;
    expect(breakingChanges(catalogWith({}), catalogWith(payloadOf({ [field]: form })))).toEqual([problem]);
  });

  test('slots that move', () => {
    const after = { ...LONGER, ...pushOf('at', 'id') };
    expect(breakingChanges(catalogWith(LONGER), catalogWith(after))).toEqual([
      'types.a.b.push.fields: slot 0 was id (string), is at (integer)',
      'types.a.b.push.fields: slot 1 was at (integer), is id (string)',
    ]);
  });

  test('a type that is gone', () => {
    expect(breakingChanges(catalogWith({}), catalogWith({}, 'a.c'))).toEqual([
      'types.a.b: is gone; retired: true refuses new intents and delivers what was accepted',
    ]);
  });
});
