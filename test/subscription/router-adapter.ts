/** The adapter toward routers with stand-ins behind it. */
import { randomBytes } from 'node:crypto';
import {
  createMessagingRouters,
  createNotificationRouters,
} from '../../activities/subscription/router/routers.ts';
import type {
  ItemResult,
  NotifierKeyRequest,
  QueueRef,
  RouterAddress,
  TokenRef,
} from '../../activities/subscription/router/ports.ts';
import { generateAuthKeys, generateDhKeys } from '../../activities/subscription/router/keys.ts';
import { makeQueues } from '../../dev/stand-ins/subscription/queues.ts';
import { newRegistration, outcomeOf, valueOf } from './router-agent.ts';
import { startRouters } from './routers.ts';

export type RouterAdapter = Awaited<ReturnType<typeof startRouterAdapter>>;

export async function startRouterAdapter() {
  const routers = await startRouters();
  const messaging = createMessagingRouters();
  const notifications = createNotificationRouters();
  const cleanUps: (() => Promise<unknown>)[] = [];

  return {
    routers,
    smp: routers.smp[0]!,
    ntf: routers.ntf[0]!,
    messaging,
    notifications,
    makeQueue: async (address: RouterAddress, userId = 1, connId = 'c'): Promise<QueueRef> =>
      (await makeQueueRefs([{ server: address, userId, connId }]))[0]!,
    makeQueues: (address: RouterAddress, count: number, userId = 1): Promise<QueueRef[]> =>
      makeQueueRefs(
        Array.from({ length: count }, (_, index) => ({ server: address, userId, connId: `c${index}` })),
      ),
    async makeToken(address: RouterAddress): Promise<TokenRef> {
      const { device, auth, dh } = newRegistration();
      const request = { address, device, auth, dhPublicKey: dh.publicKey };
      const { tokenId } = valueOf(await notifications.registerToken(request));
      return { address, tokenId, privateKey: auth.privateKey };
    },
    /** Done when the test has ended. */
    afterwards: (cleanUp: () => Promise<unknown>): void => void cleanUps.push(cleanUp),
    async stop() {
      await Promise.all([messaging.close(), notifications.close()]);
      await Promise.all([...cleanUps.map((cleanUp) => cleanUp()), routers.stop()]);
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

export function keyRequest(queue: QueueRef): NotifierKeyRequest {
  return {
    queue,
    notifierPublicKey: generateAuthKeys().publicKey,
    recipientDhPublicKey: generateDhKeys().publicKey,
  };
}

/** A token that the router does not know. */
export const tokenAt = (address: RouterAddress): TokenRef => ({
  address,
  tokenId: randomBytes(24).toString('base64url'),
  privateKey: generateAuthKeys().privateKey,
});

export const outcomesById = (results: ItemResult<QueueRef, unknown>[]): Record<string, string> =>
  Object.fromEntries(results.map(({ item, result }) => [item.connId, outcomeOf(result)]));
