/** Sessions of a stand-in notification router with binary messaging routers. */
import { createHash, randomBytes, verify } from 'node:crypto';
import type { X509Certificate } from 'node:crypto';
import { connect } from 'node:tls';
import type { TLSSocket } from 'node:tls';
import { setTimeout as sleep } from 'node:timers/promises';
import type { RouterAddress } from '../../../../activities/subscription/router/ports.ts';
import type { SessionEvent } from '../protocol.ts';
import { BLOCK_BYTES } from '../protocol.ts';
import type { Notifier, SubscriberSession, SubscriberSessions } from '../transport.ts';
import { onBlocks, writeBounded } from './blocks.ts';
import { NONCE_BYTES } from './box.ts';
import { pad, Reader, unpad } from './bytes.ts';
import { readSignedKey } from './certificates.ts';
import { ALPN, readRouterHello, writeClientHello } from './handshake.ts';
import { authorize } from './keys.ts';
import { TLS_OPTIONS } from './router-server.ts';
import type { Agreement, Transmission } from './transmissions.ts';
import {
  authorizedPart,
  readBlock,
  readTransmission,
  writeBlocks,
  writeTransmission,
} from './transmissions.ts';

const PROTOCOL = 'smp';
const NEWEST_VERSION = 10;
const COMMAND_TIMEOUT_MS = 10_000;
const CONNECT_TIMEOUT_MS = 5_000;
const REFUSED = 'ERR ';
const NOTIFIED = 'NMSG ';

type Tell = Parameters<SubscriberSessions['run']>[1];

export function createSubscriberSessions(): SubscriberSessions {
  const sockets = new Set<TLSSocket>();
  return {
    async run(router, on) {
      const socket = connect({
        ...TLS_OPTIONS,
        host: router.host,
        port: router.port,
        ALPNProtocols: [ALPN[PROTOCOL]],
        // The fingerprint decides.
        rejectUnauthorized: false,
      });
      sockets.add(socket);
      const timer = setTimeout(() => socket.destroy(), CONNECT_TIMEOUT_MS);
      const closed = new Promise<void>((resolve) => void socket.once('close', () => resolve()));
      socket.on('error', () => undefined);
      socket.once('secureConnect', () => {
        let receive: ((block: Buffer) => void) | undefined;
        onBlocks(socket, BLOCK_BYTES[PROTOCOL], (block) => {
          if (receive) receive(block);
          else {
            clearTimeout(timer);
            receive = greet(socket, router, unpad(block), on);
          }
        });
      });
      await closed;
      clearTimeout(timer);
      sockets.delete(socket);
    },
    async close() {
      for (const socket of sockets) socket.destroy();
    },
  };
}

/** @returns what takes the blocks that follow. @throws Error when it is not the router that was meant. */
function greet(socket: TLSSocket, router: RouterAddress, block: Buffer, on: Tell): (block: Buffer) => void {
  const hello = readRouterHello(PROTOCOL, block);
  const chain = chainOf(socket);
  const [online, offline] = chain;
  const keyHash = Buffer.from(router.keyHash, 'base64url');
  const fingerprint = offline && createHash('sha256').update(offline.raw).digest();
  if (!fingerprint?.equals(keyHash) || !online?.verify(offline!.publicKey)) {
    throw new Error('it is another router');
  }
  if (!hello.sessionId.equals(socket.getFinished() ?? Buffer.alloc(0))) throw new Error('another session');
  const key = hello.signedKey && readSignedKey(hello.signedKey);
  if (key && !verify(undefined, key.signed, online.publicKey, key.signature)) {
    throw new Error('the key of the session is not signed');
  }
  const version = Math.min(NEWEST_VERSION, hello.newest);
  const content = writeClientHello({ version, keyHash });
  writeBounded(socket, pad(content, BLOCK_BYTES[PROTOCOL]));
  const agreement: Agreement = { protocol: PROTOCOL, version, sessionId: hello.sessionId };
  const { session, receive } = openSession(socket, agreement, key?.publicKey, on);
  on.opened(session);
  return receive;
}

function openSession(
  socket: TLSSocket,
  agreement: Agreement,
  sessionKey: Buffer | undefined,
  on: Tell,
): { session: SubscriberSession; receive: (block: Buffer) => void } {
  /** By correlation id. */
  const unanswered = new Map<string, (error: string | undefined) => void>();
  const ended = new AbortController();
  socket.once('close', () => ended.abort());

  function nsub({ notifierId, notifierPrivateKey }: Notifier): { correlationId: Buffer; bytes: Buffer } {
    const correlationId = randomBytes(NONCE_BYTES);
    const entity = Buffer.from(notifierId, 'base64url');
    const command = { correlationId, entity, content: Buffer.from('NSUB') };
    const authorization = authorize(
      Buffer.from(notifierPrivateKey, 'base64url'),
      { content: authorizedPart(agreement, command), correlationId },
      sessionKey,
    );
    return { correlationId, bytes: writeTransmission(agreement, { ...command, authorization }) };
  }

  function hear({ correlationId, entity, content }: Transmission): void {
    if (correlationId.length > 0) {
      const id = correlationId.toString('hex');
      unanswered.get(id)?.(errorIn(content));
      unanswered.delete(id);
    }
    const event = eventIn(content, entity.toString('base64url'));
    if (event) on.event(event);
  }

  return {
    session: {
      async nsub(notifiers, answered) {
        const done = new AbortController();
        const commands = notifiers.map((notifier) => ({ notifier, ...nsub(notifier) }));
        let left = commands.length;
        for (const { notifier, correlationId } of commands) {
          unanswered.set(correlationId.toString('hex'), (error) => {
            answered(notifier.notifierId, error);
            left -= 1;
            if (left === 0) done.abort();
          });
        }
        const blocks = writeBlocks(
          agreement,
          commands.map(({ bytes }) => bytes),
        );
        for (const block of blocks) writeBounded(socket, block);
        const signal = AbortSignal.any([done.signal, ended.signal]);
        await sleep(COMMAND_TIMEOUT_MS, undefined, { signal }).catch(() => undefined);
        for (const { correlationId } of commands) unanswered.delete(correlationId.toString('hex'));
      },
    },
    receive(block) {
      for (const bytes of readBlock(agreement, block)) hear(readTransmission(agreement, bytes));
    },
  };
}

/** What the router says instead of OK. */
function errorIn(content: Buffer): string | undefined {
  const text = content.toString('latin1');
  if (text === 'OK') return undefined;
  return text.startsWith(REFUSED) ? text.slice(REFUSED.length) : 'UNEXPECTED';
}

function eventIn(content: Buffer, entity: string): Exclude<SessionEvent, { event: 'MSG' }> | undefined {
  const text = content.toString('latin1');
  if (text === 'END' || text === 'DELD') return { event: text, entity };
  if (!text.startsWith(NOTIFIED)) return undefined;
  const reader = new Reader(content.subarray(NOTIFIED.length));
  const nonce = reader.take(NONCE_BYTES).toString('base64url');
  const meta = { nonce, content: reader.short().toString('base64url') };
  return { event: 'NMSG', notifierId: entity, at: Date.now(), meta };
}

/** The router's certificates, the online one first. */
function chainOf(socket: TLSSocket): X509Certificate[] {
  const chain: X509Certificate[] = [];
  let next = socket.getPeerX509Certificate();
  while (next && !chain.some(({ raw }) => raw.equals(next!.raw))) {
    chain.push(next);
    next = next.issuerCertificate;
  }
  return chain;
}
