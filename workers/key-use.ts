/**
 * What this process does with keys of encryption. AES-GCM with random nonces is safe for 2^32 seals with one key, so seals
 * are counted. A payload that is bound to its workflow has its own key and does not count. A missing key is reported by its
 * name, because the work that it sealed waits for it.
 */
import type { Meter } from '@opentelemetry/api';
import type { Logger } from 'pino';
import { countersOf } from '../activities/counters.ts';
import { PLAIN } from '../api/payload-codec.ts';

export type KeyPurpose = 'payload' | 'subscription';

export interface SealCount {
  purpose: KeyPurpose;
  keyId: string;
  seals: number;
}

export interface MissingKey {
  purpose: KeyPurpose;
  keyId: string;
  /** What it did not open last: a workflow, or a row and column. */
  of: string | undefined;
  times: number;
}

export type KeyUse = ReturnType<typeof createKeyUse>;

/** The same key is said again after this. */
const SAY_AGAIN_MS = 10 * 60_000;
const REFUSAL_SAID_EVERY_MS = 10_000;
/** Ids of missing keys come from outside; beyond this many they are counted together. */
const MOST_MISSING = 20;
const OTHERS = 'others';

export function createKeyUse(meter: Meter, log: Logger) {
  const { adder, counter } = countersOf(meter);
  const countSeals = adder<{ purpose: KeyPurpose; key: string }>(
    'notification.keys.sealed',
    'Values and payloads sealed by this process, by the key',
  );
  const countMissed = counter<{ purpose: KeyPurpose; key: string }>(
    'notification.keys.missing',
    'Values and payloads that were not opened, because their key is not configured',
  );
  let seals = new Map<string, SealCount>();
  let missing = new Map<string, MissingKey>();
  const saidAt = new Map<string, number>();
  let refusalSaidAt = Number.NEGATIVE_INFINITY;

  return {
    /** @param count of payloads that begin to be sealed. */
    sealed(purpose: KeyPurpose, keyId: string, count: number): void {
      countSeals(count, { purpose, key: keyId });
      add({ purpose, keyId, seals: count });
    },

    /** @param of what could not be opened: the id of a workflow, or a row and column. */
    missed(purpose: KeyPurpose, givenId: string, of: string | undefined): void {
      const keyId = saidAt.has(givenId) || saidAt.size < MOST_MISSING ? givenId : OTHERS;
      countMissed({ purpose, key: keyId });
      const times = (missing.get(`${purpose} ${keyId}`)?.times ?? 0) + 1;
      missing.set(`${purpose} ${keyId}`, { purpose, keyId, of, times });
      const now = performance.now();
      if (now - (saidAt.get(keyId) ?? Number.NEGATIVE_INFINITY) < SAY_AGAIN_MS) return;
      saidAt.set(keyId, now);
      const where = purpose === 'payload' ? { workflow_id: of } : { value: of };
      if (keyId === PLAIN)
        log.error(
          { purpose, ...where },
          'a payload in plain was refused: its workflow does not go on, unless NOTIFICATION_PAYLOAD_PLAIN=accept',
        );
      else
        log.error(
          { purpose, key_id: keyId, ...where },
          'sealed with a key that is not configured: work does not go on until the key is back',
        );
    },

    /** @param reason says nothing of what is in it. @param of the id of the workflow in which it was found. */
    refused(reason: string, of: string | undefined): void {
      const now = performance.now();
      if (now - refusalSaidAt < REFUSAL_SAID_EVERY_MS) return;
      refusalSaidAt = now;
      log.error({ workflow_id: of, reason }, 'a payload was refused: its workflow does not go on with it');
    },

    /** @returns what was not taken yet. */
    takeCounts(): { seals: SealCount[]; missing: MissingKey[] } {
      const taken = { seals: [...seals.values()], missing: [...missing.values()] };
      seals = new Map();
      missing = new Map();
      return taken;
    },

    /** Puts seals back that could not be recorded. */
    putBack(counts: readonly SealCount[]): void {
      counts.forEach(add);
    },
  };

  function add({ purpose, keyId, seals: count }: SealCount): void {
    const known = seals.get(`${purpose} ${keyId}`);
    if (known) known.seals += count;
    else seals.set(`${purpose} ${keyId}`, { purpose, keyId, seals: count });
  }
}
