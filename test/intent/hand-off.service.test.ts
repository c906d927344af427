/**
 * Attempts of a route by themselves: budget, ladder and replay in the rows, what the memory of a hand-off must outlive
 * (attempts that come late, outages, wrong clocks), and who refuses hand-offs.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { metrics } from '@opentelemetry/api';
import type { Context } from '@temporalio/activity';
import { asyncLocalStorage } from '@temporalio/activity';
import type { WorkflowClient } from '@temporalio/client';
import { Redis } from 'ioredis';
import type { Pool } from 'pg';
import {
  createReplication,
  defineHandOffCommands,
  handOff,
  handOffKey,
} from '../../activities/intent/hand-off.ts';
import { createIntentMetrics } from '../../activities/intent/metrics.ts';
import { createRouteActivities } from '../../activities/intent/routes.ts';
import { createSteeringActivities } from '../../activities/intent/steering.ts';
import type { EmbeddedRedis } from '../../dev/servers/redis.ts';
import { freePort } from '../../dev/servers/ports.ts';
import { startRedis } from '../../dev/servers/redis.ts';
import { createLogger } from '../../workers/logger.ts';
import { deadLetterWorkflowId } from '../../workflows/intent/contract.ts';
import { eventually, slotOfTests } from '../harness.ts';
import { moveClock } from '../moved-clock.ts';
import { GATEWAY, MAIL } from '../service-process.ts';
import { GALAXY } from '../../api/intent/galaxy.ts';

const PUSH = 'push:user:user-1';
const [MINUTE, DAY] = [60, 86_400];
const BACKOFF_MIN_MS = 200;
const FAILURE = 'gateway_stream_publish_failed';

const slot = slotOfTests();
let folder: string;
let server: EmbeddedRedis;
/** One that takes the place of the first. */
let other: EmbeddedRedis;
let redis: Redis;
beforeAll(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'hand-off-'));
  const start = (name: string) =>
    startRedis({ dataDir: path.join(folder, name), port: 0, durable: false, report: () => undefined });
  [server, other] = await Promise.all([start('one'), start('other')]);
  const [host, port] = server.addr.split(':') as [string, string];
  redis = new Redis({ host, port: Number(port) });
  defineHandOffCommands(redis);
});
afterAll(async () => {
  redis.disconnect();
  await Promise.all([server.stop(), other.stop()]);
  await rm(folder, { recursive: true, force: true });
});
beforeEach(async () => {
  await moveClock(server.pid, 0);
  await redis.flushall();
});

let count = 0;
/** An accepted push whose first attempt has not been made. @returns its notification id. */
async function acceptedPush(
  payload = '{"game_id": "g", "game_name": "G", "turn_number": 1}',
): Promise<string> {
  const id = `${(count += 1)}-0`;
  await slot.db.query(
    `WITH record AS (
       INSERT INTO notification.records
       SELECT $1::text, 'game.turn.ready', 'game_master', 'user', '["user-1"]',
              $3, 'key-' || $1, $1, NULL, NULL,
              now(), now(), now(), now() + interval '7 days')
     INSERT INTO notification.routes
            (notification_id, route_id, channel, recipient_ref, status, max_attempts, next_attempt_at, created_at,
             updated_at)
     VALUES ($1, $2, 'push', 'user:user-1', 'pending', 3, now(), now(), now())`,
    [id, PUSH, payload],
  );
  return id;
}

/** One attempt by a separate process. */
const attempt = (id: string, resources: { db?: Pool; redis?: Redis } = {}) =>
  activities(resources).publishRoute({ notificationId: id, routeRef: PUSH });

const activities = (resources: { db?: Pool; redis?: Redis; workflows?: WorkflowClient } = {}) =>
  createRouteActivities({
    workflows: slot.client.workflow,
    ...{ db: slot.db, redis, ...resources },
    log: createLogger('fatal'),
    confirmReplicated: createReplication(() => redis, { minReplicas: 0, timeoutMs: 1_000 }),
    catalog: GALAXY,
    metrics: createIntentMetrics(metrics.getMeter('test'), GALAXY),
    route: {
      gatewayStream: GATEWAY,
      gatewayMaxLen: 1024,
      mailStream: MAIL,
      backoffMinMs: BACKOFF_MIN_MS,
      backoffMaxMs: 3 * BACKOFF_MIN_MS,
      leaseTtlMs: 5_000,
    },
  });

