/**
 * What a failed send means: remove the token, retry, or call an
 * operator. Pure.
 *
 * A removed token is gone for good, so it needs an error that is about this token. firebase-admin's codes cover more
 * than that, and are taken apart here:
 * - `invalid-argument` is also what a bad payload gets: removal only if FCM names the token. If it names another field,
 *   the payload is at fault; if it names none, the sender has FCM check the token alone.
 * - the other three are also what firebase-admin makes of answers from in front of FCM, such as that of a project that
 *   does not exist or a credential without permission: removal only if FCM itself says so in its own code.
 */
import { z } from 'zod';
import { cutText } from '../../api/text.ts';
import { parseRetryAfter } from '../http/delivery.ts';

/** A send that did not succeed. */
export interface FcmFailure {
  /**
   * `remove`: the token is dead. `retry`: worth another attempt. `fatal`: so is this, as one refusal proves nothing, but an
   * operator must look at the credential, ours or APNs' at Google. `refused`: the payload is at fault, for this device at
   * least. `suspect`: token or payload is at fault, FCM did not say which.
   */
  outcome: 'remove' | 'retry' | 'fatal' | 'refused' | 'suspect';
  /** A code of ACTIONS, or firebase-admin's where that has none: `messaging/…`, `app/…`. */
  code: string;
  /** For logs: the words of the protocol in FCM's answer, or what the network or the SDK said. */
  reason: string;
  /** What the server asked for, ms; absent when it did not say. */
  retryAfterMs?: number;
}

/** A code that is not here is retried. */
const ACTIONS: Readonly<Record<string, FcmFailure['outcome']>> = {
  'messaging/invalid-registration-token': 'remove',
  'messaging/registration-token-not-registered': 'remove',
  'messaging/mismatched-credential': 'remove',
  'messaging/server-unavailable': 'retry',
  'messaging/unknown-error': 'retry',
  'messaging/internal-error': 'retry',
  'messaging/quota-exceeded': 'retry',
  'messaging/third-party-auth-error': 'fatal',
  'messaging/authentication-error': 'fatal',
  // Not in the table: firebase-admin itself refuses a message that it cannot send, before any request.
  'messaging/invalid-payload': 'refused',
};

/** What FCM's own code must be, in v1 or before it, for the code that firebase-admin makes of it to remove a token. */
const PROOFS: Readonly<Record<string, readonly string[]>> = {
  'messaging/invalid-registration-token': ['InvalidRegistration'],
  'messaging/registration-token-not-registered': ['UNREGISTERED', 'NotRegistered'],
  'messaging/mismatched-credential': ['SENDER_ID_MISMATCH', 'MismatchSenderId'],
};

/** Of the service's own credential; `third-party-auth-error` is about Apple's, and so about some devices only. */
export const CREDENTIAL_REFUSED = 'messaging/authentication-error';
/** The token is of another project than the credential. */
export const MISMATCHED = 'messaging/mismatched-credential';
/** Sending limit exceeded: holds up the whole project, not one message. */
export const QUOTA_EXCEEDED = 'messaging/quota-exceeded';
/** Too many pushes to one device: holds up no other device. */
export const DEVICE_QUOTA_EXCEEDED = 'messaging/device-message-rate-exceeded';

/** Of a refused access token (RFC 6749, 5.2) these do not pass by themselves; an outage of the token server does. */
const REFUSED_CREDENTIAL = /\b(invalid_grant|invalid_client|unauthorized_client)\b/;
/** In subject or description of a quota. One that does not say so may be the project's. */
const OF_DEVICE = /\bdevice\b|registration[ _]token/i;
const NAMES_THE_TOKEN = /not a valid FCM registration token/i;

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
/** Details of the google.rpc.Status in FCM's answers: its own code, and the fields that it takes offence at. */
const detailSchema = z.object({
  '@type': z.string().optional().catch(undefined),
  errorCode: z.string().optional().catch(undefined),
  /** Of a google.rpc.ErrorInfo, such as SERVICE_DISABLED; of an ApnsError what APNs says. */
  reason: z.string().optional().catch(undefined),
  /** Of an ApnsError: the status of APNs. */
  statusCode: z.number().optional().catch(undefined),
  fieldViolations: z
    .array(z.object({ field: z.string().optional().catch(undefined) }))
    .optional()
    .catch(undefined),
  violations: z.array(z.unknown()).optional().catch(undefined),
});

const FCM_ERROR = 'type.googleapis.com/google.firebase.fcm.v1.FcmError';
const APNS_ERROR = 'type.googleapis.com/google.firebase.fcm.v1.ApnsError';

/** What APNs says about a token. FCM wraps it in errors of other codes. */
const APNS_TOKEN_CODES: Readonly<Record<string, string>> = {
  BadDeviceToken: 'messaging/invalid-registration-token',
  Unregistered: 'messaging/registration-token-not-registered',
  ExpiredToken: 'messaging/registration-token-not-registered',
};

/** The answer, as far as there was one that could be read. */
interface Answer {
  httpStatus?: number | undefined;
  status?: string | undefined;
  fcmCode?: string | undefined;
  /** What APNs answered to FCM. */
  apns?: { statusCode?: number | undefined; reason?: string | undefined } | undefined;
  reasons?: readonly (string | undefined)[];
  fields: readonly (string | undefined)[];
  /** Of a google.rpc.QuotaFailure: the quotas that are spent. */
  quotas: readonly unknown[];
}

