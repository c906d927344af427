/**
 * Records the histories that test/histories/replay.service.test.ts replays: `npm run histories:record`. Run it after a workflow has been
 * changed on purpose, and keep the old files for as long as executions of the old code may still be open.
 */
import { writeFileSync } from 'node:fs';
import { hostname } from 'node:os';
import path from 'node:path';
import { createOperator } from '../../client/operator.ts';
import { accountCallbackWorkflowId } from '../../workflows/account-callback/contract.ts';
import { PAUSE_UPDATE, RESUME_UPDATE } from '../../workflows/hold-contract.ts';
import type { ChannelState } from '../../workflows/intent/channel-contract.ts';
import { STATE_QUERY, channelWorkflowId } from '../../workflows/intent/channel-contract.ts';
import {
  INTENT_TASK_QUEUE,
  LOOK_SIGNAL,
  REPLAY_SIGNAL,
  ROUTE_WORKFLOW,
  batchWorkflowId,
  deadLetterWorkflowId,
  notificationWorkflowId,
  routeWorkflowId,
} from '../../workflows/intent/contract.ts';
import {
  MOBILE_REPLAY_SIGNAL,
  MOBILE_PUSH_WORKFLOW,
  MOBILE_TASK_QUEUE,
  mobilePushWorkflowId,
} from '../../workflows/mobile-push/contract.ts';
import type { RecoveryInput } from '../../workflows/recovery-contract.ts';
import {
  RECONCILIATION_WORKFLOW,
  RECOVERY_WORKFLOW,
  RECOVERY_WORKFLOW_ID,
} from '../../workflows/recovery-contract.ts';
import { operationWorkflowId } from '../../workflows/operation-contract.ts';
import { repairWorkflowId } from '../../workflows/recovery-contract.ts';
import { bridgeWorkflowId } from '../../workflows/intent/reader-contract.ts';
import {
  CONFIGURE_CRAWLER_UPDATE,
  SYMBOL_REGISTRY,
  symbolConfigWorkflowId,
} from '../../workflows/symbol-config/contract.ts';
import {
  CLOSE_UPDATE,
  DELETE_CONNECTIONS_UPDATE,
  FLUSH_AND_SMP_DELETE_SIGNAL,
  OPEN_UPDATE,
  TOGGLE_CONNECTIONS_UPDATE,
  tokenWorkflowId,
} from '../../workflows/subscription/contract.ts';
import {
  DAY,
  HOUR,
  MIDNIGHT,
  MINUTE,
  day,
  hour,
  track,
  takeCallbackBench,
} from '../account-callback/callbacks.ts';
import { publishTurn } from '../intent/entries.ts';
import type { Slot } from '../harness.ts';
import { eventually, takeSlot } from '../harness.ts';
import { QUICK, withMobilePush } from '../mobile-push/jobs.ts';
import { newDevice } from '../subscription/router-agent.ts';
import { takeSubscriptionAgent } from '../subscription/agent.ts';
import { takeSymbolRegistry } from '../symbol-config/registry.ts';
import { errorOf, takeTokenAgent } from '../subscription/token-agent.ts';
import { historyToJSON } from '../sdk-internals.ts';

const GATEWAY = 'gateway:client-events';

let slot: Slot;
beforeAll(async () => {
  slot = await takeSlot();
  await slot.startService({
    NOTIFICATION_ROUTE_BACKOFF_MIN: '100ms',
    NOTIFICATION_ROUTE_BACKOFF_MAX: '200ms',
    NOTIFICATION_ROUTE_LEASE_TTL: '2s',
    NOTIFICATION_REDIS_OPERATION_TIMEOUT: '2s',
  });
});
afterAll(() => slot.release());

const publish = (idempotencyKey: string, recipientUserIds?: string[]) =>
  publishTurn(slot.redis, idempotencyKey, recipientUserIds);

const ended = (workflowId: string, { client }: Slot = slot) =>
  eventually(`${workflowId} to end`, async () => {
    const { status } = await client.workflow.getHandle(workflowId).describe();
    return status.name !== 'RUNNING';
  });