const cancel = (id: string, through = redis) =>
  createSteeringActivities({
    ...{ db: slot.db, redis: through, workflows: slot.client.workflow },
    log: createLogger('fatal'),
  }).skipRoute({ notificationId: id, routeRef: PUSH });

/**
 * Redis holds what another server holds, which is nothing: as after a failover to a replica that lagged. Even the
 * connection stays.
 */
async function fallBack(): Promise<void> {
  const [host, port] = other.addr.split(':') as [string, string];
  const client = new Redis({ host, port: Number(port) });
  // It is copied without delay.
  await client.config('SET', 'repl-diskless-sync-delay', '0');
  client.disconnect();
  await redis.replicaof(host, Number(port));
  await eventually('Redis to be as the other server', async () =>
    (await redis.info('replication')).includes('master_link_status:up'),
  );
  await redis.replicaof('NO', 'ONE');
}

/** A Redis in which something happens once, after a route was closed and before anybody hears of that. */
function closingThen(happen: () => Promise<unknown>): Redis {
  const closing = Object.create(redis) as Redis;
  closing.handOffClose = async (...args) => {
    const answer = await redis.handOffClose(...args);
    delete (closing as Partial<Redis>).handOffClose;
    await happen();
    return answer;
  };
  return closing;
}

/** A database in which something happens right before a statement is sent, or before its answer is heard. */
function interrupted(when: 'before' | 'after', name: string, interruption: () => Promise<unknown>): Pool {
  const db = Object.create(slot.db) as Pool;
  db.query = (async (statement: { name: string }) => {
    const isMeant = statement.name.startsWith(name);
    if (isMeant && when === 'before') await interruption();
    const answer = await (slot.db.query(statement as never) as unknown as Promise<unknown>);
    if (isMeant && when === 'after') await interruption();
    return answer;
  }) as never;
  return db;
}

/** A Redis that does what it is asked to and whose answer to a hand-off gets lost. */
function deafTo(): Redis {
  const deaf = Object.create(redis) as Redis &
    Record<'handOffAppend', (...args: unknown[]) => Promise<unknown>>;
  deaf.handOffAppend = async (...args) => {
    await (redis as typeof deaf).handOffAppend(...args);
    throw new Error('the answer got lost');
  };
  return deaf;
}

/** Settled: the memory is there for as long as attempts from before may still be running. */
const fades = (id: string) =>
  eventually('the memory to fade', async () => {
    const leftMs = await redis.pttl(handOffKey(id, PUSH, 0));
    return leftMs > 0 && leftMs <= 10 * MINUTE * 1_000;
  });

async function routeOf(id: string) {
  const { rows } = await slot.db.query<{ status: string; attempt_count: number }>(
    'SELECT status, attempt_count FROM notification.routes WHERE notification_id = $1',
    [id],
  );
  return rows[0];
}

const rowsOf = async (table: string, id: string) =>
  (
    await slot.db.query<Record<string, unknown>>(
      `SELECT * FROM notification.${table} WHERE notification_id = $1`,
      [id],
    )
  ).rows;

