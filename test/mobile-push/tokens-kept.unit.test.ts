/** A token is removed on what FCM says about this token, and on nothing else: a removed token is gone for good. */
import type { FcmError } from '../../dev/stand-ins/mobile-push/fcm.ts';
import { mobileMessage, MAX_PAYLOAD_BYTES, payloadBytes } from '../../api/mobile-push/message.ts';
import { TOKEN, fcm, messageOf, outcomeOf, sender, useFcm } from './fcm-sender.ts';

useFcm();

test.each([
  ['a 403 that names no code', 403, { code: 403, message: 'PERMISSION_DENIED' }, 'authentication-error'],
  ['a 404 that names no code', 404, { code: 404, message: 'NOT_FOUND' }, 'unknown-error'],
  [
    'a code of something that is not FCM',
    404,
    { status: 'NOT_FOUND', details: [{ '@type': 'other', errorCode: 'UNREGISTERED' }] },
    'unknown-error',
  ],
])('kinds-V4 M7 %s keeps it', async (_what, status, error, code) => {
  const body = JSON.stringify({ error });
  const outcome = await outcomeOf({ kind: 'answer', status, body, headers: JSON_BODY });
  expect(outcome).toMatchObject({ code: `messaging/${code}` });
});

test('kinds-V4 M7 an argument that FCM names, and that is not the token, keeps it', async () => {
  expect(await outcomeOf({ kind: 'error', error: 'INVALID_PAYLOAD' })).toMatchObject({
    outcome: 'refused',
    code: 'messaging/invalid-argument',
  });
  expect(fcm.probes).toEqual([]);
});

/** What FCM answers when it quotes APNs. */
const quotingApns = (status: number, fcmCode: string, apns: { statusCode: number; reason: string }) => {
  const type = (name: string) => ({ '@type': `type.googleapis.com/google.firebase.fcm.v1.${name}` });
  const details = [
    { ...type('FcmError'), errorCode: fcmCode },
    { ...type('ApnsError'), ...apns },
  ];
  const body = JSON.stringify({ error: { code: status, status: fcmCode, message: 'm', details } });
  return { kind: 'answer', status, body, headers: JSON_BODY } as const;
};

test.each([
  [400, 'INVALID_ARGUMENT', 400, 'BadDeviceToken', 'messaging/invalid-registration-token'],
  [401, 'THIRD_PARTY_AUTH_ERROR', 400, 'BadDeviceToken', 'messaging/invalid-registration-token'],
  [400, 'INVALID_ARGUMENT', 410, 'Unregistered', 'messaging/registration-token-not-registered'],
  [500, 'INTERNAL', 410, 'ExpiredToken', 'messaging/registration-token-not-registered'],
])(
  'bug-P1 M7 a %i %s in which APNs says %i %s removes the token',
  async (status, code, apns, reason, ours) => {
    const answer = quotingApns(status, code, { statusCode: apns, reason });
    expect(await outcomeOf(answer)).toMatchObject({ outcome: 'remove', code: ours });
    expect(fcm.probes).toEqual([]);
  },
);

test.each([
  [400, 'INVALID_ARGUMENT', 413, 'PayloadTooLarge', 'refused', 'messaging/invalid-argument'],
  [400, 'INVALID_ARGUMENT', 400, 'BadTopic', 'refused', 'messaging/invalid-argument'],
  [400, 'INVALID_ARGUMENT', 400, 'BadPriority', 'refused', 'messaging/invalid-argument'],
  [400, 'INVALID_ARGUMENT', 403, 'InvalidProviderToken', 'fatal', 'messaging/third-party-auth-error'],
  [400, 'INVALID_ARGUMENT', 503, 'Shutdown', 'retry', 'messaging/server-unavailable'],
  [429, 'QUOTA_EXCEEDED', 429, 'TooManyRequests', 'retry', 'messaging/device-message-rate-exceeded'],
])(
  'bug-P1 M7 a %i %s in which APNs says %i %s is %s, and no token is removed',
  async (status, code, apns, reason, outcome, ours) => {
    const answer = quotingApns(status, code, { statusCode: apns, reason });
    // Should FCM be asked about the token: it would refuse the check as well.
    fcm.fail({ token: TOKEN, failure: answer });
    expect(await sender.send(messageOf(), TOKEN)).toMatchObject({ outcome, code: ours });
  },
);

