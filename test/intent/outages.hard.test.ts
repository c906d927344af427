/**
 * The acceptance of the intent pipeline, from outside: Redis and PostgreSQL go away while the service works, and come back.
 * What an outage may cost is the budget of routes that Redis does not take, and nothing else.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import type { EmbeddedRedis } from '../../dev/servers/redis.ts';
import { startRedis } from '../../dev/servers/redis.ts';
import { notificationWorkflowId } from '../../workflows/intent/contract.ts';
import { turn } from './entries.ts';
import { countOf, replayRoute } from './rows.ts';
import { dispatch, eventually, slotOfEachTest } from '../harness.ts';
import {
  GATEWAY,
  allPublished,
  append,
  deliveriesTo,
  nothingLeftRunning,
  outboundIds,
  routeCounts,
  fleetOfEachTest,
} from '../service-process.ts';

/** Everything must arrive in the end: gaps between attempts grow to 30 s, and the machine may be busy. */
const LIMIT_MS = 180_000;
const TEST_LIMIT_MS = 480_000;
/** Longer than several of the gaps, and than what a connection would sit out by itself; half a minute once is enough. */
const OUTAGE_MS = dispatch() === 'child' ? 30_000 : 12_000;

const slot = slotOfEachTest();
const fleet = fleetOfEachTest(() => slot);

const publish = (redis: Redis, prefix: string, count: number) =>
  append(
    redis,
    Array.from({ length: count }, (_, index) =>
      turn({ idempotency_key: `${prefix}-${index}`, recipient_user_ids_json: '["user-1"]' }),
    ),
  );

describe('Redis', () => {
  const CHANNELS = [
    { route: 'push:user:user-1', classification: 'gateway_stream_publish_failed', maxAttempts: 3 },
    { route: 'email:user:user-1', classification: 'mail_stream_publish_failed', maxAttempts: 7 },
  ];

  let dataDir: string;
  let server: EmbeddedRedis;
  let redis: Redis;
  const startServer = (port: number) => startRedis({ dataDir, port, durable: true, report: () => undefined });

  beforeEach(async () => {
    dataDir = mkdtempSync(path.join(tmpdir(), 'galaxy-notify-redis-'));
    server = await startServer(0);
    redis = new Redis(Number(server.addr.split(':')[1]), '127.0.0.1');
    redis.on('error', () => undefined);
  });
  afterEach(async () => {
    redis.disconnect();
    await fleet.killAll();
    await server.stop();
    rmSync(dataDir, { recursive: true, force: true });
  });

  /** Holds intents in acceptance, so that it is the outage which finds their routes. */
  async function acceptWithoutRedis(count: number): Promise<string[]> {
    slot.userService.fail({ failure: { kind: 'status', status: 503 } });
    const ids = await publish(redis, 'outage', count);
    for (const id of ids) {
      await eventually(
        `${id} to wait for the User Service`,
        async () => {
          const { raw } = await slot.client.workflow.getHandle(notificationWorkflowId(id)).describe();
          return Boolean(raw.pendingActivities?.[0]?.lastFailure);
        },
        LIMIT_MS,
      );
    }
    await server.stop();
    slot.userService.heal();
    return ids;
  }

  test(
    'I21 I22 I25 routes that Redis does not take spend their budgets, and are replayed when it is back',
    async () => {
      const service = await fleet.start({
        NOTIFICATION_REDIS_MASTER_ADDR: server.addr,
        NOTIFICATION_REDIS_DB: '0',
        NOTIFICATION_ROUTE_BACKOFF_MIN: '200ms',
        NOTIFICATION_ROUTE_BACKOFF_MAX: '1s',
      });
      const ids = await acceptWithoutRedis(4);

      await eventually(
        'all routes to be dead-lettered',
        async () => (await countOf(slot, 'routes', "status = 'dead_letter'")) === 2 * ids.length,
        LIMIT_MS,
      );
      expect(service.isRunning()).toBe(true);
      const { rows: deadLetters } = await slot.db.query(
        `SELECT notification_id, route_id, final_attempt_count, max_attempts, failure_classification
           FROM notification.dead_letters`,
      );
      const expected = ids.flatMap((id) =>
        CHANNELS.map(({ route, classification, maxAttempts }) => ({
          notification_id: id,
          route_id: route,
          final_attempt_count: maxAttempts,
          max_attempts: maxAttempts,
          failure_classification: classification,
        })),
      );
      expect(deadLetters).toHaveLength(expected.length);
      expect(deadLetters).toEqual(expect.arrayContaining(expected));

      server = await startServer(Number(server.addr.split(':')[1]));
      const after = await publish(redis, 'after', 5);
      await eventually(
        'new intents to flow',
        async () => (await routeCounts(slot))['published after 1'] === 2 * after.length,
        LIMIT_MS,
      );
      expect(await outboundIds(redis)).toEqual(deliveriesTo('user-1', after));

      for (const id of ids) for (const { route } of CHANNELS) await replay(id, route);
      await allPublished(slot, 2 * (ids.length + after.length), LIMIT_MS);
      await nothingLeftRunning(slot, LIMIT_MS);
      expect(await outboundIds(redis)).toEqual(deliveriesTo('user-1', [...ids, ...after]));
      expect(await countOf(slot, 'replays', 'generation = 1')).toBe(expected.length);
    },
    TEST_LIMIT_MS,
  );

  const replay = (notificationId: string, routeRef: string) =>
    eventually(
      `the replay of ${notificationId}/${routeRef} to be ordered`,
      () => replayRoute(slot, notificationId, routeRef),
      LIMIT_MS,
    );
});

test(
  `I24 ${OUTAGE_MS / 1_000} seconds without PostgreSQL in the middle of 100 intents cost no attempt and no entry`,
  async () => {
    const service = await fleet.start();
    const ids = await publish(slot.redis, 'before', 100);
    await eventually('20 push events', async () => (await slot.redis.xlen(GATEWAY)) >= 20, LIMIT_MS);
    const outage = await slot.cutOffDatabase();
    ids.push(...(await publish(slot.redis, 'during', 10)));
    await sleep(OUTAGE_MS);
    expect(new Set(await outboundIds(slot.redis)).size).toBeLessThan(2 * ids.length);
    expect(service.isRunning()).toBe(true);
    await outage.restore();

    await allPublished(slot, 2 * ids.length, LIMIT_MS);
    await nothingLeftRunning(slot, LIMIT_MS);
    expect(await outboundIds(slot.redis)).toEqual(deliveriesTo('user-1', ids));
    const { rows } = await slot.db.query(
      `SELECT route_id FROM notification.routes WHERE last_error_at IS NOT NULL
        UNION ALL SELECT route_id FROM notification.dead_letters`,
    );
    expect(rows).toEqual([]);
  },
  TEST_LIMIT_MS,
);