describe('a stream that takes no entries', () => {
  const DEAD = { status: 'dead_letter', classification: FAILURE };
  const order = (id: string) => ({
    ...{ notificationId: id, routeRef: PUSH },
    replay: { replayId: 'run/1', requestedBy: 'test' },
  });

  /** Its three attempts have failed, the last one for good. */
  async function die(publish: () => Promise<unknown>, id: string): Promise<void> {
    for (const [failed, delayMs] of [
      [1, BACKOFF_MIN_MS],
      [2, 2 * BACKOFF_MIN_MS],
    ] as const) {
      await expect(publish()).rejects.toMatchObject({
        type: FAILURE,
        message: expect.stringMatching(`^attempt ${failed} of 3: .*WRONGTYPE`),
        details: [{ attemptCount: failed, maxAttempts: 3, retryInMs: delayMs }],
      });
      const [row] = (await rowsOf('routes', id)) as Record<string, Date>[];
      expect(row).toMatchObject({
        status: 'failed',
        attempt_count: failed,
        last_error_classification: FAILURE,
      });
      expect(row!['next_attempt_at']!.getTime() - row!['last_error_at']!.getTime()).toBe(delayMs);
    }
    expect(await publish()).toEqual(DEAD);
  }

  let id: string;
  beforeEach(async () => {
    await redis.set(GATEWAY, 'not a stream');
    id = await acceptedPush();
    await die(() => attempt(id), id);
  });

  test('I20 I21 I22 failed attempts wait on the ladder, and the last one of the budget leaves a dead letter with a hint', async () => {
    const [route] = await rowsOf('routes', id);
    expect(route).toMatchObject({
      ...{ status: 'dead_letter', attempt_count: 3, next_attempt_at: null, published_at: null },
      ...{ last_error_classification: FAILURE, last_error_message: expect.stringContaining('WRONGTYPE') },
    });
    expect(await rowsOf('dead_letters', id)).toEqual([
      expect.objectContaining({
        ...{ route_id: PUSH, channel: 'push', recipient_ref: 'user:user-1' },
        ...{ final_attempt_count: 3, max_attempts: 3, failure_classification: FAILURE },
        failure_message: expect.stringContaining('WRONGTYPE'),
        recovery_hint: expect.stringContaining('new idempotency_key'),
        created_at: route!['dead_lettered_at'],
      }),
    ]);
  });

  test('I25 one order opens a route once, with its own budget, however often its attempt is repeated', async () => {
    const before = await rowsOf('dead_letters', id);
    const { publishRoute } = activities();
    await die(() => publishRoute(order(id)), id);
    expect(await publishRoute(order(id))).toEqual(DEAD);
    expect(await attempt(id)).toEqual(DEAD);
    expect(await rowsOf('replays', id)).toMatchObject([{ generation: 1, requested_by: 'test' }]);
    expect(await rowsOf('dead_letters', id)).toEqual(before);
  });

  test.each(['published by the reset', 'delivered by its last attempt'])(
    'I25 newcomer-2 the dead letter of a route that was %s is told by the attempt that follows one that died',
    async (how) => {
      await redis.del(GATEWAY);
      if (how !== 'published by the reset') await redis.set(handOffKey(id, PUSH, 0), '1-1');
      const told: string[] = [];
      let isTemporalAway = true;
      const signal = async (workflowId: string) => {
        if (isTemporalAway) throw new Error('Temporal is away');
        told.push(workflowId);
      };
      const getHandle = (workflowId: string) => ({ signal: () => signal(workflowId) });
      const context = { info: { workflowExecution: { runId: 'reset' } } } as Context;
      const { publishSlice } = activities({ workflows: { getHandle } as unknown as WorkflowClient });
      const slice = { notificationId: id, offset: 0, limit: 200, replay: true };
      const publish = () => asyncLocalStorage.run(context, () => publishSlice(slice));
      await expect(publish()).rejects.toThrow('Temporal is away');
      isTemporalAway = false;
      expect(await publish()).toEqual({ published: 1, skipped: 0, open: 0 });
      expect(told).toEqual([deadLetterWorkflowId(id, PUSH)]);
    },
  );

  test('I25 a replay finds out that the last attempt had been delivered after all', async () => {
    await redis.del(GATEWAY);
    // As an append leaves it whose answer never came back.
    await redis.set(handOffKey(id, PUSH, 0), '1-1');
    expect(await activities().publishRoute(order(id))).toEqual({ status: 'published' });
    expect((await rowsOf('routes', id))[0]).toMatchObject({ status: 'published', dead_lettered_at: null });
    expect(await redis.exists(GATEWAY)).toBe(0);
    expect(await rowsOf('replays', id)).toEqual([]);
  });
});

