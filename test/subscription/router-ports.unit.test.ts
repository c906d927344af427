/** Both ports toward routers, against stand-ins. */
import { randomBytes } from 'node:crypto';
import { createMessagingRouters, openVerification } from '../../activities/subscription/router/routers.ts';
import { dhSecret, generateAuthKeys, generateDhKeys } from '../../activities/subscription/router/keys.ts';
import type { DeviceToken } from '../../activities/subscription/router/ports.ts';
import { startMessagingRouter } from '../../dev/stand-ins/subscription/messaging-router.ts';
import type { RouterFailure } from '../../dev/stand-ins/subscription/router-desk.ts';
import { eventually } from '../eventually.ts';
import type { RouterAdapter } from './router-adapter.ts';
import { keyRequest, outcomesById, startRouterAdapter, tokenAt } from './router-adapter.ts';
import { newDevice, newRegistration, outcomeOf, valueOf } from './router-agent.ts';
import { pushesTo } from './routers.ts';

let adapter: RouterAdapter;

beforeEach(async () => {
  adapter = await startRouterAdapter();
});
afterEach(() => adapter.stop());

test('N17: a queue gets a notifier, and loses it', async () => {
  const { messaging, smp } = adapter;
  expect(outcomeOf(await messaging.ping(smp.address))).toBe('ok');
  const queue = await adapter.makeQueue(smp.address);
  const [credentials] = await messaging.createNotifierKeys([keyRequest(queue)]);

  expect(smp.queues()[0]!.notifier?.notifierId).toBe(valueOf(credentials!.result).notifierId);
  expect(outcomesById(await messaging.deleteNotifierKeys([queue]))).toEqual({ c: 'ok' });
  expect(outcomesById(await messaging.deleteNotifierKeys([queue]))).toEqual({ c: 'ok' });
  expect(smp.queues()[0]!.notifier).toBeUndefined();
});

test('N17: a token is verified, subscribed, replaced and deleted', async () => {
  const { messaging, notifications, ntf, smp } = adapter;
  const { address } = ntf;
  const { device, auth, dh } = newRegistration();
  const { publicKey: dhPublicKey, privateKey: dhPrivateKey } = dh;
  expect(outcomeOf(await notifications.ping(address))).toBe('ok');
  const { tokenId, routerDhPublicKey } = valueOf(
    await notifications.registerToken({ address, device, auth, dhPublicKey }),
  );
  const token = { address, tokenId, privateKey: auth.privateKey };
  const secret = dhSecret(routerDhPublicKey, dhPrivateKey);
  const codeTo = (to: DeviceToken) =>
    eventually('the verification push', async () => {
      const [push] = pushesTo(adapter.routers.sink, to.token, 'verification');
      const { nonce = '', verification = '' } = push?.data ?? {};
      return push && openVerification(secret, nonce, verification);
    });

  const code = await codeTo(device);
  expect(outcomeOf(await notifications.verifyToken(token, randomBytes(32)))).toBe('NTF AUTH');
  expect(outcomeOf(await notifications.verifyToken(token, code))).toBe('ok');
  expect(valueOf(await notifications.checkToken(token))).toBe('ACTIVE');
  expect(outcomeOf(await notifications.setCron(token, 20))).toBe('ok');

  const queue = await adapter.makeQueue(smp.address);
  const { publicKey: notifierPublicKey, privateKey: notifierPrivateKey } = generateAuthKeys();
  const [credentials] = await messaging.createNotifierKeys([{ ...keyRequest(queue), notifierPublicKey }]);
  const { notifierId } = valueOf(credentials!.result);
  const request = { messagingRouter: smp.address, notifierId, notifierPrivateKey };
  const [subscription] = await notifications.createSubscriptions(token, [request]);
  const id = valueOf(subscription);
  await eventually('the subscription to be active', async () => {
    const [status] = await notifications.checkSubscriptions(token, [id]);
    return valueOf(status) === 'ACTIVE';
  });
  expect(outcomeOf(await notifications.deleteSubscription(token, id))).toBe('ok');
  expect((await notifications.checkSubscriptions(token, [id])).map(outcomeOf)).toEqual(['NTF AUTH']);

  const other = newDevice();
  expect(outcomeOf(await notifications.replaceToken(token, other))).toBe('ok');
  expect(outcomeOf(await notifications.verifyToken(token, await codeTo(other)))).toBe('ok');
  expect(outcomeOf(await notifications.deleteToken(token))).toBe('ok');
  expect(outcomeOf(await notifications.deleteToken(token))).toBe('NTF AUTH');
  expect(ntf.tokens()).toEqual([]);
});

