/** Work whose workflows are lost is taken up by the rows, and what a store has forgotten that was put back is done again. */
import { intentReconciliation } from '../../activities/intent/reconciliation.ts';
import {
  INTENT_TASK_QUEUE,
  REPLAY_SIGNAL,
  notificationWorkflowId,
  routeWorkflowId,
} from '../../workflows/intent/contract.ts';
import type { Slot } from '../harness.ts';
import { eventually, operatorOf as operatorWith, takeSlot, slotOfEachTest } from '../harness.ts';
import { keepRows, untilWorkflowsEnd } from '../put-back.ts';
import { reconcile as reconcileAll } from '../reconcile.ts';
import { GATEWAY, MAIL, OFFSET_KEY, deliveriesTo, outboundIds } from '../service-process.ts';
import { namespaceOf } from '../slots.ts';
import { publishTurn } from './entries.ts';
import {
  EMAIL,
  PUSH,
  bothPublished,
  countOf,
  plantRecords,
  refusalOf,
  resultOf,
  routeIn,
  untilIntent,
  untilLogged,
  untilStatuses,
} from './rows.ts';

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

async function tenMinutesPass(): Promise<void> {
  for (const [table, column] of [
    ['routes', 'next_attempt_at'],
    ['intents', 'updated_at'],
  ])
    await slot.db.query(`UPDATE notification.${table} SET ${column} = ${column} - interval '10 minutes'`);
}

const NOTHING = { overdue: 0, published: 0, restarted: 0, intents: 0, ended: 0, failed: 0 };
const reconcile = (of: Slot) => reconcileAll(of, INTENT_TASK_QUEUE);

const operatorOf = ({ client, slot: number }: Slot) => operatorWith({ ...slot, client, slot: number });

