/** Routers and a push provider for tests. */
import { startMessagingRouter } from '../../dev/stand-ins/subscription/messaging-router.ts';
import { startNotificationRouter } from '../../dev/stand-ins/subscription/notification-router.ts';
import type { PushSinkStandIn, RecordedDevicePush } from '../../dev/stand-ins/subscription/push-sink.ts';
import { startPushSink } from '../../dev/stand-ins/subscription/push-sink.ts';

/** @param options how many of each. */
export async function startRouters({ smp: smpCount, ntf: ntfCount }: { smp: number; ntf: number }) {
  const sink = await startPushSink();
  const smp = await Promise.all(Array.from({ length: smpCount }, () => startMessagingRouter()));
  const ntf = await Promise.all(
    Array.from({ length: ntfCount }, () => startNotificationRouter({ pushUrl: sink.url })),
  );
  return {
    smp,
    ntf,
    sink,
    /** Removes the failures of all. */
    heal: () => [...smp, ...ntf].forEach((router) => router.heal()),
    async stop(): Promise<void> {
      await Promise.all(ntf.map((router) => router.stop()));
      await Promise.all([...smp.map((router) => router.stop()), sink.stop()]);
    },
  };
}

/** Pushes of a kind to a device so far. */
export function pushesTo(
  sink: PushSinkStandIn,
  token: string,
  kind: RecordedDevicePush['kind'],
): RecordedDevicePush[] {
  return sink.pushes.filter((push) => push.token === token && push.kind === kind);
}
