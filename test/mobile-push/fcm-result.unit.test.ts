/**
 * What FCM's answers mean (seed mobile-push, "FCM Error Classification"). A token is removed on what FCM says about this token,
 * and on nothing else: a removed token is gone for good.
 */
import {
  AccessTokenError,
  failureOf,
  failureWithoutAnswer,
} from '../../activities/mobile-push/fcm-result.ts';
import type { FcmError } from '../../dev/stand-ins/mobile-push/fcm.ts';
import { FCM_ERRORS } from '../../dev/stand-ins/mobile-push/fcm.ts';

const TOKEN = 'token-of-a-phone:APA91b';
/** Outcome and code of an answer. */
const meaningOf = (status: number, body?: object): string => {
  const { outcome, code } = failureOf({ status, body }, TOKEN);
  return `${outcome} ${code.replace('messaging/', '')}`;
};

test.each<[FcmError, string]>([
  ['UNREGISTERED', 'remove registration-token-not-registered'],
  ['INVALID_TOKEN', 'remove invalid-argument'],
  ['INVALID_ARGUMENT', 'suspect invalid-argument'],
  ['INVALID_PAYLOAD', 'refused invalid-argument'],
  ['SENDER_ID_MISMATCH', 'remove mismatched-credential'],
  ['UNAVAILABLE', 'retry server-unavailable'],
  ['UNSPECIFIED_ERROR', 'retry unknown-error'],
  ['INTERNAL', 'retry internal-error'],
  ['QUOTA_EXCEEDED', 'retry quota-exceeded'],
  ['DEVICE_QUOTA_EXCEEDED', 'retry device-message-rate-exceeded'],
  ['THIRD_PARTY_AUTH_ERROR', 'fatal third-party-auth-error'],
  ['UNAUTHENTICATED', 'fatal authentication-error'],
  ['PERMISSION_DENIED', 'fatal authentication-error'],
  ['NOT_FOUND', 'retry unknown-error'],
])('kinds-V4 M6 M7 %s means %s', (error, meaning) => {
  const { status, body } = FCM_ERRORS[error];
  expect(meaningOf(status, body)).toBe(meaning);
});

const OF_A_PROXY = undefined;
const NOT_ITS_TOKEN = 'The registration token is not a valid FCM registration token';
test.each<[number, object | undefined, string]>([
  [200, OF_A_PROXY, 'retry unknown-error'],
  [400, OF_A_PROXY, 'retry invalid-argument'],
  [403, OF_A_PROXY, 'fatal authentication-error'],
  [404, OF_A_PROXY, 'retry unknown-error'],
  [429, OF_A_PROXY, 'retry quota-exceeded'],
  [500, OF_A_PROXY, 'retry internal-error'],
  [502, OF_A_PROXY, 'retry unknown-error'],
  [503, OF_A_PROXY, 'retry server-unavailable'],
  [409, { status: 'ABORTED', message: 'm', details: [] }, 'retry unknown-error'],
  [403, { code: 403, message: 'PERMISSION_DENIED' }, 'fatal authentication-error'],
  [404, { code: 404, message: 'NOT_FOUND' }, 'retry unknown-error'],
  [
    404,
    { status: 'NOT_FOUND', details: [{ '@type': 'x', errorCode: 'UNREGISTERED' }] },
    'retry unknown-error',
  ],
  [400, { status: 'INVALID_ARGUMENT', message: NOT_ITS_TOKEN }, 'remove invalid-argument'],
  [
    400,
    { status: 'INVALID_ARGUMENT', details: [{ fieldViolations: [{ field: 'message.token' }] }] },
    'remove invalid-argument',
  ],
])('kinds-V4 M6 M7 a %i with the error %j means %s', (status, error, meaning) => {
  expect(meaningOf(status, error && { error })).toBe(meaning);
});

