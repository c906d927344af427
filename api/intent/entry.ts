/**
 * The inbound contract: one entry of `notification:intents`, checked. Producers and
 * the service run the same checks. Whatever an entry holds, the result is an intent or a reason, never an exception.
 */
import type { AudienceKind, Catalog, NotificationType, Producer, TypeSpec } from './catalog.ts';
import { given } from '../given.ts';
import {
  Refusal,
  cutText,
  isJsonObject,
  knownFields,
  parseJson,
  refusalIn,
  refuseOversize,
  sizeOf,
  storableFields,
  storableText,
  wellFormedText,
} from '../text.ts';
import { isNameable, parseTraceparent } from '../ids.ts';
import type { EntryFields, EntrySize } from '../text.ts';
import canonicalize from 'canonicalize';
import { createHash } from 'node:crypto';

/**
 * Names and values of an entry together: 10,000 recipients whose ids have 100 bytes. Temporal takes values of 2 MiB, and
 * the intent is one of them; the payload, which JSON within JSON may double, has its own limit.
 */
export const MAX_ENTRY_BYTES = 1024 * 1024;
/** Every e-mail carries the payload. */
export const MAX_PAYLOAD_BYTES = 256 * 1024;

export const MAX_KEY_BYTES = 1_024;
export const MAX_USER_ID_BYTES = 512;
/** The year 2000 begins: what lies before are seconds. */
export const MIN_TIMESTAMP_MS = 946_684_800_000;
/** The last millisecond of the year 9999: beyond, timestamps stop being exchangeable. */
export const MAX_TIMESTAMP_MS = 253_402_300_799_999;
/** How long after the event at most an intent is delivered: a year. */
export const MAX_DELAY_MS = 366 * 86_400_000;

/** The envelope by name; the AsyncAPI document is held against both lists. */
export const REQUIRED_ENVELOPE_FIELDS = [
  'notification_type',
  'producer',
  'audience_kind',
  'idempotency_key',
  'occurred_at_ms',
  'payload_json',
] as const;
export const OPTIONAL_ENVELOPE_FIELDS = [
  'recipient_user_ids_json',
  'deliver_at_ms',
  'expires_at_ms',
  'request_id',
  'trace_id',
] as const;

type EnvelopeField = (typeof REQUIRED_ENVELOPE_FIELDS)[number] | (typeof OPTIONAL_ENVELOPE_FIELDS)[number];
export const ENVELOPE_FIELDS: readonly string[] = [...REQUIRED_ENVELOPE_FIELDS, ...OPTIONAL_ENVELOPE_FIELDS];

/** Not among them, since an entry is never refused for it: what it has else, or twice, counts as absent. */
export const TRACEPARENT_FIELD = 'traceparent';

/** One valid intent. */
export interface Intent {
  /** The stream entry's id. */
  notificationId: string;
  notificationType: NotificationType;
  producer: Producer;
  audienceKind: AudienceKind;
  /** As given; empty for administrators. */
  recipientUserIds: string[];
  idempotencyKey: string;
  occurredAtMs: number;
  /** Until when it waits, and is not looked into; what has come by then is delivered then. */
  deliverAtMs?: number;
  /** From when on nothing of it is worth sending any more. */
  expiresAtMs?: number;
  /** Canonical JSON (RFC 8785) of the payload object. */
  payloadJson: string;
  requestId?: string;
  traceId?: string;
  /** W3C trace context of the producer, version 00. */
  traceparent?: string;
}

/** From when on an intent is not worth sending any more, epoch ms: as it says, or as its type does; undefined: never. */
export function expiryOf(
  { types }: Catalog,
  intent: Pick<Intent, 'notificationType' | 'occurredAtMs' | 'deliverAtMs' | 'expiresAtMs'>,
): number | undefined {
  const { notificationType, occurredAtMs, deliverAtMs = 0, expiresAtMs } = intent;
  const afterMs = types.get(notificationType)?.expiresAfterMs;
  return expiresAtMs ?? (afterMs === undefined ? undefined : Math.max(occurredAtMs, deliverAtMs) + afterMs);
}

/** Reasons that an entry shows by itself. */
export const INTENT_FAILURE_CODES = [
  'invalid_envelope',
  'unknown_notification_type',
  'invalid_audience',
  'invalid_recipients',
  'invalid_payload',
  'entry_too_large',
] as const;
export type IntentFailureCode = (typeof INTENT_FAILURE_CODES)[number];

/**
 * All reasons for a row in `malformed_intents`. Three come out when rows are looked at; the last one is the database's,
 * which does not take what the intent or its malformed row holds.
 */
