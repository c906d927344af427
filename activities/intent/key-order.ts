/**
 * Of intents with one idempotency key the earlier one of the stream is decided first, although workflows decide in any
 * order: before the later one begins, the earlier one is said to wait, unless it is decided.
 */
import type { Pool } from 'pg';
import type { Intent } from '../../api/intent/entry.ts';
import { compareEntryIds } from '../../api/stream-ids.ts';
import { noteUndecided } from './waiting.ts';

/** Of intents that are remembered, the latest ones: seconds of a flood. */
const MOST_BYTES = 16 * 1_024 * 1_024;

interface Begun {
  intent: Intent;
  started: Promise<unknown>;
}

/** @returns begins one intent after the other where they have one key, and all others immediately. For one reader. */
export function createKeyOrder(db: Pool): <T>(intent: Intent, begin: () => Promise<T>) => Promise<T> {
  /** The oldest first. */
  const recent = new Map<string, Begun>();
  let bytes = 0;

  return (intent, begin) => {
    const key = keyOf(intent);
    const before = recent.get(key);
    // A later one is known from before the stream was read anew.
    const isAfter = before && compareEntryIds(before.intent.notificationId, intent.notificationId) < 0;
    const started = isAfter ? beginAfter(before, begin) : begin();
    forget(key);
    recent.set(key, { intent, started });
    bytes += bytesOf(intent);
    while (bytes > MOST_BYTES) forget(recent.keys().next().value!);
    return started;
  };

  function forget(key: string): void {
    const begun = recent.get(key);
    if (begun && recent.delete(key)) bytes -= bytesOf(begun.intent);
  }

  async function beginAfter<T>(before: Begun, begin: () => Promise<T>): Promise<T> {
    await before.started;
    await noteUndecided(db, before.intent, 'an intent with the same key came after it');
    return begin();
  }
}

/** What two intents have in common of which only one is delivered. */
export const keyOf = ({ producer, idempotencyKey }: Intent): string =>
  JSON.stringify([producer, idempotencyKey]);

/** Nearly. */
const bytesOf = ({ payloadJson, recipientUserIds, idempotencyKey }: Intent): number =>
  500 +
  payloadJson.length +
  idempotencyKey.length +
  recipientUserIds.reduce((sum, id) => sum + 50 + id.length, 0);
