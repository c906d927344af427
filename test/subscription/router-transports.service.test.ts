/** What the service makes of the addresses of routers. */
import { createMessagingRouters } from '../../activities/subscription/router/routers.ts';
import { dhSecret, generateAuthKeys, generateDhKeys } from '../../activities/subscription/router/keys.ts';
import type { RouterAddress } from '../../api/subscription/router-address.ts';
import type { MessagingRouterStandIn } from '../../dev/stand-ins/subscription/messaging-router.ts';
import { makeQueues } from '../../dev/stand-ins/subscription/queues.ts';
import { eventually } from '../harness.ts';
import { makeQueueRefs } from './router-adapter.ts';
import { valueOf } from './router-agent.ts';
import { tokenAgentOfTests } from './token-agent.ts';

const agent = tokenAgentOfTests();
let smp: MessagingRouterStandIn;

beforeAll(async () => {
  smp = agent.routers.smp[0]!;
  await agent.startWith();
  await agent.activate(agent.tokensOf(), 'INSTANT');
});

const subscriptions = () => agent.operator().subscriptions;

const made = async (server: RouterAddress) => (await agent.create([{ userId: 1, server }]))[0]!;

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
    { queue: queueRef!, auth: notifier, dh: notifications },
  ]);
  const made = valueOf(credentials);
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