/** In the JSON that operators export from the Web UI as well. */
async function record(name: string, workflowId: string, { client }: Slot = slot): Promise<void> {
  const history = historyToJSON(await client.workflow.getHandle(workflowId).fetchHistory());
  const compact = JSON.stringify(JSON.parse(history));
  // Stack traces, identities and sticky queues name the machine that recorded.
  const anonymous = compact
    .replaceAll(`${path.join(import.meta.dirname, '../..')}/`, '')
    .replaceAll(new RegExp(`\\d+@${hostname()}`, 'g'), 'recorder');
  writeFileSync(path.join(import.meta.dirname, `${name}.json`), `${anonymous}\n`);
}

test('a notification and its routes, all well', async () => {
  const id = await publish('well', ['user-1']);
  await ended(notificationWorkflowId(id));
  await record('notification-published', notificationWorkflowId(id));
  await record('route-published', routeWorkflowId(id, 'push:user:user-1'));
});

test('a notification that waits for the User Service, and a duplicate', async () => {
  slot.userService.fail({ failure: { kind: 'status', status: 500 }, times: 2 });
  const id = await publish('waits', ['user-1']);
  await ended(notificationWorkflowId(id));
  await record('notification-waited', notificationWorkflowId(id));
});

test('a route that fails and recovers, one that is deferred, one that is dead-lettered', async () => {
  await slot.redis.set(GATEWAY, 'not a stream');
  const recovering = await publish('recovers', ['user-1']);
  await eventually('a failed attempt', async () => {
    const { rows } = await slot.db.query(
      "SELECT 1 FROM notification.routes WHERE notification_id = $1 AND status = 'failed'",
      [recovering],
    );
    return rows.length > 0;
  });
  await slot.redis.del(GATEWAY);
  await ended(routeWorkflowId(recovering, 'push:user:user-1'));
  await record('route-recovered', routeWorkflowId(recovering, 'push:user:user-1'));

  await slot.redis.set(GATEWAY, 'not a stream');
  const dying = await publish('dies', ['user-1']);
  await ended(notificationWorkflowId(dying));
  await record('route-dead-lettered', routeWorkflowId(dying, 'push:user:user-1'));
  await record('notification-with-dead-letter', notificationWorkflowId(dying));
  await slot.redis.del(GATEWAY);

  const deadLetter = slot.client.workflow.getHandle(deadLetterWorkflowId(dying, 'push:user:user-1'));
  await eventually('the dead letter to wait', async () => (await deadLetter.describe()).historyLength > 4);
  await slot.db.query('DELETE FROM notification.records WHERE notification_id = $1', [dying]);
  await deadLetter.signal(LOOK_SIGNAL);
  await ended(deadLetter.workflowId);
  await record('dead-letter', deadLetter.workflowId);
});

test('a large notification in batches: its mails go out at first, its pushes are dead-lettered', async () => {
  await slot.redis.set(GATEWAY, 'not a stream');
  const id = await publish(
    'large',
    Array.from({ length: 130 }, (_, index) => `user-${index + 1}`),
  );
  await ended(notificationWorkflowId(id));
  await record('notification-in-batches', notificationWorkflowId(id));
  await record('batch', batchWorkflowId(id, 0));
  await slot.redis.del(GATEWAY);
});

test('notifications that make first attempts themselves: all well, one route in trouble, a large one in trouble', async () => {
  const other = await takeSlot();
  try {
    await other.startService({
      NOTIFICATION_ROUTE_DISPATCH: 'on_failure',
      NOTIFICATION_ROUTE_BACKOFF_MIN: '100ms',
      NOTIFICATION_ROUTE_BACKOFF_MAX: '200ms',
    });
    const recordedAs = async (name: string, key: string, recipients: number) => {
      const users = Array.from({ length: recipients }, (_, index) => `user-${index + 1}`);
      const id = await publishTurn(other.redis, key, users);
      const handle = other.client.workflow.getHandle(notificationWorkflowId(id));
      await eventually(`${name} to end`, async () => (await handle.describe()).status.name !== 'RUNNING');
      await record(name, handle.workflowId, other);
      return id;
    };
    await recordedAs('notification-on-failure', 'well', 1);
    await other.redis.set(GATEWAY, 'not a stream');
    const id = await recordedAs('notification-on-failure-dead-letter', 'dies', 1);
    await record('route-after-first-attempt', routeWorkflowId(id, 'push:user:user-1'), other);
    const large = await recordedAs('notification-on-failure-in-batches', 'large', 130);
    await record('batch-on-failure', batchWorkflowId(large, 0), other);
  } finally {
    await other.release();
  }
});

