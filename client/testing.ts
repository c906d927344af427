/**
 * For the tests of producers: a stream in memory that refuses what the service refuses, a look at what was published, and an intent
 * of each type for a first try.
 *
 * ```ts
 * const stream = createMemoryStream();
 * await announceTurn(stream, turn); // what is tested; it publishes with publishIntent
 * expectPublished(stream, { type: 'game.turn.ready', recipientUserIds: ['user-1', 'user-2'] });
 * ```
 */
import type { AudienceKind, Catalog, NotificationType } from '../api/intent/catalog.ts';
import { typeIn } from '../api/intent/catalog.ts';
import { entryFieldsOf, differingFields, fingerprintOf, canonicalJson } from '../api/intent/entry.ts';
import type { NotificationIntent, StreamAppender } from './constructors.ts';
import { newIntent } from './constructors.ts';
import { InvalidIntentError, intentIn } from './invalid-intent.ts';
import { GALAXY } from './generated/galaxy.ts';

/** One intent that the stream has taken. */
export interface PublishedIntent {
  notificationId: string;
  stream: string;
  intent: NotificationIntent;
  /** SHA-256, hex, by which the service tells a duplicate from a conflict. */
  fingerprint: string;
  /** A repeat of an earlier intent, which has no effect. */
  isDuplicate: boolean;
}

/** Takes the place of a Redis client. */
export interface MemoryStream extends StreamAppender {
  /** In their order, duplicates included. */
  readonly published: readonly PublishedIntent[];
  /** Lets the next publication fail, as if Redis did not answer. @throws TypeError without an error. */
  failNext(error: Error): void;
}

/**
 * A stream without entries. Its `xadd` rejects with InvalidIntentError for what the service would refuse, also for a key
 * that comes again with other content, and with an Error for a command that is no plain XADD.
 *
 * @param options.catalog of the service; default: the types of Galaxy.
 */
export function createMemoryStream({ catalog = GALAXY }: { catalog?: Catalog } = {}): MemoryStream {
  const published: PublishedIntent[] = [];
  const failures: Error[] = [];
  return {
    published,
    failNext(error) {
      if (!(error instanceof Error)) throw new TypeError('failNext needs an error to fail with');
      failures.push(error);
    },
    async xadd(stream, id, ...fieldsAndValues) {
      // Callers without types may pass options of XADD.
      if ((id as string) !== '*' || fieldsAndValues.length % 2 !== 0)
        throw new Error('producers use a plain XADD: *, fields and values');
      const failure = failures.shift();
      if (failure) throw failure;
      const fields = fieldsAndValues.flatMap((name, index) =>
        index % 2 === 0 ? entryFieldsOf({ [name]: fieldsAndValues[index + 1]! }) : [],
      );
      const { notificationId, ...intent } = intentIn(catalog, `${published.length + 1}-0`, fields);
      const fingerprint = fingerprintOf(intent);
      const earlier = published.find(
        (one) =>
          one.stream === stream &&
          one.intent.producer === intent.producer &&
          one.intent.idempotencyKey === intent.idempotencyKey,
      );
      if (earlier !== undefined && earlier.fingerprint !== fingerprint) {
        const differing = differingFields(earlier.intent, intent).join(', ');
        const problem = `came before, as ${earlier.notificationId}, with other content (${differing})`;
        throw new InvalidIntentError('idempotency_conflict', `idempotency_key ${problem}`);
      }
      published.push({ notificationId, stream, intent, fingerprint, isDuplicate: earlier !== undefined });
      return notificationId;
    },
  };
}

/** Which intents count; what is left out may be anything. */
export interface Expectation {
  type?: NotificationType;
  idempotencyKey?: string;
  /** In any order. */
  recipientUserIds?: readonly string[];
  /** The whole payload. */
  payload?: Record<string, unknown>;
}

/**
 * @returns the one intent that was published as expected, repeats of it left aside.
 * @throws Error, with what was published instead, unless there is exactly one.
 */
export function expectPublished(
  { published }: Pick<MemoryStream, 'published'>,
  expected: Expectation = {},
): NotificationIntent {
  const once = published.filter(({ isDuplicate }) => !isDuplicate);
  const judged = once.map((one) => ({ ...one, differences: differencesOf(one.intent, expected) }));
  const found = judged.filter(({ differences }) => differences.length === 0);
  const [first] = found;
  if (first !== undefined && found.length === 1) return first.intent;
  const lines = judged.map(({ notificationId, intent, differences }) => {
    const difference = differences.map((what) => `another ${what}`).join(', ') || 'as expected';
    return `\n  ${notificationId} ${JSON.stringify(intent)}: ${difference}`;
  });
  throw new Error(
    `expected one intent ${JSON.stringify(expected)}, found ${found.length} among ${once.length} published:${lines.join('')}`,
  );
}

function differencesOf(intent: NotificationIntent, expected: Expectation): string[] {
  const { type, idempotencyKey, recipientUserIds, payload } = expected;
  const sorted = (ids?: readonly string[]) => ids && JSON.stringify(ids.toSorted());
  const compared = [
    ['type', type, intent.notificationType],
    ['key', idempotencyKey, intent.idempotencyKey],
    ['audience', sorted(recipientUserIds), sorted(intent.recipientUserIds)],
    ['payload', payload && canonicalJson(payload), intent.payloadJson],
  ] as const;
  return compared.flatMap(([what, wanted, found]) =>
    wanted === undefined || wanted === found ? [] : [what],
  );
}

/** Users that the stand-in User Service knows. */
export const SAMPLE_USERS = ['user-1', 'user-4'];

/** @returns an intent of a type, with content that makes sense to a reader. */
export const sampleIntentOf = (
  catalog: Catalog,
  type: NotificationType,
  audience: AudienceKind,
  idempotencyKey: string,
): NotificationIntent =>
  newIntent(catalog, type, {
    idempotencyKey,
    occurredAt: Date.now(),
    payload: typeIn(catalog, type).example,
    ...(audience === 'user' ? { recipientUserIds: SAMPLE_USERS } : { audience }),
  });
