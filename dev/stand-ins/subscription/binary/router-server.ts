/**
 * A stand-in router that speaks the binary protocol: a TLS 1.3 server on the loopback with its offline and online
 * certificate. Requests from outside come to the same port, as HTTP by ALPN.
 */
import { constants, generateKeyPairSync, randomUUID } from 'node:crypto';
import type { KeyObject } from 'node:crypto';
import { once } from 'node:events';
import { createServer as createHttpServer } from 'node:http';
import type { Socket } from 'node:net';
import { createServer } from 'node:tls';
import type { Server, TLSSocket } from 'node:tls';
import { fingerprintOf } from '../../../../activities/subscription/router/connect.ts';
import type { RouterProtocol } from '../../../../api/subscription/router-address.ts';
import { BLOCK_BYTES } from '../protocol.ts';
import { LOOPBACK, freePort } from '../../../servers/ports.ts';
import type { RouterStandIn } from '../router-desk.ts';
import { createRouterDesk, sendJson } from '../router-desk.ts';
import type { RouterServerOptions } from '../transport.ts';
import { hearReaders, onBlocks, writeBounded } from './blocks.ts';
import { pad, unpad } from './bytes.ts';
import type { BinaryCertificate } from './certificates.ts';
import { pemOf, signPublicKey } from './certificates.ts';
import { ALPN, NEWEST_WITHOUT_ALPN, readClientHello, writeRouterHello } from './handshake.ts';
import { openRouterSession } from './router-session.ts';

const NEWEST_VERSION: Record<RouterProtocol, number> = { smp: 10, ntf: 2 };
const OLDEST_VERSION: Record<RouterProtocol, number> = { smp: 6, ntf: 1 };

/** For TLS, and again for what the client says first. */
const HANDSHAKE_TIMEOUT_MS = 10_000;
const MAX_CONNECTIONS = 4_096;
const HTTP = 'http/1.1';

/** What the protocol wants of TLS, on both sides. */
export const TLS_OPTIONS = {
  minVersion: 'TLSv1.3',
  maxVersion: 'TLSv1.3',
  ciphers: 'TLS_CHACHA20_POLY1305_SHA256',
  sigalgs: 'ed25519:ed448',
  ecdhCurve: 'X448:X25519',
  // Sessions are not resumed.
  secureOptions: constants.SSL_OP_NO_TICKET,
} as const;

export async function startBinaryServer(options: RouterServerOptions): Promise<RouterStandIn> {
  const { protocol, rules, version: newest = NEWEST_VERSION[protocol] } = options;
  const { oldestVersion: oldest = OLDEST_VERSION[protocol] } = options;
  const { keyPem, chain } = options.certificate as BinaryCertificate;
  const certificates = chain.map((der) => Buffer.from(der, 'base64'));
  const fingerprint = Buffer.from(fingerprintOf(certificates.at(-1)!), 'base64url');
  const desk = createRouterDesk(rules);
  const sockets = { open: 0, opened: 0 };
  const connections = new Set<Socket>();
  let stopping = new AbortController();
  let server: Server | undefined;
  // The system gives it to no other program while the router is stopped.
  const port = options.port || (await freePort());

  const outside = createHttpServer((request, response) => {
    desk
      .control(request, response)
      .then((isKnown) => {
        if (!isKnown) sendJson(response, 404, { error: 'there is no such path' });
      })
      .catch(() => response.destroy());
  });

  function receive(socket: TLSSocket): void {
    sockets.opened += 1;
    sockets.open += 1;
    const connection = sockets.opened;
    socket.once('close', () => (sockets.open -= 1));
    // A client that breaks off, or is cut off: no connection is left to answer on.
    socket.on('error', () => undefined);
    if (socket.alpnProtocol === HTTP) outside.emit('connection', socket);
    else greet(socket, connection);
  }

  /** Offers versions, and opens a session in the one that the client takes. */
  function greet(socket: TLSSocket, connection: number): void {
    const blockBytes = BLOCK_BYTES[protocol];
    const sessionId = socket.getPeerFinished();
    if (!sessionId) {
      socket.destroy();
      return;
    }
    const isOld = socket.alpnProtocol !== ALPN[protocol];
    const newestHere = isOld ? Math.min(newest, NEWEST_WITHOUT_ALPN[protocol]) : newest;
    const { publicKey, privateKey } = generateKeyPairSync('x25519');
    const hello = writeRouterHello(protocol, {
      oldest,
      newest: newestHere,
      sessionId,
      chain: certificates,
      signedKey: signPublicKey(publicKey.export({ type: 'spki', format: 'der' }), keyPem),
    });
    writeBounded(socket, pad(hello, blockBytes));
    const timer = setTimeout(() => socket.destroy(), HANDSHAKE_TIMEOUT_MS);
    socket.once('close', () => clearTimeout(timer));
    hearReaders(socket);
    let receiveBlock: ((block: Buffer) => void) | undefined;
    onBlocks(socket, blockBytes, (block) => {
      if (receiveBlock) {
        receiveBlock(block);
        return;
      }
      clearTimeout(timer);
      const { version, keyHash } = readClientHello(unpad(block));
      if (version < oldest || version > newestHere) throw new Error('there is no such version here');
      if (!keyHash.equals(fingerprint)) throw new Error('the client means another router');
      receiveBlock = openSession(socket, connection, { version, sessionId }, privateKey);
    });
  }

  function openSession(
    socket: TLSSocket,
    connection: number,
    { version, sessionId }: { version: number; sessionId: Buffer },
    sessionKey: KeyObject,
  ): (block: Buffer) => void {
    const { receive: receiveBlock, tell } = openRouterSession({
      socket,
      connection,
      agreement: { protocol, version, sessionId },
      sessionKey,
      session: options.openSession ? randomUUID() : undefined,
      rules,
      desk,
      stopping: stopping.signal,
    });
    if (tell) socket.once('close', options.openSession!(tell.session, tell.event));
    return receiveBlock;
  }

  const standIn: RouterStandIn = {
    get address() {
      return {
        host: LOOPBACK,
        port,
        keyHash: fingerprint.toString('base64url'),
      };
    },
    get url() {
      return `https://${LOOPBACK}:${port}`;
    },
    calls: desk.calls,
    batches: desk.batches,
    sockets,
    fail: desk.fail,
    heal: desk.heal,
    async start() {
      if (server) return;
      stopping = new AbortController();
      const starting = createServer({
        ...TLS_OPTIONS,
        key: keyPem,
        cert: pemOf(chain),
        ALPNProtocols: [ALPN[protocol], HTTP],
        handshakeTimeout: HANDSHAKE_TIMEOUT_MS,
      });
      starting.maxConnections = MAX_CONNECTIONS;
      starting.on('connection', (socket: Socket) => {
        connections.add(socket);
        socket.once('close', () => connections.delete(socket));
      });
      starting.on('secureConnection', receive);
      starting.listen(port, LOOPBACK);
      await once(starting, 'listening');
      server = starting;
      rules.started();
    },
    async stop() {
      const ending = server;
      if (!ending) return;
      server = undefined;
      await rules.stopping();
      const closed = once(ending, 'close');
      ending.close();
      for (const socket of connections) socket.destroy();
      stopping.abort();
      await closed;
    },
    loseState: () => rules.loseState(),
  };
  await standIn.start();
  return standIn;
}
