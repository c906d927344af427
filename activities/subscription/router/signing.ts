/**
 * The cryptography between agents and routers, with Node's own primitives on raw 32-byte keys: Ed25519 signatures over
 * the canonical form of a command, secrets agreed by X25519, and what is encrypted with them.
 */
import {
  createCipheriv,
  createDecipheriv,
  createPrivateKey,
  createPublicKey,
  diffieHellman,
  generateKeyPairSync,
  hkdfSync,
  randomBytes,
  sign,
  verify,
} from 'node:crypto';
import type { KeyObject } from 'node:crypto';
import { canonicalJson } from '../../../api/canonical-json.ts';
import type { RouterCommand } from '../../../api/subscription/router-wire.ts';
import type { Boxed, KeyPair, RawKey } from './ports.ts';

export const KEY_BYTES = 32;
const NONCE_BYTES = 12;
const TAG_BYTES = 16;
const CIPHER = 'chacha20-poly1305';

export type Curve = 'ed25519' | 'x25519';

/** What stands before the 32 bytes of a key in its DER form (RFC 8410). */
const PRIVATE_PREFIX: Record<Curve, Buffer> = {
  ed25519: Buffer.from('302e020100300506032b657004220420', 'hex'),
  x25519: Buffer.from('302e020100300506032b656e04220420', 'hex'),
};
const PUBLIC_PREFIX: Record<Curve, Buffer> = {
  ed25519: Buffer.from('302a300506032b6570032100', 'hex'),
  x25519: Buffer.from('302a300506032b656e032100', 'hex'),
};

/** What an encrypted value is; a value of one kind does not open as another. */
export type BoxedKind = 'verification' | 'message-list' | 'message-meta';

/** Keys that sign: Ed25519. */
export function generateAuthKeys(): KeyPair {
  return generateKeys('ed25519');
}

/** Keys that agree on a secret: X25519. */
export function generateDhKeys(): KeyPair {
  return generateKeys('x25519');
}

/** The public half of a private Ed25519 key. */
export function authPublicKeyOf(privateKey: RawKey): RawKey {
  return rawPublic(createPublicKey(privateKeyObject('ed25519', privateKey)));
}

/** The public half of a private X25519 key. */
export function dhPublicKeyOf(privateKey: RawKey): RawKey {
  return rawPublic(createPublicKey(privateKeyObject('x25519', privateKey)));
}

/**
 * The secret that both sides of an X25519 agreement know.
 *
 * @throws Error when a key has not 32 bytes or is one of the few points that lead to no secret.
 */
export function dhSecret(theirPublicKey: RawKey, ownPrivateKey: RawKey): Buffer {
  return diffieHellman({
    publicKey: publicKeyObject('x25519', theirPublicKey),
    privateKey: privateKeyObject('x25519', ownPrivateKey),
  });
}

/** As `dhSecret`; undefined when no secret can be agreed with the key of a router. */
export function secretOrNothing(routerPublicKey: RawKey, privateKey: RawKey): Buffer | undefined {
  try {
    return dhSecret(routerPublicKey, privateKey);
  } catch {
    return undefined;
  }
}

/**
 * What a signature covers: the command, what it is about, its number in the batch, and the router that it is meant for,
 * so that no other router can use it.
 */
export interface SignedContent {
  /** Fingerprint of the router's certificate. */
  router: string;
  id: string;
  entity?: string | undefined;
  command: RouterCommand;
}

/** @returns base64url. */
export function signCommand(content: SignedContent, privateKey: RawKey): string {
  return sign(undefined, canonicalBytes(content), privateKeyObject('ed25519', privateKey)).toString(
    'base64url',
  );
}

/** Never throws: an invalid key or signature does not verify. */
export function isSignedBy(content: SignedContent, signature: string, publicKey: RawKey): boolean {
  try {
    const key = publicKeyObject('ed25519', publicKey);
    return verify(undefined, canonicalBytes(content), key, Buffer.from(signature, 'base64url'));
  } catch {
    return false;
  }
}

