/** What operators do while notifications are on their way: pause and resume a channel or a producer, cancel. */
import { CancelledFailure, WorkflowFailedError, WorkflowNotFoundError } from '@temporalio/client';
import {
  INTENT_TASK_QUEUE,
  notificationWorkflowId,
  routeWorkflowId,
} from '../../workflows/intent/contract.ts';
import { operationWorkflowId } from '../../workflows/operation-contract.ts';
import { eventually, operatorOf, slotOfTests } from '../harness.ts';
import { reconcile } from '../reconcile.ts';
import { GATEWAY, MAIL, append } from '../service-process.ts';
import { entryOf, publishTurn } from './entries.ts';
import { EMAIL, PUSH, routeIn, routesOf, usersUpTo } from './rows.ts';

/** Of every service here, since they share the work: a route that failed stays as it is. */
const LONG_LADDER = {
  NOTIFICATION_ROUTE_BACKOFF_MIN: '1h',
  NOTIFICATION_ROUTE_BACKOFF_MAX: '2h',
};

const slot = slotOfTests();
beforeAll(() => slot.startService(LONG_LADDER));
afterEach(async () => {
  slot.userService.heal();
  await Promise.all([resume('push'), resume('email')]);
  // Otherwise what their streams have lost would be handed off again.
  await slot.db.query('DELETE FROM notification.records');
  await slot.redis.del(GATEWAY, MAIL);
});

type Name = 'push' | 'email';
const pause = (name: Name, reason?: string) =>
  operatorOf(slot).channels.pause(name, { requestedBy: 'nina', reason });
const resume = (name: Name, ratePerSecond?: number) =>
  operatorOf(slot).channels.resume(name, { requestedBy: 'nina', ...(ratePerSecond && { ratePerSecond }) });
const push = async () => (await operatorOf(slot).channels.list())[0]!;

const publish = (idempotencyKey: string, recipientUserIds?: string[]) =>
  publishTurn(slot.redis, idempotencyKey, recipientUserIds);

const inStatus = (id: string, route: string, status: string) => routeIn(slot, id, route, status);

const detailsOf = async (workflowId: string) => {
  const handle = slot.client.workflow.getHandle(workflowId);
  const metadata = await handle.query<{ currentDetails?: string }>('__temporal_workflow_metadata');
  return metadata.currentDetails;
};

const waitingForChannel = (id: string, route = PUSH) =>
  eventually(`${route} of ${id} to wait for its channel`, async () =>
    (await detailsOf(routeWorkflowId(id, route)))?.startsWith('Paused'),
  );

test('I26 a paused channel publishes nothing and spends nothing, the other goes on, and resuming lets the routes go', async () => {
  expect(await pause('push', 'gateway maintenance')).toMatchObject({
    channel: 'push',
    status: 'paused',
    reason: 'gateway maintenance',
    changedBy: 'nina',
  });
  const id = await publish('paused');
  await inStatus(id, EMAIL, 'published');
  await waitingForChannel(id);
  expect(await inStatus(id, PUSH, 'pending')).toMatchObject({ attempt_count: 0 });
  await eventually('the paused route by its status', async () => {
    const query = `RouteStatus = 'paused' AND NotificationId = '${id}'`;
    for await (const { workflowId } of slot.client.workflow.list({ query })) {
      return workflowId === routeWorkflowId(id, PUSH);
    }
    return undefined;
  });
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
  for (const id of held) {
    for (const route of [PUSH, EMAIL]) {
      await waitingForChannel(id, route);
      expect(await inStatus(id, route, 'pending')).toMatchObject({ attempt_count: 0 });
    }
  }
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
  const handedOff = await slot.redis.xrange(MAIL, '-', '+');
  const order = handedOff.flatMap(([, fields]) =>
    held.filter((id) => fields.some((field) => field.includes(id))),
  );
  expect(order).toEqual(longestWaiting.map(({ id }) => id));
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
  const waiting = (await pushes('pending')).length;
  expect(waiting).toBeGreaterThan(15);
  expect(await push()).toMatchObject({ status: 'paused', openRoutes: waiting });
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

const statusOf = (workflowId: string) =>
  slot.client.workflow
    .getHandle(workflowId)
    .describe()
    .then(({ status }) => status.name)
    .catch((error: unknown) => {
      if (error instanceof WorkflowNotFoundError) return undefined;
      throw error;
    });

test('I26 intent-D12 routes that waited are released also when Temporal has lost the release', async () => {
  await pause('push');
  const recipients = usersUpTo(3);
  const id = await publish('lost-drain', recipients);
  for (const user of recipients) await waitingForChannel(id, `push:user:${user}`);
  // So slowly that two are left when the workflow is lost.
  const { operationId } = await resume('push', 1);
  const { workflow } = slot.client;
  const workflowId = operationWorkflowId(operationId!);
  await workflow.getHandle(workflowId).terminate('lost');
  await slot.client.workflowService.deleteWorkflowExecution({
    namespace: workflow.options.namespace,
    workflowExecution: { workflowId },
  });
  await eventually('Temporal to have forgotten it', async () => (await statusOf(workflowId)) === undefined);
  await reconcile(slot, INTENT_TASK_QUEUE);
  for (const user of recipients) await inStatus(id, `push:user:${user}`, 'published');
  await eventually('the channel to be open', async () => (await push()).status === 'open');
});

async function cancelled(id: string): Promise<void> {
  const handle = slot.client.workflow.getHandle(notificationWorkflowId(id));
  await handle.cancel();
  const failure = await handle.result().catch((error: unknown) => error);
  expect(failure).toBeInstanceOf(WorkflowFailedError);
  expect((failure as WorkflowFailedError).cause).toBeInstanceOf(CancelledFailure);
}

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
  await cancelled(id);
  const statuses = (await routesOf(slot, id)).map(({ status }) => status);
  expect(statuses).toHaveLength(260);
  expect(new Set(statuses)).toEqual(new Set(['skipped']));
  await eventually(
    'every route to have noticed',
    async () => {
      const { count } = await slot.client.workflow.count(
        `NotificationId = '${id}' AND ExecutionStatus = 'Running'`,
      );
      return count === 0;
    },
    120_000,
  );
  expect(await slot.redis.exists(GATEWAY, MAIL)).toBe(0);
}, 180_000);

test('I85 a pause holds although no worker runs', async () => {
  await slot.stopServices();
  const { producers } = operatorOf(slot);
  const heldOf = async () => (await producers.list()).find(({ producer }) => producer === 'game_master');
  await slot.db.query('DELETE FROM notification.holds');
  const asked = { requestedBy: 'max', reason: 'INC-9' };
  const paused = { status: 'paused', changedBy: 'max', reason: 'INC-9' };
  await expect(producers.pause('game_master', asked)).resolves.toMatchObject(paused);
  expect(await heldOf()).toMatchObject(paused);

  await slot.startService(LONG_LADDER);
  const id = await publish('held-before-the-start');
  await waitingForChannel(id);
  await producers.resume('game_master');
  await inStatus(id, PUSH, 'published');
});
