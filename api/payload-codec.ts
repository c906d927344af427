/**
 * What Temporal is given to keep, encrypted: inputs, results, failure messages, heartbeats and summaries. Task queues,
 * workflow ids and search attributes stay readable, since Temporal works with them; they hold ids only.
 *
 * A payload becomes one of encoding `binary/encrypted`, whose data is the sealed protobuf form of the original
 * (api/payload-seal.ts): any program with the keys can read it, for instance the codec server (workers/codec-server.ts).
 */
import path from 'node:path';
import type { DataConverter, Payload, PayloadCodec, SerializationContext } from '@temporalio/common';
import proto from '@temporalio/proto';
import type { KeyBoxKey } from './key-box.ts';
import { KeyBoxError } from './key-box.ts';
import type { PayloadOwner, SealedHead } from './payload-seal.ts';
import { createPayloadSeal, sealedHeadOf } from './payload-seal.ts';

const ENCODING = 'binary/encrypted';

/** Stands where the id of a key would, for what nothing has sealed. No key has this id with a space. */
export const PLAIN = 'in plain';

/**
 * Whether an installation that has keys still takes payloads in plain.
 *
 * - `refuse`: only sealed payloads are taken.
 * - `accept`: an installation that has worked without keys. Payloads in plain are taken as well.
 */
export const PLAIN_POLICIES = ['refuse', 'accept'] as const;
export type PlainPolicy = (typeof PLAIN_POLICIES)[number];

/** A payload in plain, where only sealed ones are taken. */
export class PlainPayloadError extends KeyBoxError {
  override name = 'PlainPayloadError';

  constructor() {
    super('a payload is in plain, which NOTIFICATION_PAYLOAD_PLAIN=refuse does not take');
  }
}

const PayloadMessage = proto.temporal.api.common.v1.Payload;

/** Part of the workflow bundle as well, when there are keys. JavaScript in the client package, as this file is there. */
export const FAILURE_CONVERTER = path.join(
  import.meta.dirname,
  `failure-converter${path.extname(import.meta.filename)}`,
);

/** The policy when it is needed first: an installation may have to be asked for it. */
export type AskPolicy = () => PlainPolicy | Promise<PlainPolicy>;

/**
 * How a process writes to Temporal, and reads from it: all of one installation must have the same keys.
 *
 * @returns undefined without keys: then everything is in plain.
 */
export function dataConverterWith(
  keys: readonly KeyBoxKey[],
  askPolicy?: AskPolicy,
): DataConverter | undefined {
  return keys.length === 0 ? undefined : dataConverterOf(createPayloadCodec(keys, askPolicy));
}

/** As {@link dataConverterWith}, for a codec that the caller manages. */
export function dataConverterOf(codec: PayloadCodec): DataConverter {
  return { payloadCodecs: [codec], failureConverterPath: FAILURE_CONVERTER };
}

/**
 * @param keys the first one encrypts, any of them decrypts: to rotate, put the new one first, and take the old one out
 * when no history is kept any more that was written with it.
 * @throws KeyBoxError when a key is unusable.
 */
export function createPayloadCodec(
  keys: readonly KeyBoxKey[],
  askPolicy: AskPolicy = () => 'refuse',
): PayloadCodec {
  const seal = createPayloadSeal(keys);
  return {
    /** Without a context the workflow is unknown: the payload is sealed, and not bound. */
    async encode(payloads, context) {
      const owner = ownerIn(context);
      return payloads.map((payload) => ({
        metadata: { encoding: Buffer.from(ENCODING) },
        data: seal.seal(Buffer.from(PayloadMessage.encode(payload).finish()), owner),
      }));
    },

    /** @throws KeyBoxError when a payload does not open here, PlainPayloadError when one is in plain and may not be. */
    async decode(payloads, context) {
      const owner = ownerIn(context);
      const isPlain = payloads.some((payload) => !isSealed(payload) && !isOfServer(payload));
      if (isPlain && (await askPolicy()) === 'refuse') throw new PlainPayloadError();
      return payloads.map((payload) =>
        isSealed(payload)
          ? PayloadMessage.decode(seal.open(Buffer.from(payload.data ?? []), owner))
          : payload,
      );
    },
  };
}

/** Activities belong to the workflow that has scheduled them: their results and heartbeats are its own. */
function ownerIn(context: SerializationContext | undefined): PayloadOwner | undefined {
  if (context?.workflowId === undefined) return undefined;
  return { namespace: context.namespace, workflowId: context.workflowId };
}

/** @returns what anybody can read of a sealed payload; undefined for one in plain. */
export function payloadHeadOf(payload: Payload): SealedHead | undefined {
  return isSealed(payload) ? sealedHeadOf(payload.data ?? new Uint8Array()) : undefined;
}

/** What has sealed the payloads of a history. */
export interface SealingKeys {
  /** Ids of keys; {@link PLAIN} for payloads that nothing has sealed. */
  keys: Set<string>;
  /** Those of them that have sealed payloads which would open in any workflow. */
  unbound: Set<string>;
}

/** @param value anything that holds payloads, such as a history as Temporal gives it out. */
export function sealingKeysIn(
  value: unknown,
  found: SealingKeys = { keys: new Set(), unbound: new Set() },
): SealingKeys {
  if (typeof value !== 'object' || value === null || value instanceof Uint8Array) return found;
  const { metadata } = value as Payload;
  if (metadata?.['encoding'] instanceof Uint8Array) {
    if (isOfServer(value)) return found;
    const head = payloadHeadOf(value);
    const key = head?.keyId ?? PLAIN;
    found.keys.add(key);
    if (!head?.owner) found.unbound.add(key);
    return found;
  }
  for (const [name, one] of Object.entries(value)) {
    if (!READABLE.has(name)) sealingKeysIn(one, found);
  }
  return found;
}

/**
 * Parts of a history that nothing seals, and that hold ids only: what Temporal must be able to read, and what the SDK keeps
 * for itself in markers of local activities and patches.
 */
const READABLE = new Set(['searchAttributes', 'header', 'data', 'patch-data']);

/** What Temporal itself says of an activity that was cancelled before anybody had begun it. It has no key to seal that with. */
const OF_SERVER = ['"ACTIVITY_ID_NOT_STARTED"', '"ACTIVITY_ID_UNKNOWN"'];

/** Whether a payload is a fixed text of the server, which holds no secret. */
function isOfServer({ metadata, data }: Payload): boolean {
  const encoding = Buffer.from(metadata?.['encoding'] ?? []).toString();
  return encoding === 'json/plain' && OF_SERVER.includes(Buffer.from(data ?? []).toString());
}

/** Whether a payload says that it is sealed. */
export function isSealed({ metadata }: Payload): boolean {
  const encoding = metadata?.['encoding'];
  return encoding !== undefined && Buffer.from(encoding).toString() === ENCODING;
}
