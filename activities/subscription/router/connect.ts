/**
 * How a session with a router begins: TLS to the first of its hosts that answers and has its certificates, then the first
 * block of each side, which says the versions that they speak, and that both are at the ends of the same TLS session.
 */
import type { X509Certificate } from 'node:crypto';
import { createHash } from 'node:crypto';
import { isIP } from 'node:net';
import type { TLSSocket } from 'node:tls';
import { connect as connectTls } from 'node:tls';
import type { RouterProtocol } from '../../../api/subscription/router-address.ts';
import { AddressError, hostsOf } from '../../../api/subscription/router-address.ts';
import { reasonOf } from '../../reason.ts';
import type { RouterAddress, RouterError } from './ports.ts';
import type { ProtocolFacts, SessionBinding } from './blocks.ts';
import { MalformedError, PROTOCOLS, Reader, padBlock, shortString, unpadBlock, word16 } from './blocks.ts';

/** A router could not be reached, or does not speak as a router. */
export class ConnectError extends Error {
  override name = 'ConnectError';
  readonly error: RouterError;

  constructor(code: string, detail: string) {
    super(detail);
    this.error = { source: 'BROKER', code, detail };
  }
}

export interface ConnectOptions {
  /** For all hosts together, the hello included, ms. */
  timeoutMs: number;
  /** Aborted when the connection is not wanted any more. */
  signal?: AbortSignal | undefined;
}

/** Both sides have said hello: what follows on the socket are blocks of transmissions. */
export interface Connection {
  socket: TLSSocket;
  binding: SessionBinding;
}

/**
 * Connects to the first of a router's hosts that says hello. One that is silent, before or after TLS, leaves the others
 * their share of the time.
 *
 * @throws ConnectError with what the last host said.
 */
export async function connectToRouter(
  protocol: RouterProtocol,
  address: RouterAddress,
  { timeoutMs, signal }: ConnectOptions,
): Promise<Connection> {
  const hosts = reachableHosts(address);
  const deadline = performance.now() + timeoutMs;
  let last: unknown = new ConnectError('NETWORK', 'the connection is not wanted any more');
  for (const [index, host] of hosts.entries()) {
    if (signal?.aborted) break;
    const shareMs = Math.ceil(Math.max(1, deadline - performance.now()) / (hosts.length - index));
    const limit = AbortSignal.any([AbortSignal.timeout(shareMs), ...(signal ? [signal] : [])]);
    try {
      return await connectToHost(host, address, PROTOCOLS[protocol], limit);
    } catch (error) {
      const isLate = limit.aborted && !(error instanceof ConnectError);
      if (error instanceof MalformedError) last = new ConnectError('RESPONSE', error.message);
      else last = isLate ? new ConnectError('NETWORK', 'no connection in time') : error;
    }
  }
  if (last instanceof ConnectError) throw last;
  const { code } = last as NodeJS.ErrnoException;
  throw new ConnectError(code === 'ENOTFOUND' ? 'HOST' : 'NETWORK', reasonOf(last) || (code ?? 'unknown'));
}

/** Names that end in `.onion` are never looked up in the DNS (RFC 7686), so nothing leads there. */
function reachableHosts(address: RouterAddress): string[] {
  let hosts: string[];
  try {
    hosts = hostsOf(address);
  } catch (error) {
    if (error instanceof AddressError) throw new ConnectError('HOST', error.message);
    throw error;
  }
  const reachable = hosts.filter((host) => !host.endsWith('.onion'));
  if (reachable.length === 0) throw new ConnectError('HOST', 'all hosts are onion hosts');
  return reachable;
}

async function connectToHost(
  host: string,
  { port, keyHash }: RouterAddress,
  facts: ProtocolFacts,
  signal: AbortSignal,
): Promise<Connection> {
  const socket = connectTls({
    ...{ host, port },
    ...(isIP(host) === 0 ? { servername: host } : {}),
    ...{ minVersion: 'TLSv1.3', maxVersion: 'TLSv1.3', ciphers: 'TLS_CHACHA20_POLY1305_SHA256' },
    ecdhCurve: 'X25519:X448',
    ALPNProtocols: [facts.alpn],
    // Who signed what is judged below, by the fingerprint.
    rejectUnauthorized: false,
  });
  let awaited = 'connection';
  const late = (): void => void socket.destroy(new ConnectError('NETWORK', `no ${awaited} in time`));
  if (signal.aborted) late();
  else signal.addEventListener('abort', late);
  try {
    await secured(socket);
    awaited = 'hello';
    const leaf = socket.getPeerX509Certificate();
    const chain = leaf ? chainOf(leaf) : [];
    const distrust = distrustOf(chain, keyHash);
    if (distrust !== undefined) throw new ConnectError('NETWORK', distrust);
    return { socket, binding: await shakeHands(socket, facts, keyHash) };
  } catch (error) {
    socket.destroy();
    throw error;
  } finally {
    signal.removeEventListener('abort', late);
  }
}

