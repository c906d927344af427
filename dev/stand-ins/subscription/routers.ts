/**
 * The routers of an embedded stack: two messaging routers, a notification router, and the push provider behind it,
 * which keep what they know across restarts.
 */
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import type { RouterAddress } from '../../../activities/subscription/router/ports.ts';
import { freePort, isPortFree, ROUTER_PORTS } from '../../servers/ports.ts';
import { startMessagingRouter, type MessagingRouterStandIn } from './messaging-router.ts';
import { startNotificationRouter, type NotificationRouterStandIn } from './notification-router.ts';
import { startPushSink, type PushSinkStandIn } from './push-sink.ts';

const MESSAGING_ROUTERS = 2;

export interface RouterStack {
  messagingRouters: RouterAddress[];
  notificationRouters: RouterAddress[];
  /** The stand-ins themselves, for what they were sent. */
  messaging: MessagingRouterStandIn[];
  notification: NotificationRouterStandIn;
  pushSink: PushSinkStandIn;
  stop(): Promise<void>;
}

/**
 * @param port the first of four; 0: free ones, the same as before where they still are free.
 * @param storeDir where they keep what they know. Created when missing.
 */
export async function startRouters({
  port,
  storeDir,
}: {
  port: number;
  storeDir: string;
}): Promise<RouterStack> {
  mkdirSync(storeDir, { recursive: true });
  // In the order of ROUTER_PORTS.
  const ports = port === 0 ? await portsOf(storeDir) : ROUTER_PORTS.map((_, index) => port + index);
  const portOf = (index: number) => ports[index]!;
  const started: { stop(): Promise<void> }[] = [];
  const keep = <T extends { stop(): Promise<void> }>(one: T): T => {
    started.push(one);
    return one;
  };
  const stop = async () => {
    await Promise.all(started.map((one) => one.stop()));
  };
  try {
    const pushSink = keep(await startPushSink({ port: portOf(MESSAGING_ROUTERS + 1) }));
    const messaging: MessagingRouterStandIn[] = [];
    for (let index = 0; index < MESSAGING_ROUTERS; index += 1) {
      const dataFile = path.join(storeDir, `messaging-${index + 1}.json`);
      messaging.push(keep(await startMessagingRouter({ port: portOf(index), dataFile })));
    }
    const notification = keep(
      await startNotificationRouter({
        port: portOf(MESSAGING_ROUTERS),
        dataFile: path.join(storeDir, 'notification.json'),
        pushUrl: pushSink.url,
      }),
    );
    return {
      messagingRouters: messaging.map(({ address }) => address),
      notificationRouters: [notification.address],
      messaging,
      notification,
      pushSink,
      stop,
    };
  } catch (error) {
    await stop();
    throw error;
  }
}

/** Queues and tokens name the router's address, so a router comes back at its old address. */
async function portsOf(storeDir: string): Promise<number[]> {
  const file = path.join(storeDir, 'ports.json');
  const kept = existsSync(file) ? (JSON.parse(readFileSync(file, 'utf8')) as number[]) : [];
  const ports: number[] = [];
  for (const index of ROUTER_PORTS.keys()) {
    const before = kept[index];
    ports.push(before !== undefined && (await isPortFree(before)) ? before : await freePort());
  }
  writeFileSync(file, JSON.stringify(ports));
  return ports;
}
