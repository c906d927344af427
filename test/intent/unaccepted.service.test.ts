import { offsetKey } from '../../api/intent/stream.ts';
import { findUnaccepted } from '../../client/intent/unaccepted.ts';
import type { Slot } from '../harness.ts';
import { takeSlot } from '../harness.ts';

const STREAM = 'notification:intents';
const DAY_MS = 86_400_000;
const NOW = Date.now();
const [FORGOTTEN, OLD, NEW] = [`${NOW - 3 * DAY_MS}-0`, `${NOW - 2 * DAY_MS}-0`, `${NOW - 60_000}-0`];

let slot: Slot;
beforeAll(async () => {
  slot = await takeSlot();
});
afterAll(() => slot?.release());
beforeEach(() => slot.redis.del(STREAM, offsetKey(STREAM)));

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
