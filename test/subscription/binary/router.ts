/** A TLS server that says hello as routers do and then whatever a test wants: the least that a session can be tried on. */
import { X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import type { TLSSocket } from 'node:tls';
import { createServer } from 'node:tls';
import { generate } from 'selfsigned';
import {
  createBlockReader,
  longString,
  padBlock,
  shortString,
  unpadBlock,
  word16,
  unpackTransmissions,
  PROTOCOLS,
} from '../../../activities/subscription/router/blocks.ts';
import type { SessionBinding, Transmission } from '../../../activities/subscription/router/blocks.ts';
import { fingerprintOf } from '../../../activities/subscription/router/connect.ts';
import type { RouterAddress } from '../../../activities/subscription/router/ports.ts';
import type { RouterProtocol } from '../../../api/subscription/router-address.ts';

/** Certificates as routers have them: one that is kept offline has signed the one of the session. */
async function createChain() {
  const name = (value: string) => [{ name: 'commonName', value }];
  const ca = await generate(name('offline'), {
    ...{ keyType: 'ec', algorithm: 'sha256' },
    extensions: [{ name: 'basicConstraints', cA: true, critical: true }],
  });
  const leaf = await generate(name('session'), {
    ...{ keyType: 'ec', algorithm: 'sha256', ca: { key: ca.private, cert: ca.cert } },
    extensions: [{ name: 'basicConstraints', cA: false }],
  });
  return {
    key: leaf.private,
    cert: `${leaf.cert}\n${ca.cert}`,
    keyHash: fingerprintOf(new X509Certificate(ca.cert).raw),
  };
}

/** One connection, as the router sees it. */
export interface Peer {
  binding: SessionBinding;
  /** A block with this content. */
  say(content: Buffer): void;
  /** One block with these transmissions. */
  answer(...transmissions: Transmission[]): void;
  /** Bytes as they are. */
  write(bytes: Buffer): void;
  end(): void;
}

export interface BinaryRouterOptions {
  protocol?: RouterProtocol;
  versions?: [number, number];
  /** Default: the chosen version's. */
  hello?: (sessionId: Buffer) => Buffer;
  /** Into how many parts the block of the hello is cut, each sent by itself; 0 sends none. Default 1. */
  helloParts?: number;
  /** Where it listens; default a free port of 127.0.0.1. */
  at?: { host: string; port: number };
  /** What is done about a block of transmissions. */
  onBlock?: (peer: Peer, transmissions: Transmission[]) => void;
  /** Called when both sides have said hello. */
  onSession?: (peer: Peer) => void;
  /** Whether it knows the name of the protocol; default true. */
  hasAlpn?: boolean;
}

const chain = createChain();

export async function startBinaryRouter(options: BinaryRouterOptions = {}) {
  const { protocol = 'smp', versions = [1, 9], hello, onBlock, onSession, hasAlpn = true } = options;
  const { helloParts = 1, at = { host: '127.0.0.1', port: 0 } } = options;
  const facts = PROTOCOLS[protocol];
  const { key, cert, keyHash } = await chain;
  const sockets = new Set<TLSSocket>();
  let sessions = 0;
  const server = createServer(
    { key, cert, ...(hasAlpn ? { ALPNProtocols: [facts.alpn] } : {}) },
    (socket) => {
      sockets.add(socket);
      socket.on('error', () => socket.destroy());
      socket.once('close', () => sockets.delete(socket));
      const id = socket.getPeerFinished()!;
      const usual = Buffer.concat([word16(versions[0]), word16(versions[1]), shortString(id)]);
      const block = padBlock(hello ? hello(id) : usual, facts.blockBytes);
      const partBytes = Math.ceil(block.length / helloParts);
      for (let part = 0; part < helloParts; part += 1) {
        socket.write(block.subarray(part * partBytes, (part + 1) * partBytes));
      }
      let peer: Peer | undefined;
      const read = createBlockReader(facts.blockBytes, (block) => {
        const content = unpadBlock(block);
        if (peer) {
          onBlock?.(peer, unpackTransmissions(content, peer.binding));
          return;
        }
        sessions += 1;
        peer = peerOn(socket, { facts, version: content.readUInt16BE(), id });
        onSession?.(peer);
      });
      socket.on('data', read);
    },
  );
  server.on('tlsClientError', () => undefined);
  server.listen(at.port, at.host);
  await once(server, 'listening');
  const address: RouterAddress = {
    ...{ host: at.host, port: (server.address() as AddressInfo).port },
    keyHash,
  };
  return {
    address,
    sessions: () => sessions,
    /** Sockets that are open now. */
    connected: () => sockets.size,
    dropAll: () => sockets.forEach((socket) => socket.destroy()),
    async stop() {
      sockets.forEach((socket) => socket.destroy());
      server.close();
      await once(server, 'close');
    },
  };
}

function peerOn(socket: TLSSocket, binding: SessionBinding): Peer {
  const say = (content: Buffer) => void socket.write(padBlock(content, binding.facts.blockBytes));
  return {
    binding,
    say,
    answer: (...transmissions) => say(packed(transmissions, binding)),
    write: (bytes) => void socket.write(bytes),
    end: () => void socket.end(),
  };
}

/** A router's transmissions have no authorization. */
function packed(transmissions: readonly Transmission[], { facts, version, id }: SessionBinding): Buffer {
  const isSent = version < facts.impliedSession;
  const all = transmissions.map(({ correlationId, entityId, content }) =>
    Buffer.concat([
      ...[shortString(Buffer.alloc(0)), ...(isSent ? [shortString(id)] : [])],
      ...[shortString(correlationId), shortString(entityId), content],
    ]),
  );
  if (version < facts.batches) return all[0]!;
  return Buffer.concat([Buffer.from([all.length]), ...all.map(longString)]);
}

/** Answers every command with this text. */
export const answering =
  (text: string) =>
  (peer: Peer, transmissions: readonly Transmission[]): void =>
    peer.answer(...transmissions.map((one) => ({ ...one, content: Buffer.from(text, 'latin1') })));
