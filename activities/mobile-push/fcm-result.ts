/**
 * What a failed send means: remove the token, retry, or call an operator. Pure.
 *
 * A removed token is gone for good, so it needs FCM's own code, or APNs' word, about this token: answers from in front of
 * FCM, such as that of a project that does not exist or of a credential without permission, remove none.
 * `invalid-argument` is also what a bad payload gets: removal only if FCM names the token. If it names another field, the
 * payload is at fault; if it names none, the sender has FCM check the token alone.
 */
import { z } from 'zod';
import { cutText } from '../../api/text.ts';
import { isTimeout, parseRetryAfter } from '../http/caller.ts';
import { reasonOf } from '../reason.ts';

/** No access token could be had. */
export class AccessTokenError extends Error {}

/** What FCM has answered. */
export interface FcmAnswer {
  status: number;
  retryAfter?: string | undefined;
  /** As JSON, if it was. */
  body: unknown;
}

/** A send that did not succeed. */
export interface FcmFailure {
  /**
   * `remove`: the token is dead. `retry`: worth another attempt. `fatal`: so is this, as one refusal proves nothing, but an
   * operator must look at the credential, ours or APNs' at Google. `refused`: the payload is at fault, for this device at
   * least. `suspect`: token or payload is at fault, FCM did not say which.
   */
  outcome: 'remove' | 'retry' | 'fatal' | 'refused' | 'suspect';
  /** firebase-admin's: `messaging/…`, `app/…`. */
  code: string;
  /** For logs: the words of the protocol in FCM's answer, or what the network or the token server said. */
  reason: string;
  /** What the server asked for, ms; absent when it did not say. */
  retryAfterMs?: number;
}

const INVALID_ARGUMENT = 'messaging/invalid-argument';
const UNKNOWN = 'messaging/unknown-error';
const UNREGISTERED = 'messaging/registration-token-not-registered';
const INVALID_TOKEN = 'messaging/invalid-registration-token';
const UNAVAILABLE = 'messaging/server-unavailable';
const APNS_REFUSES = 'messaging/third-party-auth-error';
/** Of the service's own credential; `third-party-auth-error` is about Apple's, and so about some devices only. */
const CREDENTIAL_REFUSED = 'messaging/authentication-error';
/** The token is of another project than the credential. */
export const MISMATCHED = 'messaging/mismatched-credential';
/** Sending limit exceeded: holds up the whole project, not one message. */
export const QUOTA_EXCEEDED = 'messaging/quota-exceeded';
/** Too many pushes to one device: holds up no other device. */
export const DEVICE_QUOTA_EXCEEDED = 'messaging/device-message-rate-exceeded';

/** A code that is not here is retried. */
const ACTIONS: ReadonlyMap<string, FcmFailure['outcome']> = new Map([
  [INVALID_TOKEN, 'remove'],
  [UNREGISTERED, 'remove'],
  [MISMATCHED, 'remove'],
  [APNS_REFUSES, 'fatal'],
  [CREDENTIAL_REFUSED, 'fatal'],
]);

/** firebase-admin's codes for FCM's own. */
const CODES: ReadonlyMap<string, string> = new Map([
  ['UNREGISTERED', UNREGISTERED],
  ['SENDER_ID_MISMATCH', MISMATCHED],
  ['INVALID_ARGUMENT', INVALID_ARGUMENT],
  ['UNAVAILABLE', UNAVAILABLE],
  ['INTERNAL', 'messaging/internal-error'],
  ['THIRD_PARTY_AUTH_ERROR', APNS_REFUSES],
]);
/** Of answers without a code of FCM's own. */
const CODES_OF_STATUS: ReadonlyMap<number, string> = new Map([
  [400, INVALID_ARGUMENT],
  [401, CREDENTIAL_REFUSED],
  [403, CREDENTIAL_REFUSED],
  [500, 'messaging/internal-error'],
  [503, UNAVAILABLE],
]);

/** Of a refused access token (RFC 6749, 5.2) these do not pass by themselves; an outage of the token server does. */
const REFUSED_CREDENTIAL = /\b(invalid_grant|invalid_client|unauthorized_client)\b/;
/** In subject or description of a quota. One that does not say so may be the project's. */
const OF_DEVICE = /\bdevice\b|registration[ _]token/i;
const NAMES_THE_TOKEN = /not a valid FCM registration token/i;

const MAX_REASON_LENGTH = 500;

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
const APNS_TOKEN_CODES: ReadonlyMap<string, string> = new Map([
  ['BadDeviceToken', INVALID_TOKEN],
  ['Unregistered', UNREGISTERED],
  ['ExpiredToken', UNREGISTERED],
]);

type Refusal = z.infer<typeof refusalSchema>;

