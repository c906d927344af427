/** Intents for later: they wait in their rows, can be seen and cancelled, and are delivered when their time has come. */
import { newGameTurnReady, publishIntent } from '../../client/notificationintent.ts';
import type { Operator } from '../../client/operator.ts';
import type { Slot } from '../harness.ts';
import { eventually, operatorOf, takeSlot, way } from '../harness.ts';

const USER = { email: 'ada@example.com', preferredLanguage: 'en' };
const DAY_MS = 86_400_000;

let slot: Slot;
let operator: Operator;
beforeAll(async () => {
  slot = await takeSlot();
  operator = operatorOf(slot);
  slot.userService.setUser('user-1', USER);
  await slot.startService({ ...way(), NOTIFICATION_ROLES: 'intent' });
});
afterAll(() => slot.release());

const occurredAt = Date.now();
const publish = (idempotencyKey: string, deliverAt?: number, turn = 1): Promise<string> =>
  publishIntent(
    slot.redis,
    newGameTurnReady({
      ...{ idempotencyKey, occurredAt, recipientUserIds: ['user-1'] },
      ...(deliverAt === undefined ? {} : { deliverAt }),
      payload: { game_id: 'g', game_name: 'G', turn_number: turn },
    }),
  );
const statusOf = async (id: string): Promise<string | undefined> => {
  const { rows } = await slot.db.query<{ status: string }>(
    'SELECT status FROM notification.intents WHERE notification_id = $1',
    [id],
  );
  return rows[0]?.status;
};
const until = (id: string, status: string) =>
  eventually(`${id} to be ${status}`, async () => ((await statusOf(id)) === status ? true : undefined));
const delivered = (id: string) =>
  eventually(`${id} to be delivered`, async () => {
    const { rows } = await slot.db.query<{ published: number }>(
      `SELECT count(*)::int AS published FROM notification.routes WHERE notification_id = $1 AND status = 'published'`,
      [id],
    );
    return rows[0]!.published === 2 || undefined;
  });
/** Lets the time of intents come. */
const advance = (...ids: string[]) =>
  slot.db.query('UPDATE notification.intents SET due_at = now() WHERE notification_id = ANY ($1)', [ids]);

test('I89 an intent for later waits, says so, and is delivered when its time has come', async () => {
  const later = await publish('later', occurredAt + 300 * DAY_MS);
  await until(later, 'open');
  // One that comes behind it passes it.
  const now = await publish('now');
  await delivered(now);
  expect(await statusOf(later)).toBe('open');
  expect(slot.userService.requests).toHaveLength(1);
  const at = new Date(occurredAt + 300 * DAY_MS).toISOString().replace(/\.\d+Z/, 'Z');
  expect((await operator.intents.waiting()).items).toMatchObject([
    { notificationId: later, reason: `it is to be delivered at ${at}` },
  ]);
  const { answers } = await operator.why('user-1');
  expect(answers.map(({ sentence }) => sentence)).toContainEqual(
    expect.stringContaining(`it is to be delivered at ${at}`),
  );

  await advance(later);
  await delivered(later);
  expect((await operator.intents.waiting()).items).toEqual([]);
});

test('I89 its key is taken while it waits', async () => {
  const later = await publish('key', occurredAt + DAY_MS);
  const repeat = await publish('key');
  const conflict = await publish('key', undefined, 2);
  await until(repeat, 'duplicate');
  await until(conflict, 'conflict');
  expect(await statusOf(later)).toBe('open');
  await advance(later);
  await delivered(later);
});

test('I89 it can be cancelled until then', async () => {
  const later = await publish('cancelled', occurredAt + DAY_MS);
  await until(later, 'open');
  await operator.notifications.cancel(later, { requestedBy: 'test', limitMs: 60_000 });
  await until(later, 'cancelled');
  await advance(later);
  const next = await publish('next');
  await delivered(next);
  expect(await statusOf(later)).toBe('cancelled');
});

test('I89 a time that has passed is now', async () => {
  await delivered(await publish('passed', occurredAt - DAY_MS));
});

test('I89 more intents than one look releases come at one time', async () => {
  const intents = await Promise.all(
    Array.from({ length: 1_200 }, (_, index) => publish(`many/${index}`, occurredAt + DAY_MS)),
  );
  await eventually('all to be read', async () => {
    const { rows } = await slot.db.query<{ count: number }>(
      'SELECT count(*)::int FROM notification.intents WHERE due_at IS NOT NULL AND notification_id = ANY ($1)',
      [intents],
    );
    return rows[0]!.count === intents.length || undefined;
  });
  await advance(...intents);
  await eventually('all to be released', async () => {
    const { rows } = await slot.db.query<{ count: number }>(
      'SELECT count(*)::int FROM notification.intents WHERE due_at IS NOT NULL AND notification_id = ANY ($1)',
      [intents],
    );
    return rows[0]!.count === 0 || undefined;
  });
}, 120_000);
