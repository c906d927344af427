/** What operators ask for while more waits than the service works off in a minute. */
import { channelWorkflowId, heldProducer } from '../../workflows/intent/channel-contract.ts';
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

const count = async (table: string): Promise<number> => {
  const { rows } = await slot.db.query<{ count: number }>(
    `SELECT count(*)::int AS count FROM notification.${table}`,
  );
  return rows[0]!.count;
};
const heldOf = async () =>
  (await operatorOf(slot).producers.list()).find(({ producer }) => producer === 'game_master');

test('I85 a producer is paused immediately, however many of its intents wait', async () => {
  await eventually('the backlog to be worked on', async () => (await count('records')) > 0);
  await expect(
    operatorOf(slot).producers.pause('game_master', { requestedBy: 'nina' }),
  ).resolves.toMatchObject({ status: 'paused', requestedBy: 'nina' });
  expect(await count('records')).toBeLessThan(BACKLOG);
  expect(await heldOf()).toMatchObject({ status: 'paused', changedBy: 'nina' });
});

test('I85 a pause holds although no worker takes it, and the workflow finds it so', async () => {
  await slot.stopServices();
  const operator = operatorOf(slot);
  await slot.db.query('DELETE FROM notification.holds');
  const asked = { requestedBy: 'max', reason: 'INC-9' };
  await expect(operator.producers.pause('game_master', asked)).resolves.toMatchObject({
    ...{ channel: 'producer:game_master', status: 'paused', ...asked, isWorkflowSilent: true },
  });
  expect(await heldOf()).toMatchObject({ status: 'paused', changedBy: 'max', reason: 'INC-9' });

  await slot.client.workflow.getHandle(channelWorkflowId(heldProducer('game_master'))).terminate();
  await expect(operator.producers.pause('game_master', asked)).resolves.toMatchObject({
    isWorkflowSilent: true,
  });
  await slot.startService();
  await eventually('the workflow to say so', async () => {
    const held = await heldOf();
    return held?.isWorkflowSilent === false && held.status === 'paused' && held.changedBy === 'max';
  });
});
