/**
 * Routes that fail, are replayed, wait for their channel or are cancelled, and a process that dies after each step of
 * that. The way without failures is in ../platform/crash-points.hard.test.ts.
 */
import { beginIntent } from '../../dev/intent-rows.ts';
import type { Operator } from '../../client/operator.ts';
import { notificationWorkflowId, routeWorkflowId } from '../../workflows/intent/contract.ts';
import { crashWalksOfEachTest } from '../crash-walk.ts';
import { accepted, turn } from './entries.ts';
import { countOf, replayRoute, untilPaused } from './rows.ts';
import { dispatch, eventually, operatorOf, slotOfEachTest } from '../harness.ts';
import {
  GATEWAY,
  MAIL,
  allPublished,
  deliveriesTo,
  nothingLeftRunning,
  outboundIds,
} from '../service-process.ts';

/** Everything must be done in the end; a machine that is busy with other things may take its time. */
const LIMIT_MS = 240_000;
jest.setTimeout(600_000);
const PUSH = 'push:user:user-1';
const PUSH_BUDGET = 3;

const slot = slotOfEachTest();
const beginWalk = crashWalksOfEachTest(() => slot);
const BY = { requestedBy: 'crash' };
let operator: Operator;
let ids: string[];
beforeEach(() => {
  ids = [];
  operator = operatorOf(slot);
});

/** Past the reader: a process that took it from the dead one would make every step wait for its heartbeat. */
async function start(recipients = ['user-1']): Promise<string> {
  const entry = turn({
    idempotency_key: `key-${ids.length}`,
    recipient_user_ids_json: JSON.stringify(recipients),
  });
  const notificationId = `${Date.now()}-${ids.length}`;
  ids.push(notificationId);
  const to = { db: slot.db, workflows: slot.client.workflow };
  await beginIntent(to, { ...accepted(entry), notificationId }, dispatch());
  return notificationId;
}

const rows = async (sql: string): Promise<object[]> => (await slot.db.query<object>(sql)).rows;

const pushesIn = (id: string, status: string): Promise<number> =>
  countOf(slot, 'routes', "notification_id = $1 AND channel = 'push' AND status = $2", [id, status]);

const statusOf = async (workflowId: string): Promise<string> =>
  (await slot.client.workflow.getHandle(workflowId).describe()).status.name;

const isDead = (id: string) => async () => (await statusOf(routeWorkflowId(id, PUSH))) === 'FAILED';

const breakGateway = () => slot.redis.set(GATEWAY, 'not a stream');

test('U2 I25 a process that dies after any step of an operation: each route is replayed once', async () => {
  const walk = beginWalk({
    NOTIFICATION_ROUTE_BACKOFF_MIN: '50ms',
    NOTIFICATION_ROUTE_BACKOFF_MAX: '100ms',
  });
  await breakGateway();
  const operations: string[] = [];
  let dead: string;
  const died = await walk.through(
    'doPage',
    async () => {
      const { operationId } = await operator.operations.begin('replay', { notificationId: dead }, BY);
      operations.push(operationId);
      return async () => (await operator.operations.show(operationId)).endedAt !== undefined;
    },
    undefined,
    async () => {
      dead = await start(['user-1', 'user-2']);
      await eventually('dead pushes', async () => (await pushesIn(dead, 'dead_letter')) === 2, LIMIT_MS);
    },
  );
  // An order for each route, and that they were given.
  expect(died).toBeGreaterThanOrEqual(3);
  await walk.survivor();
  for (const operationId of operations) {
    const isDone = async () => {
      const { status, ordered } = await operator.operations.show(operationId);
      const { open } = await operator.operations.outcome(operationId);
      return status === 'done' && ordered === 2 && open === 0;
    };
    await eventually(`${operationId} to be done`, isDone, LIMIT_MS);
  }
  const replays = await rows(
    'SELECT count(*)::int AS count FROM notification.replays GROUP BY notification_id, route_id',
  );
  expect(replays).toEqual(operations.flatMap(() => [{ count: 1 }, { count: 1 }]));
});

test('I21 I22 I23 I25 a process that dies after any step of a failing or replayed attempt: the budget exactly, then one entry', async () => {
  const walk = beginWalk({
    NOTIFICATION_ROUTE_BACKOFF_MIN: '100ms',
    NOTIFICATION_ROUTE_BACKOFF_MAX: '200ms',
  });
  await breakGateway();
  const putFailing = async () => isDead(await start());
  // The answer of Redis, and the row: of the first attempt, or of one that the retry policy makes.
  const failed = await walk.through('publishRoute', putFailing, 6);
  await walk.survivor();
  while (ids.length < 8) await start();
  for (const id of ids) await eventually(`the push of ${id} to be dead`, isDead(id), LIMIT_MS);

  const dead = await rows(
    `SELECT notification_id AS id, ARRAY[attempt_count, final_attempt_count, dead.max_attempts] AS attempts
       FROM notification.routes JOIN notification.dead_letters AS dead USING (notification_id, route_id)
      WHERE status = 'dead_letter' ORDER BY notification_id`,
  );
  const attempts = Array<number>(3).fill(PUSH_BUDGET);
  expect(dead).toEqual([...ids].sort().map((id) => ({ id, attempts })));
  expect(await countOf(slot, 'dead_letters')).toBe(ids.length);

  await slot.redis.del(GATEWAY);
  const waiting = [...ids];
  // The row's new generation, the entry, and the row.
  const replayed = await walk.through(
    'publishRoute',
    async () => {
      const id = waiting.shift()!;
      await replayRoute(slot, id, PUSH, BY);
      return async () =>
        (await pushesIn(id, 'published')) === 1 &&
        (await statusOf(routeWorkflowId(id, PUSH))) === 'COMPLETED';
    },
    6,
  );
  console.info(`processes that died: ${JSON.stringify({ failed, replayed })}`);
  expect(failed).toBeGreaterThanOrEqual(2);
  expect(replayed).toBeGreaterThanOrEqual(3);

  await walk.survivor();
  for (const id of waiting) await replayRoute(slot, id, PUSH);
  await allPublished(slot, 2 * ids.length, LIMIT_MS);
  await nothingLeftRunning(slot, LIMIT_MS);
  expect(await outboundIds(slot.redis)).toEqual(deliveriesTo('user-1', ids));
  expect(await rows('SELECT notification_id AS id, generation FROM notification.replays ORDER BY 1')).toEqual(
    [...ids].sort().map((id) => ({ id, generation: 1 })),
  );
  expect(await countOf(slot, 'dead_letters')).toBe(ids.length);
});

