/**
 * The life of a subscription on routers of another operator: with the adapter of the service, and
 * an application and a push provider of this run. The run deletes what it made on the routers.
 */
import { randomBytes } from 'node:crypto';
import type { BinaryAddress } from '../../api/subscription/router-address.ts';
import { connectToRouter } from '../../activities/subscription/router/connect.ts';
import {
  createMessagingRouters,
  createNotificationRouters,
  openVerification,
} from '../../activities/subscription/router/routers.ts';
import type { KeyPair, QueueRef, TokenRef } from '../../activities/subscription/router/ports.ts';
import type { MessagingRouter, NotificationRouter } from '../../activities/subscription/router/routers.ts';
import { dhSecret, generateAuthKeys, generateDhKeys } from '../../activities/subscription/router/keys.ts';
import { waitUntil } from '../../client/temporal.ts';
import type { Application, QueueServer } from '../stand-ins/subscription/application.ts';
import { openApplication } from '../stand-ins/subscription/application.ts';
import type { DevicePush, PushProvider } from './push-provider.ts';
import { openItems, openMeta } from './pushes.ts';
import type { Step, Steps } from './steps.ts';
import { StepFailed, createSteps, goOn, must, mustBe, outcomeOf } from './steps.ts';

export interface LiveRun {
  smp: BinaryAddress & QueueServer;
  ntf: BinaryAddress;
  provider: PushProvider;
  /** For a connection, an answer, a status and a push each, ms. */
  limitMs: number;
  tell: (step: Step) => void;
  /** Ends it before its time: what was made until then is deleted. */
  signal?: AbortSignal;
}

interface Ports {
  messaging: MessagingRouter;
  notifications: NotificationRouter;
  application: Application;
}

/** A queue with its subscription. */
interface Subscribed {
  queue: QueueRef;
  senderId: string;
  sender: KeyPair;
  notifierId: string;
  /** For what pushes say about messages. */
  secret: Buffer;
  subscriptionId: string;
}

interface Registered {
  token: TokenRef;
  secret: Buffer;
  device: string;
}

const DEVICE_BYTES = 32;
const LOOK_EVERY_MS = 100;
const USER_ID = 1;

/** @returns whether every step came to what it must. */
export async function runLive(run: LiveRun): Promise<boolean> {
  const limits = { timeoutMs: run.limitMs, commandTimeoutMs: run.limitMs };
  const messaging = createMessagingRouters(limits);
  const notifications = createNotificationRouters(limits);
  const steps = createSteps(run.tell, run.signal);
  /** What is still to be deleted on the routers, the last made first. */
  const left: (() => Promise<unknown>)[] = [];
  try {
    await steps.run('connect to the messaging router', async (see) => see(await meet(messaging, run.smp)));
    await steps.run('connect to the notification router', async (see) =>
      see(await meet(notifications, run.ntf)),
    );
    const application = await steps.run('connect as the application', async () =>
      openApplication(run.smp, run.limitMs),
    );
    left.push(async () => application.close());
    await live(run, { messaging, notifications, application }, steps, left);
    return true;
  } catch (error) {
    if (error instanceof StepFailed) return false;
    throw error;
  } finally {
    for (const remove of left.toReversed()) await remove().catch(() => undefined);
    await Promise.all([messaging.close(), notifications.close()]);
  }
}

async function live(
  run: LiveRun,
  ports: Ports,
  steps: Steps,
  left: (() => Promise<unknown>)[],
): Promise<void> {
  const { messaging, notifications, application } = ports;
  const registered = await register(run, ports, steps, left);
  const first = await subscribe('', run, ports, registered, steps, left);
  await notify('', run, ports, registered, first, steps);
  const second = await subscribe(' in its place', run, ports, registered, steps, left);
  await steps.run('delete the first queue', async (see) => {
    mustBe(await application.deleteQueue(first.queue), 'OK');
    const check = async () => {
      const [checked] = await notifications.checkSubscriptions(registered.token, [first.subscriptionId]);
      return checked!;
    };
    // Messaging routers before version 10 do not report a deleted queue: the subscription may still be active.
    see({ 'status of its subscription': must(await check()) });
    must(await notifications.deleteSubscription(registered.token, first.subscriptionId));
    mustBe(outcomeOf(await check()), 'NTF AUTH');
  });
  await notify(' after the rotation', run, ports, registered, second, steps);

  await steps.run('delete', async (see) => {
    const { queue, subscriptionId } = second;
    const [disabled] = await messaging.deleteNotifierKeys([queue]);
    must(disabled);
    must(await notifications.deleteSubscription(registered.token, subscriptionId));
    mustBe(await application.deleteQueue(queue), 'OK');
    must(await notifications.deleteToken(registered.token));
    // The application's session alone.
    left.splice(1);
    const queueIs = await application.deleteQueue(queue);
    const tokenIs = outcomeOf(await notifications.checkToken(registered.token));
    see({ 'deleting the queue again': queueIs, 'checking the token': tokenIs });
    mustBe(queueIs, 'ERR AUTH');
    mustBe(tokenIs, 'NTF AUTH');
  });
}

/** For a connection, ms. */
const MEETING_MS = 45_000;

async function meet(router: Pick<MessagingRouter, 'ping'>, address: BinaryAddress) {
  must(await router.ping(address));
  const { socket, binding } = await connectToRouter(address.protocol, address, { timeoutMs: MEETING_MS });
  socket.destroy();
  const startedAt = performance.now();
  must(await router.ping(address));
  return {
    ...{ router: `${address.host}:${address.port}`, fingerprint: address.keyHash },
    version: binding.version,
    'round trip, ms': Math.ceil(performance.now() - startedAt),
  };
}