test('a dead-lettered route that is replayed, by signal and by reset', async () => {
  await slot.redis.set(GATEWAY, 'not a stream');
  const id = await publish('replayed', ['user-1']);
  const workflowId = routeWorkflowId(id, 'push:user:user-1');
  await ended(notificationWorkflowId(id));
  await slot.client.workflow.signalWithStart(ROUTE_WORKFLOW, {
    workflowId,
    taskQueue: INTENT_TASK_QUEUE,
    args: [{ notificationId: id, routeRef: 'push:user:user-1' }],
    workflowIdReusePolicy: 'ALLOW_DUPLICATE_FAILED_ONLY',
    signal: REPLAY_SIGNAL,
    signalArgs: [{ requestedBy: 'recorder' }],
  });
  await ended(workflowId);
  await record('route-replayed-in-vain', workflowId);
  await slot.redis.del(GATEWAY);
  const { runId } = await slot.client.workflow.getHandle(workflowId).describe();
  const { events } = await slot.client.workflow.getHandle(workflowId).fetchHistory();
  const last = events!.filter((event) => event.workflowTaskCompletedEventAttributes).at(-1)!;
  await slot.client.workflowService.resetWorkflowExecution({
    namespace: slot.client.options.namespace,
    workflowExecution: { workflowId, runId },
    workflowTaskFinishEventId: last.eventId ?? null,
    requestId: runId,
    reason: 'recorded',
  });
  await ended(workflowId);
  await record('route-reset', workflowId);
});

test('a channel that is paused and resumed, and a route that waited for it', async () => {
  const push = slot.client.workflow.getHandle(channelWorkflowId('push'));
  await push.executeUpdate(PAUSE_UPDATE, { args: [{ reason: 'recorded' }] });
  const id = await publish('paused', ['user-1']);
  const workflowId = routeWorkflowId(id, 'push:user:user-1');
  await eventually('the route to wait', async () => {
    const { events } = await slot.client.workflow.getHandle(workflowId).fetchHistory();
    return events?.some((event) => event.upsertWorkflowSearchAttributesEventAttributes);
  });
  await push.executeUpdate(RESUME_UPDATE, { args: [{}] });
  await ended(workflowId);
  await eventually('the drain to end', async () => {
    const { status } = await push.query<ChannelState>(STATE_QUERY);
    return status === 'open';
  });
  await record('route-paused', workflowId);
  await record('channel', channelWorkflowId('push'));
});

test('the repair of a stream that has lost an entry', async () => {
  const id = await publish('lost', ['user-1']);
  await ended(notificationWorkflowId(id));
  await eventually('the watch to have seen it', async () => {
    const { rows } = await slot.db.query(
      `SELECT FROM notification.outbound_streams
        WHERE stream = $1
          AND last_entry_id = (SELECT max(entry_id) FROM notification.routes WHERE notification_id = $2 AND channel = 'push')`,
      [GATEWAY, id],
    );
    return rows.length === 1;
  });
  await slot.redis.del(GATEWAY);
  const workflowId = repairWorkflowId(GATEWAY);
  await ended(workflowId);
  await record('outbound-repair', workflowId);
});

test('a reconciliation', async () => {
  const run = await slot.client.workflow.start(RECONCILIATION_WORKFLOW, {
    workflowId: 'reconciliation-recorded',
    taskQueue: INTENT_TASK_QUEUE,
  });
  await run.result();
  await record('reconciliation', run.workflowId);
});

test('a notification that is cancelled, and its route', async () => {
  await slot.client.workflow.getHandle(channelWorkflowId('push')).executeUpdate(PAUSE_UPDATE, { args: [{}] });
  const id = await publish('cancelled', ['user-1']);
  const workflowId = routeWorkflowId(id, 'push:user:user-1');
  await eventually('the route to wait', async () => {
    const { events } = await slot.client.workflow.getHandle(workflowId).fetchHistory();
    return events?.some((event) => event.upsertWorkflowSearchAttributesEventAttributes);
  });
  await slot.client.workflow.getHandle(notificationWorkflowId(id)).cancel();
  await ended(notificationWorkflowId(id));
  await ended(workflowId);
  await record('notification-cancelled', notificationWorkflowId(id));
  await record('route-cancelled', workflowId);
});