const answerSchema = z.union([
  z
    .object({
      error: z.object({ status: z.string().optional(), details: z.array(detailSchema).optional() }),
    })
    .transform(({ error: { status, details = [] } }) => ({
      status,
      fcmCode: details.find((detail) => detail['@type'] === FCM_ERROR)?.errorCode,
      apns: details.find((detail) => detail['@type'] === APNS_ERROR),
      reasons: details.map(({ reason }) => reason),
      fields: details.flatMap(({ fieldViolations = [] }) => fieldViolations.map(({ field }) => field)),
      quotas: details.flatMap(({ violations = [] }) => violations),
    })),
  // Of the API before v1.
  z.object({ error: z.string() }).transform(({ error }) => ({ fcmCode: error, fields: [], quotas: [] })),
]);

/**
 * @param error what `send()` of firebase-admin rejected with.
 * @param token left out of the reason.
 * @param now ms since the epoch, for a `Retry-After` that is a date.
 */
export function failureOf(error: unknown, token: string, now: number = Date.now()): FcmFailure {
  const { code: sdkCode, message, httpResponse } = errorSchema.parse(error);
  const answer: Answer = {
    httpStatus: httpResponse?.status,
    ...(answerSchema.safeParse(httpResponse?.data).data ?? { fields: [], quotas: [] }),
  };
  const code = codeOf(sdkCode, message, answer);
  const reason = cutText(reasonOf(message, answer).replaceAll(token, '<token>'), MAX_REASON_LENGTH);
  const outcome = outcomeOf(code, message, answer);
  const retryAfterMs = parseRetryAfter(httpResponse?.headers['retry-after'], now);
  return { outcome, code, reason, ...(retryAfterMs === undefined ? {} : { retryAfterMs }) };
}

/** A code, or the path of a field. */
const PROTOCOL_WORD = /^[A-Za-z_][\w.[\]]{0,99}$/;
/** As long as access tokens and signatures are, and no name. */
const SECRET = /[\w+/=.~-]{60,}/g;

/**
 * What was answered may quote the message, which people have written to people, or the request with its access token:
 * only codes and names of fields are kept of it. Without an answer it is Node, the SDK or the token server that speaks.
 */
function reasonOf(message: string, { httpStatus, status, fcmCode, reasons = [], fields }: Answer): string {
  if (httpStatus === undefined) return message.replaceAll(SECRET, '…');
  const words = [status, fcmCode, ...reasons, ...fields].filter((word) => PROTOCOL_WORD.test(word ?? ''));
  return [`status ${httpStatus}`, ...new Set(words)].join(' ');
}

/** Our code where firebase-admin has another one. */
function codeOf(
  code: string,
  message: string,
  { httpStatus, status, fcmCode, apns, quotas }: Answer,
): string {
  const { statusCode = 0, reason: apnsReason = '' } = apns ?? {};
  if (Object.hasOwn(APNS_TOKEN_CODES, apnsReason)) return APNS_TOKEN_CODES[apnsReason]!;
  if (statusCode === 403) return 'messaging/third-party-auth-error';
  if (statusCode === 429) return DEVICE_QUOTA_EXCEEDED;
  if (statusCode >= 500) return 'messaging/server-unavailable';
  // Its names are message-rate-exceeded, and unknown-error when the answer is not JSON.
  if (httpStatus === 429) {
    const isOfDevice = quotas.length > 0 && quotas.every((quota) => OF_DEVICE.test(JSON.stringify(quota)));
    return isOfDevice ? DEVICE_QUOTA_EXCEEDED : QUOTA_EXCEEDED;
  }
  // Refused in front of FCM: it says mismatched-credential and third-party-auth-error.
  const refused = status === 'PERMISSION_DENIED' || status === 'UNAUTHENTICATED';
  if (refused && fcmCode === undefined) return 'messaging/authentication-error';
  // It has one code for all that happens while an access token is fetched.
  if (code === 'app/invalid-credential' && REFUSED_CREDENTIAL.test(message)) {
    return 'messaging/authentication-error';
  }
  const proofs = Object.hasOwn(PROOFS, code) ? PROOFS[code] : undefined;
  if (proofs !== undefined && !proofs.includes(fcmCode ?? '')) return 'messaging/unknown-error';
  return code;
}

function outcomeOf(code: string, message: string, answer: Answer): FcmFailure['outcome'] {
  if (code === 'messaging/invalid-argument') return blameOf(message, answer);
  return (Object.hasOwn(ACTIONS, code) ? ACTIONS[code] : undefined) ?? 'retry';
}

/** What an invalid argument is about. */
function blameOf(message: string, { status, apns, fields }: Answer): FcmFailure['outcome'] {
  // Not FCM's words, so not about this message: a proxy's page, for instance.
  if (status !== 'INVALID_ARGUMENT') return 'retry';
  if (fields.length > 0) return fields.includes('message.token') ? 'remove' : 'refused';
  // APNs has taken the token, and complains of something else.
  if (apns !== undefined) return 'refused';
  return NAMES_THE_TOKEN.test(message) ? 'remove' : 'suspect';
}
