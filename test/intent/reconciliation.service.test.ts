/** Work whose workflows are lost, or whose rows were put back: it is taken up by the rows. */
import { createOperator } from '../../client/operator.ts';
import type { NotificationInput } from '../../workflows/intent/contract.ts';
import {
  INTENT_TASK_QUEUE,
  NOTIFICATION_WORKFLOW,
  notificationWorkflowId,
} from '../../workflows/intent/contract.ts';
import type { Slot } from '../harness.ts';
import { eventually, takeSlot } from '../harness.ts';
import { reconcile as reconcileAll } from '../reconcile.ts';
import { GATEWAY, MAIL, deliveriesTo, outboundIds } from '../service-process.ts';
import { namespaceOf } from '../slots.ts';
import { publishTurn } from './entries.ts';

let slot: Slot;
let other: Slot | undefined;
beforeEach(async () => {
  slot = await takeSlot();
});
afterEach(async () => {
  await slot.release();
  await other?.release();
  other = undefined;
});
/** A slot whose Temporal knows nothing of the first one's work. */
const takeEmpty = async (): Promise<Slot> => (other = await takeSlot());

/** Nothing runs by itself: each test says when, and how much time has passed. */
const BY_HAND = { NOTIFICATION_RECONCILIATION_INTERVAL: '24h' };

const agoIn = (table: string, column: string) =>
  slot.db.query(
    `UPDATE ${table} SET ${column} = ${column} - interval '10 minutes' WHERE ${column} IS NOT NULL`,
  );
async function tenMinutesPass(): Promise<void> {
  await agoIn('notification.routes', 'next_attempt_at');
  await agoIn('notification.intents', 'updated_at');
}

const reconcile = (of: Slot) => reconcileAll(of, INTENT_TASK_QUEUE);

const operatorOf = ({ client, slot: number }: Slot) =>
  createOperator({
    temporal: client,
    db: slot.db,
    redis: slot.redis,
    namespace: namespaceOf(number),
    intentsStream: 'notification:intents',
  });

const inStatus = (ids: string[], channel: string, status: string) =>
  eventually(`${channel} of ${ids.join(', ')} to be ${status}`, async () => {
    const { rows } = await slot.db.query(
      'SELECT FROM notification.routes WHERE notification_id = ANY ($1) AND channel = $2 AND status = $3',
      [ids, channel, status],
    );
    return rows.length === ids.length;
  });

test('I49 security-4 a Temporal that has lost everything: routes and intents that waited are taken up, once', async () => {
  const empty = await takeEmpty();
  const before = await slot.startService(BY_HAND);
  await operatorOf(slot).channels.pause('email', { requestedBy: 'test' });
  const paused = [await publishTurn(slot.redis, 'a'), await publishTurn(slot.redis, 'b')];
  await inStatus(paused, 'push', 'published');
  await inStatus(paused, 'email', 'pending');
  slot.userService.fail({ userId: 'user-9', failure: { kind: 'status', status: 503 } });
  const unresolved = await publishTurn(slot.redis, 'c', ['user-9']);
  await eventually('the intent to wait', async () => {
    const { rows } = await slot.db.query(
      "SELECT FROM notification.intents WHERE notification_id = $1 AND status = 'open' AND reason IS NOT NULL",
      [unresolved],
    );
    return rows.length === 1;
  });
  await before.stop();

  await slot.startService({ ...BY_HAND, TEMPORAL_NAMESPACE: namespaceOf(empty.slot) });
  await tenMinutesPass();
  // A paused channel is no oversight.
  expect(await reconcile(empty)).toEqual({
    overdue: 0,
    published: 0,
    restarted: 0,
    intents: 1,
    ended: 0,
    failed: 0,
  });
  slot.userService.heal();
  await operatorOf(empty).channels.resume('email', { requestedBy: 'test' });
  expect(await reconcile(empty)).toMatchObject({ published: 2, restarted: 0 });
  await inStatus([...paused, unresolved], 'email', 'published');
  await inStatus([unresolved], 'push', 'published');
  expect(await outboundIds(slot.redis)).toEqual(
    [...deliveriesTo('user-1', paused), ...deliveriesTo('user-9', [unresolved])].sort(),
  );
  expect(await reconcile(empty)).toEqual({
    overdue: 0,
    published: 0,
    restarted: 0,
    intents: 0,
    ended: 0,
    failed: 0,
  });
});

/** A try that begins beside the cancellation finds it, and the workflow completes. */
const CANCELLED_OR_COMPLETED = expect.stringMatching(/^(CANCELLED|COMPLETED)$/) as string;

