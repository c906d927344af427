/** Addresses of routers as people have them: `smp://fingerprint[:password]@host[,host…][:port]`, and `ntf://…`. */
import type { RouterProtocol } from '../../../../api/subscription/router-wire.ts';
import type { RouterAddress } from '../ports.ts';
import { PROTOCOLS } from './versions.ts';

/** No address of a router. The text names the part that is wrong and quotes nothing: there may be a password. */
export class AddressError extends Error {
  override name = 'AddressError';
}

export interface BinaryAddress extends RouterAddress {
  protocol: RouterProtocol;
  /** For those who make queues. */
  basicAuth?: string;
}

const FINGERPRINT_BYTES = 32;
const MOST_HOSTS = 8;
const MOST_PASSWORD_BYTES = 255;
const LABEL = '[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?';
const HOST_NAME = new RegExp(`^(?=.{1,253}$)${LABEL}(?:\\.${LABEL})*$`);
const IPV6 = /^\[([0-9A-Fa-f:.]{2,45})\]$/;
const ADDRESS =
  /^(?<scheme>[a-z]+):\/\/(?<identity>[^@]*)@(?<hosts>\[[^\]]*\]|[^@:[\]]*)(?::(?<port>[^@]*))?$/;

/**
 * The hosts of an address stand in `host`, with commas between them, in the order in which they are tried.
 *
 * @throws AddressError
 */
export function parseRouterAddress(text: string): BinaryAddress {
  const parts = ADDRESS.exec(text)?.groups;
  if (!parts)
    throw new AddressError('an address is smp:// or ntf://, fingerprint, @, hosts and perhaps a port');
  const { scheme, identity = '', hosts = '', port } = parts;
  if (scheme !== 'smp' && scheme !== 'ntf') throw new AddressError('the scheme is smp or ntf');
  const colon = identity.indexOf(':');
  const password = colon === -1 ? undefined : identity.slice(colon + 1);
  if (password !== undefined) {
    if (scheme === 'ntf') throw new AddressError('the password is for messaging routers only');
    const bytes = Buffer.byteLength(password, 'utf8');
    if (bytes === 0 || bytes > MOST_PASSWORD_BYTES) {
      throw new AddressError(`the password has 1 to ${MOST_PASSWORD_BYTES} bytes`);
    }
  }
  const keyHash = fingerprintIn(colon === -1 ? identity : identity.slice(0, colon));
  const host = hosts.split(',').map(hostIn).join(',');
  return {
    ...{ protocol: scheme, keyHash },
    host: hostsOf({ host }).join(','),
    port: port === undefined ? PROTOCOLS[scheme].defaultPort : portIn(port),
    ...(password === undefined ? {} : { basicAuth: password }),
  };
}

/**
 * The hosts of a router, in the order in which they are tried.
 *
 * @throws AddressError when there are too many, or one stands there twice.
 */
export function hostsOf({ host }: Pick<RouterAddress, 'host'>): string[] {
  const hosts = host.split(',');
  if (hosts.length > MOST_HOSTS) throw new AddressError(`the hosts are at most ${MOST_HOSTS}`);
  if (new Set(hosts).size < hosts.length) throw new AddressError('the hosts are not all different');
  return hosts;
}

export const isOnion = (host: string): boolean => host.endsWith('.onion');

/** Some write it with the padding of base64, some without. */
function fingerprintIn(text: string): string {
  const keyHash = text.endsWith('=') ? text.slice(0, -1) : text;
  const bytes = Buffer.from(keyHash, 'base64url');
  if (bytes.length !== FINGERPRINT_BYTES || bytes.toString('base64url') !== keyHash) {
    throw new AddressError(`the fingerprint has ${FINGERPRINT_BYTES} bytes, in base64url`);
  }
  return keyHash;
}

function hostIn(text: string): string {
  const host = IPV6.exec(text)?.[1] ?? (HOST_NAME.test(text) ? text.toLowerCase() : undefined);
  if (host === undefined) throw new AddressError('the host is a name or an address, IPv6 in brackets');
  return host;
}

function portIn(text: string): number {
  const port = Number(text);
  if (!/^[1-9][0-9]{0,4}$/.test(text) || port > 65_535) throw new AddressError('the port is 1 to 65535');
  return port;
}
