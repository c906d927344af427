/**
 * Encryption at rest of what PostgreSQL must not hold in plain: private keys, DH secrets, device tokens and codes of the
 * `subscription` feature. AES-256-GCM, with the key from the configuration.
 *
 * A sealed value names the key that sealed it, so that keys can be rotated: put the new one first, and take the old one
 * out when nothing sealed with it is left. What it belongs to, its context, is authenticated with it: a value moved to
 * another row or column does not open.
 *
 * ```
 * 1 byte   version, 1
 * 1 byte   length of the key's id, then the id
 * 12 bytes nonce
 * 16 bytes tag
 * the rest ciphertext
 * ```
 */
import { createCipheriv, createDecipheriv, randomBytes } from 'node:crypto';

export interface KeyBox {
  /** @param context row and column that the value is for, such as `ntf_tokens.dh_secret:default`. */
  seal(plain: Buffer, context: string): Buffer;
  /** @throws KeyBoxError when it was sealed with an unknown key or for another context, or was changed. */
  open(sealed: Buffer, context: string): Buffer;
}

export interface KeyBoxKey {
  /** 1 to 32 characters of `A-Za-z0-9._-`. */
  id: string;
  /** 32 bytes. */
  key: Buffer;
}

/** Says what is wrong with a key or a sealed value by the key's id and the context, never by content. */
export class KeyBoxError extends Error {
  override name = 'KeyBoxError';
}

/** The key that sealed a value is not configured. */
export class UnknownKeyError extends KeyBoxError {
  override name = 'UnknownKeyError';
  readonly keyId: string;

  constructor(context: string, keyId: string) {
    super(`${context} is sealed with the key ${keyId}, which is not configured`);
    this.keyId = keyId;
  }
}

const VERSION = 1;
const CIPHER = 'aes-256-gcm';
export const KEY_BYTES = 32;
export const NONCE_BYTES = 12;
export const TAG_BYTES = 16;
export const KEY_ID = /^[A-Za-z0-9._-]{1,32}$/;

/** @param head authenticated with the text. @returns the tag, then the ciphertext. */
export function encrypt(key: Buffer, nonce: Buffer, head: Buffer, plain: Buffer): Buffer {
  const cipher = createCipheriv(CIPHER, key, nonce, { authTagLength: TAG_BYTES }).setAAD(head);
  const ciphertext = Buffer.concat([cipher.update(plain), cipher.final()]);
  return Buffer.concat([cipher.getAuthTag(), ciphertext]);
}

/** @param sealed what `encrypt` returned. @throws Error when anything of it differs. */
export function decrypt(key: Buffer, nonce: Buffer, head: Buffer, sealed: Buffer): Buffer {
  const decipher = createDecipheriv(CIPHER, key, nonce, { authTagLength: TAG_BYTES }).setAAD(head);
  decipher.setAuthTag(sealed.subarray(0, TAG_BYTES));
  return Buffer.concat([decipher.update(sealed.subarray(TAG_BYTES)), decipher.final()]);
}

/**
 * @param keys the first one seals, any of them opens.
 * @throws KeyBoxError without a key, or for an unusable one.
 */
export function createKeyBox(keys: readonly KeyBoxKey[]): KeyBox {
  const known = new Map<string, Buffer>();
  for (const { id, key } of keys) {
    // The error does not repeat the value: it may be a key in the place of its id.
    if (!KEY_ID.test(id)) throw new KeyBoxError('the id of a key must be 1 to 32 of A-Z a-z 0-9 . _ -');
    if (known.has(id)) throw new KeyBoxError(`there are two keys with the id ${id}`);
    if (key.length !== KEY_BYTES) {
      throw new KeyBoxError(`the key ${id} must have ${KEY_BYTES} bytes and has ${key.length}`);
    }
    known.set(id, Buffer.from(key));
  }
  const sealing = keys[0];
  if (!sealing) throw new KeyBoxError('there is no key');
  const header = headerOf(sealing.id);
  const sealingKey = known.get(sealing.id)!;

  return {
    seal(plain, context) {
      const nonce = randomBytes(NONCE_BYTES);
      const head = authenticated(header, context);
      return Buffer.concat([header, nonce, encrypt(sealingKey, nonce, head, plain)]);
    },

    open(sealed, context) {
      const nonceAt = 2 + (sealed[1] ?? 0);
      const tagAt = nonceAt + NONCE_BYTES;
      const id = sealed.toString('utf8', 2, nonceAt);
      if (sealed[0] !== VERSION || sealed.length < tagAt + TAG_BYTES || !KEY_ID.test(id)) {
        throw new KeyBoxError(`${context} holds no sealed value`);
      }
      const key = known.get(id);
      if (!key) throw new UnknownKeyError(context, id);
      try {
        const head = authenticated(sealed.subarray(0, nonceAt), context);
        return decrypt(key, sealed.subarray(nonceAt, tagAt), head, sealed.subarray(tagAt));
      } catch {
        throw new KeyBoxError(
          `${context} does not open with the key ${id}: it was sealed for something else, with another key of that id, or changed`,
        );
      }
    },
  };
}

/** @returns the id of the key that a value is sealed with; undefined for what is no sealed value. */
export function sealingKeyOf(sealed: Uint8Array): string | undefined {
  if (sealed[0] !== VERSION) return undefined;
  const id = Buffer.from(sealed.subarray(2, 2 + (sealed[1] ?? 0))).toString('utf8');
  return KEY_ID.test(id) ? id : undefined;
}

function headerOf(id: string): Buffer {
  const name = Buffer.from(id, 'utf8');
  return Buffer.concat([Buffer.from([VERSION, name.length]), name]);
}

function authenticated(header: Buffer, context: string): Buffer {
  return Buffer.concat([header, Buffer.from(context, 'utf8')]);
}
