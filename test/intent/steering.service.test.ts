/**
 * What operators do while notifications are on their way: pause and resume a channel or a producer, cancel, and publish dead
 * routes again, by signal, by reset, by a new start; never one that was published.
 */
import { CancelledFailure, WorkflowNotFoundError } from '@temporalio/client';
import {
  DEAD_LETTER_WORKFLOW,
  LOOK_SIGNAL,
  deadLetterWorkflowId,
  notificationWorkflowId,
  routeWorkflowId,
} from '../../workflows/intent/contract.ts';
import { operationWorkflowId } from '../../workflows/operation-contract.ts';
import { eventually, operatorOf, slotOfTests, stackOfRun } from '../harness.ts';
import { GATEWAY, MAIL, append, deliveriesTo, outboundIds } from '../service-process.ts';
import { entryOf, publishTurn } from './entries.ts';
import {
  EMAIL,
  PUSH,
  entriesOf,
  publishDead,
  replayRoute,
  routeIn,
  routesOf,
  untilPaused,
  usersUpTo,
} from './rows.ts';

const slot = slotOfTests();
beforeAll(() =>
  slot.startService({
    NOTIFICATION_ROUTE_BACKOFF_MIN: '20ms',
    NOTIFICATION_ROUTE_BACKOFF_MAX: '40ms',
  }),
);
afterEach(async () => {
  slot.userService.heal();
  await Promise.all([resume('push'), resume('email')]);
  // Otherwise what their streams have lost would be handed off again.
  await slot.db.query('DELETE FROM notification.records');
  await slot.redis.del(GATEWAY, MAIL);
});

const UNTRIED = { status: 'pending', attempt_count: 0 };

type Name = 'push' | 'email';
const pause = (name: Name, reason?: string) =>
  operatorOf(slot).channels.pause(name, { requestedBy: 'nina', reason });
const resume = (name: Name, ratePerSecond?: number) =>
  operatorOf(slot).channels.resume(name, { requestedBy: 'nina', ...(ratePerSecond && { ratePerSecond }) });
const push = async () => (await operatorOf(slot).channels.list())[0]!;

const publish = (idempotencyKey: string, recipientUserIds?: string[]) =>
  publishTurn(slot.redis, idempotencyKey, recipientUserIds);

const inStatus = (id: string, route: string, status: string) => routeIn(slot, id, route, status);

const waitingForChannel = (id: string, route = PUSH) => untilPaused(slot, id, route);

/** Ids of the workflows that a list shows. */
const listed = async (query: string): Promise<string[]> => {
  const found: string[] = [];
  for await (const { workflowId } of slot.client.workflow.list({ query })) found.push(workflowId);
  return found;
};

test('I26 a paused channel publishes nothing and spends nothing, the other goes on, and resuming lets the routes go', async () => {
  expect(await pause('push', 'gateway maintenance')).toMatchObject({
    ...{ channel: 'push', status: 'paused', reason: 'gateway maintenance', changedBy: 'nina' },
  });
  const id = await publish('paused');
  await inStatus(id, EMAIL, 'published');
  await waitingForChannel(id);
  expect(await inStatus(id, PUSH, 'pending')).toMatchObject({ attempt_count: 0 });
  const paused = `RouteStatus = 'paused' AND NotificationId = '${id}'`;
  await eventually('the paused route by its status', async () => (await listed(paused)).length > 0);
  expect(await listed(paused)).toEqual([routeWorkflowId(id, PUSH)]);
  expect(await slot.redis.exists(GATEWAY)).toBe(0);

  const { operationId, ...resumed } = await resume('push');
  expect(resumed).toMatchObject({ status: 'draining', ratePerSecond: 50, openRoutes: 1 });
  expect(await inStatus(id, PUSH, 'published')).toMatchObject({ attempt_count: 1, next_attempt_at: null });
  expect(await slot.redis.xlen(GATEWAY)).toBe(1);
  await eventually('the channel to be open', async () => (await push()).status === 'open');
  expect(await operatorOf(slot).operations.show(operationId!)).toMatchObject({
    ...{ kind: 'release', filter: { channel: 'push' }, status: 'done', done: 1, ordered: 1 },
  });
});

