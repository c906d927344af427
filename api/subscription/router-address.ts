/**
 * Addresses of routers as people have them: `smp://fingerprint[:password]@host[,host…][:port]` and
 * `ntf://fingerprint@host[,host…][:port]`. A password is for applications that make queues: it is read, and dropped.
 */
import { z } from 'zod';

/**
 * Where a router listens. Two addresses are the same when host and port are; the fingerprint is not
 * compared.
 */
export interface RouterAddress {
  /** All its hosts, with commas between them, in the order in which they are tried. */
  host: string;
  port: number;
  /** SHA-256 of the certificate that is kept offline, at the end of the chain; base64url without padding. */
  keyHash: string;
}

/** No address of a router. The text names the part that is wrong and quotes nothing: there may be a password. */
export class AddressError extends Error {
  override name = 'AddressError';
}

export interface BinaryAddress extends RouterAddress {
  protocol: RouterProtocol;
}

/** Where a router listens when its address has no port. */
export const DEFAULT_PORTS: Record<RouterProtocol, number> = { smp: 5_223, ntf: 443 };

const FINGERPRINT_BYTES = 32;
const MOST_HOSTS = 8;
/** All hosts of a router stand in the ids of its workflows, which have room for so many characters. */
export const MOST_HOST_CHARACTERS = 150;
const LABEL = '[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?';
const HOST_NAME = new RegExp(`^(?=.{1,253}$)${LABEL}(?:\\.${LABEL})*$`);
const IPV6 = /^\[([0-9A-Fa-f:.]{2,45})\]$/;
const BINARY_ADDRESS =
  /^(?<scheme>[a-z]+):\/\/(?<identity>[^@]*)@(?<hosts>\[[^\]]*\]|[^@:[\]]*)(?::(?<port>[^@]*))?$/;

/**
 * Refers to the same router over the same way; the fingerprint is no part of who a router is, but of how it is
 * reached.
 */
export const endpointOf = ({ host, port, keyHash }: RouterAddress): string => `${host}:${port}#${keyHash}`;

/** What an address may look like, for messages. */
export const ADDRESS_FORMS: Record<RouterProtocol, string> = {
  smp: 'smp://fingerprint[:password]@host[,host…][:port]',
  ntf: 'ntf://fingerprint@host[,host…][:port]',
};

/**
 * An address, without the kind of its router.
 *
 * @param protocol of which kind the router must be.
 * @throws AddressError
 */
export function parseRouterAddress(text: string, protocol: RouterProtocol): RouterAddress {
  const { protocol: found, ...address } = parseBinaryAddress(text);
  if (found !== protocol) throw new AddressError(`the scheme is ${protocol}`);
  return address;
}

/**
 * An address with the kind of its router.
 *
 * @throws AddressError
 */
export function parseBinaryAddress(text: string): BinaryAddress {
  const parts = BINARY_ADDRESS.exec(text)?.groups;
  if (!parts)
    throw new AddressError('an address is smp:// or ntf://, fingerprint, @, hosts and perhaps a port');
  const { scheme, identity = '', hosts = '', port } = parts;
  if (scheme !== 'smp' && scheme !== 'ntf') throw new AddressError('the scheme is smp or ntf');
  const [fingerprint = '', ...password] = identity.split(':');
  if (password.length > 0 && scheme === 'ntf')
    throw new AddressError('the password is for messaging routers only');
  const keyHash = fingerprintIn(fingerprint);
  const host = hostsOf({ host: hosts.split(',').map(hostIn).join(',') }).join(',');
  const address = { host, port: port === undefined ? DEFAULT_PORTS[scheme] : portIn(port), keyHash };
  if (host.length > MOST_HOST_CHARACTERS) {
    throw new AddressError(`the hosts have at most ${MOST_HOST_CHARACTERS} characters together`);
  }
  return { protocol: scheme, ...address };
}

/** An address as people write it. {@link parseRouterAddress} reads it. */
export function routerAddressText({ host, port, keyHash }: RouterAddress, protocol: RouterProtocol): string {
  const hosts = host
    .split(',')
    .map((one) => (one.includes(':') ? `[${one}]` : one))
    .join(',');
  return `${protocol}://${keyHash}@${hosts}:${port}`;
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

// --- Words that the protocols of routers share with inputs of this service ---------------------------------------------

export type RouterProtocol = 'smp' | 'ntf';

/** Bytes in base64url without padding, and nothing that decodes to the same bytes in another spelling. */
function bytes(min: number, max = min) {
  return z
    .string()
    .max(Math.ceil((max * 4) / 3))
    .refine(
      (text) => {
        const decoded = Buffer.from(text, 'base64url');
        return decoded.toString('base64url') === text && decoded.length >= min && decoded.length <= max;
      },
      `must be ${min === max ? min : `${min} to ${max}`} bytes in base64url`,
    );
}

export const rawKey = bytes(32);
export const entityId = bytes(16, 24);

export const deviceTokenSchema = z.strictObject({
  provider: z.enum(['AD', 'AP', 'AT', 'AN']),
  // APNs: at most 100 bytes.
  token: z.string().regex(/^(?:[0-9a-f]{2}){1,100}$/, 'must be 1 to 100 bytes in lower-case hex'),
});

export const TOKEN_STATUSES = [
  'NEW',
  'REGISTERED',
  'INVALID',
  'INVALID,BAD',
  'INVALID,TOPIC',
  'INVALID,EXPIRED',
  'INVALID,UNREGISTERED',
  'CONFIRMED',
  'ACTIVE',
  'EXPIRED',
] as const;
