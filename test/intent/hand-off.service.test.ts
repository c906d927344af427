/**
 * Attempts of a route by themselves: budget, ladder and replay in the rows, what the memory of a hand-off must outlive
 * (attempts that come late, outages, wrong clocks), and who refuses hand-offs.
 */
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
import { freePort } from '../../dev/servers/ports.ts';
import { createLogger } from '../../workers/logger.ts';
import { deadLetterWorkflowId } from '../../workflows/intent/contract.ts';
import { eventually, slotOfTests } from '../harness.ts';
import { moveClock } from '../moved-clock.ts';
import { ofTests } from '../of-tests.ts';
import type { RedisServer } from '../redis-servers.ts';
import { createRedisServers } from '../redis-servers.ts';
import { GATEWAY, MAIL } from '../service-process.ts';
import { GALAXY } from '../../api/intent/galaxy.ts';
import { turnPayload } from './entries.ts';
import type { RouteRow } from './rows.ts';
import { PUSH, plantRecords } from './rows.ts';

const [MINUTE, DAY] = [60, 86_400];
const BACKOFF_MIN_MS = 200;
const FAILURE = 'gateway_stream_publish_failed';

const PUBLISHED = { status: 'published' };
const LATE = { status: 'deferred', reason: 'leased' };

const slot = slotOfTests();
const servers = ofTests(createRedisServers, ({ stop }) => stop());
let server: RedisServer;
/** One that takes the place of the first. */
let other: RedisServer;
let redis: Redis;
beforeAll(async () => {
  [server, other] = await Promise.all([servers.start(), servers.start()]);
  redis = server.client;
  defineHandOffCommands(redis);
  await slot.db.query(
    `INSERT INTO notification.holds (kind, name, is_paused, changed_by, changed_at)
     SELECT *, true, 'test', now()
       FROM (VALUES ('channel', 'email'), ('channel', 'game_master'), ('producer', 'push'), ('producer', 'lobby')) AS other`,
  );
});
beforeEach(async () => {
  await moveClock(server.server.pid, 0);
  await redis.flushall();
});
afterEach(async () => {
  const { rows: changedOfOthers } = await slot.db.query(
    `SELECT * FROM notification.routes
      WHERE (notification_id LIKE '%-2' OR route_id <> $1) AND (status <> 'pending' OR attempt_count > 0)`,
    [PUSH],
  );
  expect(changedOfOthers).toEqual([]);
});
const timePasses = (seconds: number) => moveClock(server.server.pid, seconds);

let count = 0;
/** An accepted push whose first attempt has not been made, and others that were replayed. @returns its notification id. */
async function acceptedPush(payload = turnPayload('')): Promise<string> {
  const prefix = `${(count += 1)}-`;
  await plantRecords(slot, prefix, 2, { payload });
  await slot.db.query(
    `WITH other AS (
       INSERT INTO notification.routes
       SELECT (jsonb_populate_record(route, '{"route_id": "push:user:other", "recipient_ref": "user:other"}')).*
         FROM notification.routes AS route WHERE notification_id LIKE $1 || '%'
       RETURNING notification_id, route_id)
     INSERT INTO notification.replays
     SELECT *, 1, 'run/1', 'test', NULL, now() FROM (TABLE other UNION SELECT $1 || '2', $2) AS route`,
    [prefix, PUSH],
  );
  return `${prefix}1`;
}

interface Resources {
  db?: Pool;
  redis?: Redis;
  workflows?: WorkflowClient;
}
/** Makes attempts in one process. */
const publisher = (resources?: Resources) => {
  const { publishRoute } = activities(resources);
  return (id: string) => publishRoute({ notificationId: id, routeRef: PUSH });
};
/** One attempt by a separate process. */
const attempt = (id: string, resources?: Resources) => publisher(resources)(id);

