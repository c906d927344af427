/** A notification with more routes than one parent should have. */
import { newGameTurnReady, publishIntent } from '../../client/notificationintent.ts';
import {
  MAX_CHILDREN_PER_PARENT,
  batchWorkflowId,
  notificationWorkflowId,
} from '../../workflows/intent/contract.ts';
import type { Slot } from '../harness.ts';
import { DISPATCH, eventually, takeSlot } from '../harness.ts';

const RECIPIENTS = 150;

let slot: Slot;
beforeAll(async () => {
  slot = await takeSlot();
  await slot.startService();
});
afterAll(() => slot.release());

test('I41 a large notification is published by batches, each route once, and its own history stays short', async () => {
  expect(2 * RECIPIENTS).toBeGreaterThan(MAX_CHILDREN_PER_PARENT);
  const id = await publishIntent(
    slot.redis,
    newGameTurnReady({
      idempotencyKey: 'large',
      occurredAt: Date.now(),
      recipientUserIds: Array.from({ length: RECIPIENTS }, (_, index) => `user-${index + 1}`),
      payload: { game_id: 'g', game_name: 'G', turn_number: 1 },
    }),
  );
  const handle = await eventually('the notification to be started', async () => {
    const started = slot.client.workflow.getHandle(notificationWorkflowId(id));
    return (await started.describe()) && started;
  });
  expect(await handle.result()).toEqual({
    outcome: 'accepted',
    published: 2 * RECIPIENTS,
    skipped: 0,
    deadLettered: 0,
  });
  const delivered = async (stream: string, field: string) =>
    (await slot.redis.xrange(stream, '-', '+')).map(([, fields]) => fields[fields.indexOf(field) + 1]!);
  const pushes = await delivered('gateway:client-events', 'event_id');
  const mails = await delivered('mail:delivery_commands', 'delivery_id');
  expect(new Set([...pushes, ...mails]).size).toBe(2 * RECIPIENTS);
  expect(pushes).toHaveLength(RECIPIENTS);
  expect(mails).toHaveLength(RECIPIENTS);

  expect((await handle.fetchHistory()).events!.length).toBeLessThan(40);
  const batches = [0, 1].map((batch) => slot.client.workflow.getHandle(batchWorkflowId(id, batch)));
  if (DISPATCH === 'on_failure') {
    for (const batch of batches) await expect(batch.describe()).rejects.toThrow('not found');
    return;
  }
  expect(await Promise.all(batches.map((batch) => batch.result()))).toEqual([
    { published: 200, skipped: 0, deadLettered: 0 },
    { published: 100, skipped: 0, deadLettered: 0 },
  ]);
});