export const MALFORMED_CODES = [
  ...INTENT_FAILURE_CODES,
  'idempotency_conflict',
  'recipient_not_found',
  'entry_id_reused',
  'unstorable',
] as const;
export type MalformedCode = (typeof MALFORMED_CODES)[number];

/** An entry that cannot become a notification, in a form that PostgreSQL stores as it is. */
export interface MalformedIntent {
  streamEntryId: string;
  notificationType?: string;
  producer?: string;
  idempotencyKey?: string;
  failureCode: MalformedCode;
  failureMessage: string;
  rawFields: Record<string, string>;
}

export type { EntryFields } from '../text.ts';

export type ParsedIntent = { ok: true; intent: Intent } | { ok: false; malformed: MalformedIntent };

/**
 * Checks one stream entry. Never throws.
 *
 * @param size of the entry in its stream, when not all of it was read.
 */
export function parseIntent(
  catalog: Catalog,
  entryId: string,
  fields: EntryFields,
  size = sizeOf(fields),
): ParsedIntent {
  try {
    return { ok: true, intent: readIntent(catalog, entryId, fields, size) };
  } catch (error) {
    return { ok: false, malformed: malformedOf(entryId, fields, size, refusalIn(error)) };
  }
}

/**
 * What the message of a refusal is about: a field of the envelope, or `payload_json.<field>`; undefined when it is the
 * entry as a whole.
 */
export function fieldNamedIn(message: string): string | undefined {
  const [, name, field] = /^([a-z_]+)(?: field (\w+):)?/.exec(message) ?? [];
  if (name === undefined || ![...ENVELOPE_FIELDS, TRACEPARENT_FIELD].includes(name)) return undefined;
  return field === undefined ? name : `${name}.${field}`;
}

/** The fields of an intent as the stream has them, e.g. to publish it or to show what was refused. */
export function envelopeOf(intent: Omit<Intent, 'notificationId'>): Record<string, string> {
  const { recipientUserIds } = intent;
  return given({
    notification_type: intent.notificationType,
    producer: intent.producer,
    audience_kind: intent.audienceKind,
    recipient_user_ids_json: recipientUserIds.length > 0 ? JSON.stringify(recipientUserIds) : undefined,
    idempotency_key: intent.idempotencyKey,
    occurred_at_ms: String(intent.occurredAtMs),
    deliver_at_ms: intent.deliverAtMs?.toString(),
    expires_at_ms: intent.expiresAtMs?.toString(),
    payload_json: intent.payloadJson,
    request_id: intent.requestId,
    trace_id: intent.traceId,
    [TRACEPARENT_FIELD]: intent.traceparent,
  });
}

/** Text fields in the form in which Redis gives an entry. */
export function entryFieldsOf(fields: Record<string, string>): EntryFields {
  return Object.entries(fields).map(([name, value]) => [Buffer.from(name), Buffer.from(value)]);
}

/** The raw fields of a valid intent, for a rejection that comes out after validation. */
export function rawFieldsOf(intent: Intent): Record<string, string> {
  return storableFields(entryFieldsOf(envelopeOf(intent)));
}

const invalidEnvelope = (problem: string) => new Refusal('invalid_envelope', problem);

type Envelope = Partial<Record<EnvelopeField, string>>;

function readIntent(catalog: Catalog, entryId: string, fields: EntryFields, size: EntrySize): Intent {
  refuseOversize(size, MAX_ENTRY_BYTES);
  const envelope = readEnvelope(fields);
  const idempotencyKey = identifier(envelope, 'idempotency_key');
  const occurredAtMs = timestamp(envelope, 'occurred_at_ms');
  const deliverAtMs = delivery(envelope, occurredAtMs);
  const expiresAtMs = expiry(envelope, occurredAtMs, deliverAtMs);
  const requestId = optionalIdentifier(envelope, 'request_id');
  const traceId = optionalIdentifier(envelope, 'trace_id');
  const traceparent = traceparentOf(fields);

  const spec = specOf(catalog, envelope);
  const producer = producerOf(envelope, spec);
  const audienceKind = audienceOf(envelope, spec);
  return given({
    notificationId: entryId,
    notificationType: spec.type,
    ...{ producer, audienceKind },
    recipientUserIds: recipientsOf(envelope, audienceKind),
    ...{ idempotencyKey, occurredAtMs, deliverAtMs, expiresAtMs },
    payloadJson: payloadOf(envelope, spec),
    ...{ requestId, traceId, traceparent },
  });
}

