/**
 * Of intents with one idempotency key the earlier one of the stream is decided first, although workflows decide in any
 * order: before the later one begins, the earlier one is said to wait, unless it is decided. The later one is told of it,
 * too: should PostgreSQL forget what it had decided, the later one waits until it is decided again.
 */
import pLimit from 'p-limit';
import type { Pool } from 'pg';
import type { Intent } from '../../api/intent/entry.ts';
import { compareEntryIds } from '../../api/stream-ids.ts';
import type { TakenIntent } from './decisions.ts';
import { PARALLEL_STARTS } from './start.ts';
import { noteUndecided } from './waiting.ts';

/** Of intents that are remembered, the latest ones: seconds of a flood. */
const MOST_BYTES = 16 * 1_024 * 1_024;
/** Of those that slices took, of which only the id is remembered. */
const MOST_OF_SLICES = 10_000;

interface Begun {
  intent: Intent;
  started: Promise<unknown>;
}

/** Begins intents, of which each knows the earlier one of its key. */
type Begin<T> = (intents: readonly TakenIntent[]) => Promise<T>;

/**
 * For one reader.
 *
 * @param startedBefore what the reader before has started, which may be undecided as well, the oldest first.
 * @returns begins the intents of one workflow immediately, or once the earlier ones of their keys are said to wait.
 */
export function createKeyOrder(
  db: Pool,
  startedBefore: readonly Intent[],
): <T>(intents: readonly Intent[], begin: Begin<T>) => Promise<T> {
  /** The oldest first. */
  const recent = new Map<string, Begun>();
  let bytes = 0;
  /** Ids by keys, the oldest first. What a slice has begun is waited for while it is under way (slices-under-way.ts). */
  const ofSlices = new Map<string, string>();
  for (const intent of startedBefore) remember(intent, Promise.resolve());

  return (intents, begin) => {
    const earlier = intents.flatMap((intent) => {
      const before = recent.get(keyOf(intent));
      return before && isBefore(before.intent.notificationId, intent) ? [before] : [];
    });
    const told = intents.map(withEarlier);
    const started = earlier.length > 0 ? beginAfter(earlier, () => begin(told)) : begin(told);
    const [alone, ...more] = intents;
    if (alone && more.length === 0) remember(alone, started);
    else for (const intent of intents) rememberOfSlice(intent);
    return started;
  };

  function withEarlier(intent: Intent): TakenIntent {
    const key = keyOf(intent);
    const ids = [recent.get(key)?.intent.notificationId, ofSlices.get(key)];
    const [earlier] = ids
      .filter((id) => id !== undefined && isBefore(id, intent))
      .sort((a, b) => compareEntryIds(b!, a!));
    return earlier === undefined ? intent : { ...intent, earlier };
  }

  function remember(intent: Intent, started: Promise<unknown>): void {
    const key = keyOf(intent);
    forget(key);
    recent.set(key, { intent, started });
    bytes += bytesOf(intent);
    while (bytes > MOST_BYTES) forget(recent.keys().next().value!);
  }

  function rememberOfSlice(intent: Intent): void {
    const key = keyOf(intent);
    ofSlices.delete(key);
    ofSlices.set(key, intent.notificationId);
    if (ofSlices.size > MOST_OF_SLICES) ofSlices.delete(ofSlices.keys().next().value!);
  }

  function forget(key: string): void {
    const begun = recent.get(key);
    if (begun && recent.delete(key)) bytes -= bytesOf(begun.intent);
  }

  async function beginAfter<T>(earlier: readonly Begun[], begin: () => Promise<T>): Promise<T> {
    await Promise.all(
      earlier.map(async ({ intent, started }) => {
        await started;
        await noteUndecided(db, intent, 'an intent with the same key came after it');
      }),
    );
    return begin();
  }
}

/**
 * Begins each of these intents by itself, which are in the order of the stream.
 *
 * @returns what came of them, in the same order. @throws what the first to fail fails with.
 */
export function beginEach<T>(
  db: Pool,
  intents: readonly Intent[],
  begin: (intent: TakenIntent) => Promise<T>,
): Promise<T[]> {
  const inOrderOfKeys = createKeyOrder(db, []);
  return pLimit(PARALLEL_STARTS).map(intents, (intent) => inOrderOfKeys([intent], ([told]) => begin(told!)));
}

/** A later one is known from before the stream was read anew. */
const isBefore = (id: string, { notificationId }: Intent): boolean => compareEntryIds(id, notificationId) < 0;

/** What two intents have in common of which only one is delivered. */
export const keyOf = ({ producer, idempotencyKey }: Intent): string =>
  JSON.stringify([producer, idempotencyKey]);

/** Nearly. */
const bytesOf = ({ payloadJson, recipientUserIds, idempotencyKey }: Intent): number =>
  500 +
  payloadJson.length +
  idempotencyKey.length +
  recipientUserIds.reduce((sum, id) => sum + 50 + id.length, 0);
