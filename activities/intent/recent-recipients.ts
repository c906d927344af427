/**
 * One lookup per user within a short window: a burst of intents tends to go to the same people, and their addresses do
 * not change from one second to the next. Only what was found is kept, and in memory alone.
 */
import type { Recipient, UserService } from './user-service.ts';

/** Users remembered at most; the oldest are forgotten first. */
const MOST_USERS = 10_000;

interface Lookup {
  result: Promise<Recipient | undefined>;
  /** Epoch ms. */
  until: number;
}

/** @param windowMs how long an answer is used again, from the moment it was asked for. */
export function rememberRecipients(
  { findRecipient }: UserService,
  windowMs: number,
  now: () => number = Date.now,
): UserService {
  // In the order in which they were asked for, which is the order in which they expire.
  const lookups = new Map<string, Lookup>();

  function forgetExpired(): void {
    const at = now();
    for (const [userId, { until }] of lookups) {
      if (until > at && lookups.size <= MOST_USERS) return;
      lookups.delete(userId);
    }
  }

  return {
    findRecipient(userId) {
      forgetExpired();
      const known = lookups.get(userId);
      if (known) return known.result;
      const lookup: Lookup = { result: findRecipient(userId), until: now() + windowMs };
      lookups.set(userId, lookup);
      const forget = () => {
        if (lookups.get(userId) === lookup) lookups.delete(userId);
      };
      // Somebody unknown may be created at any moment, and a failure is worth another try.
      lookup.result.then((recipient) => recipient ?? forget(), forget);
      return lookup.result;
    },
  };
}