test('I85 nothing of a paused producer is published, others go on, and resuming lets its routes go in their order', async () => {
  const { producers, operations } = operatorOf(slot);
  const asked = { requestedBy: 'nina', reason: 'release 4.2 sends doubles' };
  expect(await producers.pause('game_master', asked)).toMatchObject({
    ...{ producer: 'game_master', status: 'paused', changedBy: 'nina' },
  });
  const held = [await publish('held-1'), await publish('held-2'), await publish('held-3')];
  const ofLobby = { idempotency_key: 'of-another', recipient_user_ids_json: '["user-1"]' };
  const [ofOther] = (await append(slot.redis, [entryOf('lobby.race_name.registered', ofLobby)])) as [string];
  for (const route of [PUSH, EMAIL]) await inStatus(ofOther, route, 'published');
  for (const id of held) for (const route of [PUSH, EMAIL]) await waitingForChannel(id, route);
  for (const id of held) expect(await routesOf(slot, id)).toMatchObject([UNTRIED, UNTRIED]);
  expect(await producers.list()).toContainEqual(
    expect.objectContaining({
      ...{ producer: 'game_master', status: 'paused', openRoutes: 6 },
      ...{ changedBy: 'nina', reason: 'release 4.2 sends doubles' },
    }),
  );

  await slot.redis.del(GATEWAY, MAIL);
  // Intents that come within moments are accepted in any order.
  const { rows: longestWaiting } = await slot.db.query<{ id: string }>(
    `SELECT notification_id AS id FROM notification.routes WHERE notification_id = ANY ($1) AND channel = 'email'
      ORDER BY next_attempt_at`,
    [held],
  );
  const { operationId } = await producers.resume('game_master', { ratePerSecond: 2 });
  for (const id of held) for (const route of [PUSH, EMAIL]) await inStatus(id, route, 'published');
  const mails = await entriesOf(slot, MAIL);
  const order = mails.map((fields) => String(fields['delivery_id']).split('/')[0]!);
  // The watch may hand off again what the other one lost with the stream.
  expect(order.filter((id) => held.includes(id))).toEqual(longestWaiting.map(({ id }) => id));
  expect(await operations.follow(operationId!, { limitMs: 20_000 })).toMatchObject({ done: 6, ordered: 6 });
});

test('I26 waiting routes drain at the rate that was asked for, and a pause in between stops the drain', async () => {
  await pause('push');
  const recipients = usersUpTo(24);
  const id = await publish('drain', recipients);
  for (const user of recipients) await waitingForChannel(id, `push:user:${user}`);
  const pushes = async (status: string) =>
    (await routesOf(slot, id)).filter((row) => row.route_id.startsWith('push:') && row.status === status);

  const { operationId } = await resume('push', 2);
  await eventually('the first to be published', async () => (await pushes('published')).length > 0);
  await pause('push');
  // An attempt that was under way may still end.
  await eventually('what waits to be counted', async () => {
    const { status, openRoutes } = await push();
    return status === 'paused' && openRoutes > 15 && openRoutes === (await pushes('pending')).length;
  });
  expect(await operatorOf(slot).operations.show(operationId!)).toMatchObject({ status: 'aborted' });

  const publishedBefore = (await pushes('published')).length;
  await resume('push', 8);
  await eventually('all to be published', async () => (await pushes('published')).length === 24);
  const times = (await pushes('published'))
    .map(({ published_at }) => published_at!.getTime())
    .sort((left, right) => left - right)
    .slice(publishedBefore);
  // So slowly that a busy machine does not take as long by itself; half, since it may be late with the first.
  expect(times.at(-1)! - times[0]!).toBeGreaterThan(((times.length - 2) / 8) * 1_000 * 0.5);
  expect(await slot.redis.xlen(GATEWAY)).toBe(24);
});