/** The known fields as text. An empty optional field counts as absent; unknown fields are ignored. */
function readEnvelope(fields: EntryFields): Envelope {
  const envelope: Envelope = Object.fromEntries(knownFields(fields, ENVELOPE_FIELDS, 'invalid_envelope'));
  for (const name of OPTIONAL_ENVELOPE_FIELDS) {
    if (envelope[name] === '') delete envelope[name];
  }
  for (const name of REQUIRED_ENVELOPE_FIELDS) {
    if (envelope[name] === undefined) throw invalidEnvelope(`${name} is missing`);
    if (envelope[name].trim() === '') throw invalidEnvelope(`${name} is empty`);
  }
  return envelope;
}

function identifier(envelope: Envelope, name: EnvelopeField): string {
  const value = envelope[name] ?? '';
  if (hasControlCharacters(value)) throw invalidEnvelope(`${name} has control characters`);
  if (Buffer.byteLength(value) <= MAX_KEY_BYTES) return value;
  throw invalidEnvelope(`${name} is longer than ${MAX_KEY_BYTES} bytes`);
}

function optionalIdentifier(envelope: Envelope, name: EnvelopeField): string | undefined {
  return envelope[name] === undefined ? undefined : identifier(envelope, name);
}

function traceparentOf(fields: EntryFields): string | undefined {
  const [value, ...further] = fields.flatMap(([name, bytes]) =>
    name.toString('latin1') === TRACEPARENT_FIELD ? [bytes.toString('latin1')] : [],
  );
  return value !== undefined && further.length === 0 && parseTraceparent(value) ? value : undefined;
}

function timestamp(envelope: Envelope, name: EnvelopeField): number {
  const text = envelope[name] ?? '';
  const value = /^[0-9]{1,15}$/.test(text) ? Number(text) : 0;
  if (value >= MIN_TIMESTAMP_MS && value <= MAX_TIMESTAMP_MS) return value;
  throw invalidEnvelope(`${name} must be whole milliseconds since 1970, of the years 2000 to 9999`);
}

/** Microseconds instead of milliseconds, for instance, would be an intent that is never delivered. */
function delivery(envelope: Envelope, occurredAtMs: number): number | undefined {
  if (envelope.deliver_at_ms === undefined) return undefined;
  const deliverAtMs = timestamp(envelope, 'deliver_at_ms');
  if (deliverAtMs <= occurredAtMs + MAX_DELAY_MS) return deliverAtMs;
  throw invalidEnvelope('deliver_at_ms must be at most 366 days after occurred_at_ms');
}

/** Otherwise it would be an intent of which nothing is ever sent. */
function expiry(envelope: Envelope, occurredAtMs: number, deliverAtMs = 0): number | undefined {
  if (envelope.expires_at_ms === undefined) return undefined;
  const expiresAtMs = timestamp(envelope, 'expires_at_ms');
  if (expiresAtMs <= occurredAtMs) throw invalidEnvelope('expires_at_ms must be after occurred_at_ms');
  if (expiresAtMs > deliverAtMs) return expiresAtMs;
  throw invalidEnvelope('expires_at_ms must be after deliver_at_ms');
}

function specOf({ types }: Catalog, { notification_type: type = '' }: Envelope): TypeSpec {
  const spec = types.get(type);
  if (spec !== undefined && !spec.isRetired) return spec;
  // An unknown one may be a value of the sender, such as an address.
  const problem = spec === undefined ? 'is not in the catalog' : `${type} is retired`;
  throw new Refusal('unknown_notification_type', `notification_type ${problem}`);
}

function producerOf({ producer = '' }: Envelope, { type, producer: expected }: TypeSpec): Producer {
  if (producer === expected) return expected;
  throw invalidEnvelope(`producer of ${type} must be ${expected}`);
}

function audienceOf({ audience_kind: text = '' }: Envelope, { type, audiences }: TypeSpec): AudienceKind {
  const kind = audiences.find((known) => known === text);
  if (kind !== undefined) return kind;
  throw new Refusal('invalid_audience', `audience_kind of ${type} must be ${audiences.join(' or ')}`);
}

