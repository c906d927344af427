/**
 * The ports toward messaging and notification routers, in the protocols of official routers. One of each serves a whole
 * process.
 */
import type {
  Boxed,
  DeviceToken,
  ItemResult,
  MessagingRouter,
  NotificationRouter,
  PushSecret,
  QueueRef,
  RawKey,
  RouterAddress,
  RouterResult,
  TokenRef,
} from '../ports.ts';
import type { LastError, RouterReports } from '../reports.ts';
import { createRouterReports } from '../reports.ts';
import { UNEXPECTED, readOk, readPong, readResult } from '../results.ts';
import { endpointOf } from '../../../../api/subscription/router-address.ts';
import { generateDhKeys } from '../signing.ts';
import type { NtfCommand, SmpCommand } from './commands.ts';
import { MalformedError, unpadBlock } from './encoding.ts';
import { BOX_NONCE_BYTES, openBox } from './nacl-box.ts';
import type { SessionAnswer, SessionCommand, SessionFacts } from './session.ts';
import type { RouterSessions, RouterSessionsOptions } from './sessions.ts';
import { createRouterSessions } from './sessions.ts';

/** There is one session toward a notification router, for all users. */
const NTF_SESSION = 'ntf';
/** The length, at least. */
const SHORTEST_PADDED = 2;

/** What is known of a router, and of the sessions that are held with it. */
export interface RouterWatch {
  /** Opens a session if there is none. */
  factsOf(address: RouterAddress): Promise<RouterResult<SessionFacts>>;
  /** Those that are held now, of all users. */
  sessionsWith(address: RouterAddress): SessionFacts[];
  lastErrorOf(address: RouterAddress): LastError | undefined;
}

export type MessagingRouters = MessagingRouter & RouterWatch;
export type NotificationRouters = NotificationRouter & RouterWatch;

export function createMessagingRouters(options: RouterSessionsOptions = {}): MessagingRouters {
  const sessions = createRouterSessions('smp', options);
  const reports = createRouterReports();
  const askOne = askingOne(sessions, reports);

  /** One batch for each transport session: user and server. */
  async function askQueues<Item, Value>(
    items: readonly Item[],
    queueOf: (item: Item) => QueueRef,
    commandOf: (item: Item) => SmpCommand,
    readAnswer: (answer: SessionAnswer) => Value | typeof UNEXPECTED,
  ): Promise<ItemResult<Item, Value>[]> {
    const batches = Map.groupBy(items, (item) => {
      const { userId, address } = queueOf(item);
      return `${userId} ${endpointOf(address)}`;
    });
    const results = [...batches.values()].map(async (batch) => {
      const { userId, address } = queueOf(batch[0]!);
      const commands = batch.map((item): SessionCommand => {
        const { recipientId, recipientPrivateKey } = queueOf(item);
        return { ...about(recipientId, recipientPrivateKey), command: commandOf(item) };
      });
      const answers = await sessions.ask(sessionOf(userId), address, commands);
      const read = answers.map((answer) => readResult(answer, readAnswer));
      reports.noteAll(address, read);
      return batch.map((item, index) => ({ item, result: read[index]! }));
    });
    return (await Promise.all(results)).flat();
  }

  return {
    ping: (address) => askOne(sessionOf(0), address, { command: { op: 'PING' } }, readPong),

    /** Credentials are never made together with the queue: the versions spoken here have no such command. */
    createQueue: ({ userId = 0, address, ...request }) =>
      askOne(
        sessionOf(userId),
        address,
        {
          key: signer(request.recipientPrivateKey),
          command: {
            op: 'NEW',
            recipientKey: request.recipientPublicKey,
            recipientDhKey: request.recipientDhPublicKey ?? generateDhKeys().publicKey,
            basicAuth: address.basicAuth,
            subscribe: request.subscribe ?? false,
            senderMaySecure: request.senderMaySecure ?? false,
          },
        },
        (answer) =>
          answer.op === 'IDS'
            ? {
                recipientId: base64url(answer.recipientId),
                senderId: base64url(answer.senderId),
                routerDhPublicKey: answer.routerDhKey,
              }
            : UNEXPECTED,
      ),

    createNotifierKeys: (requests) =>
      askQueues(
        requests,
        ({ queue }) => queue,
        ({ notifierPublicKey, recipientDhPublicKey }) => ({
          ...{ op: 'NKEY', notifierKey: notifierPublicKey, recipientDhKey: recipientDhPublicKey },
        }),
        (answer) =>
          answer.op === 'NID'
            ? { notifierId: base64url(answer.notifierId), routerDhPublicKey: answer.routerDhKey }
            : UNEXPECTED,
      ),

    deleteNotifierKeys: (queues) =>
      askQueues(
        queues,
        (queue) => queue,
        () => ({ op: 'NDEL' }),
        readOk,
      ),

    deleteQueues: (queues) =>
      askQueues(
        queues,
        (queue) => queue,
        () => ({ op: 'DEL' }),
        readOk,
      ),

    factsOf: (address) => sessions.factsOf(sessionOf(0), address),
    sessionsWith: (address) => sessions.heldWith(address),
    lastErrorOf: (address) => reports.lastErrorOf(address),
    close: () => sessions.close(),
  };
}