/** One that waits for its recipient, cancelled then; with what its workflow was started with. */
async function cancelledWhileWaiting(key: string): Promise<NotificationInput> {
  slot.userService.fail({ userId: 'user-9', failure: { kind: 'status', status: 503 } });
  const id = await publishTurn(slot.redis, key, ['user-9']);
  await eventually('the intent to wait', async () => {
    const { rows } = await slot.db.query(
      "SELECT FROM notification.intents WHERE notification_id = $1 AND status = 'open' AND reason IS NOT NULL",
      [id],
    );
    return rows.length === 1;
  });
  const cancellation = await operatorOf(slot).notifications.cancel(id, { limitMs: 60_000 });
  expect(cancellation).toMatchObject({ status: CANCELLED_OR_COMPLETED, withoutRecord: 1 });
  slot.userService.heal();
  return { notificationId: id, notificationType: 'game.turn.ready' };
}

test('I26 I49 an intent that was cancelled before it was accepted stays so when Temporal has lost everything', async () => {
  const empty = await takeEmpty();
  const before = await slot.startService(BY_HAND);
  const cancelled = await cancelledWhileWaiting('a');
  await before.stop();

  await slot.startService({ ...BY_HAND, TEMPORAL_NAMESPACE: namespaceOf(empty.slot) });
  // With the same key, which is free.
  const after = await publishTurn(slot.redis, 'a');
  for (const channel of ['push', 'email']) await inStatus([after], channel, 'published');
  const { recovery, notifications } = operatorOf(empty);
  await recovery.start({ sinceMs: 3_600_000, outbound: [], also: [], requestedBy: 'test' });
  const { isDone, progress } = await recovery.follow({ limitMs: 60_000 });
  expect(isDone).toBe(true);
  expect([cancelled.notificationId, after]).toContain(progress?.readAgain?.upTo);
  const id = notificationWorkflowId(cancelled.notificationId);
  await expect(empty.client.workflow.getHandle(id).describe()).rejects.toThrow('not found');
  // Another process starts it all the same.
  const outcome = await empty.client.workflow.execute(NOTIFICATION_WORKFLOW, {
    ...{ workflowId: id, taskQueue: INTENT_TASK_QUEUE, args: [cancelled] },
  });
  expect(outcome).toEqual({ outcome: 'cancelled' });
  expect(await notifications.show(cancelled.notificationId)).toMatchObject({
    ...{ stage: 'ended', cancelledAt: expect.any(Date) },
  });
  expect(await outboundIds(slot.redis)).toEqual(deliveriesTo('user-1', [after]));
});

test('I49 security-5 rows that were put back behind their settling are settled again, and what was handed off is found', async () => {
  await slot.startService(BY_HAND);
  const ids = [await publishTurn(slot.redis, 'a'), await publishTurn(slot.redis, 'b')];
  for (const channel of ['push', 'email']) await inStatus(ids, channel, 'published');
  await eventually('the notifications to end', async () => {
    const states = await Promise.all(
      ids.map((id) => slot.client.workflow.getHandle(notificationWorkflowId(id)).describe()),
    );
    return states.every(({ status }) => status.name === 'COMPLETED');
  });
  await slot.db.query(
    `UPDATE notification.routes
        SET status = 'pending', attempt_count = 0, published_at = NULL, entry_id = NULL, next_attempt_at = created_at`,
  );
  await tenMinutesPass();
  expect(await reconcile(slot)).toEqual({
    overdue: 4,
    published: 4,
    restarted: 0,
    intents: 0,
    ended: 0,
    failed: 0,
  });
  for (const channel of ['push', 'email']) await inStatus(ids, channel, 'published');
  expect(await outboundIds(slot.redis)).toEqual(deliveriesTo('user-1', ids));
});

test('I49 a route that fails when it is taken up climbs the ladder in its own workflow, and one with a worker is left to it', async () => {
  const empty = await takeEmpty();
  const before = await slot.startService({
    ...BY_HAND,
    NOTIFICATION_ROUTE_BACKOFF_MIN: '5m',
    // It lasts until the streams are repaired, however long that takes.
    NOTIFICATION_PUSH_RETRY_MAX_ATTEMPTS: '1000',
    NOTIFICATION_EMAIL_RETRY_MAX_ATTEMPTS: '1000',
  });
  await slot.redis.mset(GATEWAY, 'not a stream', MAIL, 'not a stream');
  const id = await publishTurn(slot.redis, 'a');
  for (const channel of ['push', 'email']) await inStatus([id], channel, 'failed');
  await tenMinutesPass();
  expect(await reconcile(slot)).toEqual({
    overdue: 2,
    published: 0,
    restarted: 0,
    intents: 0,
    ended: 0,
    failed: 0,
  });
  await before.stop();

  await slot.startService({
    ...BY_HAND,
    TEMPORAL_NAMESPACE: namespaceOf(empty.slot),
    NOTIFICATION_ROUTE_BACKOFF_MIN: '200ms',
    NOTIFICATION_ROUTE_BACKOFF_MAX: '1s',
  });
  expect(await reconcile(empty)).toEqual({
    overdue: 2,
    published: 0,
    restarted: 2,
    intents: 0,
    ended: 0,
    failed: 0,
  });
  await slot.redis.del(GATEWAY, MAIL);
  for (const channel of ['push', 'email']) await inStatus([id], channel, 'published');
  expect(await outboundIds(slot.redis)).toEqual(deliveriesTo('user-1', [id]));
});