test('the reader of the stream, and a retention run', async () => {
  await record('stream-bridge', bridgeWorkflowId('notification:intents'));
  const schedule = slot.client.schedule.getHandle('intent-retention');
  await schedule.trigger();
  const workflowId = await eventually('a retention run', async () => {
    const { info } = await schedule.describe();
    const [action] = info.recentActions;
    return action?.action.workflow.workflowId;
  });
  await ended(workflowId);
  await record('retention', workflowId);
});

test('mobile pushes: sent, partly, in vain and replayed, cancelled', async () => {
  const mobile = await withMobilePush(slot);
  await slot.startService({ ...QUICK, NOTIFICATION_MOBILE_SEND_ATTEMPTS: '2' });
  const recordJob = async (name: string, jobId: string) => {
    await ended(mobilePushWorkflowId(jobId));
    await record(`mobile-push-${name}`, mobilePushWorkflowId(jobId));
  };
  const down = { kind: 'error', error: 'UNAVAILABLE' } as const;

  const sent = await mobile.userWith('phone', 'tablet');
  await recordJob('sent', await mobile.publishTo(sent.userId));
  await recordJob('without-devices', await mobile.publishTo('nobody'));

  const mixed = await mobile.userWith('fine', 'stale', 'odd', 'flaky');
  slot.fcm.fail({ token: 'stale', failure: { kind: 'error', error: 'UNREGISTERED' } });
  slot.fcm.fail({ token: 'odd', failure: { kind: 'error', error: 'INVALID_ARGUMENT' } });
  slot.fcm.fail({ token: 'flaky', failure: down, times: 1 });
  await recordJob('partial', await mobile.publishTo(mixed.userId));

  const { userId } = await mobile.userWith('down');
  slot.fcm.fail({ token: 'down', failure: down });
  const failed = await mobile.publishTo(userId);
  await recordJob('failed', failed);
  slot.fcm.heal();
  await slot.client.workflow.signalWithStart(MOBILE_PUSH_WORKFLOW, {
    workflowId: mobilePushWorkflowId(failed),
    taskQueue: MOBILE_TASK_QUEUE,
    args: [{ jobId: failed }],
    workflowIdReusePolicy: 'ALLOW_DUPLICATE_FAILED_ONLY',
    signal: MOBILE_REPLAY_SIGNAL,
  });
  await recordJob('replayed', failed);

  const cancelled = await mobile.userWith('cancelled');
  slot.fcm.fail({ token: 'cancelled', failure: { ...down, retryAfter: '60' } });
  const jobId = await mobile.publishTo(cancelled.userId);
  await eventually('the first attempt', async () => mobile.requests()['cancelled'] === 1);
  await slot.client.workflow.getHandle(mobilePushWorkflowId(jobId)).cancel();
  await recordJob('cancelled', jobId);
});

test('a recovery of all kinds of work', async () => {
  await slot.startService({
    NOTIFICATION_ROLES: 'intent,mobile-push',
    NOTIFICATION_ROUTE_LEASE_TTL: '1s',
    NOTIFICATION_REDIS_OPERATION_TIMEOUT: '1s',
  });
  const id = await publishTurn(slot.redis, 'recovered');
  await eventually('a look at the stream', async () => {
    const { rows } = await slot.db.query('SELECT FROM notification.inbound_streams WHERE passed_id = $1', [
      id,
    ]);
    return rows.length === 1;
  });
  const recovery = await slot.client.workflow.start(RECOVERY_WORKFLOW, {
    workflowId: RECOVERY_WORKFLOW_ID,
    taskQueue: INTENT_TASK_QUEUE,
    args: [
      {
        ...{ stream: 'notification:intents', outbound: [GATEWAY], sinceMs: 60_000 },
        ...{ also: ['mobile-push'], requestedBy: 'recorded' },
      } satisfies RecoveryInput,
    ],
  });
  await recovery.result();
  await record('recovery', RECOVERY_WORKFLOW_ID);
});