const activities = (resources: Resources = {}) =>
  createRouteActivities({
    workflows: slot.client.workflow,
    ...{ db: slot.db, redis, ...resources },
    log: createLogger('fatal'),
    confirmReplicated: createReplication(() => redis, { minReplicas: 0, timeoutMs: 1_000 }),
    catalog: GALAXY,
    metrics: createIntentMetrics(metrics.getMeter('test'), GALAXY),
    route: {
      ...{ gatewayStream: GATEWAY, gatewayMaxLen: 1024, mailStream: MAIL, leaseTtlMs: 5_000 },
      ...{ backoffMinMs: BACKOFF_MIN_MS, backoffMaxMs: 3 * BACKOFF_MIN_MS },
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
  await servers.follow(server, other);
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

/** A database in which another process moves the row of a route right before a statement. */
const movedBefore = (name: string, id: string) =>
  interrupted('before', name, () =>
    slot.db.query(
      'UPDATE notification.routes SET updated_at = clock_timestamp() WHERE notification_id = $1',
      [id],
    ),
  );

/** Has an attempt hand a route off that does not hear so: the answer of Redis gets lost. */
async function handOffUnheard(id: string): Promise<void> {
  const deaf = Object.create(redis) as Redis;
  deaf.handOffAppend = async (...args) => {
    await redis.handOffAppend(...args);
    throw new Error('the answer got lost');
  };
  await expect(attempt(id, { redis: deaf })).rejects.toThrow('the answer got lost');
}

/** Settled: the memory is there for as long as attempts from before may still be running. */
const fades = (id: string) =>
  eventually('the memory to fade', async () => {
    const leftMs = await redis.pttl(handOffKey(id, PUSH, 0));
    return leftMs > 0 && leftMs <= 10 * MINUTE * 1_000;
  });

async function rowsOf<Row = Record<string, unknown>>(table: string, id: string): Promise<Row[]> {
  const statement = `SELECT * FROM notification.${table} WHERE notification_id = $1 AND route_id = $2`;
  return (await slot.db.query(statement, [id, PUSH])).rows as Row[];
}
const routeOf = async (id: string) => (await rowsOf<RouteRow>('routes', id))[0]!;
/** How many pushes were handed off. */
const sent = () => redis.xlen(GATEWAY);

describe('a stream that takes no entries', () => {
  const DEAD = { status: 'dead_letter', classification: FAILURE };
  const order = (id: string, replayId = 'run/1') => ({
    ...{ notificationId: id, routeRef: PUSH },
    replay: { replayId, requestedBy: 'test' },
  });

  /** Its three attempts have failed, the last one for good. */
  async function die(publish: () => Promise<unknown>, id: string): Promise<void> {
    for (const failed of [1, 2]) {
      const delayMs = failed * BACKOFF_MIN_MS;
      await expect(publish()).rejects.toMatchObject({
        type: FAILURE,
        message: expect.stringMatching(`^attempt ${failed} of 3: .*WRONGTYPE`),
        details: [{ attemptCount: failed, maxAttempts: 3, retryInMs: delayMs }],
      });
      const row = await routeOf(id);
      expect(row).toMatchObject({
        status: 'failed',
        attempt_count: failed,
        last_error_classification: FAILURE,
      });
      expect(row.next_attempt_at!.getTime() - row.last_error_at!.getTime()).toBe(delayMs);
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
    const route = await routeOf(id);
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
        created_at: route.dead_lettered_at,
      }),
    ]);
  });

  test('I25 one order opens a route once, with its own budget, however often its attempt is repeated', async () => {
    const before = await rowsOf('dead_letters', id);
    const { publishRoute } = activities();
    const moved = activities({ db: movedBefore('open_generation', id) });
    expect([await moved.publishRoute(order(id)), await rowsOf('replays', id)]).toEqual([DEAD, []]);
    await die(() => publishRoute(order(id)), id);
    expect(await publishRoute(order(id))).toEqual(DEAD);
    expect(await attempt(id)).toEqual(DEAD);
    expect(await rowsOf('replays', id)).toMatchObject([{ generation: 1, requested_by: 'test' }]);
    await expect(publishRoute(order(id, 'run/2'))).rejects.toMatchObject({ type: FAILURE });
    expect(await rowsOf('replays', id)).toMatchObject([{ generation: 1 }, { generation: 2 }]);
    expect(await rowsOf('dead_letters', id)).toEqual(before);
  });

  test.each(['published by the reset', 'delivered by its last attempt'])(
    'I25 newcomer-2 the dead letter of a route that was %s is told by the attempt that follows one that died',
    async (how) => {
      await redis.del(GATEWAY);
      if (how !== 'published by the reset') await redis.set(handOffKey(id, PUSH, 0), '1-1');
      const signal = jest.fn().mockRejectedValueOnce(new Error('Temporal is away'));
      const getHandle = jest.fn(() => ({ signal }));
      const context = { info: { workflowExecution: { runId: 'reset' } } } as Context;
      const { publishSlice } = activities({ workflows: { getHandle } as unknown as WorkflowClient });
      // Behind that of another user.
      const slice = { notificationId: id, offset: 1, limit: 200, replay: true };
      const publish = () => asyncLocalStorage.run(context, () => publishSlice(slice));
      await expect(publish()).rejects.toThrow('Temporal is away');
      expect(await publish()).toEqual({ published: 1, skipped: 0, open: 0 });
      expect(signal).toHaveBeenCalledTimes(2);
      expect(getHandle).toHaveBeenLastCalledWith(deadLetterWorkflowId(id, PUSH));
    },
  );

  test('I25 a replay finds out that the last attempt had been delivered after all', async () => {
    await redis.del(GATEWAY);
    // As an append leaves it whose answer never came back.
    await redis.set(handOffKey(id, PUSH, 0), '1-1');
    expect(await activities().publishRoute(order(id))).toEqual(PUBLISHED);
    expect(await routeOf(id)).toMatchObject({ status: 'published', dead_lettered_at: null });
    expect(await sent()).toBe(0);
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
    expect(await routeOf(id)).toMatchObject({ status: 'failed', attempt_count });
  }
  expect(await attempt(id, { redis: away })).toEqual({ status: 'dead_letter', classification: FAILURE });
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
    expect(await routeOf(id)).toMatchObject({
      ...{ status: 'skipped', attempt_count: 1, last_error_classification: 'expired' },
      last_error_message: expect.stringMatching(/attempt 1 failed with gateway_stream_publish_failed$/),
    });
  });

  test('I78 I23 what was handed off in time and not settled is published, however late its row is looked at', async () => {
    const id = await acceptedPush();
    // As an attempt leaves it that dies behind its hand-off.
    await redis.set(handOffKey(id, PUSH, 0), '1-1');
    await expire(id);
    expect(await attempt(id)).toEqual(PUBLISHED);
    expect(await routeOf(id)).toMatchObject({
      ...{ status: 'published', entry_id: '1-1', attempt_count: 1, last_error_classification: null },
    });
    expect(await sent()).toBe(0);
  });

  test('I78 a late route waits for Redis to be closed there, and spends nothing', async () => {
    const id = await acceptedPush();
    // A value that the script cannot read: Redis refuses, as one does that is not the master.
    await redis.lpush(handOffKey(id, PUSH, 0), 'no text');
    await expire(id);
    expect(await attempt(id)).toEqual({ status: 'deferred', reason: 'redis_unavailable' });
    expect(await routeOf(id)).toMatchObject({ status: 'pending', attempt_count: 0 });
    await redis.del(handOffKey(id, PUSH, 0));
    expect(await attempt(id)).toEqual({ status: 'skipped' });
  });
});