test('I26 a process that dies while the routes of a channel are released: each goes once', async () => {
  const walk = beginWalk();
  let waiting: string[];
  const died = await walk.through(
    'doPage',
    async () => {
      await operator.channels.resume('push', { ...BY, ratePerSecond: 5 });
      return async () => {
        const published = await Promise.all(waiting.map((id) => pushesIn(id, 'published')));
        return published.every((pushes) => pushes === 1);
      };
    },
    4,
    async () => {
      await operator.channels.pause('push', BY);
      waiting = [await start(), await start()];
      for (const id of waiting) await untilPaused(slot, id, PUSH);
    },
  );
  expect(died).toBeGreaterThanOrEqual(2);

  await walk.survivor();
  await nothingLeftRunning(slot, LIMIT_MS);
  expect(await outboundIds(slot.redis)).toEqual(deliveriesTo('user-1', ids));
});

test('I26 a process that dies after any step of a cancellation: skipped on both sides, and nothing is published later', async () => {
  const walk = beginWalk({
    NOTIFICATION_ROUTE_BACKOFF_MIN: '1h',
    NOTIFICATION_ROUTE_BACKOFF_MAX: '2h',
  });
  await breakGateway();
  const users = ['user-1', 'user-2'];
  const startFailing = async (recipients: string[]) => {
    const id = await start(recipients);
    await eventually(
      `the pushes of ${id} to have failed once`,
      async () => (await pushesIn(id, 'failed')) === recipients.length,
      LIMIT_MS,
    );
    return id;
  };
  /** Until the pushes of a notification are skipped, and the workflow that was cancelled has ended so. */
  const cancelled = async (id: string, workflowId: string, pushes: number, status: string) => {
    await slot.client.workflow.getHandle(workflowId).cancel();
    return async () => (await pushesIn(id, 'skipped')) === pushes && (await statusOf(workflowId)) === status;
  };
  const putCancelled = async () => {
    const id = await startFailing(users);
    return cancelled(id, notificationWorkflowId(id), users.length, 'CANCELLED');
  };
  const putRouteCancelled = async () => {
    const id = await startFailing(['user-1']);
    const routeId = routeWorkflowId(id, PUSH);
    await eventually(`the route of ${id} to be there`, () => statusOf(routeId));
    return cancelled(id, routeId, 1, 'COMPLETED');
  };
  const kills = {
    // Closing both in Redis, their rows, closing both again, and telling both workflows.
    all: await walk.through('skipOpenRoutes', putCancelled, 16),
    one: await walk.through('skipRoute', putRouteCancelled, 6),
  };
  console.info(`processes that died: ${JSON.stringify(kills)}`);
  expect(kills.all).toBeGreaterThanOrEqual(6);
  expect(kills.one).toBeGreaterThanOrEqual(3);

  await walk.survivor();
  await nothingLeftRunning(slot, LIMIT_MS);
  expect(await countOf(slot, 'routes', "channel = 'push' AND status <> 'skipped'")).toBe(0);
  // A later attempt finds the routes closed.
  await slot.redis.del(GATEWAY);
  for (const id of ids) {
    const again = operator.operations.begin('replay', { notificationId: id, routeId: PUSH }, BY);
    await expect(again).rejects.toThrow('no dead-lettered route matches');
  }
  expect(await slot.redis.exists(GATEWAY)).toBe(0);
  expect(await slot.redis.xlen(MAIL)).toBe(
    await countOf(slot, 'routes', "channel = 'email' AND status = 'published'"),
  );
});

test('Q1 a process that dies after any step of the relay of outcomes: every event in its order, and one end for each', async () => {
  const walk = beginWalk({ NOTIFICATION_OUTCOMES: 'all' });
  const told = async () =>
    (await slot.redis.xrange('notification:outcomes', '-', '+')).map(
      ([, fields]) => fields[fields.indexOf('event_id') + 1]!,
    );
  const put = async () => {
    const id = await start();
    return async () => (await told()).includes(`${id}/end`);
  };
  // What is no activity: the watch over the stream, the entries, and the end of the transaction that marks their rows.
  const kills = await walk.through('intake', put, 12);
  console.info(`processes that died: ${kills}`);
  expect(kills).toBeGreaterThanOrEqual(2);
  await walk.survivor();
  for (const id of ids) {
    await eventually(`the end of ${id}`, async () => (await told()).includes(`${id}/end`), LIMIT_MS);
  }
  await nothingLeftRunning(slot, LIMIT_MS);
  for (const id of ids) {
    const first = [...new Set((await told()).filter((event) => event.startsWith(`${id}/`)))];
    expect(first).toHaveLength(4);
    expect([first[0], first[3]]).toEqual([`${id}/accepted`, `${id}/end`]);
  }
  // The dead may have appended all, and marked nothing.
  const left = () => countOf(slot, 'outcomes', 'relayed_at IS NULL');
  await eventually('all rows to be relayed', async () => (await left()) === 0, LIMIT_MS);
});
