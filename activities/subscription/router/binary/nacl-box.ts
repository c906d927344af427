/** NaCl's box (X25519, XSalsa20, Poly1305) with a secret that both sides have agreed on: the one thing Node lacks. */
import { hsalsa, xsalsa20poly1305 } from '@noble/ciphers/salsa.js';

export const BOX_NONCE_BYTES = 24;
const KEY_WORDS = 8;
const NONCE_WORDS = 4;
const WORD_BYTES = 4;
/** What the derivation of keys begins with. */
const SIGMA = wordsOf(Buffer.from('expand 32-byte k', 'ascii'));

/** @returns the tag, then as many bytes as `plain` has. */
export function sealBox(plain: Buffer, secret: Buffer, nonce: Buffer): Buffer {
  return Buffer.from(xsalsa20poly1305(boxKey(secret), nonce).encrypt(plain));
}

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
