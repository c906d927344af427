/** Types with `collapse`: within a window the newest intent alone reaches a recipient, whatever happens meanwhile. */
import { given } from '../../api/given.ts';
import { parseCatalog } from '../../api/intent/galaxy.ts';
import { readPushPayload } from '../../dev/push-payload.ts';
import { newIntent, publishIntent } from '../../client/notificationintent.ts';
import { eventually, slotOfTests, operatorOfTests } from '../harness.ts';
import { keepRows, untilWorkflowsEnd } from '../put-back.ts';
import { GATEWAY, MAIL } from '../service-process.ts';
import type { RouteRow } from './rows.ts';
import {
  EMAIL,
  PUSH,
  cancelOne,
  countOf,
  endOf,
  entriesOf,
  intentStatusOf,
  makeDue,
  replayRoute,
  settledRoutes,
  untilIntent,
  usersUpTo,
} from './rows.ts';
import { scratchFolder } from '../scratch.ts';

const DAY_MS = 86_400_000;

const row = (window: string, more = '', audiences = 'user: [push, email]', digest = '') => `
    producer: shop
    audiences: { ${audiences} }
    payload:
      type: object
      required: [item, price]
      properties: { item: { type: string }, price: { type: integer }, seller_user_id: { type: string } }
    collapse: { key: item, window: ${window}${digest} }${more}`;
const TEXT = `version: 1
types:
  price.changed:${row('1h', '\n    push: { fields: [item, price] }')}
  price.moved:${row('500ms', '\n    push: { fields: [item, price], encoding: json }')}
  price.listed:${row('1h', '\n    push: { fields: [item, price] }', undefined, ', digest: { items: 3, bytes: 80 }')}
  price.wrong:${row('1h', '', 'admin_email: [email]')}
`;
const CATALOG = parseCatalog(TEXT);

const slot = slotOfTests();
const operator = operatorOfTests(slot, undefined, CATALOG);
const file = scratchFolder('collapse').write('catalog.yaml', TEXT);
const start = () =>
  slot.startService({
    NOTIFICATION_CATALOG_FILE: file,
    NOTIFICATION_ADMIN_EMAILS_PRICE_WRONG: 'cfo@example.com,ceo@example.com',
    NOTIFICATION_EMAIL_RETRY_MAX_ATTEMPTS: '1',
    NOTIFICATION_OUTCOMES: 'route_skipped',
  });

beforeAll(start);

const occurredAt = Date.now();
let published = 0;
interface Options {
  type?: string;
  to?: string[];
  key?: string;
  deliverAt?: number;
  expiresAt?: number;
  seller?: string;
}
/** Publishes an intent, and waits until its window has it. */
async function publish(item: string, price: number, options: Options = {}): Promise<string> {
  const { type = 'price.changed', to = ['user-1'], key = `k${(published += 1)}`, seller, ...times } = options;
  for (const user of to)
    slot.userService.setUser(user, { email: `${user}@example.com`, preferredLanguage: 'en' });
  const payload = { item, price, ...given({ seller_user_id: seller }) };
  const id = await publishIntent(
    slot.redis,
    newIntent(CATALOG, type, {
      ...{ idempotencyKey: key, occurredAt, payload, ...times },
      ...(type === 'price.wrong' ? {} : { recipientUserIds: to }),
    }),
  );
  await eventually(`${id} to be read`, () => intentStatusOf(slot, id));
  return id;
}
/** Publishes an intent with each price from 1 on. */
async function publishUpTo(highest: number, item: string, options?: Options): Promise<string[]> {
  const ids: string[] = [];
  for (let price = 1; price <= highest; price += 1) ids.push(await publish(item, price, options));
  return ids;
}

/** Routes by their ids. */
type Routes = Record<string, RouteRow>;
/** Waits until every route of an intent is closed. */
const closed = async (id: string): Promise<Routes> =>
  Object.fromEntries((await settledRoutes(slot, id)).map((row) => [row.route_id, row]));
