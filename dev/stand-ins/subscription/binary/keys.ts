/** Keys of the binary protocol, which travel as DER, and what authorizes a command: a signature, or a box. */
import {
  createHash,
  createPrivateKey,
  createPublicKey,
  diffieHellman,
  sign,
  timingSafeEqual,
  verify,
} from 'node:crypto';
import type { KeyObject } from 'node:crypto';
import { open, seal } from './box.ts';
import { MalformedError } from './bytes.ts';

const RAW_BYTES = 32;
/** In front of the 32 bytes of an X25519 key in its DER form (RFC 8410). */
const X25519_PREFIX = Buffer.from('302a300506032b656e032100', 'hex');
/** Of signatures by Ed25519 and Ed448, and of an authenticator. */
const AUTHORIZATION_BYTES: Readonly<Record<string, number>> = { ed25519: 64, ed448: 114, x25519: 80 };

export const isAuthorizationLength = (length: number): boolean =>
  Object.values(AUTHORIZATION_BYTES).includes(length);

/** @returns the raw key. @throws MalformedError for anything but the DER form of an X25519 key. */
export function readDhKey(der: Buffer): Buffer {
  const prefix = der.subarray(0, X25519_PREFIX.length);
  if (der.length !== X25519_PREFIX.length + RAW_BYTES || !prefix.equals(X25519_PREFIX)) {
    throw new MalformedError('no X25519 key');
  }
  return der.subarray(X25519_PREFIX.length);
}

export function writeDhKey(raw: Buffer): Buffer {
  return Buffer.concat([X25519_PREFIX, raw]);
}

/** @throws MalformedError unless it is the DER form of a key that can authorize commands. */
export function checkAuthKey(der: Buffer, kind: 'public' | 'private'): Buffer {
  const type = keyOf(der, kind)?.asymmetricKeyType;
  if (type === undefined || !Object.hasOwn(AUTHORIZATION_BYTES, type)) {
    throw new MalformedError('no key that authorizes');
  }
  return der;
}

/** What a command's authorization is made of and checked with. */
export interface Authorized {
  /** The command with all that is authorized with it. */
  content: Buffer;
  /** The nonce of an authenticator. */
  correlationId: Buffer;
}

/** Never throws. @param sessionKey of the router, by which authenticators are checked; undefined before version 7. */
export function isAuthorizedBy(
  der: Buffer,
  authorization: Buffer,
  { content, correlationId }: Authorized,
  sessionKey: KeyObject | undefined,
): boolean {
  const key = keyOf(der, 'public');
  if (!key || authorization.length !== AUTHORIZATION_BYTES[key.asymmetricKeyType ?? '']) return false;
  try {
    if (key.asymmetricKeyType !== 'x25519') return verify(undefined, content, key, authorization);
    if (!sessionKey) return false;
    const secret = diffieHellman({ publicKey: key, privateKey: sessionKey });
    const digest = open(authorization, secret, correlationId);
    return digest !== undefined && timingSafeEqual(digest, digestOf(content));
  } catch {
    return false;
  }
}

/** @param sessionKey of the router, DER. */
export function authorize(
  der: Buffer,
  { content, correlationId }: Authorized,
  sessionKey: Buffer | undefined,
): Buffer {
  const key = createPrivateKey({ key: der, format: 'der', type: 'pkcs8' });
  if (key.asymmetricKeyType !== 'x25519') return sign(undefined, content, key);
  if (!sessionKey) throw new MalformedError('the router has no key for authenticators');
  const publicKey = createPublicKey({ key: sessionKey, format: 'der', type: 'spki' });
  return seal(digestOf(content), diffieHellman({ publicKey, privateKey: key }), correlationId);
}

function digestOf(content: Buffer): Buffer {
  return createHash('sha512').update(content).digest();
}

function keyOf(der: Buffer, kind: 'public' | 'private'): KeyObject | undefined {
  try {
    return kind === 'public'
      ? createPublicKey({ key: der, format: 'der', type: 'spki' })
      : createPrivateKey({ key: der, format: 'der', type: 'pkcs8' });
  } catch {
    return undefined;
  }
}
