/** Work whose workflows are lost, or whose rows were put back: it is taken up by the rows. */
import { intentReconciliation } from '../../activities/intent/reconciliation.ts';
import { INTENT_TASK_QUEUE, notificationWorkflowId } from '../../workflows/intent/contract.ts';
import type { Slot } from '../harness.ts';
import { eventually, operatorOf as operatorWith, takeSlot, slotOfEachTest } from '../harness.ts';
import { reconcile as reconcileAll } from '../reconcile.ts';
import { GATEWAY, MAIL, deliveriesTo, outboundIds } from '../service-process.ts';
import { namespaceOf } from '../slots.ts';
import { publishTurn } from './entries.ts';
import { bothPublished, countOf, resultOf, untilStatuses } from './rows.ts';

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

test('I49 security-4 a Temporal that has lost everything: routes and intents that waited are taken up, once', async () => {
  const empty = await takeEmpty();
  const before = await slot.startService(BY_HAND);
  await operatorOf(slot).channels.pause('email', { requestedBy: 'test' });
  const paused = [await publishTurn(slot.redis, 'a'), await publishTurn(slot.redis, 'b')];
  for (const id of paused) await untilStatuses(slot, id, 'pending', 'published');
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
  await bothPublished(slot, [...paused, unresolved]);
  expect(await outboundIds(slot.redis)).toEqual(
    [...deliveriesTo('user-1', paused), ...deliveriesTo('user-9', [unresolved])].sort(),
  );
  expect(await reconcile(empty)).toEqual(NOTHING);
});

test('I49 I52 security-5 routes that PostgreSQL has forgotten to be published are settled again, also while their notification waits, and what was handed off is found', async () => {
  await slot.startService({ ...BY_HAND, NOTIFICATION_ROUTE_DISPATCH: 'on_failure' });
  const ended = await publishTurn(slot.redis, 'a');
  expect(await resultOf(slot, ended)).toMatchObject({ published: 2 });
  await operatorOf(slot).channels.pause('email', { requestedBy: 'test' });
  const waits = await publishTurn(slot.redis, 'b');
  await untilStatuses(slot, waits, 'pending', 'published');
  await eventually('the notification to wait for the e-mail', async () => {
    const { raw } = await slot.client.workflow.getHandle(notificationWorkflowId(waits)).describe();
    return raw.pendingActivities?.some(({ activityType }) => activityType?.name === 'awaitAllSettled');
  });
  await slot.db.query(
    `UPDATE notification.routes
        SET status = 'pending', attempt_count = 0, published_at = NULL, entry_id = NULL, next_attempt_at = created_at
      WHERE channel = 'push'`,
  );
  await tenMinutesPass();
  expect(await reconcile(slot)).toEqual({ ...NOTHING, overdue: 2, published: 2 });
  await operatorOf(slot).channels.resume('email', { requestedBy: 'test' });
  expect(await resultOf(slot, waits)).toMatchObject({ published: 2 });
  expect(await outboundIds(slot.redis)).toEqual(deliveriesTo('user-1', [ended, waits]));
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
  await untilStatuses(slot, id, 'mail_stream_publish_failed', 'gateway_stream_publish_failed');
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
