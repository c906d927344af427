/** The statement that accepts intents, and the throttle of a type: how many of its notifications reach a recipient. */
import type { Pool } from 'pg';
import type { Audience } from '../../activities/intent/audience.ts';
import { insertRecords } from '../../activities/intent/decisions.ts';
import { loadSlice, nameOf } from '../../activities/intent/route-rows.ts';
import { handOffKey } from '../../activities/intent/hand-off.ts';
import type { Intent } from '../../api/intent/entry.ts';
import { parseCatalog } from '../../api/intent/galaxy.ts';
import { newIntent, publishIntent } from '../../client/notificationintent.ts';
import { writeRows } from '../../dev/intent-rows.ts';
import { operatorOfTests, slotOfTests, untilLocked } from '../harness.ts';
import { MAIL } from '../service-process.ts';
import { endOf, makeDue, replayRoute, routeIn, untilStatuses } from './rows.ts';
import { scratchFolder } from '../scratch.ts';

const PAYLOAD = { type: 'object', required: ['order_id'], properties: { order_id: { type: 'string' } } };
const EMAILS = { producer: 'shop', audiences: { user: ['email'] }, payload: PAYLOAD };
const USERS = { ...EMAILS, audiences: { user: ['push', 'email'] }, push: { fields: ['order_id'] } };
const TEXT = JSON.stringify({
  version: 1,
  types: {
    'shop.sale': { ...USERS, throttle: { limit: 2, window: '1h', per: ['recipient'] } },
    'shop.moved': { ...USERS, throttle: { limit: 1, window: '90s', per: ['recipient', 'order_id'] } },
    'shop.letter': { ...EMAILS, throttle: { limit: 1, window: '1h', per: ['recipient'] } },
    'shop.news': USERS,
    'shop.alarm': { ...EMAILS, audiences: { admin_email: ['email'] } },
  },
});
const SHOP = parseCatalog(TEXT);
const SALE = 'shop.sale';
const MOVED = 'shop.moved';

type Recipients = Extract<Audience, { kind: 'user' }>['recipients'];

const slot = slotOfTests();

const PASSED = ['published', 'published'];
const THROTTLED = ['throttled', 'throttled'];

async function countedOf(userId: string): Promise<number[]> {
  const { rows } = await slot.db.query<{ passed: number }>(
    'SELECT cardinality(passed_at) AS passed FROM notification.throttles WHERE recipient_ref = $1 ORDER BY value',
    [`user:${userId}`],
  );
  return rows.map(({ passed }) => passed);
}
/** As if what has passed had passed earlier. */
const age = (interval: string) =>
  slot.db.query(
    `UPDATE notification.throttles
        SET passed_at = ARRAY(SELECT at - $1::interval FROM unnest(passed_at) AS at), ends_at = ends_at - $1::interval`,
    [interval],
  );

describe('a service', () => {
  const operator = operatorOfTests(slot, undefined, SHOP);
  const file = scratchFolder('throttle').write('catalog.json', TEXT);
  let keys = 0;
  beforeAll(() =>
    slot.startService({
      NOTIFICATION_CATALOG_FILE: file,
      NOTIFICATION_OUTCOMES: 'all',
      NOTIFICATION_EMAIL_RETRY_MAX_ATTEMPTS: '1',
    }),
  );
  afterAll(() => slot.stopServices());

  function publish(type: string, userId: string, more = {}): Promise<string> {
    slot.userService.setUser(userId, { email: `${userId}@example.com`, preferredLanguage: 'en' });
    keys += 1;
    return publishIntent(
      slot.redis,
      newIntent(SHOP, type, {
        ...{ idempotencyKey: `key-${keys}`, occurredAt: Date.now(), recipientUserIds: [userId] },
        ...{ payload: { order_id: 'order-1' }, ...more },
      }),
    );
  }

  test('I98 what exceeds the limit is skipped as throttled, and said so; after the window the next one passes', async () => {
    for (const _ of [1, 2]) await untilStatuses(slot, await publish(SALE, 'user-1'), ...PASSED);
    const third = await publish(SALE, 'user-1');
    await untilStatuses(slot, third, ...THROTTLED);
    await untilStatuses(slot, await publish(SALE, 'user-2'), ...PASSED);
    await untilStatuses(slot, await publish('shop.news', 'user-1'), ...PASSED);
    expect(await countedOf('user-1')).toEqual([2]);

    const summary = 'at most 2 in 1h reach a recipient';
    const { answers } = await operator.why('user-1', { type: SALE });
    expect(answers.filter(({ id }) => id === third).map(({ sentence }) => sentence)).toEqual(
      ['e-mail', 'push'].map((what) => `the ${what} of shop.sale was skipped: ${summary}`),
    );
    const { routes } = await operator.notifications.show(third);
    const lastError = { classification: 'throttled', message: summary };
    expect(routes).toMatchObject([1, 2].map(() => ({ status: 'skipped', lastError })));
    const told = await endOf(slot, third);
    expect(told.filter((one) => one.kind === 'route_skipped' && one.reason === 'throttled')).toHaveLength(2);
    expect(told.at(-1)).toMatchObject({ kind: 'settled', published: 0, skipped: 2, deadLettered: 0 });
    expect(slot.logs).toContainEqual(expect.objectContaining({ notification_id: third, skipped: 2 }));

    await age('59 minutes');
    await untilStatuses(slot, await publish(SALE, 'user-1'), ...THROTTLED);
    await age('1 minute');
    await untilStatuses(slot, await publish(SALE, 'user-1'), ...PASSED);
  });

  test('I98 an intent for later counts when it is delivered', async () => {
    const later = await publish(MOVED, 'user-5', { deliverAt: Date.now() + 3_600_000 });
    await untilStatuses(slot, await publish(MOVED, 'user-5'), ...PASSED);
    await age('90 seconds');
    await makeDue(slot, later);
    await untilStatuses(slot, later, ...PASSED);
    await untilStatuses(slot, await publish(MOVED, 'user-5'), ...THROTTLED);
  });

  test('I98 a replay of a dead letter is neither counted nor throttled', async () => {
    await slot.redis.set(MAIL, 'no stream');
    const dead = await publish('shop.letter', 'user-6');
    await untilStatuses(slot, dead, 'mail_stream_publish_failed', 'skipped');
    await slot.redis.del(MAIL);
    await untilStatuses(slot, await publish('shop.letter', 'user-6'), 'throttled', 'skipped');
    await replayRoute(slot, dead, 'email:user:user-6');
    await routeIn(slot, dead, 'email:user:user-6', 'published');
    expect(await countedOf('user-6')).toEqual([1]);
  });
});

