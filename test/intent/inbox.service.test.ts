/** Promises that intents keep from the stream to their end, whatever decides about them in between. */
import type { SliceActivities } from '../../activities/intent/slices.ts';
import type { SteeringActivities } from '../../activities/intent/steering.ts';
import type { NotificationInput } from '../../workflows/intent/contract.ts';
import { RETENTION_SCHEDULE_ID, notificationWorkflowId } from '../../workflows/intent/contract.ts';
import { bridgeWorkflowId } from '../../workflows/intent/reader-contract.ts';
import { CANCEL_INTENT_SIGNAL } from '../../workflows/intent/slice-contract.ts';
import type { Slot } from '../harness.ts';
import { eventually, operatorOf, takeSlot } from '../harness.ts';
import { outboundIds } from '../service-process.ts';
import { mayUse } from '../redis-users.ts';
import type { Fakes } from '../workflow-tier.ts';
import { hold, startWorkflow } from '../workflow-tier.ts';
import { publishTurn, turn } from './entries.ts';

let slot: Slot;
beforeEach(async () => {
  slot = await takeSlot();
});
afterEach(() => slot.release());

const messagesTo = async (userId: string): Promise<string[]> =>
  (await outboundIds(slot.redis)).filter((id) => id.endsWith(`:user:${userId}`));

/** As a push event and an e-mail. */
const handedOff = (userId: string) =>
  eventually(`messages to ${userId}`, async () => (await messagesTo(userId)).length >= 2);

test.failing(
  'intent-2 a key that retention has freed is free, and what had it is not sent again',
  async () => {
    const operator = operatorOf(slot);
    await slot.startService();
    const before = await publishTurn(slot.redis, 'again', ['user-1']);
    await handedOff('user-1');
    await slot.client.workflow.getHandle(notificationWorkflowId(before)).result();
    await slot.db.query(
      `UPDATE notification.records
        SET accepted_at = now() - interval '721 hours', idempotency_expires_at = now() - interval '1 hour'`,
    );
    await slot.client.schedule.getHandle(RETENTION_SCHEDULE_ID).trigger();
    await eventually('the record to be deleted', async () => {
      const { rowCount } = await slot.db.query('SELECT FROM notification.records');
      return rowCount === 0;
    });
    await publishTurn(slot.redis, 'again', ['user-2']);
    await eventually('the new intent to be known', async () => {
      const { answers } = await operator.why('user-2');
      return answers.some(({ kind }) => kind === 'intent');
    });
    const { answers } = await operator.why('user-1');
    expect(answers.map(({ cause }) => cause)).not.toContain('waiting_for_acceptance');
    await handedOff('user-2');
    expect(await messagesTo('user-1')).toHaveLength(2);
  },
);

test.failing('intent-6 intents that are cancelled while others get workflows are not delivered', async () => {
  const intents = ['1-0', '2-0', '3-0'].map((notificationId): NotificationInput => ({
    ...{ notificationId, notificationType: 'game.turn.ready', producer: 'game_master', audienceKind: 'user' },
    ...{ recipientUserIds: ['user-1'], idempotencyKey: notificationId, occurredAtMs: 1, payloadJson: '{}' },
  }));
  const begun = hold<void>();
  const counts = { accepted: 1, duplicates: 0, rejected: 0 };
  const run = await startWorkflow('notificationSlice', [{ slice: '1-0', intents }], {
    activities: {
      deliverSlice: () => ({ ...counts, open: ['2-0'], waiting: ['3-0'] }),
      beginNotifications: () => begun,
      skipOpenRoutes: () => undefined,
    } satisfies Fakes<SliceActivities & SteeringActivities>,
  });
  await run.advance();
  run.signal(CANCEL_INTENT_SIGNAL, '2-0');
  run.signal(CANCEL_INTENT_SIGNAL, '3-0');
  await run.advance();
  begun.release();
  await run.result();
  expect(run.calls('skipOpenRoutes').map(({ args }) => args)).toEqual([
    ['2-0', expect.anything()],
    ['3-0', expect.anything()],
  ]);
});

test.failing('intent-9 only the stream that is configured is read', async () => {
  await mayUse(slot.redis, 'notify-intent', 'notification:renamed');
  await slot.startService();
  await publishTurn(slot.redis, 'before', ['user-1']);
  await handedOff('user-1');
  await slot.stopServices();
  await slot.startService({ NOTIFICATION_INTENTS_STREAM: 'notification:renamed' });
  await slot.redis.xadd('notification:renamed', '*', ...turn({ idempotency_key: 'after' }).flat());
  await handedOff('user-2');
  const { status } = await slot.client.workflow
    .getHandle(bridgeWorkflowId('notification:intents'))
    .describe();
  expect(status.name).not.toBe('RUNNING');
});