test('I22 a payload that cannot be encoded is classified as such, unless another process has moved its route since', async () => {
  const id = await acceptedPush('{}');
  expect(await attempt(id, { db: movedBefore('record_failure', id) })).toMatchObject({ status: 'deferred' });
  await expect(attempt(id)).rejects.toMatchObject({
    ...{ type: 'payload_encoding_failed', message: expect.stringContaining('game_id') },
  });
  expect(await sent()).toBe(0);
});

test('I23 an attempt that slept settles nothing that another process has moved since, and hands off nothing again', async () => {
  const id = await acceptedPush();
  expect(await attempt(id, { db: movedBefore('settle_routes', id) })).toMatchObject(LATE);
  expect(await routeOf(id)).toMatchObject({ status: 'pending', attempt_count: 0 });
  expect(await attempt(id)).toEqual(PUBLISHED);
  expect(await sent()).toBe(1);
});

test('I26 intent-P2 a route that was closed by a process that died is settled by the next attempt', async () => {
  const id = await acceptedPush();
  await handOff.close(redis, handOffKey(id, PUSH, 0));
  expect(await attempt(id)).toEqual({ status: 'skipped' });
  expect(await routeOf(id)).toMatchObject({ status: 'skipped', attempt_count: 0 });
});

test('I23 I26 a route that was handed off before it was cancelled counts as published', async () => {
  const id = await acceptedPush();
  await handOffUnheard(id);
  expect(await cancel(id)).toBe('published');
  expect(await routeOf(id)).toMatchObject({ status: 'published', skipped_at: null });
});