test('kinds-V4 M7 of an argument that FCM does not name, a check of the token alone tells what it is', async () => {
  fcm.fail({ token: 'sound', failure: { kind: 'error', error: 'INVALID_ARGUMENT', ofPayload: true } });
  fcm.fail({ token: 'malformed', failure: { kind: 'error', error: 'INVALID_ARGUMENT' } });

  expect(await sender.send(messageOf(), 'sound')).toMatchObject({ outcome: 'refused' });
  expect(await sender.send(messageOf(), 'malformed')).toMatchObject({
    outcome: 'remove',
    code: 'messaging/invalid-argument',
  });
  expect(fcm.probes).toEqual(['sound', 'malformed']);
});

test.each<[FcmError, string]>([
  ['UNAVAILABLE', 'retry'],
  ['UNAUTHENTICATED', 'fatal'],
  ['INVALID_PAYLOAD', 'refused'],
])('kinds-V4 M7 a check that %s prevents keeps it', async (error, outcome) => {
  fcm.fail({ failure: { kind: 'error', error: 'INVALID_ARGUMENT' }, times: 1 });
  fcm.fail({ failure: { kind: 'error', error } });

  expect(await sender.send(messageOf(), TOKEN)).toMatchObject({ outcome });
});

test('kinds-V4 M7 the page of a proxy says nothing about the token', async () => {
  fcm.fail({ failure: { kind: 'answer', status: 400, body: 'not a valid FCM registration token' } });

  expect(await sender.send(messageOf(), TOKEN)).toMatchObject({ outcome: 'retry' });
  expect(fcm.probes).toEqual([]);
});

test('kinds-V4 M5 the largest message that passes here may be too large for APNs, and costs no iPhone its token', async () => {
  const content = { title: 'T', body: 'B', channel: 'c', data: { filler: '' } };
  const empty = mobileMessage(content, 'push-1');
  if ('problem' in empty) throw new Error(empty.problem);
  const filler = 'x'.repeat(MAX_PAYLOAD_BYTES - payloadBytes(empty.message));
  const largest = mobileMessage({ ...content, data: { filler } }, 'push-1');
  if ('problem' in largest) throw new Error(largest.problem);
  fcm.fail({ token: 'iphone', failure: { kind: 'error', error: 'INVALID_ARGUMENT', ofPayload: true } });

  expect(await sender.send(largest.message, 'android')).toMatchObject({ outcome: 'sent' });
  expect(await sender.send(largest.message, 'iphone')).toMatchObject({ outcome: 'refused' });
});

test('kinds-S3 M7 tokens of another project are deleted only while FCM takes pushes with our credential, ten a push', async () => {
  fcm.fail({ token: 'of this project', failure: { kind: 'hold', until: Promise.resolve() } });
  fcm.fail({ failure: { kind: 'error', error: 'SENDER_ID_MISMATCH' } });
  const outcomes = async (count: number) => {
    const seen: string[] = [];
    for (let index = 0; index < count; index += 1) {
      seen.push((await sender.send(messageOf(), `of another ${index}`)).outcome);
    }
    return seen;
  };

  // A process that has just started, perhaps again and again, with a credential of another project.
  expect(await outcomes(2)).toEqual(['fatal', 'fatal']);
  expect((await sender.send(messageOf(), 'of this project')).outcome).toBe('sent');
  expect(await outcomes(12)).toEqual([...Array<string>(10).fill('remove'), 'fatal', 'fatal']);
  expect(await sender.send(messageOf(), 'another')).toMatchObject({
    outcome: 'fatal',
    code: 'messaging/mismatched-credential',
  });
  expect((await sender.send(messageOf(), 'of this project')).outcome).toBe('sent');
  expect(await outcomes(1)).toEqual(['remove']);
});

test('kinds-S3 M6 a 401 gets one attempt with a fresh access token, not one for each send', async () => {
  expect(await outcomeOf({ kind: 'error', error: 'UNAUTHENTICATED' })).toMatchObject({ outcome: 'sent' });
  const bearers = () => fcm.requests.map(({ headers }) => headers.authorization);
  expect(new Set(bearers()).size).toBe(2);

  fcm.fail({ failure: { kind: 'error', error: 'UNAUTHENTICATED' } });
  for (const token of ['a', 'b']) {
    expect(await sender.send(messageOf(), token)).toMatchObject({
      outcome: 'fatal',
      code: 'messaging/authentication-error',
    });
  }
  expect(bearers()).toHaveLength(4);
});

const JSON_BODY = { 'content-type': 'application/json' };
