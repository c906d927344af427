/** Work whose workflows are lost, or whose rows were put back: it is taken up by the rows. */
import { intentReconciliation } from '../../activities/intent/reconciliation.ts';
import type { NotificationInput } from '../../workflows/intent/contract.ts';
import {
  INTENT_TASK_QUEUE,
  NOTIFICATION_WORKFLOW,
  notificationWorkflowId,
} from '../../workflows/intent/contract.ts';
import type { Slot } from '../harness.ts';
import { eventually, operatorOf as operatorWith, takeSlot, slotOfEachTest } from '../harness.ts';
import { reconcile as reconcileAll } from '../reconcile.ts';
import { GATEWAY, MAIL, deliveriesTo, outboundIds } from '../service-process.ts';
import { namespaceOf } from '../slots.ts';
import { publishTurn } from './entries.ts';
import { bothPublished, countOf, resultOf } from './rows.ts';

const slot = slotOfEachTest();
let other: Slot | undefined;
afterEach(async () => {
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

const NOTHING = { overdue: 0, published: 0, restarted: 0, intents: 0, ended: 0, failed: 0 };
const reconcile = (of: Slot) => reconcileAll(of, INTENT_TASK_QUEUE);

const operatorOf = ({ client, slot: number }: Slot) => operatorWith({ ...slot, client, slot: number });

const waiting = (id: string) =>
  eventually('the intent to wait', async () => {
    const where = "notification_id = $1 AND status = 'open' AND reason IS NOT NULL";
    return (await countOf(slot, 'intents', where, [id])) === 1;
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
  await waiting(unresolved);
  await before.stop();

  await slot.startService({ ...BY_HAND, TEMPORAL_NAMESPACE: namespaceOf(empty.slot) });
  await tenMinutesPass();
  // A paused channel is no oversight.
  expect(await reconcile(empty)).toEqual({ ...NOTHING, intents: 1 });
  slot.userService.heal();
  await operatorOf(empty).channels.resume('email', { requestedBy: 'test' });
  expect(await reconcile(empty)).toMatchObject({ published: 2, restarted: 0 });
  await inStatus([...paused, unresolved], 'email', 'published');
  await inStatus([unresolved], 'push', 'published');
  expect(await outboundIds(slot.redis)).toEqual(
    [...deliveriesTo('user-1', paused), ...deliveriesTo('user-9', [unresolved])].sort(),
  );
  expect(await reconcile(empty)).toEqual(NOTHING);
});

/** A try that begins beside the cancellation finds it, and the workflow completes. */
const CANCELLED_OR_COMPLETED = expect.stringMatching(/^(CANCELLED|COMPLETED)$/) as string;

/** One that waits for its recipient, cancelled then; with what its workflow was started with. */
async function cancelledWhileWaiting(key: string): Promise<NotificationInput> {
  slot.userService.fail({ userId: 'user-9', failure: { kind: 'status', status: 503 } });
  const id = await publishTurn(slot.redis, key, ['user-9']);
  await waiting(id);
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
  await bothPublished(slot, [after]);
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
  await bothPublished(slot, ids);
  for (const id of ids) await resultOf(slot, id);
  await slot.db.query(
    `UPDATE notification.routes
        SET status = 'pending', attempt_count = 0, published_at = NULL, entry_id = NULL, next_attempt_at = created_at`,
  );
  await tenMinutesPass();
  expect(await reconcile(slot)).toEqual({ ...NOTHING, overdue: 4, published: 4 });
  await bothPublished(slot, ids);
  expect(await outboundIds(slot.redis)).toEqual(deliveriesTo('user-1', ids));
});

test('I49 I52 a route that PostgreSQL has forgotten to be published is taken up while its notification waits for another one', async () => {
  await slot.startService({ ...BY_HAND, NOTIFICATION_ROUTE_DISPATCH: 'on_failure' });
  await operatorOf(slot).channels.pause('email', { requestedBy: 'test' });
  const id = await publishTurn(slot.redis, 'a');
  await inStatus([id], 'push', 'published');
  await eventually('the notification to wait for the e-mail', async () => {
    const { raw } = await slot.client.workflow.getHandle(notificationWorkflowId(id)).describe();
    return raw.pendingActivities?.some(({ activityType }) => activityType?.name === 'awaitAllSettled');
  });
  await slot.db.query(
    `UPDATE notification.routes
        SET status = 'pending', attempt_count = 0, published_at = NULL, entry_id = NULL, next_attempt_at = created_at
      WHERE channel = 'push'`,
  );
  await tenMinutesPass();
  expect(await reconcile(slot)).toEqual({ ...NOTHING, overdue: 1, published: 1 });
  await operatorOf(slot).channels.resume('email', { requestedBy: 'test' });
  expect(await resultOf(slot, id)).toMatchObject({ published: 2 });
  expect(await outboundIds(slot.redis)).toEqual(deliveriesTo('user-1', [id]));
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
  expect(await reconcile(slot)).toEqual({ ...NOTHING, overdue: 2 });
  await before.stop();

  await slot.startService({
    ...BY_HAND,
    TEMPORAL_NAMESPACE: namespaceOf(empty.slot),
    NOTIFICATION_ROUTE_BACKOFF_MIN: '200ms',
    NOTIFICATION_ROUTE_BACKOFF_MAX: '1s',
  });
  expect(await reconcile(empty)).toEqual({ ...NOTHING, overdue: 2, restarted: 2 });
  await slot.redis.del(GATEWAY, MAIL);
  await bothPublished(slot, [id]);
  expect(await outboundIds(slot.redis)).toEqual(deliveriesTo('user-1', [id]));
});

/** Routes of a producer that were due so many minutes ago. */
async function plantOverdue(producer: string, minutes: number, count: number): Promise<void> {
  await slot.db.query(
    `INSERT INTO notification.records (notification_id, notification_type, producer, audience_kind, recipient_user_ids,
       payload_json, idempotency_key, request_fingerprint, occurred_at, accepted_at, updated_at, idempotency_expires_at)
     SELECT $1 || n, 'game.turn.ready', $1, 'user', '["u"]', '{}', $1 || n, 'f', now(), now(), now(), now() + interval '1 day'
       FROM generate_series(1, $2::int) AS n`,
    [producer, count],
  );
  await slot.db.query(
    `INSERT INTO notification.routes (notification_id, route_id, channel, recipient_ref, status, max_attempts,
       created_at, updated_at, next_attempt_at)
     SELECT notification_id, 'push:user:u', 'push', 'user:u', 'pending', 3, now(), now(), now() - $2::int * interval '1 minute'
       FROM notification.records WHERE producer = $1`,
    [producer, minutes],
  );
}

test('intent-8 work is found behind more held routes than a page has', async () => {
  const { db, redis } = slot;
  const [routes] = intentReconciliation({ db, redis } as Parameters<typeof intentReconciliation>[0]);
  /** As a process of the role looks for them. */
  const isWorkOverdue = async () => (await routes!.page(undefined, 1)).length > 0;
  await slot.db.query(
    "INSERT INTO notification.holds (kind, name, is_paused, changed_by, changed_at) VALUES ('producer', 'game_master', true, 'test', now())",
  );
  await plantOverdue('game_master', 60, 600);
  expect(await isWorkOverdue()).toBe(false);
  await plantOverdue('lobby', 10, 1);
  expect(await isWorkOverdue()).toBe(true);
});