test('N17: an item with another key is refused, and no other item in the batch', async () => {
  const queues = await adapter.makeQueues(adapter.smp.address, 3);
  const foreign = { ...queues[1]!, recipientPrivateKey: generateAuthKeys().privateKey };
  const token = await adapter.makeToken(adapter.ntf.address);

  const results = await adapter.messaging.createNotifierKeys(
    [queues[0]!, foreign, queues[2]!].map(keyRequest),
  );
  expect(results.map(({ result }) => outcomeOf(result))).toEqual(['ok', 'SMP AUTH', 'ok']);
  expect(adapter.smp.queues().filter(({ notifier }) => !notifier)).toMatchObject([
    { recipientId: foreign.recipientId },
  ]);
  const thief = { ...token, privateKey: generateAuthKeys().privateKey };
  expect(outcomeOf(await adapter.notifications.deleteToken(thief))).toBe('NTF AUTH');
});

test('N17: of 150 items in a batch each is answered, in their order', async () => {
  const queues = await adapter.makeQueues(adapter.smp.address, 150);
  const from = adapter.smp.batches.length;
  const results = await adapter.messaging.createNotifierKeys(queues.map(keyRequest));

  expect(results.map(({ result }) => outcomeOf(result))).toEqual(Array(150).fill('ok'));
  // 212 bytes each of 16,384 - 19.
  expect(adapter.smp.batches.slice(from).flatMap(({ blocks }) => blocks)).toEqual([77, 73]);
  expect(adapter.smp.calls.slice(-150).map(({ entity }) => entity)).toEqual(
    queues.map(({ recipientId }) => recipientId),
  );
  const token = await adapter.makeToken(adapter.ntf.address);
  const ids = Array.from({ length: 150 }, () => tokenAt(adapter.ntf.address).tokenId);
  const statuses = await adapter.notifications.checkSubscriptions(token, ids);
  expect(statuses.map(outcomeOf)).toEqual(Array(150).fill('NTF AUTH'));
});

test('N17: no listening server fails every item with an error of the network', async () => {
  const [first, second] = await adapter.makeQueues(adapter.smp.address, 2);
  await adapter.smp.stop();

  const results = await adapter.messaging.deleteNotifierKeys([first!, second!]);
  expect(outcomesById(results)).toEqual({ c0: 'BROKER NETWORK', c1: 'BROKER NETWORK' });
  await adapter.smp.start();
  expect(outcomesById(await adapter.messaging.deleteNotifierKeys([first!, second!]))).toEqual({
    c0: 'ok',
    c1: 'ok',
  });
});

test('N17: a name that leads nowhere is an error of the host', async () => {
  const address = { ...adapter.smp.address, host: 'router.invalid' };

  expect(['BROKER HOST', 'BROKER NETWORK']).toContain(outcomeOf(await adapter.notifications.ping(address)));
});

test('N17: closing ends what is under way, and nothing is sent any more', async () => {
  const queue = await adapter.makeQueue(adapter.smp.address);
  adapter.smp.fail({ failure: { kind: 'silence' }, subject: 'NDEL' });
  const underWay = adapter.messaging.deleteNotifierKeys([queue]);
  await eventually('the command to arrive', async () => adapter.smp.calls.some(({ op }) => op === 'NDEL'));

  await adapter.messaging.close();
  expect(outcomesById(await underWay)).toEqual({ c: 'AGENT INACTIVE' });
  const calls = adapter.smp.calls.length;
  expect(outcomesById(await adapter.messaging.deleteNotifierKeys([queue]))).toEqual({
    c: 'AGENT INACTIVE',
  });
  expect(adapter.smp.calls.length).toBe(calls);
});

test('N17: one batch for each user and server, over separate connections', async () => {
  const second = await startMessagingRouter();
  adapter.afterwards(() => second.stop());
  const queues = [
    ...(await adapter.makeQueues(adapter.smp.address, 3, 1)),
    ...(await adapter.makeQueues(adapter.smp.address, 2, 2)),
    ...(await adapter.makeQueues(second.address, 4, 1)),
  ];
  const [from, fromSecond] = [adapter.smp.batches.length, second.batches.length];

  const results = await adapter.messaging.createNotifierKeys(queues.map(keyRequest));
  expect(results.map(({ result }) => outcomeOf(result))).toEqual(Array(9).fill('ok'));
  const sizes = adapter.smp.batches.slice(from).map(({ size }) => size);
  expect(sizes.sort()).toEqual([2, 3]);
  expect(second.batches.slice(fromSecond).map(({ size }) => size)).toEqual([4]);
  const connections = adapter.smp.batches.slice(from).map(({ connection }) => connection);
  expect(new Set(connections).size).toBe(2);
});

