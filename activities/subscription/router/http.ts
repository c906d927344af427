/**
 * The ports toward messaging and notification routers, over the JSON protocols of
 * api/subscription/messaging-router-openapi.yaml and api/subscription/notification-router-openapi.yaml. One of each
 * serves a whole process.
 */
import type { NtfAnswer, SmpAnswer, SmpCommand } from '../../../api/subscription/router-wire.ts';
import {
  SMP_VERSION_WITH_NOTIFIER,
  ntfAnswerSchema,
  smpAnswerSchema,
} from '../../../api/subscription/router-wire.ts';
import type { RouterClientOptions, UnsignedCommand } from './client.ts';
import { createRouterClient } from './client.ts';
import { endpointOf } from './connection.ts';
import type {
  DeviceToken,
  ItemResult,
  MessagingRouter,
  NewQueueAnswer,
  NotificationRouter,
  NotifierKeyAnswer,
  QueueRef,
  RouterAddress,
  RouterResult,
  TokenRef,
} from './ports.ts';
import { UNEXPECTED, readOk, readPong, readResult } from './results.ts';
import { unbox } from './signing.ts';

/** There is one session toward a notification router, for all users. */
const NTF_SESSION = 'ntf';

export function createMessagingRouter(options: RouterClientOptions = {}): MessagingRouter {
  const client = createRouterClient('smp', smpAnswerSchema, options);

  /**
   * One batch for each transport session: user and server. A router cannot tell from a session whose other queues
   * are.
   */
  async function sendToQueues<Item, Value>(
    items: readonly Item[],
    queueOf: (item: Item) => QueueRef,
    commandOf: (item: Item) => SmpCommand,
    read: (answer: Answer<SmpAnswer>) => Value | typeof UNEXPECTED,
  ): Promise<ItemResult<Item, Value>[]> {
    const sessions = new Map<string, { user: number; address: RouterAddress; items: Item[] }>();
    for (const item of items) {
      const { userId, address } = queueOf(item);
      const key = `${userId} ${endpointOf(address)}`;
      const session = sessions.get(key) ?? { user: userId, address, items: [] };
      sessions.set(key, session);
      session.items.push(item);
    }
    const batches = [...sessions.values()].map(async ({ user, address, items: batch }) => {
      const results = await client.send(sessionOf(user), address, () =>
        batch.map((item) => {
          const { recipientId, recipientPrivateKey } = queueOf(item);
          return { entity: recipientId, command: commandOf(item), privateKey: recipientPrivateKey };
        }),
      );
      return batch.map((item, index) => ({ item, result: readResult(results[index]!, read) }));
    });
    return (await Promise.all(batches)).flat();
  }

  return {
    async ping(address) {
      const [result] = await client.send(sessionOf(0), address, () => [{ command: { op: 'PING' } }]);
      return readResult(result!, readPong);
    },

    async createQueue({ userId = 0, address, recipientPublicKey, recipientPrivateKey, notifier }) {
      const [result] = await client.send(sessionOf(userId), address, (version) => [
        {
          command: {
            op: 'NEW',
            recipientKey: base64url(recipientPublicKey),
            // An older router makes the queue alone, and is asked for the keys later.
            ...(notifier && version >= SMP_VERSION_WITH_NOTIFIER
              ? { notifier: notifierKeysOf(notifier) }
              : {}),
          },
          privateKey: recipientPrivateKey,
        },
      ]);
      return readResult(result!, (answer): NewQueueAnswer | typeof UNEXPECTED => {
        if (answer.op !== 'IDS') return UNEXPECTED;
        const { recipientId, senderId } = answer;
        return {
          recipientId,
          senderId,
          ...(answer.notifier ? { notifier: notifierOf(answer.notifier) } : {}),
        };
      });
    },

    createNotifierKeys: (requests) =>
      sendToQueues(
        requests,
        ({ queue }) => queue,
        (request) => ({ op: 'NKEY', ...notifierKeysOf(request) }),
        (answer) => (answer.op === 'NID' ? notifierOf(answer) : UNEXPECTED),
      ),

    deleteNotifierKeys: (queues) =>
      sendToQueues(
        queues,
        (queue) => queue,
        () => ({ op: 'NDEL' }),
        readOk,
      ),

    deleteQueues: (queues) =>
      sendToQueues(
        queues,
        (queue) => queue,
        () => ({ op: 'DEL' }),
        readOk,
      ),

    close: () => client.close(),
  };
}

