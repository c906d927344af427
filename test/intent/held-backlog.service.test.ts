/** What operators ask for while more waits than the service works off in a minute. */
import type { Slot } from '../harness.ts';
import { eventually, operatorOf, takeSlot } from '../harness.ts';
import { turn } from './entries.ts';

const STREAM = 'notification:intents';
const BACKLOG = 4_000;

let slot: Slot;
beforeAll(async () => {
  slot = await takeSlot();
  const filling = slot.redis.pipeline();
  for (let n = 0; n < BACKLOG; n += 1)
    filling.xadd(STREAM, '*', ...turn({ idempotency_key: `bad-${n}` }).flat());
  await filling.exec();
  await slot.startService();
});
afterAll(() => slot.release());

const accepted = async (): Promise<number> => {
  const { rows } = await slot.db.query<{ count: number }>(
    'SELECT count(*)::int AS count FROM notification.records',
  );
  return rows[0]!.count;
};

test('I85 a producer is paused at once, however many of its intents wait', async () => {
  await eventually('the backlog to be worked on', async () => (await accepted()) > 0);
  await expect(
    operatorOf(slot).producers.pause('game_master', { requestedBy: 'nina' }),
  ).resolves.toMatchObject({ status: 'paused' });
  expect(await accepted()).toBeLessThan(BACKLOG);
});