test('I49 security-4 a Temporal that has lost everything: routes and intents that waited are taken up, once', async () => {
  const empty = await takeEmpty();
  const before = await slot.startService(BY_HAND);
  await operatorOf(slot).channels.pause('email', { requestedBy: 'test' });
  const paused = [await publishTurn(slot.redis, 'a'), await publishTurn(slot.redis, 'b')];
  for (const id of paused) await untilStatuses(slot, id, 'pending', 'published');
  slot.userService.fail({ userId: 'user-9', failure: { kind: 'status', status: 503 } });
  const unresolved = await publishTurn(slot.redis, 'c', ['user-9']);
  await eventually('the intent to wait', async () => {
    const where = "notification_id = $1 AND status = 'open' AND reason IS NOT NULL";
    return (await countOf(slot, 'intents', where, [unresolved])) === 1;
  });
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

test('intent-8 work is found behind more held routes than a page has', async () => {
  const { db, redis } = slot;
  const [routes] = intentReconciliation({ db, redis } as Parameters<typeof intentReconciliation>[0]);
  /** As a process of the role looks for them. */
  const isWorkOverdue = async () => (await routes!.page(undefined, 1)).length > 0;
  await slot.db.query(
    "INSERT INTO notification.holds (kind, name, is_paused, changed_by, changed_at) VALUES ('producer', 'game_master', true, 'test', now())",
  );
  await plantRecords(slot, 'held-', 600, { overdue: '1 hour' });
  expect(await isWorkOverdue()).toBe(false);
  await plantRecords(slot, 'late-', 1, { producer: 'lobby', overdue: '10 minutes' });
  expect(await isWorkOverdue()).toBe(true);
});

const QUICK = { NOTIFICATION_RECONCILIATION_INTERVAL: '1s' };

/** Until an intent is refused because another one has its key. */
const refused = async (id: string, by: string) =>
  expect(await refusalOf(slot, id)).toMatchObject({ conflicts_with: by });
/** Until a look has written down where the reader is. */
const lookedAt = (id: string) =>
  eventually(
    `a look that has seen ${id}`,
    async () => (await countOf(slot, 'inbound_streams', 'passed_id = $1', [id])) === 1,
  );

test('I52 security-5 intents that PostgreSQL has forgotten are accepted again, the same ones, and nothing is handed off twice', async () => {
  await slot.startService(QUICK);
  const before = [await publishTurn(slot.redis, 'a')];
  await bothPublished(slot, before);
  await lookedAt(before[0]!);
  const { putBack } = await keepRows(slot.db);
  const after = [await publishTurn(slot.redis, 'b'), await publishTurn(slot.redis, 'c')];
  const loser = await publishTurn(slot.redis, 'c', ['user-2']);
  await bothPublished(slot, after);
  await refused(loser, after[1]!);
  await untilWorkflowsEnd(slot, [...after, loser]);
  await lookedAt(loser);
  await putBack();

  await bothPublished(slot, [...before, ...after]);
  await refused(loser, after[1]!);
  await untilLogged(slot, { msg: 'stream finding', kind: 'postgres_regressed' });
  expect(await outboundIds(slot.redis)).toEqual(deliveriesTo('user-1', [...before, ...after]));
  // It knows their keys again.
  await refused(await publishTurn(slot.redis, 'b', ['user-2']), after[0]!);
});

test('I52 security-5 an intent whose workflow goes on without its record is begun again when that ends', async () => {
  await slot.startService({
    ...QUICK,
    NOTIFICATION_ROUTE_BACKOFF_MIN: '1h',
    NOTIFICATION_ROUTE_BACKOFF_MAX: '2h',
  });
  const first = await publishTurn(slot.redis, 'a');
  await bothPublished(slot, [first]);
  await lookedAt(first);
  const { putBack } = await keepRows(slot.db);
  await slot.redis.rename(GATEWAY, 'kept');
  await slot.redis.set(GATEWAY, 'not a stream');
  const id = await publishTurn(slot.redis, 'b');
  await routeIn(slot, id, EMAIL, 'published');
  await routeIn(slot, id, PUSH, 'failed');
  await lookedAt(id);
  await slot.redis.rename('kept', GATEWAY);
  await putBack();
  await untilIntent(slot, id, 'open');
  await slot.client.workflow.getHandle(routeWorkflowId(id, PUSH)).signal(REPLAY_SIGNAL, {});
  await untilWorkflowsEnd(slot, [id]);
  // Another one with its key comes after it, although its workflow has ended.
  const later = await publishTurn(slot.redis, 'b', ['user-2']);
  await untilIntent(slot, later, 'open');
  await slot.db.query(
    "UPDATE notification.intents SET updated_at = updated_at - interval '3 minutes' WHERE notification_id = $1",
    [id],
  );
  await bothPublished(slot, [first, id]);
  await refused(later, id);
  expect(await outboundIds(slot.redis)).toEqual(deliveriesTo('user-1', [first, id]));
});

test('I52 intent-D14 a copy of the offset that is lost is written again, and nothing is read again', async () => {
  const before = await slot.startService(QUICK);
  const old = [await publishTurn(slot.redis, 'a'), await publishTurn(slot.redis, 'b')];
  await bothPublished(slot, old);
  await lookedAt(old[1]!);
  await before.stop();
  // Retention has removed all that is known of the first.
  await slot.db.query('DELETE FROM notification.records WHERE notification_id = $1', [old[0]]);
  await slot.redis.del(OFFSET_KEY);
  await slot.startService(QUICK);
  // Also while nothing new comes: gauges look there, and the next reader must not find the same loss.
  await eventually('the offset to be there again', async () => (await slot.redis.get(OFFSET_KEY)) === old[1]);
  const next = await publishTurn(slot.redis, 'c');
  await bothPublished(slot, [next]);
  expect(slot.logs.filter(({ msg }) => msg === 'stream is read again')).toEqual([]);
  expect(await outboundIds(slot.redis)).toEqual(deliveriesTo('user-1', [...old, next]));
});
