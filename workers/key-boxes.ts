/** Keys of encryption in this process: they are renewed, and it is known what they seal and what they do not open. */
import type { DataConverter, PayloadCodec } from '@temporalio/common';
import type pg from 'pg';
import { query } from '../activities/postgres.ts';
import type { KeyBox, KeyBoxKey } from '../api/key-box.ts';
import { KeyBoxError, UnknownKeyError, createKeyBox } from '../api/key-box.ts';
import type { AskPolicy, PlainPolicy } from '../api/payload-codec.ts';
import {
  PLAIN,
  PlainPayloadError,
  createPayloadCodec,
  dataConverterOf,
  payloadHeadOf,
} from '../api/payload-codec.ts';
import type { Config } from '../config/load.ts';
import { sealingKeysOf } from '../config/subscription.ts';
import type { ProcessContext } from './context.ts';
import type { KeyUse } from './key-use.ts';
import { Replaceable } from './replaceable.ts';

export interface PayloadEncryption {
  dataConverter: DataConverter;
  /** Answers once the schema is there, and remembers it. */
  payloadPolicy: () => Promise<PlainPolicy>;
}

/** @returns undefined without keys: then everything in Temporal is in plain, until a restart with keys. */
export function openPayloadEncryption(context: ProcessContext, db: pg.Pool): PayloadEncryption | undefined {
  const { NOTIFICATION_PAYLOAD_KEYS: keys, NOTIFICATION_PAYLOAD_PLAIN: configured } = context.config.values;
  if (keys.length === 0) return undefined;
  const payloadPolicy = once(async () => configured ?? policyOf(db));
  return { dataConverter: dataConverterOf(openPayloadCodec(context, payloadPolicy)), payloadPolicy };
}

/** Encrypts with the keys that are configured, and with new ones when their file changes. */
export function openPayloadCodec(
  context: Pick<ProcessContext, 'config' | 'renewable' | 'keyUse'>,
  askPolicy: AskPolicy,
): PayloadCodec {
  return renewed(context, 'encryption of payloads', 'NOTIFICATION_PAYLOAD_KEYS', ({ values }) =>
    observedCodec(values.NOTIFICATION_PAYLOAD_KEYS, askPolicy, context.keyUse),
  );
}

/** @returns what is made of the configuration of now, whenever the file of its keys has changed. */
function renewed<T extends object>(
  { config, renewable }: Pick<ProcessContext, 'config' | 'renewable'>,
  what: string,
  variable: string,
  make: (config: Config) => T,
): T {
  const held = new Replaceable(make(config));
  renewable.push({ what, variables: [variable], renew: (next) => void held.replace(make(next)) });
  return held.facade;
}

/**
 * Notes or asks whether payloads may be in plain. What a process without keys writes stays in plain, also when there are
 * keys later: that is known from then on.
 */
export async function settlePayloadPolicy(
  { log }: ProcessContext,
  { db, payloadPolicy }: { db: pg.Pool } & Partial<PayloadEncryption>,
): Promise<void> {
  if (!payloadPolicy) await query(db, NOTE_PLAIN_PAYLOADS, []);
  else if ((await payloadPolicy()) === 'accept') {
    log.warn('payloads in plain are taken: docs/deploy/encryption.md says how that ends');
  }
}

async function policyOf(db: pg.Pool): Promise<PlainPolicy> {
  const rows = await query<{ may_hold_plain: boolean }>(db, READ_PLAIN_PAYLOADS, []);
  return rows[0]?.may_hold_plain === false ? 'refuse' : 'accept';
}

const NOTE_PLAIN_PAYLOADS = {
  name: 'note_plain_payloads',
  text: 'UPDATE notification.installation SET may_hold_plain = true WHERE NOT may_hold_plain',
};

const READ_PLAIN_PAYLOADS = {
  name: 'read_plain_payloads',
  text: 'SELECT may_hold_plain FROM notification.installation',
};

/** Of secrets in rows. */
export const openKeyBox = (context: ProcessContext): KeyBox =>
  renewed(context, 'encryption of subscriptions', 'NOTIFICATION_SUBSCRIPTION_KEYS', (config) =>
    observedKeyBox(sealingKeysOf(config), context.keyUse),
  );

/** @throws KeyBoxError when a key is unusable. */
function observedCodec(keys: readonly KeyBoxKey[], askPolicy: AskPolicy, keyUse: KeyUse): PayloadCodec {
  const codec = createPayloadCodec(keys, askPolicy);
  return {
    async encode(payloads, context) {
      const sealed = await codec.encode(payloads, context);
      // A bound payload has its own key.
      const worn = sealed.filter((payload) => !payloadHeadOf(payload)?.owner).length;
      if (worn > 0) keyUse.sealed('payload', keys[0]!.id, worn);
      return sealed;
    },

    async decode(payloads, context) {
      try {
        return await codec.decode(payloads, context);
      } catch (error) {
        if (error instanceof UnknownKeyError) keyUse.missed('payload', error.keyId, context?.workflowId);
        else if (error instanceof PlainPayloadError) keyUse.missed('payload', PLAIN, context?.workflowId);
        else if (error instanceof KeyBoxError) keyUse.refused(error.message, context?.workflowId);
        throw error;
      }
    },
  };
}

/** @throws KeyBoxError when a key is unusable. */
function observedKeyBox(keys: readonly KeyBoxKey[], keyUse: KeyUse): KeyBox {
  const box = createKeyBox(keys);
  return {
    seal(plain, context) {
      keyUse.sealed('subscription', keys[0]!.id, 1);
      return box.seal(plain, context);
    },

    open(sealed, context) {
      try {
        return box.open(sealed, context);
      } catch (error) {
        if (error instanceof UnknownKeyError) keyUse.missed('subscription', error.keyId, context);
        throw error;
      }
    },
  };
}

/**
 * @param ask may fail; then the next caller asks again.
 * @returns what it answered first, to everybody.
 */
function once<T>(ask: () => Promise<T>): () => Promise<T> {
  let asked: Promise<T> | undefined;
  return () =>
    (asked ??= ask().catch((error: unknown) => {
      asked = undefined;
      throw error;
    }));
}
