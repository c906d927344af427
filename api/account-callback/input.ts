/**
 * What account values are made of, as it comes in: prices of symbols, and positions of users. One entry of the stream
 * `stream.account.inputs` has one of them as JSON in its field `payload` (callback-input-asyncapi.yaml). Whatever an
 * entry holds, the result is an input or a reason, never an exception.
 */
import { isUtf8 } from 'node:buffer';
import { z } from 'zod';
import { isNameable } from './callback.ts';
import { JsonError, isJsonObject, parseJson } from '../json.ts';
import type { EntryFields } from '../text.ts';
import { oversizeOf, sizeOf } from '../text.ts';

export const DEFAULT_INPUT_STREAM = 'stream.account.inputs';

/** The one field of an entry. */
export const INPUT_FIELD = 'payload';

/** Names and values of an entry together. */
export const MAX_INPUT_BYTES = 128 * 1024;

/**
 * How far an input may be ahead of the time at which it was sent, ms: by more than any clock is wrong. What is said of a
 * later time is a mistake, such as microseconds. What is nearer counts when its time has come.
 */
export const MAX_AHEAD_MS = 48 * 3_600_000;

const MAX_USER_ID_BYTES = 512;
const MAX_COEFFICIENTS = 1_000;

/** Bounded, so that no sum of products leaves what PostgreSQL's numeric holds. */
const decimal = z
  .string()
  .regex(/^-?\d{1,20}(\.\d{1,18})?$/, 'must be a decimal in text, of at most 20 digits and 18 decimals');
const symbol = z.string().regex(/^[\x21-\x7e]{1,64}$/, 'must be 1 to 64 printable ASCII characters');
const atMs = z.int().min(0);
const userId = z
  .string()
  .refine(
    (id) => isNameable(id) && !/\p{Cc}/u.test(id),
    'must be well-formed text without control characters',
  )
  .refine((id) => Buffer.byteLength(id) <= MAX_USER_ID_BYTES, `must be at most ${MAX_USER_ID_BYTES} bytes`);

/** A tick: what a symbol costs from a time on. */
const priceSchema = z.strictObject({
  type: z.literal('price'),
  symbol,
  price: decimal,
  /** Epoch ms. */
  at_ms: atMs,
});

/** What a user holds from a time on, all of it. */
const positionsSchema = z.strictObject({
  type: z.literal('positions'),
  user_id: userId,
  cash: decimal,
  /** By symbol. `null`: the account has no value from then on, as when it is closed. */
  coefficients: z
    .record(symbol, decimal)
    .refine(
      (held) => Object.keys(held).length <= MAX_COEFFICIENTS,
      `must have at most ${MAX_COEFFICIENTS} symbols`,
    )
    .nullable(),
  at_ms: atMs,
});

export const callbackInputSchema = z.discriminatedUnion('type', [priceSchema, positionsSchema]);
export type CallbackInput = z.output<typeof callbackInputSchema>;
export type PriceInput = z.output<typeof priceSchema>;
export type PositionsInput = z.output<typeof positionsSchema>;

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
  const oversize = oversizeOf(size, MAX_INPUT_BYTES);
  if (oversize !== undefined) return refused('entry_too_large', oversize);
  const payloads = fields.filter(([name]) => name.toString('latin1') === INPUT_FIELD);
  const [payload] = payloads;
  if (!payload || payloads.length > 1) {
    return refused(
      'invalid_entry',
      `${INPUT_FIELD} must be given once, and is given ${payloads.length} times`,
    );
  }
  if (!isUtf8(payload[1])) return refused('invalid_entry', `${INPUT_FIELD} is not UTF-8`);
  let value: unknown;
  try {
    value = parseJson(payload[1].toString('utf8'));
  } catch (error) {
    if (!(error instanceof JsonError)) throw error;
    return refused('invalid_payload', `${INPUT_FIELD} ${error.message}`);
  }
  const problem = problemOf(value, sentAtMs);
  return problem === undefined
    ? { ok: true, input: callbackInputSchema.parse(value) }
    : refused('invalid_payload', problem);
}

/** What is wrong with an input, or undefined. Names fields and no values. @param sentAtMs epoch ms. */
export function problemOf(value: unknown, sentAtMs: number): string | undefined {
  // A record would drop it without a word.
  if (isJsonObject(value) && isJsonObject(value['coefficients'])) {
    if (Object.hasOwn(value['coefficients'], '__proto__')) return 'coefficients: has an impossible symbol';
  }
  const parsed = callbackInputSchema.safeParse(value);
  if (!parsed.success) {
    const [issue] = parsed.error.issues;
    // A key of the coefficients is a value of the sender.
    const field = String(issue?.path[0] ?? INPUT_FIELD);
    return `${field}: ${issue?.code === 'unrecognized_keys' ? 'has an unknown field' : issue?.message}`;
  }
  if (parsed.data.at_ms > sentAtMs + MAX_AHEAD_MS) return `at_ms: is more than ${MAX_AHEAD_MS} ms ahead`;
  return undefined;
}

const refused = (code: MalformedInputCode, message: string): ParsedInput => ({ ok: false, code, message });
