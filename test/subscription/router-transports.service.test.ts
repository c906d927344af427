/** What the service makes of the addresses of routers. */
import { createMessagingRouters } from '../../activities/subscription/router/routers.ts';
import { dhSecret, generateAuthKeys, generateDhKeys } from '../../activities/subscription/router/keys.ts';
import type { RouterAddress } from '../../api/subscription/router-address.ts';
import type { MessagingRouterStandIn } from '../../dev/stand-ins/subscription/messaging-router.ts';
import { makeQueues } from '../../dev/stand-ins/subscription/queues.ts';
import { eventually } from '../harness.ts';
import { makeQueueRefs } from './router-adapter.ts';
import { newDevice, valueOf } from './router-agent.ts';
import type { TokenAgent } from './token-agent.ts';
import { takeTokenAgent } from './token-agent.ts';

let agent: TokenAgent;
let smp: MessagingRouterStandIn;

beforeAll(async () => {
  agent = await takeTokenAgent();
  smp = agent.routers.smp[0]!;
  await agent.startWith();
  await agent.activate(agent.tokensOf(), 'INSTANT');
});
afterAll(() => agent.release());

const subscriptions = () => agent.operator().subscriptions;

const made = async (server: RouterAddress) => (await agent.create([{ userId: 1, server }]))[0]!;

const rowOf = async ({ host, port }: RouterAddress) => {
  const [row] = await agent.rows<{ key_hash: string }>(
    'SELECT key_hash FROM subscriptions.smp_servers WHERE host = $1 AND port = $2',
    [host, port],
  );
  return row;
};

test('N19 a device is registered, verified, given way to another one and forgotten on a binary router', async () => {
  const tokens = agent.tokensOf('device');
  const [ntf] = agent.routers.ntf;
  const known = () => ntf!.tokens().map(({ device }) => device.token);
  await agent.activate(tokens);
  expect(await tokens.check()).toBe('ACTIVE');

  const next = newDevice();
  await agent.activate(tokens, 'PERIODIC', next);
  expect(known()).toEqual(expect.arrayContaining([next.token]));
  expect(known()).not.toContain(tokens.device.token);
  await tokens.delete(next);
  await eventually('the router to forget it', async () => !known().includes(next.token));
});

test('N19 a subscription is made, ended and made again, and its connection deleted, on binary routers', async () => {
  const connId = await made(smp.address);
  await agent.active([connId]);
  expect(await rowOf(smp.address)).toMatchObject({ key_hash: smp.address.keyHash });
  expect(smp.queues()[0]!.notifier).toBeDefined();

  await subscriptions().toggle([connId], false);
  await eventually('the notifier to go', async () => !smp.queues()[0]!.notifier);
  await eventually('the record to go', async () => (await agent.record(connId)) === undefined);
  await subscriptions().toggle([connId], true);
  await agent.active([connId]);

  await subscriptions().delete([connId]);
  await eventually('the notifier to go', async () => !smp.queues()[0]!.notifier);
  await eventually('the record to go', async () => (await agent.record(connId)) === undefined);
  expect(new Set(smp.calls.map(({ op }) => op))).toEqual(new Set(['NEW', 'NKEY', 'NDEL', 'NSUB']));
});

test('N19 the next host of a router is taken when one cannot be reached', async () => {
  const address = { ...smp.address, host: '127.0.0.77,127.0.0.1' };
  const connId = await made(address);
  await agent.active([connId]);
  expect((await agent.record(connId))!.smp_host).toBe(address.host);
});

test('N19 a queue that an application has is taken over by its address', async () => {
  const { host, port, keyHash } = smp.address;
  const [{ recipientId, recipientPrivateKey } = { recipientId: '', recipientPrivateKey: '' }] =
    await makeQueues([{ userId: 1, server: smp.address }]);
  const queue = { userId: 1, recipientId, recipientPrivateKey };

  await expect(subscriptions().import([{ ...queue, server: `smp://${keyHash}@a b` }])).rejects.toThrow(
    'queue 1: server: the host is',
  );
  const [taken] = await subscriptions().import([{ ...queue, server: `smp://${keyHash}@${host}:${port}` }]);
  const { connId } = taken as { connId: string };
  await agent.active([connId]);
  expect(smp.queues().find((one) => one.recipientId === recipientId)!.notifier).toBeDefined();
});

test('N19 credentials that an application has on a binary router are taken over, until the subscription has its own', async () => {
  const { host, port, keyHash } = smp.address;
  const [notifier, notifications] = [generateAuthKeys(), generateDhKeys()];
  const [queueRef] = await makeQueueRefs([{ server: smp.address, userId: 1, connId: 'its own' }]);
  const { recipientId, recipientPrivateKey } = queueRef!;
  const application = createMessagingRouters();
  const [credentials] = await application.createNotifierKeys([
    {
      queue: queueRef!,
      notifierPublicKey: notifier.publicKey,
      recipientDhPublicKey: notifications.publicKey,
    },
  ]);
  const made = valueOf(credentials!.result);
  await application.close();
  const text = (bytes: Buffer) => bytes.toString('base64url');

  const [taken] = await subscriptions().import([
    {
      ...{ userId: 1, server: `smp://${keyHash}@${host}:${port}`, recipientId },
      recipientPrivateKey: text(recipientPrivateKey),
      notifier: {
        notifierId: made.notifierId,
        publicKey: text(notifier.publicKey),
        privateKey: text(notifier.privateKey),
        dhSecret: text(dhSecret(made.routerDhPublicKey, notifications.privateKey)),
      },
    },
  ]);
  expect(taken).toMatchObject({ hasCredentials: true });
  await agent.active([(taken as { connId: string }).connId]);
  const queue = smp.queues().find((one) => one.recipientId === recipientId);
  const { notifierId } = queue!.notifier!;
  expect(notifierId).not.toBe(made.notifierId);
  await eventually('the notification router to listen', async () => smp.subscribed().includes(notifierId));
});