test('I23 intent-D11 an attempt that settles nothing does not shorten what others remember', async () => {
  const id = await acceptedPush();
  const late = interrupted('after', 'load_route', () => handOffUnheard(id));
  expect(await attempt(id, { db: late })).toMatchObject(LATE);
  expect(await routeOf(id)).toMatchObject({ status: 'failed', attempt_count: 1 });

  // The channel may be paused for so long.
  await timePasses(60 * MINUTE);
  expect(await attempt(id)).toEqual(PUBLISHED);
  expect(await sent()).toBe(1);
});

test('I23 I24 intent-P3 a hand-off is remembered for as long as PostgreSQL may be away', async () => {
  const id = await acceptedPush();
  const away = interrupted('before', 'settle_routes', () => {
    throw Object.assign(new Error('away'), { code: 'ECONNREFUSED' });
  });
  expect(await attempt(id, { db: away })).toMatchObject({ reason: 'postgres_unavailable' });
  await timePasses(40 * DAY);
  expect(await attempt(id)).toEqual(PUBLISHED);
  expect(await sent()).toBe(1);
});

test('I23 intent-P11 an attempt that was frozen until its hand-off is forgotten hands off nothing', async () => {
  const id = await acceptedPush();
  const frozen = interrupted('after', 'load_route', async () => {
    expect(await attempt(id)).toEqual(PUBLISHED);
    await fades(id);
    await timePasses(11 * MINUTE);
  });
  expect(await attempt(id, { db: frozen })).toMatchObject(LATE);
  expect(await sent()).toBe(1);
  expect(await attempt(id)).toEqual(PUBLISHED);
});

test.each([DAY, -DAY])(
  'I23 intent-P11 a clock of Redis that moves by %i s puts an attempt off once',
  async (seconds) => {
    const publish = publisher();
    expect(await publish(await acceptedPush())).toEqual(PUBLISHED);
    await timePasses(seconds);
    const id = await acceptedPush();
    if ((await publish(id)).status !== 'published') expect(await publish(id)).toEqual(PUBLISHED);
    expect(await routeOf(id)).toMatchObject({ status: 'published', attempt_count: 1 });
    expect(await sent()).toBe(2);
  },
);

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
    expect(await attempt(id)).toEqual(PUBLISHED);
  },
);

test('I23 I26 an attempt from before Redis fell back hands off nothing: its route may have been cancelled', async () => {
  const id = await acceptedPush();
  const heldUp = interrupted('after', 'load_route', async () => {
    expect(await cancel(id)).toBe('skipped');
    await fallBack();
  });
  expect(await attempt(id, { db: heldUp })).toMatchObject(LATE);
  expect(await sent()).toBe(0);
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
  expect(await late).toMatchObject(LATE);
  expect(await sent()).toBe(0);
  expect(await attempt(id)).toEqual({ status: 'skipped' });
  await fades(id);
});

test('I23 I26 what is handed off while Redis falls back beneath a cancellation counts as published', async () => {
  const id = await acceptedPush();
  const closing = closingThen(async () => {
    await fallBack();
    await handOffUnheard(id);
  });
  expect(await cancel(id, closing)).toBe('published');
  const [[entryId] = []] = await redis.xrange(GATEWAY, '-', '+');
  expect(await routeOf(id)).toMatchObject({ status: 'published', entry_id: entryId, skipped_at: null });
  expect(await attempt(id)).toEqual(PUBLISHED);
  expect(await sent()).toBe(1);
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
      const publish = publisher();
      const id = await acceptedPush();
      await loseRole();
      for (let attempts = 0; attempts < 4; attempts += 1)
        expect(await publish(id)).toEqual({ status: 'deferred', reason: 'redis_unavailable' });
      if (answer !== 'LOADING') expect(await redis.info('errorstats')).toContain(`errorstat_${answer}:`);
      expect(await routeOf(id)).toMatchObject({ status: 'pending', attempt_count: 0 });

      await becomeMaster();
      expect(await publish(id)).toEqual(PUBLISHED);
      expect(await sent()).toBe(1);
    },
  );
});