test.each([
  [400, 'INVALID_ARGUMENT', 400, 'BadDeviceToken', 'remove invalid-registration-token'],
  [401, 'THIRD_PARTY_AUTH_ERROR', 400, 'BadDeviceToken', 'remove invalid-registration-token'],
  [400, 'INVALID_ARGUMENT', 410, 'Unregistered', 'remove registration-token-not-registered'],
  [500, 'INTERNAL', 410, 'ExpiredToken', 'remove registration-token-not-registered'],
  [400, 'INVALID_ARGUMENT', 413, 'PayloadTooLarge', 'refused invalid-argument'],
  [400, 'INVALID_ARGUMENT', 400, 'BadTopic', 'refused invalid-argument'],
  [400, 'INVALID_ARGUMENT', 400, 'BadPriority', 'refused invalid-argument'],
  [400, 'INVALID_ARGUMENT', 403, 'InvalidProviderToken', 'fatal third-party-auth-error'],
  [400, 'INVALID_ARGUMENT', 503, 'Shutdown', 'retry server-unavailable'],
  [429, 'QUOTA_EXCEEDED', 429, 'TooManyRequests', 'retry device-message-rate-exceeded'],
])('bug-P1 M7 a %i %s in which APNs says %i %s is %s', (status, fcmCode, statusCode, reason, meaning) => {
  const typeOf = (name: string) => ({ '@type': `type.googleapis.com/google.firebase.fcm.v1.${name}` });
  const details = [
    { ...typeOf('FcmError'), errorCode: fcmCode },
    { ...typeOf('ApnsError'), statusCode, reason },
  ];
  expect(meaningOf(status, { error: { status: fcmCode, message: 'm', details } })).toBe(meaning);
});

const ERROR_INFO = { '@type': 'type.googleapis.com/google.rpc.ErrorInfo' };
test.each([
  [502, undefined, 'status 502'],
  [200, { name: `Authorization: Bearer local, ${TOKEN}: Your move` }, 'status 200'],
  [
    400,
    {
      error: {
        status: 'INVALID_ARGUMENT',
        message: `Invalid value at 'message.notification.body' (TYPE_STRING), "Your move"; token ${TOKEN}`,
        details: [
          { fieldViolations: [{ field: 'message.notification.body', description: 'Your move' }] },
          { ...ERROR_INFO, reason: 'Your move: no', errorCode: TOKEN },
        ],
      },
    },
    'status 400 INVALID_ARGUMENT message.notification.body',
  ],
  [
    403,
    {
      error: {
        status: 'PERMISSION_DENIED',
        message: 'Cloud Messaging API is disabled',
        details: [{ ...ERROR_INFO, reason: 'SERVICE_DISABLED' }],
      },
    },
    'status 403 PERMISSION_DENIED SERVICE_DISABLED',
  ],
])('M6 subscription-B9 of an answer %i only words of the protocol are kept', (status, body, reason) => {
  const failure = failureOf({ status, body }, TOKEN);
  expect(failure).toMatchObject({ reason });
  expect(JSON.stringify(failure)).not.toMatch(/Your move|Bearer|APA91/);
});

test('M6 subscription-B9 neither a token that is quoted as a word of the protocol is kept, nor what a token server quotes', () => {
  const error = { status: 'INVALID_ARGUMENT', details: [{ reason: 'APA91b_word' }] };
  expect(failureOf({ status: 400, body: { error } }, 'APA91b_word')).toMatchObject({
    reason: 'status 400 INVALID_ARGUMENT <token>',
  });
  const assertion = ['eyJhbGciOiJSUzI1NiJ9', 'a'.repeat(200), 'b'.repeat(300)].join('.');
  expect(failureWithoutAnswer(new AccessTokenError(`"502 ${assertion}".`))).toMatchObject({
    reason: '"502 …".',
  });
});

test.each([
  ['invalid_grant: Invalid JWT Signature.', 'fatal', 'messaging/authentication-error'],
  ['request to https://oauth2.googleapis.com/token failed', 'retry', 'app/invalid-credential'],
])('M6 an access token that cannot be had, %s: %s', (message, outcome, code) => {
  expect(failureWithoutAnswer(new AccessTokenError(message))).toMatchObject({ outcome, code });
});
