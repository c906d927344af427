/**
 * The application's side of queues, in which the product has no part: it makes queues and deletes them, says who sends,
 * sends, and looks for messages. It has its own session with a router, as an application has.
 */
import { randomBytes } from 'node:crypto';
import { readAnswer } from '../../../activities/subscription/router/words.ts';
import { ConnectError, connectToRouter } from '../../../activities/subscription/router/connect.ts';
import {
  Reader,
  createBlockReader,
  padBlock,
  shortString,
  unpadBlock,
  CORRELATION_BYTES,
  encodeTransmission,
  packTransmissions,
  unpackTransmissions,
} from '../../../activities/subscription/router/blocks.ts';
import type {
  KeyPair,
  QueueRef,
  RawKey,
  RouterAddress,
} from '../../../activities/subscription/router/ports.ts';
import {
  generateAuthKeys,
  generateDhKeys,
  publicKeyDer,
} from '../../../activities/subscription/router/keys.ts';

/** A messaging router, with its password for those who make queues if it has one. */
export type QueueServer = RouterAddress & { password?: string | undefined };

/** What `createQueue` may be given: another key than a new one, and whether a sender may secure the queue itself. */
interface QueueOptions {
  recipient?: KeyPair;
  senderMaySecure?: boolean;
}

export interface CreatedQueue {
  recipientId: string;
  senderId: string;
  recipient: KeyPair;
  /** For messages. */
  routerDhPublicKey: RawKey;
}

/** Each answer is given as words of the protocol: `OK`, `ERR AUTH` … */
export interface Application {
  /** NEW. @throws ConnectError with the answer of a router that refuses. */
  createQueue(options?: QueueOptions): Promise<CreatedQueue>;
  /** DEL. */
  deleteQueue(queue: Entity): Promise<string>;
  /** KEY: from now on, the sender has this key. */
  secure(queue: Entity, sender: KeyPair): Promise<string>;
  /** SEND, with the wish that its recipient is notified. */
  send(senderId: string, sender: KeyPair, body: string): Promise<string>;
  /** GET. @returns the id of the oldest message, base64url, or what the router says instead. */
  oldestMessage(queue: Entity): Promise<string>;
  close(): void;
}

type Entity = Pick<QueueRef, 'recipientId' | 'recipientPrivateKey'>;

/** @throws ConnectError */
export async function openApplication(address: QueueServer, timeoutMs: number): Promise<Application> {
  const { socket, binding } = await connectToRouter('smp', address, { timeoutMs });
  const asked = new Map<string, (answer: Buffer) => void>();
  const read = createBlockReader(binding.facts.blockBytes, (block) => {
    for (const { correlationId, content } of unpackTransmissions(unpadBlock(block), binding)) {
      asked.get(correlationId.toString('hex'))?.(content);
    }
  });
  socket.on('error', () => socket.destroy());
  socket.on('data', (chunk: Buffer) => {
    try {
      read(chunk);
    } catch (error) {
      socket.destroy(error as Error);
    }
  });

  async function ask(entity: string, content: Buffer | string, privateKey: RawKey): Promise<Buffer> {
    const correlationId = randomBytes(CORRELATION_BYTES);
    const transmission = encodeTransmission(
      { correlationId, entityId: Buffer.from(entity, 'base64url'), content: Buffer.from(content) },
      binding,
      privateKey,
    );
    const { promise, resolve, reject } = Promise.withResolvers<Buffer>();
    const fail = (): void => reject(new ConnectError('NETWORK', 'no answer to the application'));
    const timer = setTimeout(() => socket.destroy(), timeoutMs);
    socket.once('close', fail);
    if (socket.destroyed) fail();
    asked.set(correlationId.toString('hex'), resolve);
    for (const block of packTransmissions([transmission], binding)) {
      socket.write(padBlock(block.content, binding.facts.blockBytes));
    }
    return promise.finally(() => {
      clearTimeout(timer);
      socket.off('close', fail);
      asked.delete(correlationId.toString('hex'));
    });
  }

  socket.setMaxListeners(0);
  return {
    async createQueue({ recipient = generateAuthKeys(), senderMaySecure = false } = {}) {
      const content = newCommand(binding.version, {
        ...{ recipientKey: recipient.publicKey, recipientDhKey: generateDhKeys().publicKey },
        ...{ password: address.password, senderMaySecure },
      });
      const answer = await ask('', content, recipient.privateKey);
      const ids = readIds(answer);
      if (!ids) throw new ConnectError('RESPONSE', `no queue was made: ${wordsOf(answer)}`);
      return { ...ids, recipient };
    },
    deleteQueue: async ({ recipientId, recipientPrivateKey }) =>
      wordsOf(await ask(recipientId, 'DEL', recipientPrivateKey)),
    secure: async ({ recipientId, recipientPrivateKey }, { publicKey }) =>
      wordsOf(
        await ask(
          recipientId,
          Buffer.concat([Buffer.from('KEY '), signingKey(publicKey)]),
          recipientPrivateKey,
        ),
      ),
    send: async (senderId, { privateKey }, body) =>
      wordsOf(await ask(senderId, `SEND T ${body}`, privateKey)),
    async oldestMessage({ recipientId, recipientPrivateKey }) {
      const answer = await ask(recipientId, 'GET', recipientPrivateKey);
      return readerAfter('MSG', answer)?.shortString('a message id').toString('base64url') ?? wordsOf(answer);
    },
    close: () => socket.destroy(),
  };
}