test('an operation that is paused, resumed and comes to its end', async () => {
  await slot.startService({
    NOTIFICATION_ROUTE_BACKOFF_MIN: '50ms',
    NOTIFICATION_ROUTE_BACKOFF_MAX: '100ms',
  });
  await slot.redis.set(GATEWAY, 'not a stream');
  const id = await publishTurn(slot.redis, 'operation', ['user-1', 'user-2', 'user-3']);
  const operator = createOperator({
    ...{ temporal: slot.client, db: slot.db, redis: slot.redis },
    namespace: slot.client.options.namespace,
    intentsStream: 'notification:intents',
  });
  await eventually('dead routes', async () => {
    const groups = await operator.replays.preview({ notificationId: id });
    return groups[0]?.routes === 3;
  });
  const { operationId } = await operator.operations.replay(
    { notificationId: id },
    { requestedBy: 'recorded', ratePerSecond: 1 },
  );
  await operator.operations.pause(operationId, { requestedBy: 'recorded' });
  await operator.operations.resume(operationId, { requestedBy: 'recorded' });
  await ended(operationWorkflowId(operationId));
  await record('operation', operationWorkflowId(operationId));
  const goesOn = routeWorkflowId(id, 'push:user:user-1');
  await ended(goesOn);
  await record('route-after-attempt-of-operation', goesOn);
});

test('symbol configuration that changes, fails at some targets, recovers and is reconciled', async () => {
  const registry = await takeSymbolRegistry();
  const { handle, targets } = registry;
  const service = await registry.startService({
    NOTIFICATION_SYMBOL_RETRY_LADDER: '200ms,400ms,1h',
    NOTIFICATION_RECONCILIATION_INTERVAL: '333ms',
  });
  await registry.settled();
  targets.fail({ target: 'us-east-collector', failure: { kind: 'hang' } });
  targets.fail({ target: 'us-east-alert-1', failure: { kind: 'status', status: 500 }, times: 3 });
  await registry.write(['LINK']);
  await registry.tell();
  await eventually('a round that a transaction holds up', async () =>
    targets.targets.some(({ name }) => targets.held(name).version === 2),
  );
  await registry.write(['ARB']);
  await registry.tell();
  await eventually('the next change beside it', async () => targets.held('us-east-alert-2').version === 3);
  targets.heal();
  await registry.settled();
  await handle.executeUpdate(CONFIGURE_CRAWLER_UPDATE, { args: [{ enabled: true, intervalMs: 1_000 }] });
  await targets.loseState('us-east-alert-3');
  await eventually('a crawl', async () => targets.held('us-east-alert-3').source === 'push');
  await registry.settled();
  await service.stop();
  await record('symbol-config', symbolConfigWorkflowId(SYMBOL_REGISTRY), registry.slot);
  await registry.release();
});

test('account callbacks of an hour and a day, with one that hangs, one that is retried and one that is dropped', async () => {
  const bench = await takeCallbackBench();
  await bench.store([
    ...['fine', 'hangs', 'recovers', 'down'].flatMap((user) => [
      track(user, MIDNIGHT - DAY),
      hour(user, MIDNIGHT - HOUR),
      ...(user === 'fine' ? [] : [day(user, MIDNIGHT - DAY)]),
    ]),
  ]);
  bench.portfolio.fail({ userId: 'hangs', failure: { kind: 'hang' }, times: 1 });
  bench.portfolio.fail({ userId: 'recovers', failure: { kind: 'reset' }, times: 1 });
  bench.portfolio.fail({ userId: 'down', failure: { kind: 'status', status: 500 } });
  await bench.setClock(MIDNIGHT + 10 * MINUTE);
  const service = await bench.startService({
    NOTIFICATION_HTTP_TIMEOUT: '2s',
    NOTIFICATION_CALLBACK_RETRY_LADDER: '200ms,400ms',
  });
  await eventually('an alarm that waits for a day', async () => {
    const { nextAlarm } = await bench.status();
    return nextAlarm?.interval === 'waiting';
  });
  await bench.store([day('fine', MIDNIGHT - DAY)]);
  await bench.runNow();
  await eventually('all to be settled', async () => {
    const { dropped, nextAlarm } = await bench.status();
    return dropped === 2 && nextAlarm?.interval === 'steady';
  });
  await bench.runNow();
  await service.stop();
  await record('account-callback', accountCallbackWorkflowId(0), bench.slot);
  await bench.release();
});

test('a token that is registered, verified, taken over, refused and deleted', async () => {
  const agent = await takeTokenAgent({ smp: 0 });
  const service = await agent.startWith();
  const tokens = agent.tokensOf('recorded');
  await agent.activate(tokens, 'INSTANT');
  await Promise.all([tokens.check(), tokens.register(tokens.device, 'PERIODIC')]);
  await errorOf(tokens.check(newDevice()));
  agent.routers.ntf[0]!.fail({ failure: { kind: 'reset' }, subject: 'TCRN', times: 1 });
  await tokens.register(tokens.device, 'INSTANT');
  await agent.activate(tokens, 'PERIODIC', newDevice());
  await tokens.delete();
  await service.stop();
  await record('subscription-token', tokenWorkflowId('recorded'), agent.slot);
  await agent.release();
});