export function createNotificationRouter(options: RouterClientOptions = {}): NotificationRouter {
  const client = createRouterClient('ntf', ntfAnswerSchema, options);

  async function sendOne<Value>(
    address: RouterAddress,
    command: UnsignedCommand,
    read: (answer: Answer<NtfAnswer>) => Value | typeof UNEXPECTED,
  ): Promise<RouterResult<Value>> {
    const [result] = await client.send(NTF_SESSION, address, () => [command]);
    return readResult(result!, read);
  }

  const aboutToken = <Value>(
    { address, tokenId, privateKey }: TokenRef,
    command: UnsignedCommand['command'],
    read: (answer: Answer<NtfAnswer>) => Value | typeof UNEXPECTED,
  ): Promise<RouterResult<Value>> => sendOne(address, { entity: tokenId, command, privateKey }, read);

  return {
    ping: (address) => sendOne(address, { command: { op: 'PING' } }, readPong),

    registerToken: ({ address, device, auth, dhPublicKey }) =>
      sendOne(
        address,
        {
          command: {
            op: 'TNEW',
            device: onWire(device),
            authKey: base64url(auth.publicKey),
            dhKey: base64url(dhPublicKey),
          },
          privateKey: auth.privateKey,
        },
        (answer) =>
          answer.op === 'IDTKN'
            ? { tokenId: answer.tokenId, routerDhPublicKey: rawKey(answer.routerDhKey) }
            : UNEXPECTED,
      ),
    verifyToken: (token, code) => aboutToken(token, { op: 'TVFY', code: base64url(code) }, readOk),
    checkToken: (token) =>
      aboutToken(token, { op: 'TCHK' }, (answer) => (answer.op === 'TKN' ? answer.status : UNEXPECTED)),
    replaceToken: (token, device) => aboutToken(token, { op: 'TRPL', device: onWire(device) }, readOk),
    deleteToken: (token) => aboutToken(token, { op: 'TDEL' }, readOk),
    setCron: (token, minutes) => aboutToken(token, { op: 'TCRN', minutes }, readOk),

    async createSubscriptions({ address, tokenId, privateKey }, requests) {
      if (requests.length === 0) return [];
      const results = await client.send(NTF_SESSION, address, () =>
        requests.map(({ messagingRouter, notifierId, notifierPrivateKey }) => ({
          command: {
            op: 'SNEW',
            tokenId,
            router: {
              host: messagingRouter.host,
              port: messagingRouter.port,
              keyHash: messagingRouter.keyHash,
            },
            notifierId,
            notifierPrivateKey: base64url(notifierPrivateKey),
          },
          privateKey,
        })),
      );
      return results.map((result) =>
        readResult(result, (answer) => (answer.op === 'IDSUB' ? answer.subscriptionId : UNEXPECTED)),
      );
    },

    async checkSubscriptions({ address, privateKey }, subscriptionIds) {
      if (subscriptionIds.length === 0) return [];
      const results = await client.send(NTF_SESSION, address, () =>
        subscriptionIds.map((entity) => ({ entity, command: { op: 'SCHK' }, privateKey })),
      );
      return results.map((result) =>
        readResult(result, (answer) => (answer.op === 'SUB' ? answer.status : UNEXPECTED)),
      );
    },

    deleteSubscription: ({ address, privateKey }, entity) =>
      sendOne(address, { entity, command: { op: 'SDEL' }, privateKey }, readOk),

    openVerification: ({ dhSecret }, verification) => unbox(verification, dhSecret, 'verification'),

    close: () => client.close(),
  };
}

type Answer<Of extends { op: string }> = Exclude<Of, { op: 'ERR' }>;

const sessionOf = (userId: number): string => `user ${userId}`;
const base64url = (bytes: Buffer): string => bytes.toString('base64url');
const rawKey = (text: string): Buffer => Buffer.from(text, 'base64url');
/** Hex is the same in either case; a router knows one. */
const onWire = ({ provider, token }: DeviceToken): DeviceToken => ({ provider, token: token.toLowerCase() });

function notifierKeysOf(keys: { notifierPublicKey: Buffer; recipientDhPublicKey: Buffer }) {
  return {
    notifierKey: base64url(keys.notifierPublicKey),
    recipientDhKey: base64url(keys.recipientDhPublicKey),
  };
}

function notifierOf({
  notifierId,
  routerDhKey,
}: {
  notifierId: string;
  routerDhKey: string;
}): NotifierKeyAnswer {
  return { notifierId, routerDhPublicKey: rawKey(routerDhKey) };
}
