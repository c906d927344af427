/**
 * Extremes of account values as producers publish them. One entry of the stream `stream.account.extremes` has one of four
 * kinds as JSON in its field `payload` (input-asyncapi.yaml). Whatever an entry holds, the result is an input or a
 * reason, never an exception.
 */
import { z } from 'zod';
import type { CallbackKey, CallbackValues } from './callback.ts';
import { PERIOD_MS, bodyOf, contradictionIn, decimal } from './callback.ts';
import { isNameable } from '../ids.ts';
import { Refusal, knownFields, parseJson, refusalIn, refuseOversize, sizeOf } from '../text.ts';
import type { EntryFields, EntrySize } from '../text.ts';

export const DEFAULT_INPUT_STREAM = 'stream.account.extremes';

/** The one field of an entry. */
export const INPUT_FIELD = 'payload';

/** Names and values of an entry together. */
export const MAX_INPUT_BYTES = 16 * 1024;

/** How far `from_ms` and `until_ms` may be ahead of their entry, ms. A later time is a mistake, such as microseconds. */
export const MAX_AHEAD_MS = 48 * 3_600_000;

/** A period may end so long after its entry was appended, ms: the clock of a producer may be ahead of that of Redis. */
const CLOCK_TOLERANCE_MS = 300_000;

const MAX_USER_ID_BYTES = 512;

const timeMs = z.int().min(0);
const userId = z
  .string()
  .refine(
    (id) => isNameable(id) && !/\p{Cc}/u.test(id),
    'must be well-formed text without control characters',
  )
  .refine((id) => Buffer.byteLength(id) <= MAX_USER_ID_BYTES, `must be at most ${MAX_USER_ID_BYTES} bytes`);
const extremes = {
  peak_value: decimal,
  /** Epoch ms, within the period. */
  peak_at_ms: timeMs,
  bottom_value: decimal,
  bottom_at_ms: timeMs,
};

/** The extremes of one finished hour: one hourly callback. */
const hourSchema = z.strictObject({
  kind: z.literal('hour'),
  user_id: userId,
  /** Epoch ms, a whole hour of UTC. */
  hour_start_ms: timeMs.multipleOf(PERIOD_MS.hourly, 'must be the beginning of an hour of UTC'),
  ...extremes,
  closing_value: decimal,
});

/** The extremes of one finished day: one daily callback. The tracking has caught up to the end of that day. */
const daySchema = z.strictObject({
  kind: z.literal('day'),
  user_id: userId,
  /** Of UTC, `2026-01-31`. */
  day: z.iso.date().refine((day) => day >= '1970-01-01', 'must not be before 1970'),
  ...extremes,
  /** The value at the midnight that ends the day. Without it, the day closes with its peak. */
  midnight_value: decimal.optional(),
});

/** The user takes part from the day of `from_ms` on: daily callbacks of the shard wait for the user's days. */
const trackSchema = z.strictObject({ kind: z.literal('track'), user_id: userId, from_ms: timeMs });

/** The user takes part no longer, and holds up no other user. Periods that begin at or after `until_ms` are not delivered. */
const untrackSchema = z.strictObject({ kind: z.literal('untrack'), user_id: userId, until_ms: timeMs });

export const callbackInputSchema = z.discriminatedUnion('kind', [
  hourSchema,
  daySchema,
  trackSchema,
  untrackSchema,
]);
export type CallbackInput = z.output<typeof callbackInputSchema>;
/** An entry that becomes a callback. */
export type PeriodInput = Extract<CallbackInput, { kind: 'hour' | 'day' }>;
/** An entry that says who takes part. */
export type TrackingInput = Exclude<CallbackInput, PeriodInput>;

/** Why an entry was refused; `unstorable`: PostgreSQL does not take it. */
export const MALFORMED_INPUT_CODES = [
  'entry_too_large',
  'invalid_entry',
  'invalid_payload',
  'unstorable',
] as const;
export type MalformedInputCode = (typeof MALFORMED_INPUT_CODES)[number];

export type ParsedInput =
  | { ok: true; input: CallbackInput }
  /** The message names fields; it never quotes what they hold, because it goes into logs. */
  | { ok: false; code: MalformedInputCode; message: string };

export const isPeriod = (input: CallbackInput): input is PeriodInput =>
  input.kind === 'hour' || input.kind === 'day';

/** The callback that an entry becomes. */
export function callbackOf(input: PeriodInput): CallbackKey & CallbackValues {
  const values = {
    userId: input.user_id,
    peakValue: input.peak_value,
    peakAtMs: input.peak_at_ms,
    bottomValue: input.bottom_value,
    bottomAtMs: input.bottom_at_ms,
  };
  return input.kind === 'hour'
    ? { ...values, kind: 'hourly', periodStartMs: input.hour_start_ms, closingValue: input.closing_value }
    : {
        ...values,
        kind: 'daily',
        periodStartMs: Date.parse(input.day),
        closingValue: input.midnight_value ?? input.peak_value,
      };
}

/**
 * Checks one stream entry. Never throws.
 *
 * @param sentAtMs when the entry was appended, epoch ms, by the clock of Redis.
 * @param size of the entry in its stream, when not all of it was read.
 */
export function parseCallbackInput(
  fields: EntryFields,
  sentAtMs: number,
  size = sizeOf(fields),
): ParsedInput {
  try {
    return { ok: true, input: readInput(fields, sentAtMs, size) };
  } catch (error) {
    const { code, message } = refusalIn<MalformedInputCode>(error);
    return { ok: false, code, message };
  }
}

function readInput(fields: EntryFields, sentAtMs: number, size: EntrySize): CallbackInput {
  refuseOversize(size, MAX_INPUT_BYTES);
  const text = knownFields(fields, [INPUT_FIELD], 'invalid_entry').get(INPUT_FIELD);
  if (text === undefined) throw new Refusal('invalid_entry', `${INPUT_FIELD} is missing`);
  const value = parseJson(text, INPUT_FIELD, 'invalid_payload');
  const problem = problemOf(value, sentAtMs);
  if (problem !== undefined) throw new Refusal('invalid_payload', problem);
  return callbackInputSchema.parse(value);
}

/** What is wrong with an input, or undefined. Names fields and no values. @param sentAtMs epoch ms. */
export function problemOf(value: unknown, sentAtMs: number): string | undefined {
  const parsed = callbackInputSchema.safeParse(value);
  if (!parsed.success) {
    const [issue] = parsed.error.issues;
    const field = String(issue?.path[0] ?? INPUT_FIELD);
    return `${field}: ${issue?.code === 'unrecognized_keys' ? 'has an unknown field' : issue?.message}`;
  }
  const input = parsed.data;
  if (isPeriod(input)) {
    const callback = callbackOf(input);
    const { kind, periodStartMs } = callback;
    if (periodStartMs + PERIOD_MS[kind] > sentAtMs + CLOCK_TOLERANCE_MS) {
      return `${input.kind === 'hour' ? 'hour_start_ms' : 'day'}: the period is not over yet`;
    }
    return contradictionIn(kind, bodyOf(callback));
  }
  const [field, atMs] = input.kind === 'track' ? ['from_ms', input.from_ms] : ['until_ms', input.until_ms];
  return atMs > sentAtMs + MAX_AHEAD_MS ? `${field}: is more than ${MAX_AHEAD_MS} ms ahead` : undefined;
}
