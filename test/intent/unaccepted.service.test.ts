import type { Audience } from '../../activities/intent/audience.ts';
import { insertRecords } from '../../activities/intent/decisions.ts';
import type { OperationItem } from '../../activities/operations.ts';
import { intentOperations } from '../../activities/intent/operations.ts';
import { createOutcomes } from '../../activities/intent/outcomes.ts';
import { fingerprintOf } from '../../api/intent/fingerprint.ts';
import { offsetKey } from '../../api/intent/stream.ts';
import type { OperatorResources } from '../../client/resources.ts';
import { openGroups } from '../../client/intent/choices.ts';
import { findUnaccepted } from '../../client/intent/unaccepted.ts';
import { cliFor } from '../command-line.ts';
import type { Slot } from '../harness.ts';
import { operatorOf, takeSlot } from '../harness.ts';
import { accepted, turn } from './entries.ts';

const STREAM = 'notification:intents';
const DAY_MS = 86_400_000;
const NOW = Date.now();
const [FORGOTTEN, OLD, NEW] = [`${NOW - 3 * DAY_MS}-0`, `${NOW - 2 * DAY_MS}-0`, `${NOW - 60_000}-0`];

let slot: Slot;
beforeAll(async () => {
  slot = await takeSlot();
});
afterAll(() => slot?.release());
beforeEach(async () => {
  await slot.redis.del(STREAM, offsetKey(STREAM));
  await slot.db.query('DELETE FROM notification.waiting_intents');
});

const append = (id: string, fields: Record<string, string> = {}) =>
  slot.redis.xadd(
    STREAM,
    id,
    ...Object.entries({ notification_type: 'game.turn.ready', producer: 'game_master', ...fields }).flat(),
  );

const find = async (filter: Parameters<typeof findUnaccepted>[1] = {}, most = Infinity) => {
  const { db, redis } = slot;
  const found = await findUnaccepted({ db, redis, intentsStream: STREAM }, filter, most);
  return found.map(({ notificationId }) => notificationId);
};

test('U2 of what the reader has passed only a day is looked at, since rows are forgotten some day; of the rest all', async () => {
  for (const id of [FORGOTTEN, OLD, NEW]) await append(id);
  expect(await find()).toEqual([FORGOTTEN, OLD, NEW]);
  await slot.redis.set(offsetKey(STREAM), FORGOTTEN);
  expect(await find()).toEqual([OLD, NEW]);
  await slot.redis.set(offsetKey(STREAM), OLD);
  expect(await find()).toEqual([NEW]);
  await slot.redis.set(offsetKey(STREAM), NEW);
  expect(await find()).toEqual([NEW]);
  expect(await find({ since: new Date(NOW) })).toEqual([]);
});

test('U2 entries are looked for by type, producer and time, and are intents', async () => {
  await append(OLD, { notification_type: 'lobby.invite.expired', producer: 'game_lobby' });
  await append(NEW);
  await append(`${NOW}-1`, { notification_type: 'no.such.type' });
  await append(`${NOW}-2`, { notification_type: 'x'.repeat(200_000) });
  expect(await find()).toEqual([OLD, NEW]);
  expect(await find({ producer: 'game_master' })).toEqual([NEW]);
  expect(await find({ type: 'lobby.invite.expired' })).toEqual([OLD]);
  expect(await find({ until: new Date(NOW - 60_000) })).toEqual([OLD, NEW]);
  expect(await find({ until: new Date(NOW - 60_001) })).toEqual([OLD]);
  expect(await find({ since: new Date(NOW - 60_000) })).toEqual([NEW]);
});

test('U2 many entries, and large ones, are looked at in steps, and the oldest are chosen', async () => {
  const ids = Array.from({ length: 1_200 }, (_, n) => `${NOW}-${n}`);
  for (const id of ids) await append(id);
  const large = Array.from({ length: 6 }, (_, n) => `${NOW + 1}-${n}`);
  for (const id of large) await append(id, { payload_json: 'x'.repeat(1024 * 1024) });
  expect(await find()).toEqual([...ids, ...large]);
  expect(await find({}, 2)).toEqual(ids.slice(0, 2));
});

