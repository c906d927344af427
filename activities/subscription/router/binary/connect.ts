/** TLS connections to routers: to the first of a router's hosts that answers and has the router's certificates. */
import type { X509Certificate } from 'node:crypto';
import type { Socket } from 'node:net';
import { isIP } from 'node:net';
import type { TLSSocket } from 'node:tls';
import { connect as connectTls } from 'node:tls';
import { AddressError, hostsOf, isOnion } from '../../../../api/subscription/router-address.ts';
import { reasonOf } from '../../../reason.ts';
import type { RouterAddress, RouterError } from '../ports.ts';
import { chainOf, distrustOf } from './certificates.ts';
import { connectThroughSocks } from './socks.ts';
import type { ProtocolFacts } from './versions.ts';

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
  /** The only way to hosts that end in `.onion`. */
  socksProxy?: { host: string; port: number } | undefined;
  /** Whether anybody still wants it. */
  signal?: AbortSignal | undefined;
}

export interface Connection {
  socket: TLSSocket;
  /** The one that answered. */
  host: string;
  /** The leaf first. */
  chain: readonly X509Certificate[];
  /** Whether the router knows the name of the protocol; one that does not speaks older versions. */
  hasAlpn: boolean;
}

/**
 * Connects to the first of a router's hosts that can be greeted. One that is silent, before or after TLS, leaves the
 * others their share of the time.
 *
 * @param greet says hello; the connection ends when it throws, and while it waits when the time is up.
 * @throws ConnectError with what the last host said.
 */
export async function connectToRouter<Greeted>(
  address: RouterAddress,
  facts: ProtocolFacts,
  { timeoutMs, socksProxy, signal }: ConnectOptions,
  greet: (connection: Connection) => Promise<Greeted>,
): Promise<Greeted> {
  const hosts = reachableHosts(address, socksProxy !== undefined);
  const deadline = performance.now() + timeoutMs;
  let last: unknown = new ConnectError('NETWORK', 'nobody wants a connection any more');
  for (const [index, host] of hosts.entries()) {
    if (signal?.aborted) break;
    const limit = new AbortController();
    const giveUp = (): void => limit.abort();
    const timer = setTimeout(giveUp, Math.max(1, deadline - performance.now()) / (hosts.length - index));
    signal?.addEventListener('abort', giveUp);
    try {
      const connection = await connectToHost(host, address, facts, socksProxy, limit.signal);
      return await greet(connection).catch((error: unknown) => {
        connection.socket.destroy();
        throw error;
      });
    } catch (error) {
      const isLate = limit.signal.aborted && !(error instanceof ConnectError);
      last = isLate ? new ConnectError('NETWORK', 'no connection in time') : error;
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener('abort', giveUp);
    }
  }
  if (last instanceof ConnectError) throw last;
  const { code } = last as NodeJS.ErrnoException;
  throw new ConnectError(code === 'ENOTFOUND' ? 'HOST' : 'NETWORK', reasonOf(last) || (code ?? 'unknown'));
}

function reachableHosts(address: RouterAddress, hasProxy: boolean): string[] {
  let hosts: string[];
  try {
    hosts = hostsOf(address);
  } catch (error) {
    if (error instanceof AddressError) throw new ConnectError('HOST', error.message);
    throw error;
  }
  const reachable = hosts.filter((host) => hasProxy || !isOnion(host));
  if (reachable.length === 0) throw new ConnectError('HOST', 'onion hosts need a SOCKS proxy');
  return reachable;
}

async function connectToHost(
  host: string,
  { port, keyHash }: RouterAddress,
  facts: ProtocolFacts,
  socksProxy: ConnectOptions['socksProxy'],
  signal: AbortSignal,
): Promise<Connection> {
  const way =
    socksProxy && isOnion(host)
      ? { socket: await connectThroughSocks(socksProxy, { host, port }, signal) }
      : { host, port };
  const socket = connectTls({
    ...way,
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
    return { socket, host, chain, hasAlpn: socket.alpnProtocol === facts.alpn };
  } catch (error) {
    socket.destroy();
    throw error;
  }
}

function secured(socket: Socket): Promise<void> {
  return new Promise((resolve, reject) => {
    socket.once('secureConnect', resolve);
    socket.once('close', () => reject(new ConnectError('NETWORK', 'the connection was closed')));
    // Also keeps an error that comes later from ending the process; 'close' follows it.
    socket.on('error', reject);
  });
}
