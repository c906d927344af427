/** Keys of encryption in this process: they are renewed, and what they do not open is reported by the name of its key. */
import type { DataConverter, PayloadCodec } from '@temporalio/common';
import type { Meter } from '@opentelemetry/api';
import type { Logger } from 'pino';
import { countersOf } from '../activities/metrics.ts';
import type { KeyBox } from '../api/key-box.ts';
import { KeyBoxError, UnknownKeyError, createKeyBox } from '../api/key-box.ts';
import type { PlainPolicy } from '../api/payload-codec.ts';
import { PLAIN, PlainPayloadError, createPayloadCodec, dataConverterOf } from '../api/payload-codec.ts';
import type { Config } from '../config/load.ts';
import { sealingKeysOf } from '../config/subscription.ts';
import type { KeyProblems, ProcessContext } from './context.ts';
import { Replaceable } from './context.ts';

type KeyContext = Pick<ProcessContext, 'config' | 'renewable' | 'keyProblems'>;

/** @returns undefined without keys: then everything in Temporal is in plain, until a restart with keys. */
export function openDataConverter(context: ProcessContext): DataConverter | undefined {
  const { NOTIFICATION_PAYLOAD_KEYS: keys, NOTIFICATION_PAYLOAD_PLAIN: policy } = context.config.values;
  if (keys.length === 0) return undefined;
  if (policy === 'accept') {
    context.log.warn('payloads in plain are taken: docs/deploy/encryption.md says how that ends');
  }
  return dataConverterOf(openPayloadCodec(context, policy));
}

/** Encrypts with the keys that are configured, and with new ones when their file changes. */
export function openPayloadCodec(context: KeyContext, policy: PlainPolicy): PayloadCodec {
  const { keyProblems } = context;
  return renewed(context, 'encryption of payloads', 'NOTIFICATION_PAYLOAD_KEYS', ({ values }) => {
    const codec = createPayloadCodec(values.NOTIFICATION_PAYLOAD_KEYS, policy);
    return {
      encode: (payloads, where) => codec.encode(payloads, where),

      async decode(payloads, where) {
        try {
          return await codec.decode(payloads, where);
        } catch (error) {
          if (error instanceof KeyBoxError) keyProblems.report('payload', error, where?.workflowId);
          throw error;
        }
      },
    };
  });
}

/** Of secrets in rows. */
export const openKeyBox = (context: KeyContext): KeyBox =>
  renewed(context, 'encryption of subscriptions', 'NOTIFICATION_SUBSCRIPTION_KEYS', (config) => {
    const box = createKeyBox(sealingKeysOf(config));
    return {
      seal: (plain, place) => box.seal(plain, place),

      open(sealed, place) {
        try {
          return box.open(sealed, place);
        } catch (error) {
          if (error instanceof UnknownKeyError) context.keyProblems.report('subscription', error, place);
          throw error;
        }
      },
    };
  });

/** @returns what is made of the configuration of now, whenever the file of its keys has changed. */
function renewed<T extends object>(
  { config, renewable }: KeyContext,
  what: string,
  variable: string,
  make: (config: Config) => T,
): T {
  const held = new Replaceable(make(config));
  renewable.push({ what, variables: [variable], renew: (next) => void held.replace(make(next)) });
  return held.facade;
}

/** The same key, or another refusal, is said again after this. */
const SAY_AGAIN_MS = 10 * 60_000;
/** Ids of missing keys come from outside; beyond this many they are counted together. */
const MOST_MISSING = 20;
const OTHERS = 'others';
const REFUSED = 'a payload was refused: its workflow does not go on with it';

export function createKeyProblems(meter: Meter, log: Logger): KeyProblems {
  const countMissed = countersOf(meter).counter<{ purpose: string; key: string }>(
    'notification.keys.missing',
    'Values and payloads that were not opened, because their key is not configured',
  );
  const saidAt = new Map<string, number>();

  return {
    report(purpose, error, of) {
      let key: string | undefined;
      let what = REFUSED;
      if (error instanceof PlainPayloadError) {
        key = PLAIN;
        what =
          'a payload in plain was refused: its workflow does not go on, unless NOTIFICATION_PAYLOAD_PLAIN=accept';
      } else if (error instanceof UnknownKeyError) {
        key = saidAt.has(error.keyId) || saidAt.size < MOST_MISSING ? error.keyId : OTHERS;
        what = 'sealed with a key that is not configured: work does not go on until the key is back';
      }
      if (key !== undefined) countMissed({ purpose, key });
      const now = performance.now();
      if (now - (saidAt.get(key ?? REFUSED) ?? Number.NEGATIVE_INFINITY) < SAY_AGAIN_MS) return;
      saidAt.set(key ?? REFUSED, now);
      const where = purpose === 'payload' ? { workflow_id: of } : { value: of };
      log.error(
        { purpose, ...(key === undefined ? {} : { key_id: key }), ...where, reason: error.message },
        what,
      );
    },
  };
}