test('U2 what a row knows of is none of them', async () => {
  for (const n of [1, 2, 3, 4, 5, 6]) await append(`${NOW}-${n}`);
  await slot.db.query(`
    INSERT INTO notification.duplicates (notification_id, duplicate_of, decided_at) VALUES ('${NOW}-1', '1-1', now());
    INSERT INTO notification.cancelled_intents (notification_id, producer, idempotency_key, cancelled_at)
    VALUES ('${NOW}-3', 'game_master', 'k', now())`);
  expect(await find()).toEqual([2, 4, 5, 6].map((n) => `${NOW}-${n}`));
});

/** The reader has just tried it. */
const waits = (id: string, key = id) => `
    INSERT INTO notification.waiting_intents (notification_id, notification_type, producer, idempotency_key, waiting_since,
      attempt, unusable_attempts, reason, updated_at, intent)
    VALUES ('${id}', 'game.turn.ready', 'game_master', '${key}', now(), 1, 0, 'tried', now(), '{}')`;

test('newcomer-1 an intent that gets its row while a cancellation is previewed is counted', async () => {
  for (const n of [1, 2]) await append(`${NOW - 3 + n}-0`);
  let counted: Promise<unknown> = Promise.resolve();
  const query = async (text: string, values: unknown[]) => {
    if (text.includes('GROUP BY')) return (counted = slot.db.query(text, values));
    await counted;
    await slot.db.query(waits(`${NOW - 1}-0`));
    return slot.db.query(text, values);
  };
  const resources = { db: { query }, redis: slot.redis, intentsStream: STREAM };
  const groups = await openGroups(resources as unknown as OperatorResources, { producer: 'game_master' });
  expect(groups.map(({ state, notifications }) => [state, notifications])).toEqual([
    ['under_way', 1],
    ['not_begun', 1],
  ]);
});

test('newcomer-1 a cancellation chooses all that match when it begins, not as many as were counted before', async () => {
  for (const n of [1, 2]) await append(`${NOW - 3 + n}-0`);
  await slot.db.query(`
    CREATE FUNCTION notification.read_one() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN ${waits(`${NOW}-0`)}; RETURN NEW; END $$;
    CREATE TRIGGER read_one BEFORE INSERT ON notification.operations
       FOR EACH ROW EXECUTE FUNCTION notification.read_one()`);
  const { json, dispose } = cliFor(slot);
  try {
    const args = [
      'notifications',
      'cancel',
      '--producer',
      'game_master',
      '--since',
      '1h',
      '--yes',
      '--detach',
    ];
    const { value } = await json<{ total: number }>(args);
    expect(value.total).toBe(3);
  } finally {
    dispose();
    await slot.db.query('DROP FUNCTION notification.read_one() CASCADE');
  }
});

test('newcomer-1 one that waits is never accepted once its cancellation is done, also by an attempt under way', async () => {
  const id = (await slot.redis.xadd(STREAM, '*', ...turn().flat())) as string;
  await slot.db.query(waits(id, accepted(turn()).idempotencyKey));
  const { redis, db } = slot;
  const { operationId } = await operatorOf(slot).operations.cancel(
    { producer: 'game_master' },
    { requestedBy: 'nina' },
  );
  const describe = () => Promise.resolve({ status: { name: 'RUNNING' } });
  const workflows = { getHandle: () => ({ describe, cancel: () => Promise.resolve() }) };
  const resources = { db, redis, workflows, outcomes: createOutcomes([]), intentsStream: STREAM };
  const { cancel } = intentOperations(resources as unknown as Parameters<typeof intentOperations>[0]);
  const chosen = await db.query<OperationItem>(cancel!.list.text, [operationId, 10]);
  expect(await cancel!.deal(chosen.rows)).toEqual([true]);

  const intent = { ...accepted(turn()), notificationId: id };
  const audience: Audience = { kind: 'user', recipients: [] };
  const settings = { budgets: { push: 3, email: 7 }, idempotencyTtlMs: DAY_MS };
  const items = [{ intent, fingerprint: fingerprintOf(intent), audience }];
  expect(await insertRecords(db, createOutcomes([]), items, settings)).toEqual(new Map());
});
