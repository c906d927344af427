/** An agent that speaks to stand-in routers through the adapter alone, without rows and workflows. */
import { randomBytes } from 'node:crypto';
import {
  createMessagingRouters,
  createNotificationRouters,
} from '../../activities/subscription/router/routers.ts';
import type {
  DeviceToken,
  KeyPair,
  QueueRef,
  RouterResult,
  TokenRef,
} from '../../activities/subscription/router/ports.ts';
import { dhSecret, generateAuthKeys, generateDhKeys } from '../../activities/subscription/router/keys.ts';
import { openApplication } from '../../dev/stand-ins/subscription/application.ts';
import type { MessagingRouterStandIn } from '../../dev/stand-ins/subscription/messaging-router.ts';
import type { NotificationRouterStandIn } from '../../dev/stand-ins/subscription/notification-router.ts';
import { eventually } from '../eventually.ts';
import type { QueueKeys, Routers } from './routers.ts';
import { noticesIn } from './pushes.ts';
import { codeOf, newQueueKeys, pushesTo, startRouters } from './routers.ts';

const APPLICATION_LIMIT_MS = 30_000;

/** The way of a device to a token. */
export interface Registration {
  device: DeviceToken;
  auth: KeyPair;
  dh: KeyPair;
}

export interface RegisteredToken extends Registration {
  ref: TokenRef;
  secret: Buffer;
}

export interface NotifiedQueue {
  keys: QueueKeys;
  ref: QueueRef;
  senderId: string;
  notifierId: string;
  secret: Buffer;
}

export const newDevice = (): DeviceToken => ({ provider: 'AT', token: randomBytes(32).toString('hex') });

export const newRegistration = (device = newDevice()): Registration => ({
  device,
  auth: generateAuthKeys(),
  dh: generateDhKeys(),
});

export function valueOf<T>(result: RouterResult<T> | undefined): T {
  if (!result?.ok) throw new Error(JSON.stringify(result));
  return result.value;
}

/** `ok`, or source and code of the error. */
export const outcomeOf = (result: RouterResult<unknown> | undefined): string =>
  result?.ok ? 'ok' : `${result?.error.source} ${result?.error.code}`;

export type RouterAgent = Awaited<ReturnType<typeof startRouterAgent>>;

/** Starts one router of each kind, and the agent. */
export async function startRouterAgent() {
  const routers: Routers = await startRouters();
  const smp: MessagingRouterStandIn = routers.smp[0]!;
  const ntf: NotificationRouterStandIn = routers.ntf[0]!;
  const messaging = createMessagingRouters();
  const notifications = createNotificationRouters();

  const tnew = ({ device, auth, dh }: Registration) =>
    notifications.registerToken({ address: ntf.address, device, auth, dhPublicKey: dh.publicKey });

  async function register(registration = newRegistration()): Promise<RegisteredToken> {
    const { tokenId, routerDhPublicKey } = valueOf(await tnew(registration));
    return {
      ...registration,
      ref: { address: ntf.address, tokenId, privateKey: registration.auth.privateKey },
      secret: dhSecret(routerDhPublicKey, registration.dh.privateKey),
    };
  }

  /** The code of the newest verification push, of which there are to be so many. */
  async function pushedCode({ device, secret }: RegisteredToken, count = 1): Promise<Buffer> {
    const pushes = await eventually('the verification push', async () => {
      const all = pushesTo(routers.sink, device.token, 'verification');
      return all.length >= count && all;
    });
    expect(pushes.length).toBe(count);
    return codeOf(secret, pushes.at(-1)!)!;
  }

  async function activate(token: RegisteredToken): Promise<void> {
    valueOf(await notifications.verifyToken(token.ref, await pushedCode(token)));
  }

  /** A queue with a notifier. */
  async function makeQueue(): Promise<NotifiedQueue> {
    const keys = newQueueKeys();
    const notifierKeys = {
      notifierPublicKey: keys.notifier.publicKey,
      recipientDhPublicKey: keys.dh.publicKey,
    };
    const application = await openApplication(smp.address, APPLICATION_LIMIT_MS);
    const { recipientId, senderId } = await application.createQueue({ recipient: keys.recipient });
    application.close();
    const recipientPrivateKey = keys.recipient.privateKey;
    const ref: QueueRef = { address: smp.address, userId: 1, connId: 'c', recipientId, recipientPrivateKey };
    const [made] = await messaging.createNotifierKeys([{ queue: ref, ...notifierKeys }]);
    const { notifierId, routerDhPublicKey } = valueOf(made?.result);
    return { keys, ref, senderId, notifierId, secret: dhSecret(routerDhPublicKey, keys.dh.privateKey) };
  }

  async function snew(
    { ref }: { ref: TokenRef },
    { keys, notifierId }: NotifiedQueue,
  ): Promise<RouterResult<string>> {
    const notifierPrivateKey = keys.notifier.privateKey;
    const request = { messagingRouter: smp.address, notifierId, notifierPrivateKey };
    return (await notifications.createSubscriptions(ref, [request]))[0]!;
  }

  const statusOf = async (token: RegisteredToken, subscriptionId: string): Promise<string> =>
    valueOf((await notifications.checkSubscriptions(token.ref, [subscriptionId]))[0]);

  return {
    routers,
    smp,
    ntf,
    sink: routers.sink,
    messaging,
    notifications,
    tnew,
    register,
    pushedCode,
    activate,
    makeQueue,
    snew,
    statusOf,
    reaches: (token: RegisteredToken, subscriptionId: string, status: string) =>
      eventually(
        `the subscription to be ${status}`,
        async () => (await statusOf(token, subscriptionId)) === status,
      ),
    /** Waits for the push that is about this message. @returns where it is from, and what it says. */
    pushedMessage: (token: RegisteredToken, queue: NotifiedQueue, messageId: string) =>
      eventually('the push of a message', async () => {
        const pushes = pushesTo(routers.sink, token.device.token, 'message');
        return pushes
          .flatMap((push) =>
            (noticesIn(push.data, token.secret) ?? []).map((notice) => ({
              ...{ ...notice, meta: notice.open(queue.secret), push },
            })),
          )
          .find((one) => one.notifierId === queue.notifierId && one.meta?.messageId === messageId);
      }),
    async stop() {
      await Promise.all([messaging.close(), notifications.close()]);
      await routers.stop();
    },
  };
}
