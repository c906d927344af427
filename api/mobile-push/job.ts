/**
 * The inbound contract of mobile pushes: one entry of `stream.notifications.jobs`, checked. An entry has the job's
 * fields flat, or all of them as JSON in one field `payload`. Whatever an entry holds, the result is a job or a
 * reason, never an exception.
 */
import { z } from 'zod';
import { given } from '../given.ts';
import {
  Refusal,
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
import type { EntryFields, EntrySize } from '../text.ts';

export const DEFAULT_MOBILE_STREAM = 'stream.notifications.jobs';

/** Names and values of an entry together. FCM takes 4 KiB of payload; the rest is room for JSON's own escapes. */
export const MAX_JOB_BYTES = 64 * 1024;

const MAX_USER_ID_BYTES = 512;
/** Android cuts what is longer. Bounded here, since it is also a key by which Temporal shares workers out. */
const MAX_CHANNEL_BYTES = 200;
const MAX_BADGE = 999_999_999;

/** At least one of them: otherwise there is nothing to show, and nothing for the app. */
const MEANINGFUL = ['title', 'body', 'badge', 'data'];
/** Holds all fields of the job as a JSON object, instead of them. */
export const PAYLOAD_FIELD = 'payload';

/** How urgent a push is; `high` is the default. */
export const PRIORITIES = ['high', 'normal'] as const;
export type MobilePriority = (typeof PRIORITIES)[number];

/** A number is taken for the text that it is written as: producers that send JSON do not always quote it. */
const asText = <Schema extends z.ZodType>(schema: Schema) =>
  z.preprocess((value) => (typeof value === 'number' ? String(value) : value), schema);
const text = z.string('must be a string').refine((value) => value.trim() !== '', 'is empty');
const identifier = (maxBytes: number) =>
  text
    .refine((value) => !/\p{Cc}/u.test(value), 'has control characters')
    .refine((value) => Buffer.byteLength(value) <= maxBytes, `is longer than ${maxBytes} bytes`);
const NO_BADGE = `must be a whole number from 0 to ${MAX_BADGE}`;
const NO_TIME = 'must be Unix milliseconds, a whole number above zero';

/** The fields of a job. Of several wrong ones the first is named. */
const fieldsSchema = z.object({
  userId: asText(identifier(MAX_USER_ID_BYTES)),
  title: asText(text).optional(),
  body: asText(text).optional(),
  channel: asText(identifier(MAX_CHANNEL_BYTES)).optional(),
  badge: z
    .preprocess(
      (value) => (typeof value === 'string' && /^\d{1,9}$/.test(value) ? Number(value) : value),
      // -0 is a whole number that JSON does not give back.
      z
        .int(NO_BADGE)
        .min(0, NO_BADGE)
        .max(MAX_BADGE, NO_BADGE)
        .transform((badge) => badge + 0),
    )
    .optional(),
  priority: z.enum(PRIORITIES, `must be ${PRIORITIES.join(' or ')}`).optional(),
  expires_at_ms: asText(
    z
      .string(NO_TIME)
      .regex(/^[1-9]\d{0,14}$/, NO_TIME)
      .transform(Number),
  ).optional(),
  data: z.custom<Record<string, unknown>>(isJsonObject, 'must be a JSON object').optional(),
});
/** Their names; the AsyncAPI document is held against them. */
export const JOB_FIELDS: readonly string[] = Object.keys(fieldsSchema.shape);

/** What is to be shown. */
export interface MobileJobContent {
  /** Without title and body, the push is silent. */
  title?: string;
  body?: string;
  /** Android's notification channel; also in the data. */
  channel?: string;
  /** The number on the app's icon, iOS only. */
  badge?: number;
  /** Default `high`. With `normal` the systems may wait for a better moment. */
  priority?: MobilePriority;
  /** Time from which the push is worthless, Unix ms. */
  expiresAtMs?: number;
  /** For the app; values as the producer gave them. */
  data: Record<string, unknown>;
}

/** One valid job. */
export interface MobileJob {
  /** The stream entry's id. */
  jobId: string;
  userId: string;
  content: MobileJobContent;
}

/**
 * Reasons that an entry shows by itself, except `invalid_message` (what would be sent is nothing that FCM takes) and
 * `unstorable` (PostgreSQL does not take it).
 */
export const MALFORMED_JOB_CODES = [
  'entry_too_large',
  'invalid_entry',
  'invalid_payload',
  'missing_field',
  'invalid_field',
  'invalid_message',
  'unstorable',
] as const;
export type MalformedJobCode = (typeof MALFORMED_JOB_CODES)[number];

/** An entry that cannot become a job, in a form that PostgreSQL stores as it is. */
export interface MalformedJob {
  jobId: string;
  /** As far as it could be read. */
  userId?: string;
  failureCode: MalformedJobCode;
  /** Names the field; never quotes what it holds, because it goes into logs. */
  failureMessage: string;
  rawFields: Record<string, string>;
}

export type ParsedMobileJob = { ok: true; job: MobileJob } | { ok: false; malformed: MalformedJob };

/**
 * Checks one stream entry. Never throws.
 *
 * @param size of the entry in its stream, when not all of it was read.
 */
export function parseMobileJob(entryId: string, fields: EntryFields, size = sizeOf(fields)): ParsedMobileJob {
  try {
    return { ok: true, job: { jobId: entryId, ...readJob(fields, size) } };
  } catch (error) {
    const { code, message } = refusalIn<MalformedJobCode>(error);
    return { ok: false, malformed: malformedJob(entryId, fields, size, code, message) };
  }
}

/** An entry as it is kept when it is refused. `userId` is that of a job which could be read. */
export function malformedJob(
  jobId: string,
  fields: EntryFields,
  size: EntrySize,
  failureCode: MalformedJobCode,
  failureMessage: string,
  userId = flatUserId(fields),
): MalformedJob {
  return given({
    ...{ jobId, userId, failureCode },
    // It may name a key that the producer chose.
    failureMessage: wellFormedText(failureMessage),
    rawFields: storableFields(fields, size),
  });
}

function readJob(fields: EntryFields, size: EntrySize): Omit<MobileJob, 'jobId'> {
  refuseOversize(size, MAX_JOB_BYTES);
  const values = new Map([...valuesIn(fields)].filter(([name, value]) => !isAbsent(name, value)));
  if (!values.has('userId')) throw new Refusal('missing_field', 'userId is missing');
  if (!MEANINGFUL.some((name) => values.has(name))) {
    throw new Refusal('missing_field', `${MEANINGFUL.join(', ')} are all missing`);
  }
  const parsed = fieldsSchema.safeParse(Object.fromEntries(values));
  if (!parsed.success) {
    const { path, message } = parsed.error.issues[0]!;
    throw new Refusal('invalid_field', `${path.join('.')} ${message}`);
  }
  const { userId, expires_at_ms: expiresAtMs, data = {}, ...shown } = parsed.data;
  return { userId, content: { ...given({ ...shown, expiresAtMs }), data } };
}

/** Redis has no absent values: an empty optional field counts as one. */
const isAbsent = (name: string, value: unknown): boolean =>
  value === null || (name !== 'userId' && typeof value === 'string' && value.trim() === '');

/** The job's values, whatever form they came in. A Map: what the producer names a field cannot reach a prototype. */
function valuesIn(fields: EntryFields): ReadonlyMap<string, unknown> {
  const flat = knownFields(fields, [PAYLOAD_FIELD, ...JOB_FIELDS], 'invalid_entry');
  for (const [name, value] of flat)
    if (value.includes('\0')) throw new Refusal('invalid_entry', `${name} has a NUL character`);
  const payload = flat.get(PAYLOAD_FIELD);
  if (payload === undefined) {
    const data = flat.get('data')?.trim();
    return data ? new Map<string, unknown>(flat).set('data', parseJson(data, 'data', 'invalid_field')) : flat;
  }
  const beside = JOB_FIELDS.find((name) => flat.has(name));
  if (beside !== undefined) {
    throw new Refusal('invalid_entry', `${beside} is given beside ${PAYLOAD_FIELD}; give one or the other`);
  }
  const value = parseJson(payload, PAYLOAD_FIELD, 'invalid_payload');
  if (!isJsonObject(value)) throw new Refusal('invalid_payload', `${PAYLOAD_FIELD} must be a JSON object`);
  return new Map(Object.entries(value).filter(([name]) => JOB_FIELDS.includes(name)));
}

/** For the operator who looks for a user's refused entries: as far as it can be had without reading JSON. */
function flatUserId(fields: EntryFields): string | undefined {
  const value = fields.find(([name]) => name.toString('latin1') === 'userId')?.[1];
  return value && storableText(value, MAX_USER_ID_BYTES);
}
