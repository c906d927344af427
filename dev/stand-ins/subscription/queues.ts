/** Queues as an application makes them on its messaging routers, and hands them over to the product. */
import { endpointOf } from '../../../api/subscription/router-address.ts';
import type { Application, QueueServer } from './application.ts';
import { openApplication } from './application.ts';

const LIMIT_MS = 30_000;

export interface WantedQueue {
  userId: number;
  server: QueueServer;
  /** Default: the import makes one. */
  connId?: string;
  /** Default true. */
  enableNotifications?: boolean;
}

/** In the form that `subscriptions import` reads. */
export type ApplicationQueue = WantedQueue & {
  recipientId: string;
  recipientPrivateKey: string;
};

/** @returns the queues in order. @throws Error with the answer of the first router that refuses one. */
export async function makeQueues(wanted: readonly WantedQueue[]): Promise<ApplicationQueue[]> {
  const applications = new Map<string, Promise<Application>>();
  const applicationOf = (server: QueueServer): Promise<Application> => {
    const endpoint = endpointOf(server);
    const application = applications.get(endpoint) ?? openApplication(server, LIMIT_MS);
    applications.set(endpoint, application);
    return application;
  };
  try {
    return await Promise.all(
      wanted.map(async (queue) => {
        const application = await applicationOf(queue.server);
        const { recipientId, recipient } = await application.createQueue({ senderMaySecure: true });
        return { ...queue, recipientId, recipientPrivateKey: recipient.privateKey.toString('base64url') };
      }),
    );
  } finally {
    for (const opened of await Promise.allSettled(applications.values())) {
      if (opened.status === 'fulfilled') opened.value.close();
    }
  }
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