async function register(
  run: LiveRun,
  { notifications }: Ports,
  steps: Steps,
  left: (() => Promise<unknown>)[],
): Promise<Registered> {
  const device = { provider: 'AT', token: randomBytes(DEVICE_BYTES).toString('hex') } as const;
  const registered = await steps.run('register a device token', async (see) => {
    const [auth, dh] = [generateAuthKeys(), generateDhKeys()];
    const request = { address: run.ntf, device, auth, dhPublicKey: dh.publicKey };
    const { tokenId, routerDhPublicKey } = must(await notifications.registerToken(request));
    const token = { address: run.ntf, tokenId, privateKey: auth.privateKey };
    left.push(() => notifications.deleteToken(token));
    see({ 'token id': tokenId, status: must(await notifications.checkToken(token)) });
    return { token, secret: dhSecret(routerDhPublicKey, dh.privateKey), device: device.token };
  });
  const code = await steps.run('receive the verification push', async (see) => {
    const { type, data } = await pushed(run, registered.device, ({ data: { verification } }) => verification);
    const opened = openVerification(registered.secret, data.nonce ?? '', data.verification!);
    if (!opened) throw new StepFailed('the code does not open with the secret that was agreed');
    see({ type, 'bytes of the code': opened.length });
    return opened;
  });
  await steps.run('verify the token', async (see) => {
    must(await notifications.verifyToken(registered.token, code));
    const status = must(await notifications.checkToken(registered.token));
    see({ status });
    mustBe(status, 'ACTIVE');
  });
  return registered;
}

async function subscribe(
  which: string,
  run: LiveRun,
  ports: Ports,
  registered: Registered,
  steps: Steps,
  left: (() => Promise<unknown>)[],
): Promise<Subscribed> {
  const { messaging, notifications, application } = ports;
  const made = await steps.run(`create a queue${which}`, async (see) => {
    const sender = generateAuthKeys();
    const { recipientId, senderId, recipient } = await application.createQueue();
    const queue = {
      ...{ address: run.smp, userId: USER_ID, connId: '', recipientId },
      recipientPrivateKey: recipient.privateKey,
    };
    // In another session: one that broke may be why the run ends.
    left.push(async () => {
      const again = await openApplication(run.smp, run.limitMs);
      await again.deleteQueue(queue).finally(() => again.close());
    });
    see({ 'recipient id': recipientId, 'sender id': senderId });
    mustBe(await application.secure(queue, sender), 'OK');
    return { queue, senderId, sender };
  });
  return steps.run(`subscribe to the queue${which}`, async (see) => {
    const [notifier, dh] = [generateAuthKeys(), generateDhKeys()];
    const [credentials] = await messaging.createNotifierKeys([{ queue: made.queue, auth: notifier, dh }]);
    const { notifierId, routerDhPublicKey } = must(credentials);
    const [created] = await notifications.createSubscriptions(registered.token, [
      { messagingRouter: run.smp, notifierId, notifierPrivateKey: notifier.privateKey },
    ]);
    const subscriptionId = must(created);
    const secret = dhSecret(routerDhPublicKey, dh.privateKey);
    const status = await activeOrLast(run, ports, registered, subscriptionId);
    see({ 'notifier id': notifierId, 'subscription id': subscriptionId, status });
    mustBe(status, 'ACTIVE', 'the notification router must reach the messaging router at the same address');
    return { ...made, notifierId, secret, subscriptionId };
  });
}

/** ACTIVE, or the last status that was seen when the time was up. */
async function activeOrLast(
  { limitMs, signal }: LiveRun,
  { notifications }: Ports,
  { token }: Registered,
  subscriptionId: string,
): Promise<string> {
  let status = '';
  await waitUntil(
    async () => {
      goOn(signal);
      const [checked] = await notifications.checkSubscriptions(token, [subscriptionId]);
      status = must(checked);
      return status === 'ACTIVE' ? status : undefined;
    },
    { limitMs, everyMs: LOOK_EVERY_MS },
  );
  return status;
}

async function notify(
  which: string,
  run: LiveRun,
  { application }: Ports,
  { secret, device }: Registered,
  { queue, senderId, sender, notifierId, secret: queueSecret }: Subscribed,
  steps: Steps,
): Promise<void> {
  await steps.run(`send a message${which}`, async () =>
    mustBe(await application.send(senderId, sender, 'hello'), 'OK'),
  );
  await steps.run(`receive the notification${which}`, async (see) => {
    const itemIn = ({ data }: DevicePush) =>
      data.message === undefined
        ? undefined
        : openItems(data, secret).find((item) => item.notifierId === notifierId);
    const push = await pushed(run, device, itemIn);
    const item = itemIn(push)!;
    const { messageId, at } = openMeta(item, queueSecret);
    see({ type: push.type, router: item.router, 'message id': messageId, 'sent at': at.toISOString() });
    mustBe(messageId, await application.oldestMessage(queue), 'the queue has another message');
  });
}

/** @throws StepFailed when none comes in time. */
async function pushed(
  { provider, limitMs, signal }: LiveRun,
  device: string,
  isWanted: (push: DevicePush) => unknown,
): Promise<DevicePush> {
  const found = await waitUntil(
    async () => {
      goOn(signal);
      return provider.pushes.find((push) => push.token === device && isWanted(push) !== undefined);
    },
    { limitMs, everyMs: LOOK_EVERY_MS },
  );
  if (found) return found;
  throw new StepFailed(
    `no push within ${limitMs} ms: does the router reach the push provider at localhost:443, and trust its certificate? See --help`,
  );
}
