/**
 * Encryption of what stores must not hold in plain: secrets in rows of `subscriptions`, and payloads that Temporal keeps
 * (payload-codec.ts). AES-256-GCM, with the keys from the configuration. Each value has its own key and nonce, derived from
 * the named key, so that no number of values wears that out.
 *
 * A sealed value names the key that sealed it, so that keys can be rotated: put the new one first, and take the old one
 * out when nothing sealed with it is left. What it belongs to, its context, is authenticated with it: a value moved to
 * another row, column or workflow does not open.
 *
 * ```
 * 1 byte   version, 1
 * 1 byte   length of the key's id, then the id
 * 32 bytes salt
 * 16 bytes tag
 * the rest ciphertext
 * ```
 *
 * HKDF-SHA256 of the named key with the salt and the info `galaxy-notify value` gives 44 bytes: the key, then the nonce. What
 * stands before the salt is authenticated, and then the context.
 */
import { createCipheriv, createDecipheriv, createSecretKey, hkdfSync, randomBytes } from 'node:crypto';
import type { KeyObject } from 'node:crypto';

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
const KEY_BYTES = 32;
const NONCE_BYTES = 12;
const TAG_BYTES = 16;
const SALT_BYTES = 32;
const INFO = 'galaxy-notify value';
const KEY_ID = /^[A-Za-z0-9._-]{1,32}$/;

/**
 * @param keys the first one seals, any of them opens.
 * @param saltOf for vectors alone.
 * @throws KeyBoxError without a key, or for an unusable one.
 */
export function createKeyBox(
  keys: readonly KeyBoxKey[],
  saltOf: () => Buffer = () => randomBytes(SALT_BYTES),
): KeyBox {
  const known = new Map<string, KeyObject>();
  for (const { id, key } of keys) {
    // The error does not repeat the value: it may be a key in the place of its id.
    if (!KEY_ID.test(id)) throw new KeyBoxError('the id of a key must be 1 to 32 of A-Z a-z 0-9 . _ -');
    if (known.has(id)) throw new KeyBoxError(`there are two keys with the id ${id}`);
    if (key.length !== KEY_BYTES) {
      throw new KeyBoxError(`the key ${id} must have ${KEY_BYTES} bytes and has ${key.length}`);
    }
    known.set(id, createSecretKey(key));
  }
  const sealing = keys[0]?.id;
  if (sealing === undefined) throw new KeyBoxError('there is no key');
  const header = Buffer.concat([Buffer.from([VERSION, sealing.length]), Buffer.from(sealing)]);

  return {
    seal(plain, context) {
      const salt = saltOf();
      const { key, nonce } = derived(known.get(sealing)!, salt);
      const cipher = createCipheriv(CIPHER, key, nonce).setAAD(authenticated(header, context));
      const ciphertext = Buffer.concat([cipher.update(plain), cipher.final()]);
      return Buffer.concat([header, salt, cipher.getAuthTag(), ciphertext]);
    },

    open(sealed, context) {
      const saltAt = 2 + (sealed[1] ?? 0);
      const tagAt = saltAt + SALT_BYTES;
      const textAt = tagAt + TAG_BYTES;
      const id = sealingKeyOf(sealed);
      if (id === undefined || sealed.length < textAt) {
        throw new KeyBoxError(`${context} holds no sealed value`);
      }
      const named = known.get(id);
      if (!named) throw new UnknownKeyError(context, id);
      const { key, nonce } = derived(named, sealed.subarray(saltAt, tagAt));
      const decipher = createDecipheriv(CIPHER, key, nonce, { authTagLength: TAG_BYTES })
        .setAAD(authenticated(sealed.subarray(0, saltAt), context))
        .setAuthTag(sealed.subarray(tagAt, textAt));
      try {
        return Buffer.concat([decipher.update(sealed.subarray(textAt)), decipher.final()]);
      } catch {
        throw new KeyBoxError(
          `${context} does not open with the key ${id}: it was sealed for something else, with another key of that id, or changed`,
        );
      }
    },
  };
}

/** @returns undefined when it does not open. */
export function openIfPossible(keyBox: KeyBox, sealed: Buffer, context: string): Buffer | undefined {
  try {
    return keyBox.open(sealed, context);
  } catch (error) {
    if (error instanceof KeyBoxError) return undefined;
    throw error;
  }
}

/** @returns the id of the key that a value is sealed with; undefined for what is no sealed value. */
export function sealingKeyOf(sealed: Uint8Array): string | undefined {
  if (sealed[0] !== VERSION) return undefined;
  const id = Buffer.from(sealed.subarray(2, 2 + (sealed[1] ?? 0))).toString('utf8');
  return KEY_ID.test(id) ? id : undefined;
}

function derived(named: KeyObject, salt: Buffer): { key: Buffer; nonce: Buffer } {
  const bytes = Buffer.from(hkdfSync('sha256', named, salt, INFO, KEY_BYTES + NONCE_BYTES));
  return { key: bytes.subarray(0, KEY_BYTES), nonce: bytes.subarray(KEY_BYTES) };
}

function authenticated(header: Buffer, context: string): Buffer {
  return Buffer.concat([header, Buffer.from(context, 'utf8')]);
}
