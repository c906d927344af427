/** What the service makes of the addresses of routers. */
import { createMessagingRouters } from '../../activities/subscription/router/routers.ts';
import { dhSecret, generateAuthKeys, generateDhKeys } from '../../activities/subscription/router/keys.ts';
import type { MessagingRouterStandIn } from '../../dev/stand-ins/subscription/messaging-router.ts';
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
