/**
 * The ports toward messaging and notification routers, in the protocols of official routers. One of each serves a whole
 * process. Errors are data: each item of a batch has its own answer, and nothing throws for what a router says or fails to
 * say.
 */
import { endpointOf } from '../../../api/subscription/router-address.ts';
import { MalformedError, unpadBlock } from './blocks.ts';
import { BOX_NONCE_BYTES, openBox } from './keys.ts';
import type {
  DeviceToken,
  KeyPair,
  NewSubscriptionRequest,
  NotifierKeyAnswer,
  NotifierKeyRequest,
  QueueRef,
  RawKey,
  RouterAddress,
  RouterResult,
  TokenRef,
  TokenStatus,
} from './ports.ts';
import type { SessionAnswer, SessionCommand, SessionOptions } from './sessions.ts';
import { createRouterSessions } from './sessions.ts';
import type { NtfCommand, SmpCommand } from './words.ts';

/** There is one session toward a notification router, for all users. */
const NTF_SESSION = 'ntf';
/** The length, at least. */
const SHORTEST_PADDED = 2;

/** A messaging router (SMP), toward which the agent acts as recipient. */
export type MessagingRouter = ReturnType<typeof createMessagingRouters>;
/** A notification router (NTF). Answers of batches are positional; fewer answers than commands fail the rest. */
export type NotificationRouter = ReturnType<typeof createNotificationRouters>;

export function createMessagingRouters(options: Partial<SessionOptions> = {}) {
  const { askAll, watch } = createAsking('smp', sessionOf(0), options);

  /** One batch for each transport session: user and server. @returns an answer for each queue, in their order. */
  async function askQueues<Value>(
    asked: readonly { queue: QueueRef; command: SmpCommand }[],
    read: Read<Value>,
  ): Promise<RouterResult<Value>[]> {
    const results: RouterResult<Value>[] = [];
    const batches = Map.groupBy([...asked.entries()], ([, { queue }]) => {
      return `${queue.userId} ${endpointOf(queue.address)}`;
    });
    const answered = [...batches.values()].map(async (batch) => {
      const [[, { queue }]] = batch as [(typeof batch)[0]];
      const commands = batch.map(([, { queue, command }]): SessionCommand => ({
        ...about(queue.recipientId, queue.recipientPrivateKey),
        command,
      }));
      const answers = await askAll(queue.address, commands, read, sessionOf(queue.userId));
      batch.forEach(([index], place) => (results[index] = answers[place]!));
    });
    await Promise.all(answered);
    return results;
  }

  return {
    ...watch,
    /** NKEY, batched by transport session. Not idempotent: each call issues a new notifier id. */
    createNotifierKeys: (
      requests: readonly NotifierKeyRequest[],
    ): Promise<RouterResult<NotifierKeyAnswer>[]> =>
      askQueues(
        requests.map(({ queue, auth, dh }) => ({
          queue,
          command: { op: 'NKEY', notifierKey: auth.publicKey, recipientDhKey: dh.publicKey },
        })),
        (answer) =>
          answer.op === 'NID'
            ? { notifierId: base64url(answer.notifierId), routerDhPublicKey: answer.routerDhKey }
            : UNEXPECTED,
      ),
    /** NDEL. Idempotent. */
    deleteNotifierKeys: (queues: readonly QueueRef[]): Promise<RouterResult<undefined>[]> =>
      askQueues(
        queues.map((queue) => ({ queue, command: { op: 'NDEL' } })),
        readOk,
      ),
  };
}