export function createNotificationRouters(options: RouterSessionsOptions = {}): NotificationRouters {
  const sessions = createRouterSessions('ntf', options);
  const reports = createRouterReports();
  const askOne = askingOne(sessions, reports);

  async function askAll<Value>(
    address: RouterAddress,
    commands: readonly SessionCommand[],
    read: (answer: SessionAnswer) => Value | typeof UNEXPECTED,
  ): Promise<RouterResult<Value>[]> {
    const answers = await sessions.ask(NTF_SESSION, address, commands);
    const results = answers.map((answer) => readResult(answer, read));
    reports.noteAll(address, results);
    return results;
  }

  const aboutToken = <Value>(
    { address, tokenId, privateKey }: TokenRef,
    command: NtfCommand,
    read: (answer: SessionAnswer) => Value | typeof UNEXPECTED,
  ): Promise<RouterResult<Value>> =>
    askOne(NTF_SESSION, address, { ...about(tokenId, privateKey), command }, read);

  return {
    ping: (address) => askOne(NTF_SESSION, address, { command: { op: 'PING' } }, readPong),

    registerToken: ({ address, device, auth, dhPublicKey }) =>
      askOne(
        NTF_SESSION,
        address,
        {
          key: signer(auth.privateKey),
          command: { op: 'TNEW', device, authKey: auth.publicKey, dhKey: dhPublicKey },
        },
        (answer) =>
          answer.op === 'IDTKN'
            ? { tokenId: base64url(answer.tokenId), routerDhPublicKey: answer.routerDhKey }
            : UNEXPECTED,
      ),
    verifyToken: (token, code) => aboutToken(token, { op: 'TVFY', code }, readOk),
    checkToken: (token) =>
      aboutToken(token, { op: 'TCHK' }, (answer) => (answer.op === 'TKN' ? answer.status : UNEXPECTED)),
    replaceToken: (token, device: DeviceToken) => aboutToken(token, { op: 'TRPL', device }, readOk),
    deleteToken: (token) => aboutToken(token, { op: 'TDEL' }, readOk),
    setCron: (token, minutes) => aboutToken(token, { op: 'TCRN', minutes }, readOk),

    async createSubscriptions({ address, tokenId, privateKey }, requests) {
      if (requests.length === 0) return [];
      const commands = requests.map(({ messagingRouter, notifierId, notifierPrivateKey }): SessionCommand => {
        const { host, port, keyHash } = messagingRouter;
        return {
          key: signer(privateKey),
          command: {
            ...{ op: 'SNEW', tokenId: bytesOf(tokenId), hosts: host.split(','), port },
            ...{ keyHash: bytesOf(keyHash), notifierId: bytesOf(notifierId), notifierPrivateKey },
          },
        };
      });
      return askAll(address, commands, (answer) =>
        answer.op === 'IDSUB' ? base64url(answer.subscriptionId) : UNEXPECTED,
      );
    },

    async checkSubscriptions({ address, privateKey }, subscriptionIds) {
      if (subscriptionIds.length === 0) return [];
      const commands = subscriptionIds.map((id): SessionCommand => ({
        ...about(id, privateKey),
        command: { op: 'SCHK' },
      }));
      return askAll(address, commands, (answer) => (answer.op === 'SUB' ? answer.status : UNEXPECTED));
    },

    deleteSubscription: ({ address, privateKey }, id) =>
      askOne(NTF_SESSION, address, { ...about(id, privateKey), command: { op: 'SDEL' } }, readOk),

    openVerification,
    factsOf: (address) => sessions.factsOf(NTF_SESSION, address),
    sessionsWith: (address) => sessions.heldWith(address),
    lastErrorOf: (address) => reports.lastErrorOf(address),
    close: () => sessions.close(),
  };
}

/** A code is padded in its box, as everything is that a router pushes. */
function openVerification({ dhSecret }: PushSecret, { nonce, content }: Boxed): Buffer | undefined {
  const nonceBytes = Buffer.from(nonce, 'base64');
  if (nonceBytes.length !== BOX_NONCE_BYTES) return undefined;
  const opened = openBox(Buffer.from(content, 'base64'), dhSecret, nonceBytes);
  if (!opened || opened.length < SHORTEST_PADDED) return undefined;
  try {
    return unpadBlock(opened);
  } catch (error) {
    if (error instanceof MalformedError) return undefined;
    throw error;
  }
}

function askingOne(sessions: RouterSessions, reports: RouterReports) {
  return async <Value>(
    session: string,
    address: RouterAddress,
    command: SessionCommand,
    read: (answer: SessionAnswer) => Value | typeof UNEXPECTED,
  ): Promise<RouterResult<Value>> => {
    const [answer] = await sessions.ask(session, address, [command]);
    const result = readResult(answer!, read);
    reports.noteAll(address, [result]);
    return result;
  };
}

const sessionOf = (userId: number): string => `user ${userId}`;
const base64url = (bytes: Buffer): string => bytes.toString('base64url');
const bytesOf = (text: string): Buffer => Buffer.from(text, 'base64url');
const signer = (privateKey: RawKey) => ({ curve: 'ed25519', privateKey }) as const;
const about = (id: string, privateKey: RawKey) => ({ entityId: bytesOf(id), key: signer(privateKey) });