/** Encrypts with an agreed secret and a random nonce; base64url. */
export function box(plain: Buffer, secret: Buffer, kind: BoxedKind): Boxed {
  const nonce = randomBytes(NONCE_BYTES);
  const cipher = createCipheriv(CIPHER, boxKey(secret, kind), nonce, { authTagLength: TAG_BYTES });
  const ciphertext = Buffer.concat([cipher.update(plain), cipher.final(), cipher.getAuthTag()]);
  return { nonce: nonce.toString('base64url'), content: ciphertext.toString('base64url') };
}

/** @returns undefined when the value was not encrypted with this secret for this kind, or was changed. */
export function unbox({ nonce, content }: Boxed, secret: Buffer, kind: BoxedKind): Buffer | undefined {
  try {
    const bytes = Buffer.from(content, 'base64url');
    const iv = Buffer.from(nonce, 'base64url');
    const decipher = createDecipheriv(CIPHER, boxKey(secret, kind), iv, { authTagLength: TAG_BYTES });
    decipher.setAuthTag(bytes.subarray(-TAG_BYTES));
    return Buffer.concat([decipher.update(bytes.subarray(0, -TAG_BYTES)), decipher.final()]);
  } catch {
    return undefined;
  }
}

/** The agreed secret is no key yet (RFC 7748), and each kind of use gets another key. */
function boxKey(secret: Buffer, kind: BoxedKind): Buffer {
  return Buffer.from(hkdfSync('sha256', secret, '', `router ${kind}`, KEY_BYTES));
}

function canonicalBytes({ router, id, entity, command }: SignedContent): Buffer {
  return Buffer.from(
    canonicalJson({ router, id, ...(entity === undefined ? {} : { entity }), command }),
    'utf8',
  );
}

function generateKeys(curve: Curve): KeyPair {
  const { publicKey, privateKey } =
    curve === 'ed25519' ? generateKeyPairSync('ed25519') : generateKeyPairSync('x25519');
  return { publicKey: rawPublic(publicKey), privateKey: raw(privateKey, 'pkcs8') };
}

/** The DER form of a raw public key (RFC 8410). @throws Error when it has not 32 bytes. */
export function publicKeyDer(curve: Curve, key: RawKey): Buffer {
  assertLength(key);
  return Buffer.concat([PUBLIC_PREFIX[curve], key]);
}

/** The DER form of a raw private key (RFC 8410). @throws Error when it has not 32 bytes. */
export function privateKeyDer(curve: Curve, key: RawKey): Buffer {
  assertLength(key);
  return Buffer.concat([PRIVATE_PREFIX[curve], key]);
}

/** @returns the raw key in the DER form of a public key, undefined when it is none of this curve. */
export function rawPublicKeyIn(curve: Curve, der: Buffer): RawKey | undefined {
  const prefix = PUBLIC_PREFIX[curve];
  const isKey = der.length === prefix.length + KEY_BYTES && der.subarray(0, prefix.length).equals(prefix);
  return isKey ? Buffer.from(der.subarray(prefix.length)) : undefined;
}

function rawPublic(key: KeyObject): RawKey {
  return raw(key, 'spki');
}

function raw(key: KeyObject, type: 'spki' | 'pkcs8'): RawKey {
  const der = type === 'spki' ? key.export({ type, format: 'der' }) : key.export({ type, format: 'der' });
  return Buffer.from(der.subarray(-KEY_BYTES));
}

/** @throws Error when the key has not 32 bytes. */
export function privateKeyObject(curve: Curve, key: RawKey): KeyObject {
  return createPrivateKey({ key: privateKeyDer(curve, key), format: 'der', type: 'pkcs8' });
}

function publicKeyObject(curve: Curve, key: RawKey): KeyObject {
  return createPublicKey({ key: publicKeyDer(curve, key), format: 'der', type: 'spki' });
}

function assertLength(key: RawKey): void {
  if (key.length !== KEY_BYTES) throw new Error(`a raw key has ${KEY_BYTES} bytes, not ${key.length}`);
}