test('subscriptions: keys that fail for now, checks, a record given up, an agent that is flushed and closed', async () => {
  const agent = await takeSubscriptionAgent();
  await agent.start({ NOTIFICATION_SUBSCRIPTION_FIRST_CHECK: '2s' });
  await agent.activateToken();
  const [smp] = agent.routers.smp;
  const [ntf] = agent.routers.ntf;
  const server = smp!.address;
  const ofPool = (pool: 'ntf-smp' | 'ntf-ntf') =>
    agent.worker(pool, pool === 'ntf-smp' ? server : ntf!.address);

  smp!.fail({ failure: { kind: 'reset' }, subject: 'NKEY', times: 2 });
  const connIds = await agent.create([
    { userId: 1, server },
    { userId: 2, server },
  ]);
  await agent.active(connIds);
  await ended(ofPool('ntf-smp').workflowId, agent.slot);
  await record('subscription-worker-retried', ofPool('ntf-smp').workflowId, agent.slot);

  ntf!.fail({ failure: { kind: 'error', code: 'QUOTA' }, subject: 'SCHK', times: 1 });
  await eventually('a check', async () =>
    (await agent.records()).some(({ status }) => status === 'CREATED ACTIVE'),
  );
  await agent.command('create', connIds);
  await agent.idle();
  await agent.create([{ userId: 3, server }]);
  await agent.operator().subscriptions.routers();
  await agent.update(TOGGLE_CONNECTIONS_UPDATE, { connIds: [connIds[1]], enable: false });
  await agent.active([connIds[0]!]);
  await record('subscription-worker-waiting', ofPool('ntf-ntf').workflowId, agent.slot);
  await agent.update(DELETE_CONNECTIONS_UPDATE, { connIds: [connIds[1]] });
  await agent.update(CLOSE_UPDATE);
  await ended(ofPool('ntf-ntf').workflowId, agent.slot);
  await record('subscription-worker-closed', ofPool('ntf-ntf').workflowId, agent.slot);
  await agent.update(OPEN_UPDATE);
  await agent.supervisor.signal(FLUSH_AND_SMP_DELETE_SIGNAL);
  await eventually('the end of all subscriptions', async () => (await agent.records()).length === 0);
  await agent.idle();
  await record('subscription-supervisor', agent.supervisor.workflowId, agent.slot);
  const change = await eventually('its changes to be listed', async () => {
    const changes = agent.slot.client.workflow.list({ query: "WorkflowType = 'subscriptionChange'" });
    for await (const { workflowId } of changes) return workflowId;
    return undefined;
  });
  await record('subscription-change', change, agent.slot);

  await agent.release();
});

test('a subscription worker that dies, is woken again, and goes on in another run', async () => {
  const agent = await takeSubscriptionAgent();
  await agent.start();
  await agent.activateToken();
  const [smp] = agent.routers.smp;
  const worker = agent.worker('ntf-smp', smp!.address);
  smp!.fail({ failure: { kind: 'reset' }, subject: 'NKEY' });
  const [connId] = await agent.create([{ userId: 1, server: smp!.address }]);
  const { runId } = await eventually('its worker', () => worker.describe());
  await eventually('its next run', async () => (await worker.describe()).runId !== runId, 60_000);
  smp!.heal();
  await agent.active([connId!]);
  await ended(worker.workflowId, agent.slot);
  await record('subscription-worker-continued', worker.workflowId, agent.slot);

  await agent.rows("UPDATE subscriptions.ntf_tokens SET auth_private_key = 'broken'");
  const [second] = await agent.create([{ userId: 1, server: smp!.address }]);
  const dying = agent.worker('ntf-ntf', agent.routers.ntf[0]!.address);
  await eventually('a death', async () => (await agent.events()).length > 0, 60_000);
  await eventually('its end', async () => (await dying.describe()).status.name === 'COMPLETED', 90_000);
  await record('subscription-worker-died', dying.workflowId, agent.slot);
  expect(await agent.record(second!)).toMatchObject({ status: 'KEY' });
  await agent.release();
}, 240_000);
