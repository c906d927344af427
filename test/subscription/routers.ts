/** Routers and a push provider for tests. */
import { generateAuthKeys, generateDhKeys } from '../../activities/subscription/router/keys.ts';
import type { KeyPair } from '../../activities/subscription/router/ports.ts';
import { openVerification } from '../../activities/subscription/router/routers.ts';
import type {
  MessagingRouterOptions,
  MessagingRouterStandIn,
} from '../../dev/stand-ins/subscription/messaging-router.ts';
import { startMessagingRouter } from '../../dev/stand-ins/subscription/messaging-router.ts';
import type { NotificationRouterStandIn } from '../../dev/stand-ins/subscription/notification-router.ts';
import { startNotificationRouter } from '../../dev/stand-ins/subscription/notification-router.ts';
import type { PushSinkStandIn, RecordedDevicePush } from '../../dev/stand-ins/subscription/push-sink.ts';
import { startPushSink } from '../../dev/stand-ins/subscription/push-sink.ts';

export interface Routers {
  smp: MessagingRouterStandIn[];
  ntf: NotificationRouterStandIn[];
  sink: PushSinkStandIn;
  stop(): Promise<void>;
}

/** @param options how many  and which newest version. */
export async function startRouters(
  options: {
    smp?: number;
    ntf?: number;
    smpOptions?: MessagingRouterOptions;
    ntfVersion?: number;
  } = {},
): Promise<Routers> {
  const { smp: smpCount = 1, ntf: ntfCount = 1, smpOptions = {}, ntfVersion } = options;
  const sink = await startPushSink();
  const smp = await Promise.all(Array.from({ length: smpCount }, () => startMessagingRouter(smpOptions)));
  const ntf = await Promise.all(
    Array.from({ length: ntfCount }, () =>
      startNotificationRouter({
        pushUrl: sink.url,
        ...(ntfVersion === undefined ? {} : { version: ntfVersion }),
      }),
    ),
  );
  return {
    smp,
    ntf,
    sink,
    async stop() {
      await Promise.all(ntf.map((router) => router.stop()));
      await Promise.all([...smp.map((router) => router.stop()), sink.stop()]);
    },
  };
}

/** Keys of a recipient for one queue. */
export interface QueueKeys {
  recipient: KeyPair;
  notifier: KeyPair;
  dh: KeyPair;
}

export const newQueueKeys = (): QueueKeys => ({
  recipient: generateAuthKeys(),
  notifier: generateAuthKeys(),
  dh: generateDhKeys(),
});

/** The code in a verification push. */
export const codeOf = (
  secret: Buffer,
  { data: { nonce = '', verification = '' } }: RecordedDevicePush,
): Buffer | undefined => openVerification(secret, nonce, verification);

/** Pushes of a kind to a device so far. */
export function pushesTo(
  sink: PushSinkStandIn,
  token: string,
  kind: RecordedDevicePush['kind'],
): RecordedDevicePush[] {
  return sink.pushes.filter((push) => push.token === token && push.kind === kind);
}
