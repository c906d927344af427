/** The adapter toward routers with stand-ins behind it, and servers that are no routers. */
import { X509Certificate, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import type { RequestListener } from 'node:http';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { fingerprintOf } from '../../activities/subscription/router/connection.ts';
import type {
  ItemResult,
  NotifierKeyRequest,
  QueueRef,
  RouterAddress,
  TokenRef,
} from '../../activities/subscription/router/ports.ts';
import { generateAuthKeys, generateDhKeys } from '../../activities/subscription/router/signing.ts';
import { createLoopbackCertificate } from '../../dev/stand-ins/certificate.ts';
import { newRegistration, outcomeOf, valueOf } from './router-agent.ts';
import { startRouters } from './routers.ts';
import type { Way } from './ways.ts';
import { WAYS } from './ways.ts';

/** Ids that no router knows. */
export const SUBSCRIPTION_IDS = ['a', 'b', 'c'].map((letter) => letter.repeat(32));

export type RouterAdapter = Awaited<ReturnType<typeof startRouterAdapter>>;

export async function startRouterAdapter(way: Way = WAYS.https) {
  const routers = await startRouters({ transport: way.standIns });
  const messaging = way.messaging();
  const notifications = way.notifications();
  const cleanUps: (() => Promise<unknown>)[] = [];

  async function makeQueue(address: RouterAddress, userId = 1, connId = 'c'): Promise<QueueRef> {
    const { publicKey: recipientPublicKey, privateKey: recipientPrivateKey } = generateAuthKeys();
    const request = { address, userId, recipientPublicKey, recipientPrivateKey };
    const { recipientId } = valueOf(await messaging.createQueue(request));
    return { address, userId, connId, recipientId, recipientPrivateKey };
  }

  /** A server that is no router, and answers as it likes. */
  async function serverAnswering(listener: RequestListener): Promise<RouterAddress> {
    const { keyPem, certPem } = await createLoopbackCertificate();
    const server = createServer({ key: keyPem, cert: certPem }, listener).listen(0, '127.0.0.1');
    await once(server, 'listening');
    cleanUps.push(async () => {
      const closed = once(server, 'close');
      server.close();
      server.closeAllConnections();
      await closed;
    });
    const keyHash = fingerprintOf(new X509Certificate(certPem).raw);
    return { host: '127.0.0.1', port: (server.address() as AddressInfo).port, keyHash };
  }

  return {
    routers,
    smp: routers.smp[0]!,
    ntf: routers.ntf[0]!,
    messaging,
    notifications,
    makeQueue,
    makeQueues: (address: RouterAddress, count: number, userId = 1): Promise<QueueRef[]> =>
      Promise.all(Array.from({ length: count }, (_, index) => makeQueue(address, userId, `c${index}`))),
    async makeToken(address: RouterAddress): Promise<TokenRef> {
      const { device, auth, dh } = newRegistration();
      const request = { address, device, auth, dhPublicKey: dh.publicKey };
      const { tokenId } = valueOf(await notifications.registerToken(request));
      return { address, tokenId, privateKey: auth.privateKey };
    },
    serverAnswering,
    /** A router up to its handshake. */
    answeringCommands: (listener: RequestListener): Promise<RouterAddress> =>
      serverAnswering((request, response) => {
        if (request.method === 'GET') response.end('{"protocol":"ntf","min":1,"max":3}');
        else listener(request, response);
      }),
    /** Done when the test has ended. */
    afterwards: (cleanUp: () => Promise<unknown>): void => void cleanUps.push(cleanUp),
    async stop() {
      await Promise.all([messaging.close(), notifications.close()]);
      await Promise.all([...cleanUps.map((cleanUp) => cleanUp()), routers.stop()]);
    },
  };
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