test('I21 I22 a Redis that is away spends the budget of a route, whose last attempt leaves it dead', async () => {
  const away = new Redis({ port: await freePort(), maxRetriesPerRequest: 0, retryStrategy: () => null });
  away.on('error', () => undefined);
  defineHandOffCommands(away);
  const id = await acceptedPush();
  for (const attempt_count of [1, 2]) {
    await expect(attempt(id, { redis: away })).rejects.toMatchObject({ type: FAILURE });
    expect(await routeOf(id)).toEqual({ status: 'failed', attempt_count });
  }
  const death = { status: 'dead_letter', classification: FAILURE };
  expect(await attempt(id, { redis: away })).toEqual(death);
  away.disconnect();
});

describe('a route that is late', () => {
  const expire = (id: string) =>
    slot.db.query('UPDATE notification.records SET expires_at = now() WHERE notification_id = $1', [id]);

  test('I78 a route that is late after a failed attempt is skipped, and says what has failed', async () => {
    await redis.set(GATEWAY, 'not a stream');
    const id = await acceptedPush();
    await expect(attempt(id)).rejects.toMatchObject({ type: FAILURE });
    await expire(id);
    expect(await attempt(id)).toEqual({ status: 'skipped' });
    expect((await rowsOf('routes', id))[0]).toMatchObject({
      ...{ status: 'skipped', attempt_count: 1, last_error_classification: 'expired' },
      last_error_message: expect.stringMatching(/attempt 1 failed with gateway_stream_publish_failed$/),
    });
  });

  test('I78 I23 what was handed off in time and not settled is published, however late its row is looked at', async () => {
    const id = await acceptedPush();
    // As an attempt leaves it that dies behind its hand-off.
    await redis.set(handOffKey(id, PUSH, 0), '1-1');
    await expire(id);
    expect(await attempt(id)).toEqual({ status: 'published' });
    expect((await rowsOf('routes', id))[0]).toMatchObject({
      ...{ status: 'published', entry_id: '1-1', attempt_count: 1, last_error_classification: null },
    });
    expect(await redis.exists(GATEWAY)).toBe(0);
  });

  test('I78 a late route waits for Redis to be closed there, and spends nothing', async () => {
    const id = await acceptedPush();
    // A value that the script cannot read: Redis refuses, as one does that is not the master.
    await redis.lpush(handOffKey(id, PUSH, 0), 'no text');
    await expire(id);
    expect(await attempt(id)).toEqual({ status: 'deferred', reason: 'redis_unavailable' });
    expect(await routeOf(id)).toEqual({ status: 'pending', attempt_count: 0 });
    await redis.del(handOffKey(id, PUSH, 0));
    expect(await attempt(id)).toEqual({ status: 'skipped' });
  });
});

test('I22 a payload that cannot be encoded is classified as such', async () => {
  const id = await acceptedPush('{}');
  await expect(attempt(id)).rejects.toMatchObject({
    ...{ type: 'payload_encoding_failed', message: expect.stringContaining('game_id') },
  });
  expect(await redis.exists(GATEWAY)).toBe(0);
});

test('I23 an attempt that slept settles nothing that another process has moved since, and hands off nothing again', async () => {
  const id = await acceptedPush();
  const sleepy = interrupted('before', 'settle_routes', () =>
    slot.db.query(
      'UPDATE notification.routes SET updated_at = clock_timestamp() WHERE notification_id = $1',
      [id],
    ),
  );
  expect(await attempt(id, { db: sleepy })).toMatchObject({ status: 'deferred', reason: 'leased' });
  expect(await routeOf(id)).toEqual({ status: 'pending', attempt_count: 0 });
  expect(await attempt(id)).toEqual({ status: 'published' });
  expect(await redis.xlen(GATEWAY)).toBe(1);
});

test('I26 intent-P2 a route that was closed by a process that died is settled by the next attempt', async () => {
  const id = await acceptedPush();
  await handOff.close(redis, handOffKey(id, PUSH, 0));
  expect(await attempt(id)).toEqual({ status: 'skipped' });
  expect(await routeOf(id)).toEqual({ status: 'skipped', attempt_count: 0 });
});