function secured(socket: TLSSocket): Promise<void> {
  return new Promise((resolve, reject) => {
    socket.once('secureConnect', resolve);
    socket.once('close', () => reject(new ConnectError('NETWORK', 'the connection was closed')));
    // Also keeps an error that comes later from ending the process; 'close' follows it.
    socket.on('error', reject);
  });
}

// --- Hellos ------------------------------------------------------------------------------------------------------

/** A router that does not know the name of the protocol speaks older versions. */
async function shakeHands(socket: TLSSocket, facts: ProtocolFacts, keyHash: string): Promise<SessionBinding> {
  const hello = readHello(unpadBlock(await firstBlock(socket, facts.blockBytes), true));
  if (socket.getFinished()?.equals(hello.sessionId) !== true) {
    throw new MalformedError('the hello is of another TLS session');
  }
  const version = agreedVersion(hello, facts, socket.alpnProtocol === facts.alpn);
  socket.write(padBlock(encodeHello(version, Buffer.from(keyHash, 'base64url')), facts.blockBytes));
  return { facts, version, id: hello.sessionId };
}

/** It may come in as many parts as a router likes. @throws ConnectError when it does not come. */
function firstBlock(socket: TLSSocket, blockBytes: number): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const closed = (): void =>
      settle(() => reject(new ConnectError('NETWORK', 'the connection was closed before the hello')));
    const failed = (error: Error): void => settle(() => reject(error));
    function readBlock(): void {
      const block = socket.read(blockBytes) as Buffer | null;
      if (block?.length === blockBytes) settle(() => resolve(block));
      // The rest, after which nothing comes.
      else if (block) closed();
    }
    function settle(how: () => void): void {
      socket.off('readable', readBlock).off('close', closed).off('error', failed);
      how();
    }
    socket.on('readable', readBlock).on('close', closed).on('error', failed);
    if (socket.destroyed) closed();
    else readBlock();
  });
}

interface RouterHello {
  oldest: number;
  newest: number;
  sessionId: Buffer;
}

/** Bytes that later versions append are for commands that this client lacks. @throws MalformedError */
export function readHello(content: Buffer): RouterHello {
  const reader = new Reader(content);
  const oldest = reader.word16('the oldest version');
  const newest = reader.word16('the newest version');
  if (oldest > newest) throw new MalformedError('the oldest version is newer than the newest');
  return { oldest, newest, sessionId: reader.shortString('the session id') };
}

/** @throws ConnectError when no version of the protocol is spoken on both sides. */
export function agreedVersion(
  { oldest, newest }: Pick<RouterHello, 'oldest' | 'newest'>,
  facts: ProtocolFacts,
  hasAlpn: boolean,
): number {
  const version = Math.min(newest, hasAlpn ? facts.newest : facts.newestWithoutAlpn);
  if (version < Math.max(oldest, facts.oldest)) {
    throw new ConnectError('VERSION', `it speaks versions ${oldest} to ${newest}`);
  }
  return version;
}

/** @param keyHash the fingerprint by which the router was found. */
export function encodeHello(version: number, keyHash: Buffer): Buffer {
  return Buffer.concat([word16(version), shortString(keyHash)]);
}

// --- Certificates ------------------------------------------------------------------------------------------------

/** Certificates of a router, with the one that its address names. */
const FEWEST = 2;
const MOST = 4;

/** Fingerprint of a certificate: SHA-256 of its DER, base64url. */
export function fingerprintOf(certificate: Buffer): string {
  return createHash('sha256').update(certificate).digest('base64url');
}

/**
 * The certificates as the peer has sent them, the leaf first, each followed by the one that signed it.
 *
 * @returns at most one more than a router may have.
 */
export function chainOf(leaf: X509Certificate): X509Certificate[] {
  const chain: X509Certificate[] = [];
  for (let next: X509Certificate | undefined = leaf; next && chain.length <= MOST;) {
    chain.push(next);
    const issuer: X509Certificate | undefined = next.issuerCertificate;
    next = issuer?.raw.equals(next.raw) === true ? undefined : issuer;
  }
  return chain;
}

/**
 * The certificate with the fingerprint is kept offline; those before it have been signed with it, one after the other,
 * and the last of them is the session's. An operator's own may stand behind it. Names and times make no difference.
 *
 * @returns why not, undefined when the chain is the router's.
 */
export function distrustOf(chain: readonly X509Certificate[], keyHash: string): string | undefined {
  if (chain.length < FEWEST || chain.length > MOST) {
    return `a router has ${FEWEST} to ${MOST} certificates, not ${chain.length}`;
  }
  const pinned = chain.findIndex(({ raw }, index) => index > 0 && fingerprintOf(raw) === keyHash);
  if (pinned === -1) return 'unknown CA';
  const isSigned = chain
    .slice(0, pinned)
    .every((certificate, index) => isSignedBy(certificate, chain[index + 1]!));
  return isSigned ? undefined : 'a certificate is not signed with the one behind it';
}

const isSignedBy = (certificate: X509Certificate, issuer: X509Certificate): boolean =>
  issuer.ca && certificate.checkIssued(issuer) && certificate.verify(issuer.publicKey);
