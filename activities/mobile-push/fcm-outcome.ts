/**
 * What a failed send means: remove the token, retry, or call an
 * operator. Pure.
 *
 * A removed token is gone for good, so it needs an error that is about this token. Two of the codes cover more
 * than that, and are taken apart here:
 * - `invalid-argument` is also what a bad payload gets, for every token: removal only if FCM names the token.
 * - `mismatched-credential` is also what firebase-admin makes of a credential without permission, for every token:
 *   removal only if FCM itself says SENDER_ID_MISMATCH.
 */
import { z } from 'zod';
import { cutText } from '../../api/text.ts';

/** A send that did not succeed. */
export type FcmFailure = {
  /** A code of ACTIONS, or firebase-admin's where that has none: `messaging/…`, `app/…`. */
  code: string;
  /** What FCM or the network said, without the token; for logs. */
  reason: string;
} & (
  | {
      /**
       * `remove`: the token is dead. `fatal`: the credential, or APNs' at Google, needs an operator.
       * `payload_suspect`: the payload may be at fault; the token may go only if the same payload passed for another.
       */
      outcome: 'remove' | 'fatal' | 'payload_suspect';
    }
  | {
      outcome: 'retry';
      /** What the server asked for, ms; absent when it did not say. */
      retryAfterMs?: number;
    }
);

/** A code that is not here is retried. */
const ACTIONS: Readonly<Record<string, FcmFailure['outcome']>> = {
  'messaging/invalid-registration-token': 'remove',
  'messaging/registration-token-not-registered': 'remove',
  'messaging/invalid-argument': 'payload_suspect',
  'messaging/mismatched-credential': 'remove',
  'messaging/server-unavailable': 'retry',
  'messaging/unknown-error': 'retry',
  'messaging/internal-error': 'retry',
  'messaging/quota-exceeded': 'retry',
  'messaging/third-party-auth-error': 'fatal',
  'messaging/authentication-error': 'fatal',
  // Not in the table: firebase-admin itself refuses a message that it cannot send, before any request.
  'messaging/invalid-payload': 'payload_suspect',
};

/** Sending limit exceeded: holds up the whole project, not one message. */
export const QUOTA_EXCEEDED = 'messaging/quota-exceeded';

/** Of a refused access token (RFC 6749, 5.2) these do not pass by themselves; an outage of the token server does. */
const REFUSED_CREDENTIAL = /\b(invalid_grant|invalid_client|unauthorized_client)\b/;
const NAMES_THE_TOKEN = /not a valid FCM registration token/i;

/** A slip in a header must not park a push for days. */
const LONGEST_RETRY_AFTER_MS = 60 * 60 * 1_000;
const MAX_REASON_LENGTH = 500;

/** The part of firebase-admin's errors that is looked at; any other value is an unknown error. */
const errorSchema = z
  .object({
    code: z.string(),
    message: z.string(),
    httpResponse: z
      .object({
        status: z.number(),
        headers: z.looseObject({ 'retry-after': z.string().optional().catch(undefined) }),
        data: z.unknown(),
      })
      .optional()
      .catch(undefined),
  })
  .catch(({ value }) => ({
    code: 'messaging/unknown-error',
    message: value instanceof Error ? value.message : 'no reason given',
    httpResponse: undefined,
  }));
/** As much of the google.rpc.Status in FCM's answers. */
const statusSchema = z
  .object({
    error: z.object({
      status: z.string().optional(),
      details: z
        .array(
          z.object({
            errorCode: z.string().optional().catch(undefined),
            fieldViolations: z
              .array(z.object({ field: z.string().optional() }))
              .optional()
              .catch(undefined),
          }),
        )
        .optional(),
    }),
  })
  .transform(({ error: { status, details = [] } }) => ({
    status,
    fcmCode: details.find(({ errorCode }) => errorCode !== undefined)?.errorCode,
    fields: details.flatMap(({ fieldViolations = [] }) => fieldViolations.map(({ field }) => field)),
  }));

/** The answer, as far as there was one and it was a google.rpc.Status. */
interface Answer {
  httpStatus?: number | undefined;
  status?: string | undefined;
  fcmCode?: string | undefined;
  fields: readonly (string | undefined)[];
}

/**
 * @param error what `send()` of firebase-admin rejected with.
 * @param token left out of the reason.
 * @param now ms since the epoch, for a `Retry-After` that is a date.
 */
export function failureOf(error: unknown, token: string, now: number = Date.now()): FcmFailure {
  const { code: sdkCode, message, httpResponse } = errorSchema.parse(error);
  const answer: Answer = {
    httpStatus: httpResponse?.status,
    ...(statusSchema.safeParse(httpResponse?.data).data ?? { fields: [] }),
  };
  const code = codeOf(sdkCode, message, answer);
  const reason = cutText(message.replaceAll(token, '<token>'), MAX_REASON_LENGTH);
  const outcome = namesTheToken(code, message, answer)
    ? 'remove'
    : ((Object.hasOwn(ACTIONS, code) ? ACTIONS[code] : undefined) ?? 'retry');
  if (outcome !== 'retry') return { outcome, code, reason };
  const retryAfterMs = parseRetryAfter(httpResponse?.headers['retry-after'], now);
  return { outcome, code, reason, ...(retryAfterMs === undefined ? {} : { retryAfterMs }) };
}

/** Our code where firebase-admin has another one. */
function codeOf(code: string, message: string, { httpStatus, status, fcmCode }: Answer): string {
  // Its names are message-rate-exceeded, and unknown-error when the answer is not JSON.
  if (httpStatus === 429) return QUOTA_EXCEEDED;
  // Refused in front of FCM: it says mismatched-credential and third-party-auth-error.
  const refused = status === 'PERMISSION_DENIED' || status === 'UNAUTHENTICATED';
  if (refused && fcmCode === undefined) return 'messaging/authentication-error';
  // It has one code for all that happens while an access token is fetched.
  if (code === 'app/invalid-credential' && REFUSED_CREDENTIAL.test(message)) {
    return 'messaging/authentication-error';
  }
  return code;
}

function namesTheToken(code: string, message: string, { fields }: Answer): boolean {
  if (code !== 'messaging/invalid-argument') return false;
  return fields.includes('message.token') || NAMES_THE_TOKEN.test(message);
}

/**
 * `Retry-After` (RFC 9110, 10.2.3), seconds or an HTTP date, as ms from now: 0 for a date in the past, an hour at
 * most, undefined when it is absent or neither.
 */
export function parseRetryAfter(value: string | undefined, now: number): number | undefined {
  if (value === undefined) return undefined;
  const ms = /^\s*\d+\s*$/.test(value) ? Number(value) * 1_000 : Date.parse(value) - now;
  return Number.isNaN(ms) ? undefined : Math.min(LONGEST_RETRY_AFTER_MS, Math.max(0, ms));
}
