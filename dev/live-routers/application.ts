/**
 * The application's side of a queue, which the product has no part in: it says who sends, sends, and looks for what has
 * come. In a session of its own, as an application has.
 */
import { randomBytes } from 'node:crypto';
import { readAnswer } from '../../activities/subscription/router/binary/answers.ts';
import type { BinaryAnswer } from '../../activities/subscription/router/binary/answers.ts';
import { ConnectError } from '../../activities/subscription/router/binary/connect.ts';
import {
  createBlockReader,
  padBlock,
  shortString,
  unpadBlock,
} from '../../activities/subscription/router/binary/encoding.ts';
import { greetRouter } from '../../activities/subscription/router/binary/open-session.ts';
import {
  CORRELATION_BYTES,
  encodeTransmission,
  packTransmissions,
  unpackTransmissions,
} from '../../activities/subscription/router/binary/transmissions.ts';
import type { KeyPair, QueueRef, RawKey, RouterAddress } from '../../activities/subscription/router/ports.ts';
import { publicKeyDer } from '../../activities/subscription/router/signing.ts';

export interface Application {
  /** KEY: from now on, who sends has this key. */
  secure(queue: QueueRef, sender: KeyPair): Promise<string>;
  /** SEND, with the wish that its recipient is notified. */
  send(senderId: string, sender: KeyPair, body: string): Promise<string>;
  /** GET. @returns the id of the oldest message, base64url, or what the router says instead. */
  oldestMessage(queue: QueueRef): Promise<string>;
  close(): void;
}

/** What a router answers is given as a word of the protocol: `OK`, `ERR AUTH` … @throws ConnectError */
export async function openApplication(address: RouterAddress, timeoutMs: number): Promise<Application> {
  const { connection, binding } = await greetRouter('smp', address, { timeoutMs });
  const { socket } = connection;
  const asked = new Map<string, (answer: BinaryAnswer) => void>();
  const read = createBlockReader(binding.facts.blockBytes, (block) => {
    for (const { correlationId, content } of unpackTransmissions(unpadBlock(block), binding)) {
      asked.get(correlationId.toString('hex'))?.(readAnswer('smp', content, binding.version));
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

  async function ask(entity: string, content: Buffer | string, privateKey: RawKey): Promise<BinaryAnswer> {
    const correlationId = randomBytes(CORRELATION_BYTES);
    const transmission = encodeTransmission(
      { correlationId, entityId: Buffer.from(entity, 'base64url'), content: Buffer.from(content) },
      binding,
      { curve: 'ed25519', privateKey },
    );
    const { promise, resolve, reject } = Promise.withResolvers<BinaryAnswer>();
    const fail = (): void => reject(new ConnectError('NETWORK', 'no answer to the application'));
    const timer = setTimeout(() => socket.destroy(), timeoutMs);
    socket.once('close', fail);
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

  return {
    secure: async ({ recipientId, recipientPrivateKey }, { publicKey }) => {
      const key = shortString(publicKeyDer('ed25519', publicKey));
      return wordOf(await ask(recipientId, Buffer.concat([Buffer.from('KEY '), key]), recipientPrivateKey));
    },
    send: async (senderId, { privateKey }, body) => wordOf(await ask(senderId, `SEND T ${body}`, privateKey)),
    async oldestMessage({ recipientId, recipientPrivateKey }) {
      const answer = await ask(recipientId, 'GET', recipientPrivateKey);
      return answer.op === 'MSG' ? answer.messageId.toString('base64url') : wordOf(answer);
    },
    close: () => socket.destroy(),
  };
}

function wordOf(answer: BinaryAnswer): string {
  return answer.op === 'ERR'
    ? ['ERR', answer.error.code, answer.error.detail].filter(Boolean).join(' ')
    : answer.op;
}
