/** Queues as an application makes them on its messaging routers, and hands them over to the product. */
import type { MessagingRouter, RouterAddress } from '../../../activities/subscription/router/ports.ts';
import { createMessagingRouters } from '../../../activities/subscription/router/binary/routers.ts';
import {
  dhSecret,
  generateAuthKeys,
  generateDhKeys,
} from '../../../activities/subscription/router/signing.ts';

export interface WantedQueue {
  userId: number;
  server: RouterAddress;
  /** Default: the import makes one. */
  connId?: string;
  /** Default true. */
  enableNotifications?: boolean;
}

/** In the form that `subscriptions import` reads. */
export type ApplicationQueue = WantedQueue & {
  recipientId: string;
  senderId: string;
  recipientPrivateKey: string;
  dhSecret: string;
};

/** @returns the queues in order. @throws Error with the code of the first router that refuses one. */
export async function makeQueues(wanted: readonly WantedQueue[]): Promise<ApplicationQueue[]> {
  const routers = createMessagingRouters();
  try {
    return await Promise.all(wanted.map((queue) => makeQueue(routers, queue)));
  } finally {
    await routers.close();
  }
}

async function makeQueue(
  routers: Pick<MessagingRouter, 'createQueue'>,
  wanted: WantedQueue,
): Promise<ApplicationQueue> {
  const recipient = generateAuthKeys();
  const messages = generateDhKeys();
  const made = await routers.createQueue({
    address: wanted.server,
    userId: wanted.userId,
    recipientPublicKey: recipient.publicKey,
    recipientPrivateKey: recipient.privateKey,
    recipientDhPublicKey: messages.publicKey,
    senderMaySecure: true,
  });
  if (!made.ok) throw new Error(`no queue was made: ${made.error.source} ${made.error.code}`);
  const { recipientId, senderId, routerDhPublicKey } = made.value;
  return {
    ...wanted,
    recipientId,
    senderId,
    recipientPrivateKey: recipient.privateKey.toString('base64url'),
    dhSecret: dhSecret(routerDhPublicKey, messages.privateKey).toString('base64url'),
  };
}

interface Importer {
  import(
    queues: readonly unknown[],
  ): Promise<({ connId: string; hasCredentials: boolean } | { error: string })[]>;
}

/** Makes queues and imports them. @returns the ids of their connections, in order. @throws Error for a queue that is refused. */
export async function importNewQueues(
  subscriptions: Importer,
  wanted: readonly WantedQueue[],
): Promise<string[]> {
  const imported = await subscriptions.import(await makeQueues(wanted));
  return imported.map((one) => {
    if ('error' in one) throw new Error(one.error);
    return one.connId;
  });
}
