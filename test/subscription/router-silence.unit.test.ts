/** Routers that do not answer, and those who want something from them and from others. */
import { createServer } from 'node:net';
import { createMessagingRouters } from '../../activities/subscription/router/routers.ts';
import type { QueueRef, RouterAddress, RouterResult } from '../../activities/subscription/router/ports.ts';
import { generateAuthKeys } from '../../activities/subscription/router/keys.ts';
import { listen } from '../../dev/servers/ports.ts';
import type { MessagingRouterStandIn } from '../../dev/stand-ins/subscription/messaging-router.ts';
import { startMessagingRouter } from '../../dev/stand-ins/subscription/messaging-router.ts';
import { makeQueues } from '../../dev/stand-ins/subscription/queues.ts';
import { eventually } from '../eventually.ts';
import { outcomeOf } from './router-agent.ts';

/** Far longer than what is done meanwhile takes; the last of these tests waits for it at its end. */
const CONNECT_TIMEOUT_MS = 8_000;

let smp: MessagingRouterStandIn;
/** Done when the test has ended. */
let cleanUps: (() => Promise<unknown>)[];
/** Takes connections and says nothing. */
let hole: { port: number; open: number; opened: number };
beforeEach(async () => {
  smp = await startMessagingRouter();
  cleanUps = [() => smp.stop()];
  hole = { port: 0, open: 0, opened: 0 };
  const server = createServer((socket) => {
    hole.opened += 1;
    hole.open += 1;
    socket.on('error', () => undefined).on('close', () => (hole.open -= 1));
    socket.resume();
  });
  hole.port = await listen(server);
  server.unref();
  cleanUps.push(async () => server.close());
});
afterEach(() => Promise.all(cleanUps.map((cleanUp) => cleanUp())));

/** Many endpoints are behind one port: another fingerprint is another way. */
const silent = (index = 0): RouterAddress => ({
  host: '127.0.0.1',
  port: hole.port,
  keyHash: String(index).padStart(43, 'A'),
});

const queueAt = (address: RouterAddress, userId: number): QueueRef => ({
  address,
  userId,
  connId: `${address.keyHash}/${userId}`,
  recipientId: Buffer.alloc(24, userId).toString('base64url'),
  recipientPrivateKey: generateAuthKeys().privateKey,
});

const outcomesOf = (results: readonly RouterResult<unknown>[]) => results.map(outcomeOf);

const users = (count: number) => Array.from({ length: count }, (_, index) => index + 1);

function connect(options?: Parameters<typeof createMessagingRouters>[0]) {
  const messaging = createMessagingRouters(options);
  cleanUps.push(() => messaging.close());
  return messaging;
}

/** Queues that an application has made, one for each user, as the product knows them. */
async function makeQueueRefs(userIds: number[]): Promise<QueueRef[]> {
  const made = await makeQueues(userIds.map((userId) => ({ userId, server: smp.address })));
  return made.map(({ userId, recipientId, recipientPrivateKey }) => ({
    ...{ address: smp.address, userId, connId: `c${userId}`, recipientId },
    recipientPrivateKey: Buffer.from(recipientPrivateKey, 'base64url'),
  }));
}

test('subscription-B1 N17 a router that says nothing to many users holds up no user of another', async () => {
  const healthy = await makeQueueRefs([1]);
  const messaging = connect({ timeoutMs: CONNECT_TIMEOUT_MS });
  let hasEnded = false;
  const waiting = messaging
    .deleteNotifierKeys(users(96).map((user) => queueAt(silent(), user)))
    .finally(() => (hasEnded = true));
  await eventually('the silent router to be asked', async () => hole.open > 0);

  expect(outcomesOf(await messaging.deleteNotifierKeys(healthy))).toEqual(['ok']);
  expect(hasEnded).toBe(false);
  await messaging.close();
  await waiting;
});

test('subscription-B1 N17 every caller that waits for an unreachable router hears so with the first', async () => {
  const messaging = connect({ timeoutMs: 300 });
  const results = await messaging.deleteNotifierKeys(users(60).map((user) => queueAt(silent(), user)));

  expect(new Set(outcomesOf(results))).toEqual(new Set(['BROKER NETWORK']));
  expect(results).toHaveLength(60);
  // One round of a few, and not one for each.
  expect(hole.opened).toBeLessThanOrEqual(8);

  // From then on it is tried by one, until it answers.
  const before = hole.opened;
  await messaging.deleteNotifierKeys(users(60).map((user) => queueAt(silent(), user)));
  expect(hole.opened).toBe(before + 1);
});

test('subscription-B1 N17 one user who gets no answer does not speak for a router that answers others', async () => {
  const quick = connect({ commandTimeoutMs: 3_000 });
  const queues = await makeQueueRefs(users(30));
  smp.fail({ failure: { kind: 'silence' }, subject: 'NDEL', times: 1 });

  const outcomes = outcomesOf(await quick.deleteNotifierKeys(queues));
  expect(outcomes.filter((outcome) => outcome === 'BROKER TIMEOUT')).toHaveLength(1);
  expect(outcomes.filter((outcome) => outcome === 'ok')).toHaveLength(29);
});

test('subscription-B1 N17 a router that answers again is asked by all again', async () => {
  const messaging = connect();
  const queues = await makeQueueRefs(users(12));
  await smp.stop();
  expect(new Set(outcomesOf(await messaging.deleteNotifierKeys(queues)))).toEqual(
    new Set(['BROKER NETWORK']),
  );
  await smp.start();
  expect(new Set(outcomesOf(await messaging.deleteNotifierKeys(queues)))).toEqual(new Set(['ok']));
});