describe('the statement that accepts', () => {
  let count = 0;
  const intentOf = (type: string, more: Partial<Intent> = {}): Intent => {
    count += 1;
    return {
      notificationId: `${count}-0`,
      notificationType: type,
      ...{ producer: 'shop', audienceKind: 'user', recipientUserIds: ['u'], idempotencyKey: `k${count}` },
      ...{ occurredAtMs: 1_790_000_000_000, payloadJson: '{"order_id":"order-1"}', ...more },
    };
  };
  const recipientOf = (userId: string): Recipients[number] => ({
    ...{ userId, email: 'u@example.com', locale: 'en' },
  });
  const userOf = (userId: string): Audience => ({ kind: 'user', recipients: [recipientOf(userId)] });

  /** Writes the rows of intents and accepts them. */
  async function insert(
    intents: readonly Intent[],
    audience: Audience,
    { db = slot.db, catalog = SHOP, redis = slot.redis } = {},
  ) {
    await writeRows(slot.db, intents);
    const budgets = { push: 3, email: 7 };
    const options = { catalog, redis, budgets, idempotencyTtlMs: 3_600_000 };
    return insertRecords(
      db,
      intents.map((intent) => ({ intent, audience })),
      options,
    );
  }
  /** @returns how many routes of each intent are throttled; undefined: it is not accepted. */
  async function accept(
    users: string | Recipients,
    intents: readonly Intent[],
    more?: Parameters<typeof insert>[2],
  ) {
    const audience: Audience =
      typeof users === 'string' ? userOf(users) : { kind: 'user', recipients: users };
    const accepted = await insert(intents, audience, more);
    return intents.map(
      ({ notificationId }) =>
        accepted.get(notificationId)?.skipped.filter(({ reason }) => reason === 'throttled').length,
    );
  }

  const UNUSABLE = { userId: 'bad', problem: 'its address is empty' };
  test.each<[string, string, Audience, number]>([
    ['users', 'shop.news', { kind: 'user', recipients: [recipientOf('u'), UNUSABLE] }, 3],
    ['administrators', 'shop.alarm', { kind: 'admin_email', emails: ['a@example.com', 'b@example.com'] }, 2],
    ['nobody', 'shop.alarm', { kind: 'admin_email', emails: [] }, 0],
  ])(
    'I20 I21 acceptance names the routes to %s that are to be published',
    async (_, type, audience, expected) => {
      const { kind: audienceKind } = audience;
      const recipientUserIds = audienceKind === 'user' ? ['u', 'bad'] : [];
      const intent = intentOf(type, { audienceKind, recipientUserIds });
      const { notificationId } = intent;
      const accepted = await insert([intent], audience);
      const rows = await loadSlice(slot.db, { notificationId, offset: 0, limit: 99 });
      const pending = rows.filter(({ status }) => status === 'pending').map(nameOf);
      expect(pending).toHaveLength(expected);
      expect(accepted.get(notificationId)!.toPublish.map(nameOf).sort()).toEqual(pending.sort());
    },
  );

  test.each(['accepted', 'refused', 'duplicate', 'conflict', 'cancelled'])(
    'I9 I11 an intent that is decided as %s is not accepted by an attempt that has not looked',
    async (status) => {
      const intent = intentOf('shop.news');
      await writeRows(slot.db, [intent]);
      await slot.db.query(
        'UPDATE notification.intents SET status = $2, entry = NULL WHERE notification_id = $1',
        [intent.notificationId, status],
      );
      expect(await accept('u', [intent])).toEqual([undefined]);
    },
  );

  test('I98 of two transactions the later one waits, and sees what the earlier one has left', async () => {
    for (const [end, throttled] of [
      ['ROLLBACK', 0],
      ['COMMIT', 2],
    ] as const) {
      const client = await slot.db.connect();
      try {
        await client.query('BEGIN');
        expect(await accept('waits', [intentOf(MOVED)], { db: client as unknown as Pool })).toEqual([0]);
        const later = accept('waits', [intentOf(MOVED)]);
        await untilLocked(slot.db);
        await client.query(end);
        expect(await later).toEqual([throttled]);
      } finally {
        client.release();
      }
      await slot.db.query('DELETE FROM notification.throttles');
    }
  });

  test('I98 of intents that are accepted together the first ones pass, and first attempts know it', async () => {
    const intents = [...Array.from({ length: 5 }, () => intentOf(SALE)), intentOf('shop.news')];
    expect(await accept('batch', intents)).toEqual([0, 0, 2, 2, 2, 0]);
    expect(await countedOf('batch')).toEqual([2]);
    const late = intentOf(SALE);
    const accepted = await insert([late], userOf('batch'));
    const { acceptance, toPublish } = accepted.get(late.notificationId)!;
    expect(acceptance).toEqual({ outcome: 'accepted', routeCount: 2, skipped: 2, routes: [] });
    expect(toPublish).toEqual([]);
  });

  test('I98 each value of its field counts alone', async () => {
    const of = (order: string) => intentOf(MOVED, { payloadJson: JSON.stringify({ order_id: order }) });
    expect(await accept('values', ['order-1', 'order-1', 'order-2'].map(of))).toEqual([0, 2, 0]);
    expect(await countedOf('values')).toEqual([1, 1]);
  });

  test('I98 an intent counts once: not when it is accepted already, a duplicate, expired, or without recipients', async () => {
    const first = intentOf(SALE);
    await accept('once', [first]);
    const repeat = intentOf(SALE, { idempotencyKey: first.idempotencyKey });
    for (const again of [first, repeat]) expect(await accept('once', [again])).toEqual([undefined]);
    expect(await accept('once', [intentOf(SALE, { expiresAtMs: 1_790_000_000_001 })])).toEqual([0]);
    expect(await countedOf('once')).toEqual([1]);
    expect(await accept([UNUSABLE], [intentOf('shop.letter')])).toEqual([0]);
    expect(await countedOf('bad')).toEqual([]);
  });

  test('I98 what was handed off on any channel passes all, and counts before the others; what was cancelled does not', async () => {
    const intents = [1, 2, 3, 4].map(() => intentOf(MOVED));
    const [other, before, full, cancelled] = intents as [Intent, Intent, Intent, Intent];
    const remember = ({ notificationId }: Intent, as: string) =>
      slot.redis.set(handOffKey(notificationId, 'email:user:back', 0), as);
    await remember(before, '1-1');
    await remember(full, '1-2');
    await remember(cancelled, 'closed');
    expect(await accept('back', [other, before])).toEqual([2, 0]);
    expect(await countedOf('back')).toEqual([1]);
    expect(await accept('back', [cancelled, full])).toEqual([2, 0]);
  });

  test('I98 without an answer of Redis nothing is decided about a type with a throttle', async () => {
    const sale = intentOf(SALE);
    const redis = slot.redis.duplicate({ lazyConnect: true });
    redis.disconnect();
    await expect(accept('away', [sale], { redis })).rejects.toMatchObject({ type: 'AcceptanceDeferred' });
    expect(await accept('away', [intentOf('shop.news')], { redis })).toEqual([0]);
    expect(await accept('away', [sale])).toEqual([0]);
  });

  test('I98 a large audience is counted in its parts, and a limit may change', async () => {
    const users = Array.from({ length: 5_100 }, (_, index) => recipientOf(`many-${index}`));
    expect(await accept(users, [intentOf(SALE)])).toEqual([0]);
    expect(await accept(users.slice(0, 3_000), [intentOf(SALE)])).toEqual([0]);
    expect(await accept(users, [intentOf(SALE)])).toEqual([6_000]);
    const catalog = parseCatalog(TEXT.replace('"limit":2,"window":"1h"', '"limit":1,"window":"1h"'));
    expect(await accept(users, [intentOf(SALE)], { catalog })).toEqual([10_200]);
    expect(await accept('many-5000', [intentOf(SALE)])).toEqual([2]);
  }, 300_000);
});