test('I23 I26 a route that was handed off before it was cancelled counts as published', async () => {
  const id = await acceptedPush();
  await expect(attempt(id, { redis: deafTo() })).rejects.toThrow('the answer got lost');
  expect(await cancel(id)).toBe('published');
  expect((await rowsOf('routes', id))[0]).toMatchObject({ status: 'published', skipped_at: null });
});

test('I23 intent-D11 an attempt that settles nothing does not shorten what others remember', async () => {
  const id = await acceptedPush();
  const late = interrupted('after', 'load_route', async () => {
    await expect(attempt(id, { redis: deafTo() })).rejects.toThrow('the answer got lost');
  });
  expect(await attempt(id, { db: late })).toMatchObject({ status: 'deferred', reason: 'leased' });
  expect(await routeOf(id)).toEqual({ status: 'failed', attempt_count: 1 });

  // The channel may be paused for so long.
  await moveClock(server.pid, 60 * MINUTE);
  expect(await attempt(id)).toEqual({ status: 'published' });
  expect(await redis.xlen(GATEWAY)).toBe(1);
});

test('I23 I24 intent-P3 a hand-off is remembered for as long as PostgreSQL may be away', async () => {
  const id = await acceptedPush();
  const away = interrupted('before', 'settle_routes', () => {
    throw Object.assign(new Error('away'), { code: 'ECONNREFUSED' });
  });
  expect(await attempt(id, { db: away })).toMatchObject({ reason: 'postgres_unavailable' });
  await moveClock(server.pid, 40 * DAY);
  expect(await attempt(id)).toEqual({ status: 'published' });
  expect(await redis.xlen(GATEWAY)).toBe(1);
});

test('I23 intent-P11 an attempt that was frozen until its hand-off is forgotten hands off nothing', async () => {
  const id = await acceptedPush();
  const frozen = interrupted('after', 'load_route', async () => {
    expect(await attempt(id)).toEqual({ status: 'published' });
    await fades(id);
    await moveClock(server.pid, 11 * MINUTE);
  });
  const answer = await attempt(id, { db: frozen });
  expect(await redis.xlen(GATEWAY)).toBe(1);
  expect(answer).toMatchObject({ status: 'deferred', reason: 'leased' });
  expect(await attempt(id)).toEqual({ status: 'published' });
});

test.each([
  ['ahead', DAY],
  ['behind', -DAY],
])('I23 intent-P11 a clock of Redis that is moved a day %s puts an attempt off once', async (_, seconds) => {
  const process = activities();
  const publish = (id: string) => process.publishRoute({ notificationId: id, routeRef: PUSH });
  expect(await publish(await acceptedPush())).toEqual({ status: 'published' });
  await moveClock(server.pid, seconds);
  const id = await acceptedPush();
  if ((await publish(id)).status !== 'published') expect(await publish(id)).toEqual({ status: 'published' });
  expect(await routeOf(id)).toEqual({ status: 'published', attempt_count: 1 });
  expect(await redis.xlen(GATEWAY)).toBe(2);
});

test.each(['1 day', '-1 day'])(
  'I21 security-13 a route is tried when its workflow says so, though the clock of PostgreSQL has moved by %s',
  async (shift) => {
    const id = await acceptedPush();
    await redis.set(GATEWAY, 'not a stream');
    await expect(attempt(id)).rejects.toMatchObject({ details: [{ retryInMs: BACKOFF_MIN_MS }] });
    // As rows look that were written before it moved.
    await slot.db.query(
      `UPDATE notification.routes
          SET next_attempt_at = next_attempt_at - $2::interval, last_error_at = last_error_at - $2::interval,
              created_at = created_at - $2::interval, updated_at = updated_at - $2::interval
        WHERE notification_id = $1`,
      [id, shift],
    );
    await expect(attempt(id)).rejects.toMatchObject({ details: [{ retryInMs: 2 * BACKOFF_MIN_MS }] });
    await redis.del(GATEWAY);
    expect(await attempt(id)).toEqual({ status: 'published' });
  },
);

