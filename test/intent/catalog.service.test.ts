/** The whole path with a catalog that shares nothing with the one of Galaxy, and a catalog that changes meanwhile. */
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { typeIn } from '../../api/intent/catalog.ts';
import { parseCatalog } from '../../api/intent/galaxy.ts';
import { readPushPayload } from '../../dev/push-payload.ts';
import { newIntent, publishIntent } from '../../client/notificationintent.ts';
import { eventually, slotOfTests, operatorOfTests } from '../harness.ts';
import { GATEWAY, MAIL } from '../service-process.ts';
import { entriesOf, refusalOf, routeIn, untilStatuses } from './rows.ts';
import { scratchFolder } from '../scratch.ts';

const TEXT = readFileSync(path.join(import.meta.dirname, '../../catalog/shop.yaml'), 'utf8');
const SHOP = parseCatalog(TEXT);
const SHIPPED = 'shop.order.shipped';
const FAILED = 'billing.payment.failed';
const CHANNELS = ['push', 'email'] as const;

const slot = slotOfTests();
const operator = operatorOfTests(slot, undefined, SHOP);
const file = path.join(scratchFolder('catalog').dir, 'catalog.yaml');
const start = async (text: string): Promise<void> => {
  writeFileSync(file, text);
  await slot.startService({
    NOTIFICATION_CATALOG_FILE: file,
    NOTIFICATION_ADMIN_EMAILS_BILLING_PAYMENT_FAILED: 'cfo@example.com',
  });
};

beforeAll(async () => {
  slot.userService.setUser('user-1', { email: 'ada@example.com', preferredLanguage: 'en' });
  await start(TEXT);
});

const publish = (type: string, idempotencyKey: string): Promise<string> =>
  publishIntent(
    slot.redis,
    newIntent(SHOP, type, {
      ...{ idempotencyKey, occurredAt: Date.now(), payload: typeIn(SHOP, type).example },
      ...(type === SHIPPED ? { recipientUserIds: ['user-1'] } : {}),
    }),
  );

test('I76 newcomer-2 an intent of the shop becomes a push event of its table and an e-mail of its template', async () => {
  const id = await publish(SHIPPED, 'order-7');
  await untilStatuses(slot, id, 'published', 'published');
  const [push] = await entriesOf(slot, GATEWAY, id);
  expect(String(push?.['event_type'])).toBe(SHIPPED);
  expect(readPushPayload(SHOP, SHIPPED, push!['payload_bytes']!)).toEqual({
    order_id: 'order-7',
    eta_ms: 1_790_000_000_000,
  });
  const [mail] = await entriesOf(slot, MAIL, id);
  expect(JSON.parse(String(mail?.['payload_json']))).toMatchObject({
    template_id: 'order-shipped',
    to: ['ada@example.com'],
  });
  const { rows } = await slot.db.query<{ expires: number }>(
    `SELECT extract(epoch FROM expires_at - occurred_at)::int AS expires
       FROM notification.records WHERE notification_id = $1`,
    [id],
  );
  expect(rows).toEqual([{ expires: 48 * 3_600 }]);
  const invoice = await publish(FAILED, 'invoice-7');
  await routeIn(slot, invoice, 'email:email:cfo@example.com', 'published');
  const { answers } = await operator.why('cfo@example.com');
  expect(answers.map(({ sentence }) => sentence)).toContainEqual(
    expect.stringContaining('urgent push of billing.payment.failed was skipped'),
  );
  expect((await operator.producers.list()).map(({ producer }) => producer)).toEqual(['shop', 'billing']);
});

test('I76 newcomer-2 a retired type is refused, and what was accepted before is delivered', async () => {
  for (const channel of CHANNELS) await operator.channels.pause(channel, { requestedBy: 'test' });
  const accepted = await publish(SHIPPED, 'order-8');
  await untilStatuses(slot, accepted, 'pending', 'pending');
  await slot.stopServices();
  await start(TEXT.replace('    producer: shop\n', '    producer: shop\n    retired: true\n'));
  const late = await publish(SHIPPED, 'order-9');
  expect(await refusalOf(slot, late)).toMatchObject({
    failure_code: 'unknown_notification_type',
    failure_message: `notification_type ${SHIPPED} is retired`,
  });
  for (const channel of CHANNELS) await operator.channels.resume(channel, { requestedBy: 'test' });
  await untilStatuses(slot, accepted, 'published', 'published');
});

test('I76 newcomer-2 an intent that is still open when its type goes is refused with that reason', async () => {
  await slot.stopServices();
  await start(TEXT);
  slot.userService.fail({ failure: { kind: 'status', status: 503 } });
  const before = slot.userService.requests.length;
  const id = await publish(SHIPPED, 'order-10');
  await eventually('a lookup that fails', async () => slot.userService.requests.length > before || undefined);
  await slot.stopServices();
  slot.userService.heal();
  await start(TEXT.replaceAll(SHIPPED, 'shop.order.sent'));
  expect(await refusalOf(slot, id)).toMatchObject({
    failure_code: 'unknown_notification_type',
    failure_message: 'notification_type is not in the catalog any more',
  });
});