function recipientsOf({ recipient_user_ids_json: text }: Envelope, audience: AudienceKind): string[] {
  const refuse = (problem: string) => new Refusal('invalid_recipients', `recipient_user_ids_json ${problem}`);
  if (audience === 'admin_email') {
    if (text !== undefined) throw refuse('is not allowed for audience_kind admin_email');
    return [];
  }
  if (text === undefined) throw refuse('is required for audience_kind user');
  const userIds = parseJson(text, 'recipient_user_ids_json', 'invalid_recipients');
  if (!Array.isArray(userIds) || userIds.length === 0)
    throw refuse('must be a JSON array with at least one user id');
  const seen = new Set<string>();
  for (const [index, userId] of userIds.entries()) {
    if (typeof userId !== 'string' || userId.trim() === '')
      throw refuse(`has no user id at position ${index}`);
    if (seen.has(userId)) throw refuse(`names a user id more than once, again at position ${index}`);
    if (Buffer.byteLength(userId) > MAX_USER_ID_BYTES) {
      throw refuse(`has a user id longer than ${MAX_USER_ID_BYTES} bytes at position ${index}`);
    }
    // A user id becomes a segment of the User Service's URL.
    if (hasControlCharacters(userId) || !isNameable(userId)) {
      throw refuse(`has an unusable user id at position ${index}`);
    }
    seen.add(userId);
  }
  return [...seen];
}

/** Checked with the catalog's schema, kept as it was sent: unknown fields pass through. */
function payloadOf({ payload_json: text = '' }: Envelope, { schema }: TypeSpec): string {
  const refuse = (problem: string) => new Refusal('invalid_payload', `payload_json ${problem}`);
  const size = Buffer.byteLength(text);
  if (size > MAX_PAYLOAD_BYTES) {
    throw refuse(`has ${size} bytes; at most ${MAX_PAYLOAD_BYTES} are accepted`);
  }
  const payload = parseJson(text, 'payload_json', 'invalid_payload');
  if (!isJsonObject(payload)) throw refuse('must be a JSON object');
  const [issue] = schema.safeParse(payload).error?.issues ?? [];
  if (issue) throw refuse(`field ${issue.path.join('.')}: ${issue.message}`);
  return canonicalJson(payload);
}

const hasControlCharacters = (text: string): boolean => /\p{Cc}/u.test(text);

const MAX_COLUMN_LENGTH = 256;

function malformedOf(
  entryId: string,
  fields: EntryFields,
  size: EntrySize,
  { code, message }: Refusal<IntentFailureCode>,
): MalformedIntent {
  const column = (name: string): string | undefined => {
    const value = fields.find(([field]) => field.toString('latin1') === name)?.[1];
    return value && cutText(storableText(value, 4 * MAX_COLUMN_LENGTH), MAX_COLUMN_LENGTH);
  };
  return given({
    streamEntryId: entryId,
    notificationType: column('notification_type'),
    producer: column('producer'),
    idempotencyKey: column('idempotency_key'),
    failureCode: code,
    failureMessage: wellFormedText(message),
    rawFields: storableFields(fields, size),
  });
}

/** @returns the canonical form (RFC 8785) of an object whose values are JSON, as `parseJson` gives them. */
export function canonicalJson(value: object): string {
  // Undefined stands for values without a JSON form; an object has one.
  return canonicalize(value) as string;
}

export type IntentContent = Pick<
  Intent,
  | 'notificationType'
  | 'producer'
  | 'audienceKind'
  | 'recipientUserIds'
  | 'idempotencyKey'
  | 'occurredAtMs'
  | 'payloadJson'
>;

/**
 * SHA-256 (hex) over the normalized content. Recipients count as a set and the payload in canonical form, so the order
 * of recipients and keys, white space and the notation of numbers make no difference; the order of arrays does.
 *
 * `request_id`, `trace_id` and `traceparent` only observe and are left out, as is the entry id. So are the times of delivery and
 * of expiry: they say nothing about the event, and a repeat may count them from its own time. `occurred_at_ms` is in: the same
 * event did not happen at two times.
 */
export function fingerprintOf(intent: IntentContent): string {
  return createHash('sha256')
    .update(canonicalJson(normalized(intent)))
    .digest('hex');
}

/** @returns the fields of the envelope in which two intents with one idempotency key differ, names only. */
export function differingFields(one: IntentContent, other: IntentContent): string[] {
  const [left, right] = [normalized(one), normalized(other)];
  // The key of a forgotten user's intent is a hash.
  return (Object.keys(left) as (keyof typeof left)[])
    .filter(
      (name) => name !== 'idempotency_key' && JSON.stringify(left[name]) !== JSON.stringify(right[name]),
    )
    .map((name) => (name === 'payload' || name === 'recipient_user_ids' ? `${name}_json` : name));
}

function normalized(intent: IntentContent) {
  return {
    notification_type: intent.notificationType,
    producer: intent.producer,
    audience_kind: intent.audienceKind,
    recipient_user_ids: [...new Set(intent.recipientUserIds)].sort(),
    idempotency_key: intent.idempotencyKey,
    occurred_at_ms: intent.occurredAtMs,
    // A string inside: canonical already.
    payload: intent.payloadJson,
  };
}
