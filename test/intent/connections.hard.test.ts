/** Connections that die without a word, and attempts that come too late. */
import { once } from 'node:events';
import type { AddressInfo, Socket } from 'node:net';
import net from 'node:net';
import { metrics } from '@opentelemetry/api';
import { createRouteActivities } from '../../activities/intent/routes.ts';
import { createIntentMetrics } from '../../activities/intent/metrics.ts';
import { createReplication, defineHandOffCommands } from '../../activities/intent/hand-off.ts';
import { createLogger } from '../../workers/logger.ts';
import { routeWorkflowId } from '../../workflows/intent/contract.ts';
import { publishTurn } from './entries.ts';
import type { Slot } from '../harness.ts';
import { eventually, takeSlot, untilStarted } from '../harness.ts';
import { GALAXY } from '../../api/intent/galaxy.ts';

const GATEWAY = 'gateway:client-events';
const PUSH = 'push:user:user-1';

let slot: Slot;
beforeAll(async () => {
  slot = await takeSlot();
});
afterAll(() => slot.release());

const publish = (idempotencyKey: string, recipientUserIds?: string[]) =>
  publishTurn(slot.redis, idempotencyKey, recipientUserIds);

async function routeOf(id: string) {
  const { rows } = await slot.db.query<{ status: string; attempt_count: number; updated_at: Date }>(
    'SELECT status, attempt_count, updated_at FROM notification.routes WHERE notification_id = $1 AND route_id = $2',
    [id, PUSH],
  );
  return rows[0];
}

const published = (id: string) =>
  eventually(`${id} to be published`, async () => {
    const row = await routeOf(id);
    return row?.status === 'published' && row;
  });

/** Stands between the service and Redis. Frozen connections stay open and carry nothing, as behind a lost route. */
async function startProxy(to: { host: string; port: number }) {
  const open = new Set<[Socket, Socket]>();
  const server = net.createServer((inbound) => {
    const outbound = net.connect(to.port, to.host);
    const pair: [Socket, Socket] = [inbound, outbound];
    open.add(pair);
    inbound.pipe(outbound).pipe(inbound);
    for (const socket of pair) {
      socket.on('error', () => undefined);
      // A frozen pair is not piped any more: neither side ends with the other by itself.
      socket.on('close', () => {
        open.delete(pair);
        for (const one of pair) one.destroy();
      });
    }
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    port: (server.address() as AddressInfo).port,
    /** New connections work. */
    freezeOpenConnections(): number {
      for (const [inbound, outbound] of open) {
        inbound.unpipe(outbound).resume();
        outbound.unpipe(inbound).resume();
      }
      return open.size;
    },
    async stop(): Promise<void> {
      server.close();
      for (const pair of open) for (const socket of pair) socket.destroy();
      await once(server, 'close');
    },
  };
}

test('I1 a connection to Redis that dies without a word is noticed and replaced, the reader’s own as well', async () => {
  const proxy = await startProxy(slot.endpoints.redis);
  const service = await slot.startService(
    // More than the default: how many attempts meet the dead connection is not what is asked here.
    { NOTIFICATION_PUSH_RETRY_MAX_ATTEMPTS: '1000', NOTIFICATION_ROUTE_BACKOFF_MAX: '1s' },
    { redis: { host: '127.0.0.1', port: proxy.port } },
  );
  try {
    await published(await publish('before'));
    expect(proxy.freezeOpenConnections()).toBeGreaterThanOrEqual(2);
    await published(await publish('after'));
    expect(await slot.redis.xlen(GATEWAY)).toBe(2);
  } finally {
    await service.stop();
    await proxy.stop();
  }
});

test('I23 an attempt that comes back late overwrites nothing, and what it handed off is not handed off again', async () => {
  const service = await slot.startService({
    // No second attempt comes before its workflow is terminated.
    NOTIFICATION_ROUTE_BACKOFF_MIN: '1h',
    NOTIFICATION_ROUTE_BACKOFF_MAX: '2h',
  });
  await slot.redis.set(GATEWAY, 'not a stream');
  const id = await publish('late');
  await eventually('a failed attempt', async () => (await routeOf(id))?.status === 'failed');
  const route = slot.client.workflow.getHandle(routeWorkflowId(id, PUSH));
  await untilStarted(route);
  await route.terminate('the test makes the attempts itself');
  await service.stop();
  await slot.redis.del(GATEWAY);

  const redis = slot.redis.duplicate();
  defineHandOffCommands(redis);
  const activities = (db = slot.db) =>
    createRouteActivities({
      workflows: slot.client.workflow,
      db,
      redis,
      log: createLogger('fatal'),
      confirmReplicated: createReplication(redis, { minReplicas: 0, timeoutMs: 1_000 }),
      catalog: GALAXY,
      metrics: createIntentMetrics(metrics.getMeter('test'), GALAXY),
      route: {
        gatewayStream: GATEWAY,
        gatewayMaxLen: 1024,
        mailStream: 'mail',
        backoffMinMs: 1,
        backoffMaxMs: 1,
        leaseTtlMs: 60_000,
      },
    });
  try {
    const key = { notificationId: id, routeRef: PUSH };
    // Sleeps between the hand-off and its statement, while another process touches the row.
    const sleepy = Object.create(slot.db) as typeof slot.db;
    sleepy.query = (async (statement: { name: string }) => {
      if (statement.name.startsWith('settle_routes')) {
        await slot.db.query(
          'UPDATE notification.routes SET updated_at = clock_timestamp() WHERE notification_id = $1',
          [id],
        );
      }
      return slot.db.query(statement as never);
    }) as never;
    expect(await activities(sleepy).publishRoute(key)).toMatchObject({
      status: 'deferred',
      reason: 'leased',
    });
    expect(await routeOf(id)).toMatchObject({ status: 'failed', attempt_count: 1 });
    expect(await slot.redis.xlen(GATEWAY)).toBe(1);

    expect(await activities().publishRoute(key)).toEqual({ status: 'published' });
    expect(await routeOf(id)).toMatchObject({ status: 'published', attempt_count: 2 });
    expect(await slot.redis.xlen(GATEWAY)).toBe(1);
  } finally {
    redis.disconnect();
  }
});
