/**
 * Addresses of routers as people have them. `host:port#fingerprint` is a router that speaks JSON over HTTPS;
 * `smp://fingerprint[:password]@host[,host…][:port]` and `ntf://fingerprint@host[,host…][:port]` are routers that speak
 * their own binary protocol.
 */
import type { RouterProtocol } from './router-wire.ts';

/**
 * Where a router listens, and how it speaks. Two addresses are the same when host and port are; the fingerprint is not
 * compared.
 */
export interface RouterAddress {
  /** Of a router with the binary protocol: all its hosts, with commas between them, in the order in which they are tried. */
  host: string;
  port: number;
  /**
   * SHA-256, base64url without padding: over HTTPS of the certificate itself, with the binary protocol of the one that is
   * kept offline, at the end of the chain.
   */
  keyHash: string;
  /** Absent: HTTPS. */
  transport?: 'binary' | undefined;
  /** Password of a messaging router for those who may make queues; the binary protocol has one. */
  basicAuth?: string | undefined;
}

/** No address of a router. The text names the part that is wrong and quotes nothing: there may be a password. */
export class AddressError extends Error {
  override name = 'AddressError';
}

export interface BinaryAddress extends RouterAddress {
  protocol: RouterProtocol;
  transport: 'binary';
}

/** Where a router listens when its address has no port. */
export const DEFAULT_PORTS: Record<RouterProtocol, number> = { smp: 5_223, ntf: 443 };

const FINGERPRINT_BYTES = 32;
const MOST_HOSTS = 8;
/** All hosts of a router stand in the ids of its workflows, which have room for so many characters. */
export const MOST_HOST_CHARACTERS = 150;
const MOST_PASSWORD_BYTES = 255;
const LABEL = '[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?';
const HOST_NAME = new RegExp(`^(?=.{1,253}$)${LABEL}(?:\\.${LABEL})*$`);
const IPV6 = /^\[([0-9A-Fa-f:.]{2,45})\]$/;
const BINARY_ADDRESS =
  /^(?<scheme>[a-z]+):\/\/(?<identity>[^@]*)@(?<hosts>\[[^\]]*\]|[^@:[\]]*)(?::(?<port>[^@]*))?$/;
const HTTPS_ADDRESS = /^(?<host>\[[^\]]*\]|[A-Za-z0-9_.-]+):(?<port>[^#]*)#(?<print>.*)$/;

/** What an address may look like, for messages. */
export const ADDRESS_FORMS: Record<RouterProtocol, string> = {
  smp: 'host:port#fingerprint or smp://fingerprint[:password]@host[,host…][:port]',
  ntf: 'host:port#fingerprint or ntf://fingerprint@host[,host…][:port]',
};

/**
 * An address in any of its forms.
 *
 * @param protocol of which kind the router must be; over HTTPS an address does not tell.
 * @throws AddressError
 */
export function parseRouterAddress(text: string, protocol?: RouterProtocol): RouterAddress {
  if (!text.includes('://')) return parseHttpsAddress(text);
  const { protocol: found, ...address } = parseBinaryAddress(text);
  if (protocol !== undefined && found !== protocol) throw new AddressError(`the scheme is ${protocol}`);
  return address;
}

function parseHttpsAddress(text: string): RouterAddress {
  const parts = HTTPS_ADDRESS.exec(text)?.groups;
  if (!parts) throw new AddressError('an address is host:port#fingerprint, or begins with smp:// or ntf://');
  const { host = '', port = '', print = '' } = parts;
  const ipv6 = IPV6.exec(host)?.[1];
  if (host.startsWith('[') && ipv6 === undefined) {
    throw new AddressError('the host is a name or an address, IPv6 in brackets');
  }
  return checkedLength({ host: ipv6 ?? host, port: portIn(port), keyHash: fingerprintIn(print) });
}

/**
 * An address of a router that speaks the binary protocol.
 *
 * @throws AddressError
 */
export function parseBinaryAddress(text: string): BinaryAddress {
  const parts = BINARY_ADDRESS.exec(text)?.groups;
  if (!parts)
    throw new AddressError('an address is smp:// or ntf://, fingerprint, @, hosts and perhaps a port');
  const { scheme, identity = '', hosts = '', port } = parts;
  if (scheme !== 'smp' && scheme !== 'ntf') throw new AddressError('the scheme is smp or ntf');
  const colon = identity.indexOf(':');
  const password = colon === -1 ? undefined : identity.slice(colon + 1);
  if (password !== undefined) {
    if (scheme === 'ntf') throw new AddressError('the password is for messaging routers only');
    checkPassword(password);
  }
  const keyHash = fingerprintIn(colon === -1 ? identity : identity.slice(0, colon));
  const host = hosts.split(',').map(hostIn).join(',');
  return checkedLength({
    ...{ protocol: scheme, transport: 'binary', keyHash },
    host: hostsOf({ host }).join(','),
    port: port === undefined ? DEFAULT_PORTS[scheme] : portIn(port),
    ...(password === undefined ? {} : { basicAuth: password }),
  });
}

/** An address as people write it, without its password. {@link parseRouterAddress} reads it. */
export function routerAddressText(
  { host, port, keyHash, transport }: RouterAddress,
  protocol: RouterProtocol,
): string {
  const hosts = host
    .split(',')
    .map((one) => (one.includes(':') ? `[${one}]` : one))
    .join(',');
  return transport === 'binary' ? `${protocol}://${keyHash}@${hosts}:${port}` : `${hosts}:${port}#${keyHash}`;
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

/** @throws AddressError */
export function checkPassword(password: string): void {
  const bytes = Buffer.byteLength(password, 'utf8');
  if (bytes === 0 || bytes > MOST_PASSWORD_BYTES) {
    throw new AddressError(`the password has 1 to ${MOST_PASSWORD_BYTES} bytes`);
  }
}

function checkedLength<Address extends RouterAddress>(address: Address): Address {
  if (address.host.length > MOST_HOST_CHARACTERS) {
    throw new AddressError(`the hosts have at most ${MOST_HOST_CHARACTERS} characters together`);
  }
  return address;
}

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
