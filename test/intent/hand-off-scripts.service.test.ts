/** The scripts of the hand-off by themselves, on a real Redis: each of them in the situation that it is there for. */
import type { Redis } from 'ioredis';
import {
  defineHandOffCommands,
  handOff,
  handOffKey,
  leaseKey,
  voidedKey,
} from '../../activities/intent/hand-off.ts';
import { eventually, slotOfTests } from '../harness.ts';
import { GATEWAY } from '../service-process.ts';
import { publishTurn } from './entries.ts';
import { EMAIL, PUSH } from './rows.ts';

const HOUR_MS = 3_600_000;

const slot = slotOfTests();
let redis: Redis;
beforeAll(() => defineHandOffCommands((redis = slot.redis.duplicate())));
afterEach(() => redis.flushdb());
afterAll(() => redis.disconnect());

const keys = {
  lease: leaseKey('9-9', PUSH),
  handOff: handOffKey('9-9', PUSH, 0),
  voided: voidedKey('9-9'),
};
const lease = (token: string) => ({ token, ttlMs: 60_000 });
const entry = { stream: GATEWAY, fields: [['event_id', `9-9/${PUSH}`] as [string, string]] };
const append = async (attempt: ReturnType<typeof lease>) =>
  handOff.append(redis, keys, attempt, entry, await handOff.begin(redis));
const release = (token: string) => handOff.end(redis, [{ keys, token }], false);
const settle = (token: string) => handOff.end(redis, [{ keys, token }], true);
const entries = async () => (await redis.xrange(GATEWAY, '-', '+')).map(([id]) => id);

test('I23 I28 an attempt whose answer was lost is told its entry by the next one, for a day', async () => {
  const first = await append(lease('one'));
  expect(await append(lease('two'))).toEqual(first);
  expect([{ outcome: 'handed_off', entryId: (await entries())[0] }]).toEqual([first]);
  expect(await entries()).toHaveLength(1);
  expect(await redis.pttl(keys.handOff)).toBeGreaterThan(23 * HOUR_MS);
});

test('I23 a lease is that of one attempt until it gives it back, and no other attempt can', async () => {
  await redis.set(keys.lease, 'another', 'PX', 60_000);
  const leased = await append(lease('one'));
  expect(leased).toMatchObject({ outcome: 'leased', expiresInMs: expect.any(Number) });
  expect(await entries()).toEqual([]);
  for (const end of [release, settle]) {
    await redis.set(keys.lease, 'another', 'PX', 60_000);
    await end('one');
    expect(await redis.get(keys.lease)).toBe('another');
    await end('another');
    expect(await redis.exists(keys.lease)).toBe(0);
  }
});

test('I23 an entry that Redis refuses leaves neither a lease nor a memory', async () => {
  await redis.set(GATEWAY, 'no stream');
  await expect(append(lease('one'))).rejects.toThrow(/WRONGTYPE/);
  expect(await redis.exists(keys.lease, keys.handOff)).toBe(0);
});

test('I23 once routes are settled their memories fade together, and what was not handed off leaves none', async () => {
  await settle('one');
  expect(await redis.exists(keys.handOff)).toBe(0);
  const settled = Array.from({ length: 3 }, (_, at) => `push:user:user-${at}`).map((route) => ({
    keys: { handOff: handOffKey('9-9', route, 0), lease: leaseKey('9-9', route), voided: keys.voided },
    token: route,
  }));
  for (const { keys: of, token } of settled)
    await handOff.append(redis, of, lease(token), entry, await handOff.begin(redis));
  await handOff.end(redis, settled, true);
  const left = await Promise.all(settled.map(({ keys: of }) => redis.pttl(of.handOff)));
  expect(left.filter((leftMs) => leftMs > HOUR_MS / 12 && leftMs < HOUR_MS)).toHaveLength(3);
  expect(await redis.exists(...settled.map(({ keys: of }) => of.lease))).toBe(0);
});

test('I23 what is settled fades soon, also when the process stops in between', async () => {
  const service = await slot.startService();
  const handedOff = async (key: string) => {
    const id = await publishTurn(slot.redis, key);
    const names = [PUSH, EMAIL].map((route) => handOffKey(id, route, 0));
    await eventually(`${id} to be handed off`, async () => (await slot.redis.exists(...names)) === 2);
    return names;
  };
  const isFading = async (names: string[]) => {
    const left = await Promise.all(names.map((name) => slot.redis.pttl(name)));
    return left.every((leftMs) => leftMs > 0 && leftMs < HOUR_MS);
  };
  const first = await handedOff('first');
  await eventually('what was settled to fade', () => isFading(first));
  const last = await handedOff('last');
  await service.stop();
  expect(await isFading(last)).toBe(true);
});

test('I23 I26 closing says each time that it came too late, and forgets no entry', async () => {
  await append(lease('one'));
  const [id] = await entries();
  expect(await handOff.close(redis, keys.handOff)).toBe(id);
  expect(await handOff.close(redis, keys.handOff)).toBe(id);
  expect(await handOff.entriesOf(redis, [keys.handOff])).toEqual([id]);
});

test('I26 an attempt from before its notification was cancelled hands off nothing, whatever became of its row', async () => {
  const begun = await handOff.begin(redis);
  await handOff.voidAttempts(redis, '9-9');
  expect(await handOff.append(redis, keys, lease('one'), entry, begun)).toEqual({ outcome: 'late' });
  expect(await entries()).toEqual([]);
  expect(await redis.exists(keys.lease, keys.handOff)).toBe(0);
  // One of a replay, for instance, which looks at the row first.
  await eventually(
    'an attempt that begins now',
    async () => (await append(lease('two'))).outcome === 'handed_off',
  );
});

test('I46 security-1 a repair that died before it could write the row hands off once', async () => {
  const lost = '1-1';
  const now = await handOff.restore(redis, keys.handOff, lost, entry);
  expect(await handOff.restore(redis, keys.handOff, lost, entry)).toBe(now);
  expect(await handOff.restore(redis, keys.handOff, now, entry)).toBe(now);
  expect(await entries()).toEqual([now]);
  await redis.del(GATEWAY);
  // A new stream knows no earlier id: within the same millisecond it gives the same one again.
  await eventually('the next millisecond', async () => {
    const [seconds, micros] = (await redis.time()) as [number, number];
    return seconds * 1_000 + Math.floor(micros / 1_000) > Number(now.split('-')[0]);
  });
  expect(await handOff.restore(redis, keys.handOff, now, entry)).not.toBe(now);
  expect(await entries()).toHaveLength(1);
});