test('I26 a release that was paused by itself outlasts the next pause, and is ended by an operator', async () => {
  const { operations } = operatorOf(slot);
  await pause('push');
  const id = await publish('paused-release', usersUpTo(3));
  for (const user of usersUpTo(3)) await waitingForChannel(id, `push:user:${user}`);
  const { operationId } = await resume('push', 1);
  await operations.pause(operationId!);
  await pause('push');
  expect(await operations.abort(operationId!)).toMatchObject({ operationId });
  const workflow = slot.client.workflow.getHandle(operationWorkflowId(operationId!));
  expect(await workflow.result()).toMatchObject({ status: 'aborted' });
});

test('I26 I43 intent-D3 cancelling a notification with many routes skips all of them', async () => {
  await Promise.all([pause('push'), pause('email')]);
  const id = await publish('cancel-large', usersUpTo(130));
  // Some wait for their channels by then, others have not even been started.
  await waitingForChannel(id, EMAIL);
  const handle = slot.client.workflow.getHandle(notificationWorkflowId(id));
  await handle.cancel();
  await expect(handle.result()).rejects.toMatchObject({ cause: expect.any(CancelledFailure) as Error });
  const statuses = (await routesOf(slot, id)).map(({ status }) => status);
  expect(statuses).toHaveLength(260);
  expect(new Set(statuses)).toEqual(new Set(['skipped']));
  const running = `NotificationId = '${id}' AND ExecutionStatus = 'Running'`;
  const isOver = async () => (await slot.client.workflow.count(running)).count === 0;
  await eventually('every route to have noticed', isOver, 120_000);
  expect(await slot.redis.exists(GATEWAY, MAIL)).toBe(0);
}, 180_000);

const replaysOf = async (id: string) => (await operatorOf(slot).notifications.show(id)).replays;

/** A push route that has spent its budget, and its ended workflow. */
async function deadLetter(key: string): Promise<string> {
  const id = await publishDead(slot, key);
  await eventually('the route workflow to have failed', async () => {
    const { status } = await slot.client.workflow.getHandle(routeWorkflowId(id, PUSH)).describe();
    return status.name === 'FAILED';
  });
  return id;
}

/** What the Web UI does when an operator presses Reset at the first point: the same request to the same server. */
async function resetInWebUi(workflowId: string): Promise<void> {
  const handle = slot.client.workflow.getHandle(workflowId);
  const [{ runId }, { events }] = await Promise.all([handle.describe(), handle.fetchHistory()]);
  const { uiUrl } = stackOfRun();
  const page = await fetch(uiUrl);
  const [cookie = ''] = page.headers
    .getSetCookie()
    .filter((text) => text.startsWith('_csrf='))
    .map((text) => text.split(';')[0]!);
  const { namespace } = slot.client.options;
  const url = `${uiUrl}/api/v1/namespaces/${namespace}/workflows/${encodeURIComponent(workflowId)}/reset`;
  const response = await fetch(url, {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      'caller-type': 'operator',
      'x-csrf-token': cookie.slice('_csrf='.length),
      cookie,
    },
    body: JSON.stringify({
      workflowExecution: { workflowId, runId },
      workflowTaskFinishEventId: String(
        events!.find(({ workflowTaskCompletedEventAttributes }) => workflowTaskCompletedEventAttributes)!
          .eventId,
      ),
      reason: 'the gateway is back',
      requestId: crypto.randomUUID(),
    }),
  });
  if (!response.ok)
    throw new Error(`the Web UI's server answered ${response.status}: ${await response.text()}`);
}

