/**
 * Keys between agents and routers, with Node's own primitives on raw 32-byte keys: Ed25519, and secrets agreed by X25519.
 * Node lacks one thing: NaCl's box (X25519, XSalsa20, Poly1305).
 */
import { createPrivateKey, createPublicKey, diffieHellman, generateKeyPairSync } from 'node:crypto';
import type { KeyObject } from 'node:crypto';
import type { KeyPair, RawKey } from './ports.ts';
import { hsalsa, xsalsa20poly1305 } from '@noble/ciphers/salsa.js';

const KEY_BYTES = 32;

type Curve = 'ed25519' | 'x25519';

/** What stands before the 32 bytes of a key in its DER form (RFC 8410). */
const PRIVATE_PREFIX: Record<Curve, Buffer> = {
  ed25519: Buffer.from('302e020100300506032b657004220420', 'hex'),
  x25519: Buffer.from('302e020100300506032b656e04220420', 'hex'),
};
const PUBLIC_PREFIX: Record<Curve, Buffer> = {
  ed25519: Buffer.from('302a300506032b6570032100', 'hex'),
  x25519: Buffer.from('302a300506032b656e032100', 'hex'),
};

/** Keys that sign: Ed25519. */
export const generateAuthKeys = (): KeyPair => rawKeysOf(generateKeyPairSync('ed25519').privateKey);

/** Keys that agree on a secret: X25519. */
export const generateDhKeys = (): KeyPair => rawKeysOf(generateKeyPairSync('x25519').privateKey);

function rawKeysOf(key: KeyObject): KeyPair {
  const { x = '', d = '' } = key.export({ format: 'jwk' });
  return { publicKey: Buffer.from(x, 'base64url'), privateKey: Buffer.from(d, 'base64url') };
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

/** @returns the raw key in the DER form of a public key, undefined for a key of another curve. */
export function rawPublicKeyIn(curve: Curve, der: Buffer): RawKey | undefined {
  const prefix = PUBLIC_PREFIX[curve];
  const isKey = der.length === prefix.length + KEY_BYTES && der.subarray(0, prefix.length).equals(prefix);
  return isKey ? Buffer.from(der.subarray(prefix.length)) : undefined;
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

export const BOX_NONCE_BYTES = 24;
const KEY_WORDS = 8;
const NONCE_WORDS = 4;
const WORD_BYTES = 4;
/** What the derivation of keys begins with. */
const SIGMA = wordsOf(Buffer.from('expand 32-byte k', 'ascii'));

/** @returns undefined when it was not sealed with this secret and nonce, or was changed. */
export function openBox(sealed: Buffer, secret: Buffer, nonce: Buffer): Buffer | undefined {
  try {
    return Buffer.from(xsalsa20poly1305(boxKey(secret), nonce).decrypt(sealed));
  } catch {
    return undefined;
  }
}

/** What is agreed by X25519 is no key yet. */
function boxKey(secret: Buffer): Uint8Array {
  const key = new Uint32Array(KEY_WORDS);
  hsalsa(SIGMA, wordsOf(secret), new Uint32Array(NONCE_WORDS), key);
  return new Uint8Array(key.buffer);
}

/** A copy, in the order of bytes of this machine. */
function wordsOf(bytes: Buffer): Uint32Array {
  return new Uint32Array(Uint8Array.from(bytes).buffer, 0, bytes.length / WORD_BYTES);
}
