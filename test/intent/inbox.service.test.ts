/** Promises that intents keep from the stream to their end, whatever decides about them in between. */
import { notificationWorkflowId } from '../../workflows/intent/contract.ts';
import { bridgeWorkflowId } from '../../workflows/intent/reader-contract.ts';
import type { Slot } from '../harness.ts';
import { eventually, operatorOf, takeSlot } from '../harness.ts';
import { outboundIds } from '../service-process.ts';
import { mayUse } from '../redis-users.ts';
import { holdAnswers } from '../../dev/stand-ins/failure-scripts.ts';
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

test('intent-2 a key that retention has freed is free, and what had it is not sent again', async () => {
  const operator = operatorOf(slot);
  await slot.startService();
  const before = await publishTurn(slot.redis, 'again', ['user-1']);
  await handedOff('user-1');
  await slot.client.workflow.getHandle(notificationWorkflowId(before)).result();
  await slot.db.query(
    `UPDATE notification.records
        SET accepted_at = now() - interval '721 hours', idempotency_expires_at = now() - interval '1 hour'`,
  );
  await slot.client.schedule.getHandle('intent-retention').trigger();
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
});

test('intent-6 intents that are cancelled while others are delivered together are not delivered', async () => {
  const operator = operatorOf(slot);
  const lookups = holdAnswers();
  slot.userService.fail({ failure: lookups.failure });
  await slot.startService({
    ...{ NOTIFICATION_ROUTE_DISPATCH: 'direct', NOTIFICATION_USER_SERVICE_TIMEOUT: '1m' },
  });
  const ids: string[] = [];
  for (const user of ['user-1', 'user-2', 'user-3']) ids.push(await publishTurn(slot.redis, user, [user]));
  await lookups.arrived;
  await eventually('three open rows', async () => {
    const { rowCount } = await slot.db.query("SELECT FROM notification.intents WHERE status = 'open'");
    return rowCount === 3;
  });
  for (const id of ids.slice(1)) await operator.notifications.cancel(id, { limitMs: 30_000 });
  lookups.release();
  await handedOff('user-1');
  await eventually('no intent to be open', async () => {
    const { rowCount } = await slot.db.query("SELECT FROM notification.intents WHERE status = 'open'");
    return rowCount === 0;
  });
  expect(await messagesTo('user-2')).toEqual([]);
  expect(await messagesTo('user-3')).toEqual([]);
});

test('intent-9 only the stream that is configured is read', async () => {
  await mayUse(slot.redis, 'notify-intent', 'notification:renamed');
  await slot.startService();
  await publishTurn(slot.redis, 'before', ['user-1']);
  await handedOff('user-1');
  await slot.stopServices();
  await slot.startService({ NOTIFICATION_INTENTS_STREAM: 'notification:renamed' });
  await slot.redis.xadd('notification:renamed', '*', ...turn({ idempotency_key: 'after' }).flat());
  await handedOff('user-2');
  const reader = slot.client.workflow.getHandle(bridgeWorkflowId('notification:intents'));
  await eventually('the other reader to end', async () => {
    const { status } = await reader.describe();
    return status.name === 'CANCELLED';
  });
});
