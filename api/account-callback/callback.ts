/**
 * Callbacks about account values as they cross the process border (callback-openapi.yaml): what
 * the portfolio service of a user is told about an hour or a day.
 */
import { z } from 'zod';
import { isNameable } from '../ids.ts';
import { webhookIdOf } from '../webhooks.ts';

export const CALLBACK_KINDS = ['hourly', 'daily'] as const;
export type CallbackKind = (typeof CALLBACK_KINDS)[number];

/** Length of a period, ms. Periods are hours and days of UTC: multiples of this since the epoch. */
export const PERIOD_MS: Record<CallbackKind, number> = { hourly: 3_600_000, daily: 86_400_000 };

/** No exponent, no sign but the minus. */
const DECIMAL = /^-?\d{1,60}(\.\d{1,60})?$/;
const MAX_DECIMALS = 60;

/** Which callback it is: a user has one of each kind and period. */
export interface CallbackKey {
  kind: CallbackKind;
  userId: string;
  /** Epoch ms. */
  periodStartMs: number;
}

/** What is told. Values are decimals in text; times are epoch ms. */
export interface CallbackValues {
  peakValue: string;
  /** The first time at which the value was that high. */
  peakAtMs: number;
  bottomValue: string;
  bottomAtMs: number;
  closingValue: string;
}

export const decimal = z.string().regex(DECIMAL, 'must be a decimal in text');
const time = z.int().min(0);

/** The body of a callback. */
export const callbackSchema = z.object({
  period_start_ms: time,
  period_end_ms: time,
  peak_value: decimal,
  peak_at_ms: time,
  bottom_value: decimal,
  bottom_at_ms: time,
  closing_value: decimal,
});
export type CallbackBody = z.output<typeof callbackSchema>;

/** What is wrong with a body that has the right fields, or undefined. */
export function contradictionIn(kind: CallbackKind, body: CallbackBody): string | undefined {
  const { period_start_ms: start, period_end_ms: end } = body;
  const length = PERIOD_MS[kind];
  if (start % length !== 0 || end !== start + length) return `the period is no ${NAMES[kind]} of UTC`;
  for (const field of ['peak_at_ms', 'bottom_at_ms'] as const) {
    if (body[field] < start || body[field] >= end) return `${field} is outside of the period`;
  }
  if (scaled(body.peak_value) < scaled(body.bottom_value)) return 'peak_value is below bottom_value';
  return undefined;
}

const NAMES: Record<CallbackKind, string> = { hourly: 'hour', daily: 'day' };

/** A decimal as a whole number of its smallest part, so that two can be compared. */
function scaled(decimal: string): bigint {
  const [whole = '', fraction = ''] = decimal.split('.');
  return BigInt(whole + fraction.padEnd(MAX_DECIMALS, '0'));
}

export const bodyOf = ({ kind, periodStartMs, ...values }: CallbackKey & CallbackValues): CallbackBody => ({
  period_start_ms: periodStartMs,
  period_end_ms: periodStartMs + PERIOD_MS[kind],
  peak_value: values.peakValue,
  peak_at_ms: values.peakAtMs,
  bottom_value: values.bottomValue,
  bottom_at_ms: values.bottomAtMs,
  closing_value: values.closingValue,
});

/** The body as it is sent: the same values are the same bytes. */
export const callbackBody = (callback: CallbackKey & CallbackValues): string =>
  JSON.stringify(bodyOf(callback));

/** Header `Idempotency-Key`: printable ASCII whatever the user is called, and as long as an id may be. */
export const callbackIdempotencyKey = ({ kind, userId, periodStartMs }: CallbackKey): string =>
  `${kind}/${periodStartMs}/${encodeURIComponent(userId)}`;

/**
 * Header `webhook-id`. User and kind are in the path, which no signature covers: as they are in the id, a callback cannot
 * be sent on to another user.
 */
export const callbackWebhookId = (key: CallbackKey): string =>
  webhookIdOf('callback', callbackIdempotencyKey(key));

const PATH_PREFIX = '/api/v1/internal/portfolios/';

/** The path of a callback below the service's base URL, or undefined for an id that no path can name. */
export function callbackPath({ kind, userId }: Pick<CallbackKey, 'kind' | 'userId'>): string | undefined {
  if (!isNameable(userId)) return undefined;
  return `${PATH_PREFIX}${encodeURIComponent(userId)}/callbacks/${kind}`;
}

/** The user and kind that a path names; undefined for any other path. */
export function parseCallbackPath(path: string): Pick<CallbackKey, 'kind' | 'userId'> | undefined {
  const [, encoded, kind] =
    /^\/api\/v1\/internal\/portfolios\/([^/?#]+)\/callbacks\/(hourly|daily)$/.exec(path) ?? [];
  if (encoded === undefined) return undefined;
  try {
    const userId = decodeURIComponent(encoded);
    return isNameable(userId) ? { kind: kind as CallbackKind, userId } : undefined;
  } catch {
    return undefined;
  }
}