test('I25 resetting a notification replays its dead-lettered route and leaves the published one alone', async () => {
  const id = await deadLetter('reset-notification');
  const workflowId = notificationWorkflowId(id);
  await slot.client.workflow.getHandle(workflowId).result();
  await slot.redis.del(GATEWAY);
  await resetInWebUi(workflowId);
  await inStatus(id, PUSH, 'published');
  expect(await slot.client.workflow.getHandle(workflowId).result()).toEqual({
    ...{ outcome: 'accepted', published: 2, skipped: 0, deadLettered: 0 },
  });
  expect(await outboundIds(slot.redis)).toEqual(deliveriesTo('user-1', [id]));
});

const deadLettersInTemporal = () =>
  listed(
    operatorOf(slot)
      .views()
      .find(({ name }) => name === 'Dead letters')!.query,
  );
const untilListed = (ids: string[]) =>
  eventually(`the dead letters ${ids.join(', ')} alone to be listed`, async () => {
    const found = (await deadLettersInTemporal()).map((workflowId) => workflowId.split('/')[1]!).sort();
    if (found.join() === ids.toSorted().join()) return true;
    throw new Error(`these are: ${found.join(', ')}`);
  });

test('I25 newcomer-2 the list of dead letters in the Web UI loses a route that is replayed by a request to Temporal alone, by command, by filter or by a reset, and no other', async () => {
  // The rows of other tests are gone, of which nothing tells.
  const running = `WorkflowType = '${DEAD_LETTER_WORKFLOW}' AND ExecutionStatus = 'Running'`;
  for (const workflowId of await listed(running)) {
    const isOver = (error: unknown) => expect(error).toBeInstanceOf(WorkflowNotFoundError);
    await slot.client.workflow.getHandle(workflowId).signal(LOOK_SIGNAL).catch(isOver);
  }
  await untilListed([]);

  const bySignal = await deadLetter('signal');
  const byCommand = await deadLetter('command');
  const byFilter = await deadLetter('filter');
  const byReset = await deadLetter('reset');
  const dead = await deadLetter('none');
  const all = [bySignal, byCommand, byFilter, byReset, dead];
  await untilListed(all);
  // One that dies again stays.
  await replayRoute(slot, dead, PUSH);
  await eventually('the second death', async () => (await replaysOf(dead)).length === 1);
  await inStatus(dead, PUSH, 'dead_letter');
  await untilListed(all);
  await slot.redis.del(GATEWAY);

  const order = { requestedBy: 'nina', reason: 'gateway is back' };
  await replayRoute(slot, bySignal, PUSH, order);
  await inStatus(bySignal, PUSH, 'published');
  expect(await replaysOf(bySignal)).toMatchObject([{ generation: 1, ...order }]);
  await untilListed([byCommand, byFilter, byReset, dead]);

  const { operations } = operatorOf(slot);
  await operations.begin('replay', { notificationId: byCommand, routeId: PUSH }, order);
  await inStatus(byCommand, PUSH, 'published');
  await untilListed([byFilter, byReset, dead]);

  const failure = 'gateway_stream_publish_failed';
  await operations.begin('replay', { notificationId: byFilter, failure }, order);
  await inStatus(byFilter, PUSH, 'published');
  await untilListed([byReset, dead]);

  await resetInWebUi(routeWorkflowId(byReset, PUSH));
  await inStatus(byReset, PUSH, 'published');
  expect(await replaysOf(byReset)).toMatchObject([{ generation: 1, requestedBy: 'reset' }]);
  await untilListed([dead]);

  // What happened stays to be found, and so does who did it.
  const own = `NotificationId IN (${all.map((id) => `'${id}'`).join(', ')}) AND UserId = 'user-1'`;
  await eventually('the notifications with dead routes', async () => {
    const found = await listed(`${own} AND WorkflowType = 'notification' AND DeadRoutes = 1`);
    return found.length === 5;
  });
  expect(await listed(`${own} AND FailureClassification = '${failure}' AND ${running}`)).toEqual([
    deadLetterWorkflowId(dead, PUSH),
  ]);
});
