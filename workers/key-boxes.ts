/** Keys of encryption in this process: they are renewed, and it is known what they seal and what they do not open. */
import type { DataConverter, PayloadCodec, SerializationContext } from '@temporalio/common';
import type { KeyBox, KeyBoxKey } from '../api/key-box.ts';
import { UnknownKeyError, createKeyBox } from '../api/key-box.ts';
import { createPayloadCodec, dataConverterOf } from '../api/payload-codec.ts';
import type { Config } from '../config/load.ts';
import { sealingKeysOf } from '../config/subscription.ts';
import type { ProcessContext } from './context.ts';
import type { KeyUse } from './key-use.ts';
import { Replaceable } from './replaceable.ts';

/** @returns undefined without keys: then everything in Temporal is in plain, until a restart with keys. */
export function openPayloadCodec({ config, renewable, keyUse }: ProcessContext): DataConverter | undefined {
  const keysOf = ({ values }: Config) => values.NOTIFICATION_PAYLOAD_KEYS;
  if (keysOf(config).length === 0) return undefined;
  const held = new Replaceable(observedCodec(keysOf(config), keyUse));
  renewable.push({
    what: 'encryption of payloads',
    variables: ['NOTIFICATION_PAYLOAD_KEYS'],
    renew(next) {
      held.replace(observedCodec(keysOf(next), keyUse));
    },
  });
  return dataConverterOf(held.facade);
}

/** Of secrets in rows. */
export function openKeyBox({ config, renewable, keyUse }: ProcessContext): KeyBox {
  const held = new Replaceable(observedKeyBox(sealingKeysOf(config), keyUse));
  renewable.push({
    what: 'encryption of subscriptions',
    variables: ['NOTIFICATION_SUBSCRIPTION_KEYS'],
    renew(next) {
      held.replace(observedKeyBox(sealingKeysOf(next), keyUse));
    },
  });
  return held.facade;
}

/** @throws KeyBoxError when a key is unusable. */
function observedCodec(keys: readonly KeyBoxKey[], keyUse: KeyUse): PayloadCodec {
  const codec = createPayloadCodec(keys);
  return {
    encode(payloads) {
      keyUse.sealed('payload', keys[0]!.id, payloads.length);
      return codec.encode(payloads);
    },

    async decode(payloads, context?: SerializationContext) {
      try {
        return await codec.decode(payloads);
      } catch (error) {
        if (error instanceof UnknownKeyError) keyUse.missed('payload', error.keyId, context?.workflowId);
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