/** Lets the time of intents come, and waits for their routes. */
async function close(...ids: string[]): Promise<Routes[]> {
  await makeDue(slot, ...ids);
  return Promise.all(ids.map(closed));
}

interface Entry {
  /** Of the route. */
  id: string;
  payload: Record<string, unknown>;
  /** Of a digest. */
  count?: number;
}
/** @returns what the streams have of an item, pushes and e-mails. */
async function deliveriesOf(item: string): Promise<{ pushes: Entry[]; mails: Entry[] }> {
  const pushes = (await entriesOf(slot, GATEWAY)).map((fields) => ({
    id: String(fields['event_id']),
    ...(fields['item_count'] === undefined ? {} : { count: Number(fields['item_count']) }),
    payload: readPushPayload(CATALOG, String(fields['event_type']), fields['payload_bytes']!),
  }));
  const mails = (await entriesOf(slot, MAIL)).map((fields) => ({
    id: String(fields['delivery_id']),
    payload: (JSON.parse(String(fields['payload_json'])) as { variables: Record<string, unknown> }).variables,
  }));
  const ofItem = ({ payload }: Entry) => payload['item'] === item;
  return { pushes: pushes.filter(ofItem), mails: mails.filter(ofItem) };
}
const pricesOf = (entries: Entry[]) => entries.map(({ payload }) => payload['price']);
/** The delivery of one intent. */
const pushOf = (id: string, item: string, price: number) => ({
  id: `${id}/${PUSH}`,
  payload: { item, price },
});
const PUSH_2 = 'push:user:user-2';
const PUBLISHED = { status: 'published' };
const COLLAPSED = (carrier: string) => ({
  ...{ status: 'skipped', last_error_classification: 'collapsed' },
  last_error_message: `notification ${carrier} carries the newest of its window`,
});

test('I93 the newest of a window is delivered when it ends, once, and by itself', async () => {
  const ids = await publishUpTo(3, 'moved', { type: 'price.moved' });
  // One look of the dispatcher may find all of them due, and then any of them closes the window.
  const routes = await Promise.all(ids.map(closed));
  const newest = pushOf(ids[2]!, 'moved', 3);
  expect(await deliveriesOf('moved')).toEqual({
    pushes: [newest],
    mails: [{ ...newest, id: `${ids[2]}/${EMAIL}` }],
  });
  const carrier = ids[routes.findIndex((of) => of[PUSH]!.status === 'published')]!;
  const others = ids.filter((id) => id !== carrier);
  for (const [index, id] of ids.entries()) {
    const row = id === carrier ? PUBLISHED : COLLAPSED(carrier);
    expect(routes[index]).toMatchObject({ [PUSH]: row, [EMAIL]: row });
  }
  const { answers } = await operator.why('user-1');
  expect(answers.map(({ sentence }) => sentence)).toContainEqual(
    expect.stringMatching(/push of price.moved was skipped: notification \S+ carries the newest/),
  );
  const skipped = (await endOf(slot, others[0]!)).filter(({ kind }) => kind === 'route_skipped');
  expect(skipped).toMatchObject([{ reason: 'collapsed' }, { reason: 'collapsed' }]);
});

test('I93 each recipient and each key has its own window', async () => {
  const first = await publish('own', 1);
  const other = await publish('other', 7);
  const both = await publish('own', 2, { to: ['user-1', 'user-2'] });
  await close(first);
  // The window of user-2 is open still.
  expect((await deliveriesOf('own')).pushes).toEqual([pushOf(both, 'own', 2)]);
  const last = await publish('own', 3, { to: ['user-2', 'user-1'] });
  const [routes] = await close(both);
  expect(routes).toMatchObject({ [PUSH]: COLLAPSED(first), [PUSH_2]: PUBLISHED });
  const [ofLast] = await close(last);
  expect(ofLast).toMatchObject({ [PUSH]: PUBLISHED, [PUSH_2]: COLLAPSED(both) });
  expect((await deliveriesOf('own')).mails).toMatchObject([
    { id: `${both}/email:user:user-1`, payload: { price: 2 } },
    { id: `${last}/email:user:user-2`, payload: { price: 3 } },
    { id: `${last}/email:user:user-1`, payload: { price: 3 } },
  ]);
  await close(other);
  expect((await deliveriesOf('other')).pushes).toHaveLength(1);
});