test('N17: results carry their item', async () => {
  const queues = await adapter.makeQueues(adapter.smp.address, 10);
  const requests = queues.map((queue) => ({ queue, dh: generateDhKeys(), ...generateAuthKeys() }));
  const results = await adapter.messaging.createNotifierKeys(
    requests.map(({ queue, dh, publicKey }) => ({
      queue,
      notifierPublicKey: publicKey,
      recipientDhPublicKey: dh.publicKey,
    })),
  );

  for (const { item, result } of results) {
    const { notifierId, routerDhPublicKey } = valueOf(result);
    const { dh } = requests.find(({ queue }) => queue === item.queue)!;
    const stored = adapter.smp.queues().find(({ recipientId }) => recipientId === item.queue.recipientId)!;
    expect(stored.notifier).toMatchObject({
      notifierId,
      secret: dhSecret(routerDhPublicKey, dh.privateKey).toString('base64url'),
    });
  }
});

test('N2: of two that time out and one that is refused, each has its own answer, and the others are done', async () => {
  const impatient = createMessagingRouters({ commandTimeoutMs: 1_000 });
  adapter.afterwards(() => impatient.close());
  const queues = await adapter.makeQueues(adapter.smp.address, 5);
  adapter.smp.fail({ failure: { kind: 'silence' }, subject: `NDEL ${queues[0]!.recipientId}` });
  adapter.smp.fail({ failure: { kind: 'silence' }, subject: `NDEL ${queues[3]!.recipientId}` });
  adapter.smp.fail({ failure: { kind: 'error', code: 'AUTH' }, subject: `NDEL ${queues[1]!.recipientId}` });

  expect(outcomesById(await impatient.deleteNotifierKeys(queues))).toEqual({
    c0: 'BROKER TIMEOUT',
    c1: 'SMP AUTH',
    c2: 'ok',
    c3: 'BROKER TIMEOUT',
    c4: 'ok',
  });
  adapter.smp.heal();
  // A session that is held ends with the silence.
  await eventually('all to be answered again', async () =>
    Object.values(outcomesById(await impatient.deleteNotifierKeys(queues))).every((one) => one === 'ok'),
  );
});

test('N2: a connection that breaks fails what was not answered with an error of the network', async () => {
  const queues = await adapter.makeQueues(adapter.smp.address, 2);
  adapter.smp.fail({ failure: { kind: 'reset' }, subject: 'NDEL', times: 1 });

  expect(outcomesById(await adapter.messaging.deleteNotifierKeys(queues))).toMatchObject({
    c0: 'BROKER NETWORK',
  });
  expect(outcomesById(await adapter.messaging.deleteNotifierKeys(queues))).toEqual({ c0: 'ok', c1: 'ok' });
});

test.each<[string, RouterFailure, string]>([
  ['an error', { kind: 'error', code: 'QUOTA' }, 'SMP QUOTA'],
  ['an error that the router names INTERNAL', { kind: 'error', code: 'INTERNAL' }, 'SMP INTERNAL'],
  ['the answer to another command', { kind: 'answer', answer: { op: 'PONG' } }, 'BROKER UNEXPECTED'],
])('N2 %s is that of one item; its siblings have theirs', async (_what, failure, expected) => {
  const queues = await adapter.makeQueues(adapter.smp.address, 3);
  adapter.smp.fail({ failure, subject: `NDEL ${queues[1]!.recipientId}` });

  expect(outcomesById(await adapter.messaging.deleteNotifierKeys(queues))).toEqual({
    c0: 'ok',
    c1: expected,
    c2: 'ok',
  });
});

test.each([
  ['INTERNAL', 'a\0b\nc\ud800', 'INTERNAL', undefined],
  ['CMD', '{"privateKey":"c2VjcmV0"}', 'CMD', undefined],
  ['CMD', 'SYNTAX', 'CMD', 'SYNTAX'],
  ['SECRETSPELTINCAPITALS', undefined, 'UNKNOWN', undefined],
])("subscription-B9 of a router's own words only those of the protocol stay: %s %j", async (...words) => {
  const [code, detail, knownCode, knownDetail] = words;
  const token = await adapter.makeToken(adapter.ntf.address);
  adapter.ntf.fail({ failure: { kind: 'error', code, ...(detail === undefined ? {} : { detail }) } });

  expect(await adapter.notifications.checkToken(token)).toEqual({
    ok: false,
    error: {
      source: 'NTF',
      code: knownCode,
      ...(knownDetail === undefined ? {} : { detail: knownDetail }),
    },
  });
});
