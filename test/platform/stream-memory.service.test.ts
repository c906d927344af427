/** What the stores know of each other, and a store that falls back while it is looked at. */
import { recall, remember } from '../../activities/stream-memory.ts';
import { beatKey } from '../../api/intent/stream.ts';
import { slotOfTests } from '../harness.ts';
import { keepRows } from '../put-back.ts';

const STREAM = 'of-a-test';

const slot = slotOfTests();
beforeEach(async () => {
  await slot.db.query('DELETE FROM notification.inbound_streams');
  await slot.redis.del(beatKey('tester', STREAM));
});

const owner = () => ({ db: slot.db, redis: slot.redis, role: 'tester', stream: STREAM });
const recalled = () => recall(owner());

/** A look, and what happens to the stores in the middle of it. */
async function look(passedId: string, meanwhile?: () => Promise<unknown>): Promise<void> {
  const memory = await recalled();
  await meanwhile?.();
  await remember(owner(), { passedId, seen: undefined }, memory);
}

async function looks(count: number): Promise<void> {
  for (let n = 1; n <= count; n += 1) await look(`${n}-0`);
}

test('I52 each look raises the beat in both stores, also of several that look at the same time', async () => {
  await Promise.all([looks(3), looks(3)]);
  expect(await recalled()).toMatchObject({ postgres: 'as it was', isRedisBehind: false, passedId: '3-0' });
});

test.each([0, 2])(
  'I52 a PostgreSQL that falls back in the middle of a look, to after %i looks, is noticed by the next one',
  async (before) => {
    await looks(before);
    const { putBack } = await keepRows(slot.db);
    await looks(5);
    await expect(look('6-0', putBack)).rejects.toThrow('PostgreSQL fell back to an earlier state');
    expect(await recalled()).toMatchObject({ postgres: 'regressed' });
    await look('7-0');
    expect(await recalled()).toMatchObject({ postgres: 'as it was', passedId: '7-0' });
  },
);

test.each([0, 2])(
  'I52 a Redis that falls back in the middle of a look, to after %i looks, is noticed by the next one',
  async (before) => {
    await looks(before);
    const kept = await slot.redis.get(beatKey('tester', STREAM));
    await looks(8);
    const key = beatKey('tester', STREAM);
    await look('9-0', () => (kept === null ? slot.redis.del(key) : slot.redis.set(key, kept)));
    expect(await recalled()).toMatchObject({ postgres: 'as it was', isRedisBehind: true });
    await look('10-0');
    expect(await recalled()).toMatchObject({ isRedisBehind: false, passedId: '10-0' });
  },
);