test('I93 administrators have one window together', async () => {
  await close(...(await publishUpTo(2, 'admins', { type: 'price.wrong' })));
  expect(pricesOf((await deliveriesOf('admins')).mails)).toEqual([2, 2]);
});

test('I93 without the newest, which is cancelled, the next newest is delivered', async () => {
  const [first, second, third] = (await publishUpTo(3, 'cancel')) as [string, string, string];
  await cancelOne(operator, third);
  await close(first);
  await close(second);
  expect((await deliveriesOf('cancel')).pushes).toEqual([pushOf(second, 'cancel', 2)]);
  expect(await intentStatusOf(slot, third)).toBe('cancelled');
});

test('I93 a window survives a restart, and its opener that is cancelled leaves the others to the next', async () => {
  const [first, ...others] = (await publishUpTo(3, 'restart')) as [string, string, string];
  await slot.stopServices();
  await start();
  await cancelOne(operator, first);
  const [routes] = await close(...others);
  expect(routes).toMatchObject({ [PUSH]: { status: expect.stringMatching(/published|skipped/) } });
  expect(pricesOf((await deliveriesOf('restart')).pushes)).toEqual([3]);
});

test('I93 one that has expired, is for later, or has the key of another one is not the newest', async () => {
  const first = await publish('times', 1, { key: 'times' });
  const expired = await publish('times', 2, { expiresAt: occurredAt + 1 });
  const later = await publish('times', 3, { deliverAt: occurredAt + DAY_MS });
  const conflict = await publish('times', 4, { key: 'times' });
  await close(first);
  expect((await deliveriesOf('times')).pushes).toEqual([pushOf(first, 'times', 1)]);
  const [ofExpired] = await close(expired);
  expect(ofExpired).toMatchObject({ [PUSH]: { status: 'skipped' } });
  await makeDue(slot, conflict);
  await untilIntent(slot, conflict, 'conflict');
  // Its time is not changed by the window of the others.
  const where = "notification_id = $1 AND due_at > now() + interval '21 hours'";
  expect(await countOf(slot, 'intents', where, [later])).toBe(1);
});

test('I93 one that has expired is not delivered, also when another recipient has a newer one', async () => {
  const first = await publish('both', 1, { to: ['user-1', 'user-2'], expiresAt: occurredAt + 1 });
  await publish('both', 2);
  const [routes] = await close(first);
  expect(routes).toMatchObject({
    [PUSH]: PUBLISHED,
    [PUSH_2]: { status: 'skipped', last_error_classification: 'expired' },
  });
  expect(pricesOf((await deliveriesOf('both')).mails)).toEqual([2]);
});

test('I93 a window that PostgreSQL has forgotten is delivered again only with newer content', async () => {
  const [same] = (await publishUpTo(2, 'same')) as [string];
  const [newer] = (await publishUpTo(2, 'newer')) as [string];
  const { putBack } = await keepRows(slot.db);
  await close(same, newer);
  await untilWorkflowsEnd(slot, [same, newer]);
  // A row that comes back while its intent is dispatched waits for the reconciliation, minutes: no process dispatches now.
  await slot.stopServices();
  await putBack();
  await start();
  const newest = await publish('newer', 3);
  await close(same, newer, newest);
  for (const [item, prices] of [
    ['same', [2]],
    ['newer', [2, 3]],
  ] as const) {
    const { pushes, mails } = await deliveriesOf(item);
    expect(pushes.map(({ id }) => id.split('/')[0])).toEqual(mails.map(({ id }) => id.split('/')[0]));
    expect(new Set(pushes.map(({ id }) => id)).size).toBe(pushes.length);
    expect([pricesOf(pushes), pricesOf(mails)]).toEqual([prices, prices]);
  }
});