const refusalSchema = z
  .object({
    error: z.object({
      status: z.string().optional(),
      message: z.string().optional().catch(undefined),
      details: z.array(detailSchema).default([]),
    }),
  })
  .transform(({ error: { status, message, details } }) => ({
    ...{ status, message },
    fcmCode: details.find((detail) => detail['@type'] === FCM_ERROR)?.errorCode,
    /** What APNs answered to FCM. */
    apns: details.find((detail) => detail['@type'] === APNS_ERROR),
    reasons: details.map(({ reason }) => reason),
    fields: details.flatMap(({ fieldViolations = [] }) => fieldViolations.map(({ field }) => field)),
    /** Of a google.rpc.QuotaFailure: the quotas that are spent. */
    quotas: details.flatMap(({ violations = [] }) => violations),
  }))
  // Not FCM's words.
  .catch({
    ...{ status: undefined, message: undefined, fcmCode: undefined, apns: undefined },
    ...{ reasons: [], fields: [], quotas: [] },
  });

/**
 * What a refusal means, or an answer 200 that names no message.
 *
 * @param token left out of the reason.
 * @param now ms since the epoch, for a `Retry-After` that is a date.
 */
export function failureOf(answer: FcmAnswer, token: string, now: number = Date.now()): FcmFailure {
  const { status, retryAfter, body } = answer;
  const refusal = refusalSchema.parse(body);
  const code = codeOf(status, refusal);
  const outcome = code === INVALID_ARGUMENT ? blameOf(refusal) : (ACTIONS.get(code) ?? 'retry');
  const reason = cutText(reasonIn(status, refusal).replaceAll(token, '<token>'), MAX_REASON_LENGTH);
  const retryAfterMs = parseRetryAfter(retryAfter, now);
  return { outcome, code, reason, ...(retryAfterMs === undefined ? {} : { retryAfterMs }) };
}

/** As long as access tokens and signatures are, and no name. */
const SECRET = /[\w+/=.~-]{60,}/g;

/** @param error why there is no answer: an AccessTokenError, the network's, or the reason of a signal. */
export function failureWithoutAnswer(error: unknown): FcmFailure {
  const reason = cutText(reasonOf(error).replaceAll(SECRET, '…'), MAX_REASON_LENGTH);
  if (isTimeout(error)) return { outcome: 'retry', code: 'app/network-timeout', reason };
  if (!(error instanceof AccessTokenError)) return { outcome: 'retry', code: 'app/network-error', reason };
  return REFUSED_CREDENTIAL.test(reason)
    ? { outcome: 'fatal', code: CREDENTIAL_REFUSED, reason }
    : { outcome: 'retry', code: 'app/invalid-credential', reason };
}

/** A code, or the path of a field. */
const PROTOCOL_WORD = /^[A-Za-z_][\w.[\]]{0,99}$/;

/**
 * What was answered may quote the message, which people have written to people, or the request with its access token:
 * only codes and names of fields are kept of it.
 */
function reasonIn(httpStatus: number, { status, fcmCode, reasons, fields }: Refusal): string {
  const words = [status, fcmCode, ...reasons, ...fields].filter((word) => PROTOCOL_WORD.test(word ?? ''));
  return [`status ${httpStatus}`, ...new Set(words)].join(' ');
}

function codeOf(httpStatus: number, { fcmCode, apns, quotas }: Refusal): string {
  const { statusCode = 0, reason = '' } = apns ?? {};
  const codeOfToken = APNS_TOKEN_CODES.get(reason);
  if (codeOfToken !== undefined) return codeOfToken;
  if (statusCode === 403) return APNS_REFUSES;
  if (statusCode === 429) return DEVICE_QUOTA_EXCEEDED;
  if (statusCode >= 500) return UNAVAILABLE;
  if (httpStatus === 429) {
    const isOfDevice = quotas.length > 0 && quotas.every((quota) => OF_DEVICE.test(JSON.stringify(quota)));
    return isOfDevice ? DEVICE_QUOTA_EXCEEDED : QUOTA_EXCEEDED;
  }
  const code = fcmCode === undefined ? CODES_OF_STATUS.get(httpStatus) : CODES.get(fcmCode);
  return code ?? UNKNOWN;
}

/** What an invalid argument is about. */
function blameOf({ status, message = '', apns, fields }: Refusal): FcmFailure['outcome'] {
  // Not FCM's words, so not about this message: a proxy's page, for instance.
  if (status !== 'INVALID_ARGUMENT') return 'retry';
  if (fields.length > 0) return fields.includes('message.token') ? 'remove' : 'refused';
  // APNs has taken the token, and complains of something else.
  if (apns !== undefined) return 'refused';
  return NAMES_THE_TOKEN.test(message) ? 'remove' : 'suspect';
}
