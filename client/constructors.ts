/** Makes intents that the service accepts, of the types of a catalog, and appends them to its stream. */
import type { AudienceKind, Catalog, NotificationType } from '../api/intent/catalog.ts';
import { catalogOf, typeIn } from '../api/intent/catalog.ts';
import type { Intent } from '../api/intent/entry.ts';
import { entryFieldsOf, envelopeOf } from '../api/intent/entry.ts';
import { parseTraceparent } from '../api/ids.ts';
import { given } from '../api/given.ts';
import { InvalidIntentError, intentIn } from './invalid-intent.ts';

export type { Catalog } from '../api/intent/catalog.ts';
export { CatalogError } from '../api/intent/catalog.ts';
export type { RefusalCode } from './invalid-intent.ts';
export { InvalidIntentError } from './invalid-intent.ts';

/**
 * A catalog from a document as `NOTIFICATION_CATALOG_FILE` has it.
 *
 * @throws CatalogError that names every fault with its place.
 */
export const defineCatalog = catalogOf;

/** Where the service reads intents unless it is told otherwise. */
export const DEFAULT_INTENTS_STREAM = 'notification:intents';

/** An intent that the service will accept, ready to be published. */
export type NotificationIntent = Omit<Intent, 'notificationId'>;

interface CommonOptions<Payload> {
  /** Unique per producer and event. The same key with the same content is a duplicate, with other content a conflict. */
  idempotencyKey: string;
  /**
   * When the event happened: a date or epoch milliseconds. Part of the content, so take it from the event: a repeat with
   * another time is a conflict.
   */
  occurredAt: Date | number;
  /**
   * When it is delivered, up to a year after `occurredAt`: a date or epoch milliseconds. It can be cancelled until then. No part
   * of the content.
   */
  deliverAt?: Date | number;
  /**
   * From when on it is not worth sending any more, after `occurredAt`: a date or epoch milliseconds. Who has not got it by
   * then does not get it. No part of the content: of a repeat with another one, the first counts.
   */
  expiresAt?: Date | number;
  /** Correlation only; no part of the intent's identity. */
  requestId?: string;
  traceId?: string;
  /** W3C trace context of the span that publishes: the service links its spans to it, and hands it on. */
  traceparent?: string;
  /** The fields of the type; further fields pass through to the mail template. */
  payload: Payload & Record<string, unknown>;
}

interface ToUsers {
  audience?: 'user';
  /** Unique ids of the users to notify; their order makes no difference. */
  recipientUserIds: readonly string[];
}

/** Public games go to the administrators that the service has configured. */
interface ToAdministrators {
  audience: 'admin_email';
  recipientUserIds?: never;
}

/** Recipients as the type's audiences allow: users are named, administrators are the service's business. */
type Recipients<Audience extends AudienceKind> = [Audience] extends ['user']
  ? ToUsers
  : [Audience] extends ['admin_email']
    ? Partial<ToAdministrators>
    : ToUsers | ToAdministrators;

export type IntentOptions<Payload, Audience extends AudienceKind> = CommonOptions<Payload> &
  Recipients<Audience>;
export type Constructor<Payload, Audience extends AudienceKind> = (
  options: IntentOptions<Payload, Audience>,
) => NotificationIntent;

/** Where nothing of a type is known when the program is compiled. */
export type AnyIntentOptions = CommonOptions<object> & {
  audience?: AudienceKind;
  recipientUserIds?: readonly string[];
};

/**
 * The constructor of a type. `galaxy-notify catalog clients` writes one with the payload's type for each of a catalog.
 *
 * @returns a function that throws InvalidIntentError for options the service would refuse.
 * @throws TypeError when the catalog has no such type.
 */
export function constructorIn<Payload extends object, Audience extends AudienceKind>(
  catalog: Catalog,
  type: NotificationType,
): Constructor<Payload, Audience> {
  typeIn(catalog, type);
  return (options) => newIntent(catalog, type, options);
}

/**
 * An intent of any type of a catalog.
 *
 * @throws InvalidIntentError for what the service would refuse; TypeError when the catalog has no such type.
 */
export function newIntent(
  catalog: Catalog,
  type: NotificationType,
  options: AnyIntentOptions,
): NotificationIntent {
  const { idempotencyKey, occurredAt, deliverAt, expiresAt, requestId, traceId, traceparent, payload } =
    options;
  const { producer, audiences } = typeIn(catalog, type);
  // Administrators of a type that users can get too must be asked for: forgotten recipients are a mistake.
  const { audience = audiences[0]!, recipientUserIds = [] } = options;
  const draft = given({
    notificationType: type,
    producer,
    audienceKind: audience,
    recipientUserIds: [...recipientUserIds],
    idempotencyKey,
    occurredAtMs: Number(occurredAt),
    deliverAtMs: deliverAt === undefined ? undefined : Number(deliverAt),
    expiresAtMs: expiresAt === undefined ? undefined : Number(expiresAt),
    payloadJson: payloadJsonOf(payload),
    ...{ requestId, traceId, traceparent },
  });
  const envelope = envelopeOf(draft);
  for (const [name, value] of Object.entries(envelope)) {
    // Bytes would not show it any more: a lone surrogate turns into another character, silently.
    if (typeof value !== 'string' || !value.isWellFormed()) {
      throw new InvalidIntentError('invalid_envelope', `${name} must be well-formed text`);
    }
  }
  // The service would take it for absent, and the trace would end here without a word.
  if (traceparent && !parseTraceparent(traceparent)) {
    throw new InvalidIntentError('invalid_envelope', 'traceparent must be a W3C traceparent of version 00');
  }
  const { notificationId: _unknownYet, ...intent } = intentIn(catalog, '0-0', entryFieldsOf(envelope));
  return intent;
}

/** The part of a Redis client that publication needs; ioredis has it. */
export interface StreamAppender {
  xadd(stream: string, id: '*', ...fieldsAndValues: string[]): Promise<string | null>;
}

/**
 * Appends an intent with one plain XADD on a client that the caller owns. There is no trimming and no hidden retry:
 * an error of the client is the caller's, who may publish the same intent again, since its key makes that harmless.
 *
 * @returns the id of the stream entry, which is the notification id.
 */
export async function publishIntent(
  redis: StreamAppender,
  intent: NotificationIntent,
  { stream = DEFAULT_INTENTS_STREAM }: { stream?: string } = {},
): Promise<string> {
  const entryId = await redis.xadd(stream, '*', ...Object.entries(envelopeOf(intent)).flat());
  if (entryId === null) throw new Error(`Redis appended nothing to ${stream}`);
  return entryId;
}

const LOSSY_TYPES: readonly string[] = ['undefined', 'bigint', 'function', 'symbol'];

/** JSON would drop or change these values without a word; a producer should hear of it. */
function payloadJsonOf(payload: Record<string, unknown>): string {
  const refuseLossy = (key: string, value: unknown): unknown => {
    const isNumber = typeof value === 'number';
    const isLossy = isNumber ? !Number.isFinite(value) : LOSSY_TYPES.includes(typeof value);
    if (!isLossy) return value;
    const what = isNumber ? String(value) : typeof value;
    throw new InvalidIntentError('invalid_payload', `payload_json field ${key}: ${what} has no JSON form`);
  };
  try {
    return JSON.stringify(payload, refuseLossy);
  } catch (error) {
    if (error instanceof InvalidIntentError) throw error;
    throw new InvalidIntentError(
      'invalid_payload',
      `payload_json cannot be written as JSON: ${String(error)}`,
    );
  }
}