test('I23 I26 an attempt from before Redis fell back hands off nothing: its route may have been cancelled', async () => {
  const id = await acceptedPush();
  const heldUp = interrupted('after', 'load_route', async () => {
    expect(await cancel(id)).toBe('skipped');
    await fallBack();
  });
  expect(await attempt(id, { db: heldUp })).toMatchObject({ status: 'deferred', reason: 'leased' });
  expect(await redis.xlen(GATEWAY)).toBe(0);
  expect(await attempt(id)).toEqual({ status: 'skipped' });
});

test('I23 I26 a route stays cancelled when Redis falls back before its row says so, and an attempt begins there', async () => {
  const id = await acceptedPush();
  const [loaded, cancelled] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  let late: ReturnType<typeof attempt> | undefined;
  const heldUp = interrupted('after', 'load_route', () => {
    loaded.resolve();
    return cancelled.promise;
  });
  const closing = closingThen(async () => {
    await fallBack();
    late = attempt(id, { db: heldUp });
    await loaded.promise;
  });
  expect(await cancel(id, closing)).toBe('skipped');
  cancelled.resolve();
  expect(await late).toMatchObject({ status: 'deferred', reason: 'leased' });
  expect(await redis.xlen(GATEWAY)).toBe(0);
  expect(await attempt(id)).toEqual({ status: 'skipped' });
  await fades(id);
});

test('I23 I26 what is handed off while Redis falls back beneath a cancellation counts as published', async () => {
  const id = await acceptedPush();
  const closing = closingThen(async () => {
    await fallBack();
    await expect(attempt(id, { redis: deafTo() })).rejects.toThrow('the answer got lost');
  });
  expect(await cancel(id, closing)).toBe('published');
  const [[entryId] = []] = await redis.xrange(GATEWAY, '-', '+');
  const { rows } = await slot.db.query(
    'SELECT status, entry_id, skipped_at FROM notification.routes WHERE notification_id = $1',
    [id],
  );
  expect(rows).toEqual([{ status: 'published', entry_id: entryId, skipped_at: null }]);
  expect(await attempt(id)).toEqual({ status: 'published' });
  expect(await redis.xlen(GATEWAY)).toBe(1);
});

describe('a Redis that is not the master', () => {
  const follow = async (servesStaleData: 'yes' | 'no') => {
    await redis.config('SET', 'replica-serve-stale-data', servesStaleData);
    // Of a master that does not exist.
    await redis.replicaof('127.0.0.1', await freePort());
  };

  /** It reads its data from disk, for as long as it takes. */
  const load = async () => {
    const loading = Object.assign(new Error('LOADING Redis is loading the dataset'), { name: 'ReplyError' });
    for (const command of ['handOffBegin', 'handOffAppend'] as const)
      jest.spyOn(redis, command).mockRejectedValue(loading);
  };

  async function becomeMaster(): Promise<void> {
    jest.restoreAllMocks();
    await redis.replicaof('NO', 'ONE');
  }
  afterEach(becomeMaster);

  test.each([
    ['READONLY', () => follow('yes')],
    ['MASTERDOWN', () => follow('no')],
    ['LOADING', load],
  ])(
    'I24 intent-D1 an attempt that is answered with %s is put off and spends nothing',
    async (answer, loseRole) => {
      const process = activities();
      const publish = (id: string) => process.publishRoute({ notificationId: id, routeRef: PUSH });
      const id = await acceptedPush();
      await loseRole();
      for (let attempts = 0; attempts < 4; attempts += 1) {
        expect(await publish(id)).toEqual({ status: 'deferred', reason: 'redis_unavailable' });
      }
      if (answer !== 'LOADING') expect(await redis.info('errorstats')).toContain(`errorstat_${answer}:`);
      expect(await routeOf(id)).toEqual({ status: 'pending', attempt_count: 0 });

      await becomeMaster();
      expect(await publish(id)).toEqual({ status: 'published' });
      expect(await redis.xlen(GATEWAY)).toBe(1);
    },
  );
});
