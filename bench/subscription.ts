/** The service with the role subscription in its own part, with stand-in routers in the process of the benchmark. */
import { randomBytes } from 'node:crypto';
import type { KeyBox } from '../api/key-box.ts';
import { createKeyBox } from '../api/key-box.ts';
import { routerAddressText } from '../api/subscription/router-address.ts';
import type { Operator } from '../client/operator.ts';
import { createOperator } from '../client/operator.ts';
import type { MessagingRouterStandIn } from '../dev/stand-ins/subscription/messaging-router.ts';
import { startMessagingRouter } from '../dev/stand-ins/subscription/messaging-router.ts';
import type { NotificationRouterStandIn } from '../dev/stand-ins/subscription/notification-router.ts';
import { startNotificationRouter } from '../dev/stand-ins/subscription/notification-router.ts';
import { startPushSink } from '../dev/stand-ins/subscription/push-sink.ts';
import type { Bench, Part, PartName } from './environment.ts';
import type { ServiceProcess } from './processes.ts';
import { until } from './rounds.ts';

export const AGENT = 'default';
export const LOOK_INTERVAL_MS = 250;

export interface Installation {
  part: Part;
  service: ServiceProcess;
  operator: Operator;
  keyBox: KeyBox;
  routers: readonly MessagingRouterStandIn[];
  notifications: NotificationRouterStandIn;
}

/**
 * Starts routers and the service, and registers a device, so that connections that want a subscription get one.
 *
 * @param options.routers how many messaging routers; beside them there is one notification router.
 */
export async function installSubscriptions(
  bench: Bench,
  name: PartName,
  { routers: count }: { routers: number },
): Promise<Installation> {
  const part = await bench.part(name);
  const pushes = await startPushSink();
  bench.onClose(() => pushes.stop());
  const routers = await Promise.all(Array.from({ length: count }, () => startMessagingRouter()));
  const notifications = await startNotificationRouter({ pushUrl: pushes.url });
  bench.onClose(() => Promise.all([notifications, ...routers].map((router) => router.stop())));
  const key = randomBytes(32);
  const service = await bench.service(name, {
    NOTIFICATION_ROLES: 'subscription',
    NOTIFICATION_SUBSCRIPTION_KEYS: `bench:${key.toString('base64')}`,
    NOTIFICATION_SUBSCRIPTION_NTF_SERVERS: routerAddressText(notifications.address, 'ntf'),
  });
  const keyBox = createKeyBox([{ id: 'bench', key }]);
  const operator = createOperator({
    temporal: part.client,
    namespace: part.client.options.namespace,
    db: part.db,
    redis: part.redis,
    intentsStream: 'notification:intents',
    agentId: AGENT,
    keyBox: () => keyBox,
  });
  const device = { provider: 'AT' as const, token: randomBytes(16).toString('hex') };
  await operator.tokens.register(device, 'INSTANT');
  await until('the code for the device', LOOK_INTERVAL_MS, () => pushes.pushes.length > 0);
  const { nonce = '', verification: code = '' } = pushes.pushes[0]!.data;
  await operator.tokens.verify(device, { nonce, code });
  // The supervisor is live once it has subscribed all connections; at this point it has zero.
  await until('the supervisor', LOOK_INTERVAL_MS, async () => {
    const { live } = await operator.subscriptions.status();
    return live !== undefined && live.done > 0 && live.queue.length === 0 && !live.current;
  });
  return { part, service, operator, keyBox, routers, notifications };
}
