/** What operators do while notifications are on their way: pause and resume a channel or a producer, cancel. */
import { CancelledFailure, WorkflowFailedError } from '@temporalio/client';
import type { ChannelState, HeldName } from '../../workflows/intent/channel-contract.ts';
import { channelWorkflowId, heldProducer } from '../../workflows/intent/channel-contract.ts';
import { notificationWorkflowId, routeWorkflowId } from '../../workflows/intent/contract.ts';
import { eventually, operatorOf, slotOfTests } from '../harness.ts';
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

const channel = (name: HeldName) => slot.client.workflow.getHandle(channelWorkflowId(name));
const pause = (name: HeldName, reason?: string) =>
  channel(name).executeUpdate<ChannelState, [object]>('pause', { args: [{ requestedBy: 'nina', reason }] });
const resume = (name: HeldName, ratePerSecond?: number) =>
  channel(name).executeUpdate<ChannelState, [object]>('resume', {
    args: [{ requestedBy: 'nina', ratePerSecond }],
  });

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

test('I26 intent-P6 a paused channel publishes nothing and spends nothing, the other goes on, and resuming lets the routes go', async () => {
  const paused = await pause('push', 'gateway maintenance');
  expect(paused).toMatchObject({
    ...{ channel: 'push', status: 'paused', reason: 'gateway maintenance', requestedBy: 'nina' },
  });
  // Which routes a resume lets go is decided by one clock, of PostgreSQL.
  const { rows: holds } = await slot.db.query<{ ms: number }>(
    "SELECT (extract(epoch FROM changed_at) * 1000)::bigint::float8 AS ms FROM notification.holds WHERE name = 'push'",
  );
  expect(holds).toEqual([{ ms: paused.sinceMs }]);
  expect(await detailsOf(channelWorkflowId('push'))).toBe(
    'Paused by nina: new routes wait until it is resumed.\n\ngateway maintenance',
  );
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

  expect(await resume('push')).toMatchObject({
    status: 'draining',
    drain: { ratePerSecond: 50, released: 0 },
  });
  expect(await inStatus(id, PUSH, 'published')).toMatchObject({ attempt_count: 1, next_attempt_at: null });
  expect(await slot.redis.xlen(GATEWAY)).toBe(1);
  await eventually('the channel to be open', async () => {
    const state = await channel('push').query<ChannelState>('state');
    return state.status === 'open' && state.drain?.released === 1;
  });
});

test('I85 nothing of a paused producer is published, others go on, and resuming lets its routes go in their order', async () => {
  const GAME_MASTER = 'producer:game_master';
  expect(await pause(GAME_MASTER, 'release 4.2 sends doubles')).toMatchObject({
    channel: GAME_MASTER,
    status: 'paused',
    requestedBy: 'nina',
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
  expect(await operatorOf(slot).producers.list()).toContainEqual(
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
  await resume(GAME_MASTER, 2);
  for (const id of held) for (const route of [PUSH, EMAIL]) await inStatus(id, route, 'published');
  const handedOff = await slot.redis.xrange(MAIL, '-', '+');
  const order = handedOff.flatMap(([, fields]) =>
    held.filter((id) => fields.some((field) => field.includes(id))),
  );
  expect(order).toEqual(longestWaiting.map(({ id }) => id));
  await eventually('the producer to be open', async () => {
    const state = await channel(GAME_MASTER).query<ChannelState>('state');
    return state.status === 'open' && state.drain?.released === 6;
  });
});

test('I26 waiting routes drain at the rate that was asked for, and a pause in between stops the drain', async () => {
  await pause('push');
  const recipients = usersUpTo(24);
  const id = await publish('drain', recipients);
  for (const user of recipients) await waitingForChannel(id, `push:user:${user}`);
  const pushes = async (status: string) =>
    (await routesOf(slot, id)).filter((row) => row.route_id.startsWith('push:') && row.status === status);

  await resume('push', 2);
  await eventually('the first to be published', async () => (await pushes('published')).length > 0);
  await pause('push');
  const waiting = (await pushes('pending')).length;
  expect(waiting).toBeGreaterThan(15);
  expect(await channel('push').query<ChannelState>('state')).toMatchObject({ status: 'paused' });

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

test('I26 intent-D12 a drain goes on in the workflow that is started when its own was lost', async () => {
  await pause('push');
  const recipients = usersUpTo(3);
  const id = await publish('lost-drain', recipients);
  for (const user of recipients) await waitingForChannel(id, `push:user:${user}`);
  // So slowly that one, at most two, are let go before the workflow is lost.
  await resume('push', 0.05);
  await channel('push').terminate('lost');
  await slot.db.query('UPDATE notification.holds SET drain_rate = 100 WHERE drain_rate IS NOT NULL');
  await slot.startService(LONG_LADDER);
  for (const user of recipients) await inStatus(id, `push:user:${user}`, 'published');
  await eventually('the channel to be open', async () => {
    const { rows } = await slot.db.query<{ drain_rate: number | null }>(
      "SELECT drain_rate FROM notification.holds WHERE kind = 'channel' AND name = 'push'",
    );
    return rows[0]?.drain_rate === null;
  });
});

async function cancelled(id: string): Promise<void> {
  const handle = slot.client.workflow.getHandle(notificationWorkflowId(id));
  await handle.cancel();
  const failure = await handle.result().catch((error: unknown) => error);
  expect(failure).toBeInstanceOf(WorkflowFailedError);
  expect((failure as WorkflowFailedError).cause).toBeInstanceOf(CancelledFailure);
}

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

test('I85 a pause holds although no worker takes it, and the workflow finds it so', async () => {
  await slot.stopServices();
  const { producers } = operatorOf(slot);
  const heldOf = async () => (await producers.list()).find(({ producer }) => producer === 'game_master');
  await slot.db.query('DELETE FROM notification.holds');
  const asked = { requestedBy: 'max', reason: 'INC-9' };
  await expect(producers.pause('game_master', asked)).resolves.toMatchObject({
    ...{ channel: 'producer:game_master', status: 'paused', ...asked },
  });
  expect(await heldOf()).toMatchObject({ status: 'paused', changedBy: 'max', reason: 'INC-9' });

  await slot.client.workflow.getHandle(channelWorkflowId(heldProducer('game_master'))).terminate();
  await expect(producers.pause('game_master', asked)).resolves.toMatchObject({
    status: 'paused',
  });
  await slot.startService(LONG_LADDER);
  await eventually('the workflow to say so', async () => {
    const state = await channel('producer:game_master').query<ChannelState>('state');
    return state.status === 'paused' && state.requestedBy === 'max';
  });
  await resume(heldProducer('game_master'));
});