/** Versions from which on NEW says with which password, whether it subscribes, and whether the sender may secure the queue. */
const WITH_PASSWORD = 5;
const WITH_SUBSCRIBE_MODE = 6;
const WITH_SENDER_SECURES = 9;

/** NEW, without a subscription. */
export function newCommand(
  version: number,
  queue: {
    recipientKey: RawKey;
    recipientDhKey: RawKey;
    password?: string | undefined;
    senderMaySecure?: boolean;
  },
): Buffer {
  return Buffer.concat([
    Buffer.from('NEW '),
    signingKey(queue.recipientKey),
    shortString(publicKeyDer('x25519', queue.recipientDhKey)),
    passwordOf(queue.password, version),
    Buffer.from(version >= WITH_SUBSCRIBE_MODE ? 'C' : ''),
    Buffer.from(version < WITH_SENDER_SECURES ? '' : queue.senderMaySecure ? 'T' : 'F'),
  ]);
}

/** Older versions have nothing in the place of a password that there is not. */
function passwordOf(password: string | undefined, version: number): Buffer {
  const isOptional = version >= WITH_SENDER_SECURES;
  if (version < WITH_PASSWORD || (password === undefined && !isOptional)) return Buffer.alloc(0);
  if (password === undefined) return Buffer.from('0');
  return Buffer.concat([Buffer.from(isOptional ? '1' : 'A'), shortString(Buffer.from(password))]);
}

/** What IDS says, undefined for another answer. */
export function readIds(
  answer: Buffer,
): Pick<CreatedQueue, 'recipientId' | 'senderId' | 'routerDhPublicKey'> | undefined {
  const reader = readerAfter('IDS', answer);
  if (!reader) return undefined;
  const recipientId = reader.shortString('a recipient id').toString('base64url');
  const senderId = reader.shortString('a sender id').toString('base64url');
  const routerDhPublicKey = Buffer.from(reader.shortString('a key').subarray(-RAW_KEY_BYTES));
  return { recipientId, senderId, routerDhPublicKey };
}

const RAW_KEY_BYTES = 32;
const signingKey = (key: RawKey): Buffer => shortString(publicKeyDer('ed25519', key));

/** What follows the word, undefined for another answer. */
function readerAfter(word: string, answer: Buffer): Reader | undefined {
  const isIt = answer.toString('latin1', 0, word.length + 1) === `${word} `;
  return isIt ? new Reader(answer.subarray(word.length + 1)) : undefined;
}

function wordsOf(content: Buffer): string {
  const answer = readAnswer('smp', content);
  return answer.op === 'ERR'
    ? ['ERR', answer.error.code, answer.error.detail].filter(Boolean).join(' ')
    : answer.op;
}
