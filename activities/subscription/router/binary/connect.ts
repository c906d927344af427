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
  /** For all hosts together, ms. */
  timeoutMs: number;
  /** The only way to hosts that end in `.onion`. */
  socksProxy?: { host: string; port: number } | undefined;
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

/** @throws ConnectError with what the last host said. */
export async function connectToRouter(
  address: RouterAddress,
  facts: ProtocolFacts,
  { timeoutMs, socksProxy }: ConnectOptions,
): Promise<Connection> {
  const hosts = reachableHosts(address, socksProxy !== undefined);
  const deadline = performance.now() + timeoutMs;
  let last: unknown;
  for (const [index, host] of hosts.entries()) {
    // A host that is silent leaves the others their share.
    const share = Math.ceil((deadline - performance.now()) / (hosts.length - index));
    try {
      return await connectToHost(host, address, facts, { timeoutMs: Math.max(1, share), socksProxy });
    } catch (error) {
      last = error;
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
  { timeoutMs, socksProxy }: ConnectOptions,
): Promise<Connection> {
  const signal = AbortSignal.timeout(timeoutMs);
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
  try {
    await secured(socket, signal);
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

function secured(socket: Socket, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const late = (): void => reject(new ConnectError('NETWORK', 'no connection in time'));
    signal.addEventListener('abort', late, { once: true });
    const settle = (how: () => void) => (): void => {
      signal.removeEventListener('abort', late);
      how();
    };
    socket.once('secureConnect', settle(resolve));
    socket.once(
      'close',
      settle(() => reject(new ConnectError('NETWORK', 'the connection was closed'))),
    );
    // Also keeps an error that comes later from ending the process; 'close' follows it.
    socket.on('error', (error) => settle(() => reject(error))());
  });
}