export function createNotificationRouters(options: Partial<SessionOptions> = {}) {
  const { askAll, askOne, watch } = createAsking('ntf', NTF_SESSION, options);

  const aboutToken = <Value>(
    { address, tokenId, privateKey }: TokenRef,
    command: NtfCommand,
    read: Read<Value>,
  ): Promise<RouterResult<Value>> => askOne(address, { ...about(tokenId, privateKey), command }, read);

  return {
    ...watch,
    /** TNEW. Same token and keys: the same id and code again. */
    registerToken: (request: {
      address: RouterAddress;
      device: DeviceToken;
      auth: KeyPair;
      dhPublicKey: RawKey;
    }): Promise<RouterResult<{ tokenId: string; routerDhPublicKey: RawKey }>> => {
      const { address, device, auth, dhPublicKey } = request;
      const command: NtfCommand = { op: 'TNEW', device, authKey: auth.publicKey, dhKey: dhPublicKey };
      return askOne(address, { key: auth.privateKey, command }, (answer) =>
        answer.op === 'IDTKN'
          ? { tokenId: base64url(answer.tokenId), routerDhPublicKey: answer.routerDhKey }
          : UNEXPECTED,
      );
    },
    /** TVFY. Repeatable with the same code. */
    verifyToken: (token: TokenRef, code: Buffer) => aboutToken(token, { op: 'TVFY', code }, readOk),
    /** TCHK. */
    checkToken: (token: TokenRef): Promise<RouterResult<TokenStatus>> =>
      aboutToken(token, { op: 'TCHK' }, (answer) => (answer.op === 'TKN' ? answer.status : UNEXPECTED)),
    /** TRPL. */
    replaceToken: (token: TokenRef, device: DeviceToken) => aboutToken(token, { op: 'TRPL', device }, readOk),
    /** TDEL. AUTH on a repetition means that it is gone. */
    deleteToken: (token: TokenRef) => aboutToken(token, { op: 'TDEL' }, readOk),
    /** TCRN, in minutes, 0 is off. */
    setCron: (token: TokenRef, minutes: number) => aboutToken(token, { op: 'TCRN', minutes }, readOk),
    /** SNEW. Idempotent for the same token, queue and key. The value is the subscription id. */
    createSubscriptions: (
      { address, tokenId, privateKey }: TokenRef,
      requests: readonly NewSubscriptionRequest[],
    ): Promise<RouterResult<string>[]> => {
      const commands = requests.map(({ messagingRouter, notifierId, notifierPrivateKey }): SessionCommand => {
        const { host, port, keyHash } = messagingRouter;
        return {
          key: privateKey,
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
    /** SCHK. */
    checkSubscriptions: (
      { address, privateKey }: TokenRef,
      subscriptionIds: readonly string[],
    ): Promise<RouterResult<string>[]> => {
      const commands = subscriptionIds.map((id): SessionCommand => ({
        ...about(id, privateKey),
        command: { op: 'SCHK' },
      }));
      return askAll(address, commands, (answer) => (answer.op === 'SUB' ? answer.status : UNEXPECTED));
    },
    /** SDEL, for legacy records only. */
    deleteSubscription: ({ address, privateKey }: TokenRef, id: string) =>
      askOne(address, { ...about(id, privateKey), command: { op: 'SDEL' } }, readOk),
  };
}

/**
 * A code is padded in its box, as everything is that a router pushes.
 *
 * @param dhSecret agreed with the router.
 * @param content ciphertext and tag; base64, as the nonce.
 * @returns the code in a verification push, undefined when it was not encrypted for this token.
 */
export function openVerification(dhSecret: Buffer, nonce: string, content: string): Buffer | undefined {
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

/** What a command is answered with. */
type Read<Value> = (answer: SessionAnswer) => Value | typeof UNEXPECTED;

/** An answer to another command. */
const UNEXPECTED = Symbol('unexpected');

const readOk: Read<undefined> = ({ op }) => (op === 'OK' ? undefined : UNEXPECTED);

/** @param ownSession in which routers are asked about no queue of an agent. */
function createAsking(protocol: 'smp' | 'ntf', ownSession: string, options: Partial<SessionOptions>) {
  const sessions = createRouterSessions(protocol, options);

  async function askAll<Value>(
    address: RouterAddress,
    commands: readonly SessionCommand[],
    read: Read<Value>,
    session = ownSession,
  ): Promise<RouterResult<Value>[]> {
    if (commands.length === 0) return [];
    const answers = await sessions.ask(session, address, commands);
    return answers.map((answer) => (answer.ok ? valueIn(read(answer.value)) : answer));
  }

  const askOne = async <Value>(
    address: RouterAddress,
    command: SessionCommand,
    read: Read<Value>,
  ): Promise<RouterResult<Value>> => (await askAll(address, [command], read))[0]!;

  return {
    askAll,
    askOne,
    watch: {
      /** PING, unsigned: whether the router at this address can be reached at all. */
      ping: (address: RouterAddress) =>
        askOne(address, { command: { op: 'PING' } }, ({ op }) => (op === 'PONG' ? undefined : UNEXPECTED)),
      close: sessions.close,
    },
  };
}

function valueIn<Value>(value: Value | typeof UNEXPECTED): RouterResult<Value> {
  if (value !== UNEXPECTED) return { ok: true, value };
  const detail = 'the answer belongs to another command';
  return { ok: false, error: { source: 'BROKER', code: 'UNEXPECTED', detail } };
}

const sessionOf = (userId: number): string => `user ${userId}`;
const base64url = (bytes: Buffer): string => bytes.toString('base64url');
const bytesOf = (text: string): Buffer => Buffer.from(text, 'base64url');
const about = (id: string, key: RawKey) => ({ entityId: bytesOf(id), key });