test('I93 nothing older follows the newest of a window that PostgreSQL has forgotten', async () => {
  const first = await publish('older', 1);
  const { putBack } = await keepRows(slot.db);
  // It takes a while until the second one is read again.
  for (let n = 0; n < 300; n += 1) await slot.redis.xadd('notification:intents', '*', 'producer', 'shop');
  const second = await publish('older', 2);
  await close(first, second);
  await untilWorkflowsEnd(slot, [first, second]);
  await slot.stopServices();
  await putBack();
  await makeDue(slot, first);
  await start();
  expect(await closed(first)).toMatchObject({ [PUSH]: PUBLISHED });
  expect((await deliveriesOf('older')).pushes).toEqual([pushOf(second, 'older', 2)]);
  await makeDue(slot, second);
  expect(await closed(second)).toMatchObject({ [PUSH]: COLLAPSED(first) });
});

test('I93 a user is forgotten in what other intents carried', async () => {
  const first = await publish('forget', 1);
  const second = await publish('forget', 2, { seller: 'user-9' });
  await close(first);
  await expect(operator.users.forget({ userId: 'user-9' }, { requestedBy: 'test' })).resolves.toBeDefined();
  const { rows } = await slot.db.query(
    'SELECT contents FROM notification.records WHERE notification_id = $1',
    [first],
  );
  expect(rows).toEqual([{ contents: [{ item: 'forget', price: 2, seller_user_id: 'forgotten' }] }]);
  await close(second);
});

describe('I93 a digest', () => {
  const type = 'price.listed';
  const itemsOf = async (item: string) => {
    const { pushes, mails } = await deliveriesOf(item);
    return {
      pushes: pushes.map(({ payload, count }) => [payload['price'], count]),
      mails: mails.map(({ payload: { price, items, items_omitted: omitted } }) => [
        price,
        (items as { price: number }[]).map((one) => one.price),
        omitted,
      ]),
    };
  };

  test('I93 a digest has all of a window, the oldest first', async () => {
    await close(...(await publishUpTo(2, 'all', { type })));
    expect(await itemsOf('all')).toEqual({ pushes: [[2, 2]], mails: [[2, [1, 2], 0]] });
    await close(await publish('all', 3, { type }));
    expect((await itemsOf('all')).mails[1]).toEqual([3, [3], 0]);
  });

  test('I93 a digest is bounded in items and bytes, counts what it leaves out, and is replayed as it was', async () => {
    const [first] = (await publishUpTo(5, 'many', { type })) as [string];
    await slot.redis.set(MAIL, 'no stream');
    const [routes] = await close(first);
    expect(routes).toMatchObject({ [EMAIL]: { status: 'dead_letter' } });
    await slot.redis.del(MAIL);
    await replayRoute(slot, first, EMAIL);
    await eventually('the replay', async () => (await itemsOf('many')).mails[0]);
    expect(await itemsOf('many')).toEqual({ pushes: [[5, 5]], mails: [[5, [3, 4, 5], 2]] });
    // Of 80 bytes, two payloads of 38 bytes.
    const [long, longer] = ['a'.repeat(16), 'b'.repeat(60)] as const;
    const [ofLong] = (await publishUpTo(3, long, { type })) as [string];
    const [ofLonger] = (await publishUpTo(2, longer, { type })) as [string];
    await close(ofLong, ofLonger);
    expect((await itemsOf(long)).mails).toEqual([[3, [2, 3], 1]]);
    expect((await itemsOf(longer)).mails).toEqual([[2, [2], 1]]);
  });

  test('I93 without a window, as for a large audience, a digest has one item', async () => {
    const to = usersUpTo(101);
    await closed(await publish('large', 1, { type, to }));
    const { mails, pushes } = await itemsOf('large');
    expect(mails).toEqual(to.map(() => [1, [1], 0]));
    expect(pushes).toHaveLength(101);
  });
});
