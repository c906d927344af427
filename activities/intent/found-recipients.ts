/**
 * Recipients whom an attempt to accept an intent has found, kept for the next attempt of the same intent. In the memory
 * of this process alone: addresses of people stand in no history. An attempt elsewhere looks everybody up again.
 */
import type { Recipient } from './user-service.ts';

/** Of all intents together; the intents that were tried longest ago are forgotten first. */
const MOST_KEPT = 100_000;
/** Addresses change. */
const KEPT_FOR_MS = 3_600_000;

interface Kept {
  found: Map<string, Recipient>;
  /** When the first of them was found, by the clock of `now`, ms. */
  since: number;
}

export function createFoundRecipients(now = () => performance.now(), most = MOST_KEPT) {
  // In the order in which they were put back.
  const byIntent = new Map<string, Kept>();
  const begun = new WeakMap<Map<string, Recipient>, number>();

  return {
    /** @returns recipients by user id for an attempt to add to. */
    take(notificationId: string): Map<string, Recipient> {
      const kept = byIntent.get(notificationId);
      byIntent.delete(notificationId);
      const isFresh = kept !== undefined && now() - kept.since < KEPT_FOR_MS;
      const found = isFresh ? kept.found : new Map<string, Recipient>();
      begun.set(found, isFresh ? kept.since : now());
      return found;
    },

    /** For the next attempt. */
    keep(notificationId: string, found: Map<string, Recipient>): void {
      if (found.size > 0) byIntent.set(notificationId, { found, since: begun.get(found) ?? now() });
      let total = 0;
      for (const [id, { found: others, since }] of [...byIntent].reverse()) {
        total += others.size;
        if (total > most || now() - since >= KEPT_FOR_MS) byIntent.delete(id);
      }
    },
  };
}
