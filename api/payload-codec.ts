/**
 * What Temporal is given to keep, encrypted: inputs, results, failure messages, heartbeats and summaries. Task queues,
 * workflow ids and search attributes stay readable, since Temporal works with them; they hold ids only.
 *
 * A payload becomes one of encoding `binary/encrypted`, whose data is the sealed protobuf form of the original: any
 * program with the keys can read it, for instance the codec server (workers/codec-server.ts).
 */
import path from 'node:path';
import type { DataConverter, Payload, PayloadCodec } from '@temporalio/common';
import proto from '@temporalio/proto';
import type { KeyBoxKey } from './key-box.ts';
import { createKeyBox, sealingKeyOf } from './key-box.ts';

const ENCODING = 'binary/encrypted';
/** What a sealed payload is for: one of another use of the same keys does not open. */
const CONTEXT = 'temporal payload';

/** Stands where the id of a key would, for what nothing has sealed. No key has this id with a space. */
export const PLAIN = 'in plain';

const PayloadMessage = proto.temporal.api.common.v1.Payload;

/** Part of the workflow bundle as well, when there are keys. JavaScript in the client package, as this file is there. */
export const FAILURE_CONVERTER = path.join(
  import.meta.dirname,
  `failure-converter${path.extname(import.meta.filename)}`,
);

/**
 * How a process writes to Temporal, and reads from it: all of one installation must have the same keys.
 *
 * @returns undefined without keys: then everything is in plain.
 */
export function dataConverterWith(keys: readonly KeyBoxKey[]): DataConverter | undefined {
  return keys.length === 0 ? undefined : dataConverterOf(createPayloadCodec(keys));
}

/** As {@link dataConverterWith}, for a codec that somebody looks after. */
export function dataConverterOf(codec: PayloadCodec): DataConverter {
  return { payloadCodecs: [codec], failureConverterPath: FAILURE_CONVERTER };
}

/**
 * @param keys the first one encrypts, any of them decrypts: to rotate, put the new one first, and take the old one out
 * when no history is kept any more that was written with it.
 * @throws KeyBoxError when a key is unusable.
 */
export function createPayloadCodec(keys: readonly KeyBoxKey[]): PayloadCodec {
  const box = createKeyBox(keys);
  return {
    async encode(payloads) {
      return payloads.map((payload) => ({
        metadata: { encoding: Buffer.from(ENCODING) },
        data: box.seal(Buffer.from(PayloadMessage.encode(payload).finish()), CONTEXT),
      }));
    },

    /**
     * Leaves alone what is not encrypted: histories may have begun before there was a key.
     *
     * @throws KeyBoxError when a payload does not open.
     */
    async decode(payloads) {
      return payloads.map((payload) => {
        if (!isEncrypted(payload)) return payload;
        return PayloadMessage.decode(box.open(Buffer.from(payload.data ?? []), CONTEXT));
      });
    },
  };
}

/**
 * @param value anything that holds payloads, such as a history as Temporal gives it out.
 * @returns the ids of the keys that sealed them; `plain` for those that nothing sealed.
 */
export function sealingKeysIn(value: unknown, found = new Set<string>()): Set<string> {
  if (typeof value !== 'object' || value === null || value instanceof Uint8Array) return found;
  if (Array.isArray(value)) {
    for (const one of value) sealingKeysIn(one, found);
    return found;
  }
  const { metadata, data } = value as Payload;
  if (metadata?.['encoding'] instanceof Uint8Array) {
    found.add((isEncrypted({ metadata }) && sealingKeyOf(data ?? new Uint8Array())) || PLAIN);
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

function isEncrypted({ metadata }: Payload): boolean {
  const encoding = metadata?.['encoding'];
  return encoding !== undefined && Buffer.from(encoding).toString() === ENCODING;
}
