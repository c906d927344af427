/**
 * The push provider of a live run. An official notification router finds it where it looks for the provider `AT`: at
 * `localhost`, port 443, as HTTP/2 over TLS. It offers no ALPN then, so that HTTP/2 is spoken from the first byte on.
 */
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { once } from 'node:events';
import type { ServerHttp2Stream } from 'node:http2';
import { performServerHandshake } from 'node:http2';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import { json } from 'node:stream/consumers';
import type { TLSSocket } from 'node:tls';
import { createServer } from 'node:tls';
import { SelfExplanatoryError } from '../../api/errors.ts';
import type { LoopbackCertificate } from '../stand-ins/certificate.ts';
import { createLoopbackCertificate } from '../stand-ins/certificate.ts';
import type { PushData } from '../stand-ins/subscription/push-sink.ts';

const PATH = /^\/3\/device\/([0-9a-f]+)$/;
/** Only the owner reads a private key. */
const PRIVATE = 0o600;

export interface DevicePush {
  /** Hex. */
  token: string;
  /** `background` shows nothing. */
  type: string;
  data: PushData;
}

export interface PushProvider {
  port: number;
  /** Every push so far, oldest first. */
  pushes: readonly DevicePush[];
  stop(): Promise<void>;
}

/**
 * The certificate that routers are told to trust: it is made once, and kept.
 *
 * @returns the file for the routers, too.
 */
export async function keptCertificate(folder: string): Promise<LoopbackCertificate & { certFile: string }> {
  const [certFile, keyFile] = [path.join(folder, 'certificate.pem'), path.join(folder, 'key.pem')];
  if (!existsSync(certFile) || !existsSync(keyFile)) {
    const { certPem, keyPem } = await createLoopbackCertificate();
    mkdirSync(folder, { recursive: true });
    writeFileSync(keyFile, keyPem, { mode: PRIVATE });
    writeFileSync(certFile, certPem);
  }
  return { certFile, certPem: readFileSync(certFile, 'utf8'), keyPem: readFileSync(keyFile, 'utf8') };
}

/** @throws SelfExplanatoryError when the address cannot be listened on. */
export async function startPushProvider(
  { host, port }: { host: string; port: number },
  { certPem, keyPem }: LoopbackCertificate,
): Promise<PushProvider> {
  const pushes: DevicePush[] = [];
  const sockets = new Set<TLSSocket>();

  async function receive(stream: ServerHttp2Stream, headers: Record<string, unknown>): Promise<void> {
    const token = headers[':method'] === 'POST' ? PATH.exec(String(headers[':path']))?.[1] : undefined;
    const { notificationData: data } = (await json(stream)) as { notificationData?: PushData };
    if (token === undefined || data === undefined) {
      stream.respond({ ':status': 400, 'content-type': 'application/json' });
      stream.end(JSON.stringify({ reason: token === undefined ? 'BadPath' : 'PayloadEmpty' }));
      return;
    }
    pushes.push({ token, type: String(headers['apns-push-type']), data });
    stream.respond({ ':status': 200 }, { endStream: true });
  }

  const server = createServer({ cert: certPem, key: keyPem, ALPNProtocols: ['h2'] }, (socket) => {
    sockets.add(socket);
    socket.on('error', () => socket.destroy());
    socket.once('close', () => sockets.delete(socket));
    const session = performServerHandshake(socket);
    session.on('error', () => session.destroy());
    session.on('stream', (stream, headers) => {
      stream.on('error', () => stream.destroy());
      receive(stream, headers).catch(() => stream.destroy());
    });
  });
  try {
    server.listen(port, host);
    await once(server, 'listening');
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    throw new SelfExplanatoryError(
      `the push provider cannot listen on ${host}:${port} (${code}): forward that port to another one and name it with --push-port`,
    );
  }
  return {
    port: (server.address() as AddressInfo).port,
    pushes,
    async stop() {
      const closed = once(server, 'close');
      server.close();
      for (const socket of sockets) socket.destroy();
      await closed;
    },
  };
}
