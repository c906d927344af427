/** What is encrypted in the binary protocol: NaCl's box (curve25519xsalsa20poly1305), with which Node does not come. */
import { hsalsa, xsalsa20poly1305 } from '@noble/ciphers/salsa.js';

export const NONCE_BYTES = 24;
/** "expand 32-byte k", the constant of Salsa20 in words. */
const SIGMA = new Uint32Array([0x61707865, 0x3320646e, 0x79622d32, 0x6b206574]);
const WORD_BYTES = 4;

/** @param secret as agreed by X25519. */
export function seal(plain: Buffer, secret: Buffer, nonce: Buffer): Buffer {
  return Buffer.from(xsalsa20poly1305(keyOf(secret), nonce).encrypt(plain));
}

/** @returns undefined when the value was not encrypted so. */
export function open(sealed: Buffer, secret: Buffer, nonce: Buffer): Buffer | undefined {
  try {
    return Buffer.from(xsalsa20poly1305(keyOf(secret), nonce).decrypt(sealed));
  } catch {
    return undefined;
  }
}

/** An agreed secret is no key yet: NaCl hashes it once, with a nonce of zeros. */
function keyOf(secret: Buffer): Uint8Array {
  const words = new Uint32Array(8);
  for (const index of words.keys()) words[index] = secret.readUInt32LE(index * WORD_BYTES);
  const out = new Uint32Array(8);
  hsalsa(SIGMA, words, new Uint32Array(4), out);
  const key = Buffer.alloc(out.length * WORD_BYTES);
  out.forEach((word, index) => key.writeUInt32LE(word, index * WORD_BYTES));
  return key;
}
