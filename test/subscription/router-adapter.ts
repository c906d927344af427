/** The port toward messaging routers with a stand-in behind it. */
import { createMessagingRouters } from '../../activities/subscription/router/routers.ts';
import type { QueueRef, RouterAddress } from '../../activities/subscription/router/ports.ts';
import { startMessagingRouter } from '../../dev/stand-ins/subscription/messaging-router.ts';
import { makeQueues } from '../../dev/stand-ins/subscription/queues.ts';

export type RouterAdapter = Awaited<ReturnType<typeof startRouterAdapter>>;

export async function startRouterAdapter() {
  const smp = await startMessagingRouter();
  const messaging = createMessagingRouters();
  const cleanUps: (() => Promise<unknown>)[] = [];

  return {
    smp,
    messaging,
    makeQueue: async (server: RouterAddress, userId = 1, connId = 'c'): Promise<QueueRef> =>
      (await makeQueueRefs([{ server, userId, connId }]))[0]!,
    /** Done when the test has ended. */
    afterwards: (cleanUp: () => Promise<unknown>): void => void cleanUps.push(cleanUp),
    async stop() {
      await messaging.close();
      await Promise.all([...cleanUps.map((cleanUp) => cleanUp()), smp.stop()]);
    },
  };
}

/** Queues that an application has made, as the product knows them. */
export async function makeQueueRefs(
  wanted: { server: RouterAddress; userId: number; connId: string }[],
): Promise<QueueRef[]> {
  const made = await makeQueues(wanted);
  return made.map(({ recipientId, recipientPrivateKey }, index) => {
    const { server: address, userId, connId } = wanted[index]!;
    const key = Buffer.from(recipientPrivateKey, 'base64url');
    return { address, userId, connId, recipientId, recipientPrivateKey: key };
  });
}
