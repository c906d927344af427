/**
 * How a payload is sealed (AES-256-GCM), byte by byte. Version 2 is bound: it names the workflow that it is for, and opens
 * for no other. Each one has its own key and nonce, derived from the named key, so that no number of payloads wears
 * that out. Version 1 (api/key-box.ts) is for programs that seal without knowing the workflow, such as the codec server.
 *
 * ```
 * 1 byte   version, 2
 * 1 byte   length of the key's id, then the id
 * 2 bytes  length of the namespace, big-endian, then the namespace in UTF-8
 * 2 bytes  length of the workflow id, big-endian, then the workflow id in UTF-8
 * 32 bytes salt
 * 16 bytes tag
 * the rest ciphertext
 * ```
 *
 * HKDF-SHA256 of the named key with the salt and the info `galaxy-notify payload` gives 44 bytes: the key, then the nonce.
 * Everything before the salt is authenticated. Vectors: api/payload-vectors.json.
 */
import type { KeyObject } from 'node:crypto';
import { createSecretKey, hkdfSync, randomBytes } from 'node:crypto';
import type { KeyBoxKey } from './key-box.ts';
import {
  KEY_BYTES,
  KEY_ID,
  KeyBoxError,
  NONCE_BYTES,
  TAG_BYTES,
  UnknownKeyError,
  createKeyBox,
  decrypt,
  encrypt,
  sealingKeyOf,
} from './key-box.ts';

/** The workflow that a payload is for. */
export interface PayloadOwner {
  namespace: string;
  workflowId: string;
}

/** What anybody can read of a sealed payload. It is authenticated only when the payload opens. */
export interface SealedHead {
  keyId: string;
  /** Absent of version 1, which opens in any workflow. */
  owner?: PayloadOwner;
}

export interface PayloadSeal {
  /** @param owner undefined seals with version 1. */
  seal(plain: Buffer, owner: PayloadOwner | undefined): Buffer;
  /**
   * @param owner the workflow in which it was found; undefined when it is unknown.
   * @throws KeyBoxError when it was sealed with an unknown key or for another workflow, or was changed.
   */
  open(sealed: Buffer, owner: PayloadOwner | undefined): Buffer;
}

const BOUND = 2;
const SALT_BYTES = 32;
const INFO = 'galaxy-notify payload';
const MOST_NAME_BYTES = 0xff_ff;

/** What a payload of version 1 is for: one of another use of the same keys does not open. */
const UNBOUND_CONTEXT = 'temporal payload';

/** A run of a schedule of the product, which the server names after the schedule and the time. Other ids have a slash. */
const OF_SCHEDULE = /^([a-z-]+-(?:reconciliation|retention))-\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z$/;

/**
 * @param keys the first one seals, any of them opens.
 * @param saltOf for vectors alone.
 * @throws KeyBoxError without a key, or for an unusable one.
 */
export function createPayloadSeal(
  keys: readonly KeyBoxKey[],
  saltOf: () => Buffer = () => randomBytes(SALT_BYTES),
): PayloadSeal {
  const unbound = createKeyBox(keys);
  const known = new Map(keys.map(({ id, key }) => [id, createSecretKey(key)]));
  const sealing = keys[0]!.id;

  return {
    seal(plain, owner) {
      if (!owner) return unbound.seal(plain, UNBOUND_CONTEXT);
      const head = headWith(sealing, ownerOf(owner));
      const salt = saltOf();
      const { key, nonce } = derived(known.get(sealing)!, salt);
      return Buffer.concat([head, salt, encrypt(key, nonce, head, plain)]);
    },

    open(sealed, where) {
      if (sealed[0] !== BOUND) return unbound.open(sealed, UNBOUND_CONTEXT);
      const parsed = parseHead(sealed);
      const tagAt = (parsed?.length ?? 0) + SALT_BYTES;
      if (!parsed || sealed.length < tagAt + TAG_BYTES)
        throw new KeyBoxError('a payload holds no sealed value');
      const { keyId, owner, length } = parsed;
      const named = known.get(keyId);
      if (!named) throw new UnknownKeyError('a payload', keyId);
      if (where && !isSameOwner(owner, ownerOf(where))) {
        throw new KeyBoxError('a payload does not open here: it was sealed for another workflow');
      }
      const { key, nonce } = derived(named, sealed.subarray(length, tagAt));
      try {
        return decrypt(key, nonce, sealed.subarray(0, length), sealed.subarray(tagAt));
      } catch {
        throw new KeyBoxError(
          `a payload does not open with the key ${keyId}: it was sealed with another key of that id, or changed`,
        );
      }
    },
  };
}

/** @returns undefined for what is no sealed payload. */
export function sealedHeadOf(sealed: Uint8Array): SealedHead | undefined {
  if (sealed[0] !== BOUND) {
    const keyId = sealingKeyOf(sealed);
    return keyId === undefined ? undefined : { keyId };
  }
  const parsed = parseHead(Buffer.from(sealed.buffer, sealed.byteOffset, sealed.byteLength));
  return parsed && { keyId: parsed.keyId, owner: parsed.owner };
}

function headWith(keyId: string, { namespace, workflowId }: PayloadOwner): Buffer {
  const name = Buffer.from(keyId, 'utf8');
  return Buffer.concat([
    Buffer.from([BOUND, name.length]),
    name,
    ...[namespace, workflowId].flatMap((text) => {
      const bytes = Buffer.from(text, 'utf8');
      if (bytes.length > MOST_NAME_BYTES) throw new KeyBoxError('the name of a workflow is too long');
      const length = Buffer.alloc(2);
      length.writeUInt16BE(bytes.length);
      return [length, bytes];
    }),
  ]);
}

function parseHead(sealed: Buffer): { keyId: string; owner: PayloadOwner; length: number } | undefined {
  const namespaceAt = 2 + (sealed[1] ?? 0);
  const keyId = sealed.toString('utf8', 2, namespaceAt);
  const namespace = textAt(sealed, namespaceAt);
  const workflowId = namespace && textAt(sealed, namespace.end);
  if (!workflowId || !KEY_ID.test(keyId)) return undefined;
  return {
    keyId,
    owner: { namespace: namespace.text, workflowId: workflowId.text },
    length: workflowId.end,
  };
}

function textAt(sealed: Buffer, at: number): { text: string; end: number } | undefined {
  if (at + 2 > sealed.length) return undefined;
  const end = at + 2 + sealed.readUInt16BE(at);
  return end > sealed.length ? undefined : { text: sealed.toString('utf8', at + 2, end), end };
}

/**
 * All runs of a schedule are one owner: what it gives them is sealed before it has started them, and each is given the
 * result of the one before.
 */
function ownerOf({ namespace, workflowId }: PayloadOwner): PayloadOwner {
  return { namespace, workflowId: workflowId.replace(OF_SCHEDULE, '$1') };
}

const isSameOwner = (one: PayloadOwner, other: PayloadOwner): boolean =>
  one.namespace === other.namespace && one.workflowId === other.workflowId;

function derived(named: KeyObject, salt: Buffer): { key: Buffer; nonce: Buffer } {
  const bytes = Buffer.from(hkdfSync('sha256', named, salt, INFO, KEY_BYTES + NONCE_BYTES));
  return { key: bytes.subarray(0, KEY_BYTES), nonce: bytes.subarray(KEY_BYTES) };
}
