/**
 * What Temporal is given to keep, encrypted: inputs, results, failure messages, heartbeats and summaries. Task queues,
 * workflow ids and search attributes stay readable, since Temporal works with them; they hold ids only.
 *
 * A payload becomes one of encoding `binary/encrypted`. Its data names the workflow that it is for, and then has the protobuf
 * form of the original, which opens for no other workflow. Any program with the keys can read it, such as the codec server.
 *
 * ```
 * 2 bytes length of the namespace, big-endian, then the namespace in UTF-8
 * 2 bytes length of the workflow id, big-endian, then the workflow id in UTF-8
 * the rest a sealed value (key-box.ts) of the context `payload of ["NAMESPACE","WORKFLOW"]`
 * ```
 *
 * Vectors: api/payload-vectors.json.
 */
import path from 'node:path';
import type { DataConverter, Payload, PayloadCodec, SerializationContext } from '@temporalio/common';
import proto from '@temporalio/proto';
import type { KeyBoxKey } from './key-box.ts';
import { KeyBoxError, createKeyBox, sealingKeyOf } from './key-box.ts';

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

/** The workflow that a payload is for. Both are empty of one that was sealed without knowing it, which opens everywhere. */
interface PayloadOwner {
  namespace: string;
  workflowId: string;
}

/**
 * How a process writes to Temporal, and reads from it: all of one installation must have the same keys.
 *
 * @returns undefined without keys: then everything is in plain.
 */
export function dataConverterWith(
  keys: readonly KeyBoxKey[],
  policy?: PlainPolicy,
): DataConverter | undefined {
  return keys.length === 0 ? undefined : dataConverterOf(createPayloadCodec(keys, policy));
}

/** As {@link dataConverterWith}, for a codec that the caller manages. */
export function dataConverterOf(codec: PayloadCodec): DataConverter {
  return { payloadCodecs: [codec], failureConverterPath: FAILURE_CONVERTER };
}

/**
 * @param keys the first one encrypts, any of them decrypts: to rotate, put the new one first, and take the old one out
 * when no history is kept any more that was written with it.
 * @param saltOf for vectors alone.
 * @throws KeyBoxError when a key is unusable.
 */
export function createPayloadCodec(
  keys: readonly KeyBoxKey[],
  policy: PlainPolicy = 'refuse',
  saltOf?: () => Buffer,
): PayloadCodec {
  const box = createKeyBox(keys, saltOf);
  return {
    async encode(payloads, context) {
      const owner = ownerIn(context) ?? { namespace: '', workflowId: '' };
      const head = Buffer.concat([owner.namespace, owner.workflowId].map(withLength));
      return payloads.map((payload) => {
        const sealed = box.seal(Buffer.from(PayloadMessage.encode(payload).finish()), contextOf(owner));
        return { metadata: { encoding: Buffer.from(ENCODING) }, data: Buffer.concat([head, sealed]) };
      });
    },

    /** @throws KeyBoxError when a payload does not open here, PlainPayloadError when one is in plain and may not be. */
    async decode(payloads, context) {
      const where = ownerIn(context);
      return payloads.map((payload) => {
        if (!isSealed(payload)) {
          if (policy === 'refuse' && !isOfServer(payload)) throw new PlainPayloadError();
          return payload;
        }
        const parsed = parse(Buffer.from(payload.data ?? []));
        if (!parsed) throw new KeyBoxError('a payload holds no sealed value');
        const { owner, sealed } = parsed;
        if (where && owner.workflowId !== '' && contextOf(owner) !== contextOf(where)) {
          throw new KeyBoxError('a payload does not open here: it was sealed for another workflow');
        }
        return PayloadMessage.decode(box.open(sealed, contextOf(owner)));
      });
    },
  };
}

/** A run of a schedule of the product, which the server names after the schedule and the time. Other ids have a slash. */
const OF_SCHEDULE = /^([a-z-]+-(?:reconciliation|retention))-\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z$/;

/**
 * Activities belong to the workflow that has scheduled them: their results and heartbeats are its own. All runs of a schedule
 * are one owner: what it gives them is sealed before it has started them, and each is given the result of the one before.
 */
function ownerIn(context: SerializationContext | undefined): PayloadOwner | undefined {
  if (context?.workflowId === undefined) return undefined;
  return { namespace: context.namespace, workflowId: context.workflowId.replace(OF_SCHEDULE, '$1') };
}

const contextOf = ({ namespace, workflowId }: PayloadOwner): string =>
  `payload of ${JSON.stringify([namespace, workflowId])}`;

function withLength(text: string): Buffer {
  const bytes = Buffer.from(text);
  const length = Buffer.alloc(2);
  length.writeUInt16BE(bytes.length);
  return Buffer.concat([length, bytes]);
}

/** @returns the parts of what `encode` wrote; undefined for other bytes. */
function parse(data: Buffer): { owner: PayloadOwner; sealed: Buffer } | undefined {
  const names: string[] = [];
  let at = 0;
  for (let name = 0; name < 2; name += 1) {
    if (at + 2 > data.length) return undefined;
    const end = at + 2 + data.readUInt16BE(at);
    names.push(data.toString('utf8', at + 2, end));
    at = end;
  }
  const [namespace = '', workflowId = ''] = names;
  return { owner: { namespace, workflowId }, sealed: data.subarray(at) };
}

/** @returns what anybody can read of a sealed payload, which is authenticated only when it opens; undefined for one in plain. */
export function payloadHeadOf(payload: Payload): { keyId: string; owner: PayloadOwner } | undefined {
  const parsed = isSealed(payload) ? parse(Buffer.from(payload.data ?? [])) : undefined;
  const keyId = parsed && sealingKeyOf(parsed.sealed);
  return keyId === undefined ? undefined : { keyId, owner: parsed!.owner };
}

/**
 * @param value anything that holds payloads, such as a history as Temporal gives it out.
 * @returns the ids of the keys that have sealed them; {@link PLAIN} for payloads that nothing has sealed.
 */
export function sealingKeysIn(value: unknown, found = new Set<string>()): Set<string> {
  if (typeof value !== 'object' || value === null || value instanceof Uint8Array) return found;
  const { metadata } = value as Payload;
  if (metadata?.['encoding'] instanceof Uint8Array) {
    return isOfServer(value) ? found : found.add(payloadHeadOf(value)?.keyId ?? PLAIN);
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
