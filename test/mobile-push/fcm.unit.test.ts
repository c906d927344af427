/** The sender (seed mobile-push, "FCM Error Classification"): over TLS, against the stand-in. */
import { generateKeyPairSync } from 'node:crypto';
import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { ServiceAccount } from 'firebase-admin/app';
import type { FcmResult } from '../../activities/mobile-push/fcm.ts';
import { openCredential } from '../../activities/mobile-push/fcm.ts';
import {
  AccessTokenError,
  failureOf,
  failureWithoutAnswer,
} from '../../activities/mobile-push/fcm-result.ts';
import type { FcmError } from '../../dev/stand-ins/mobile-push/fcm.ts';
import {
  NEVER,
  TOKEN,
  fcm,
  messageOf,
  outcomeOf,
  sender,
  senderWith,
  tokensSeen,
  useFcm,
} from './fcm-sender.ts';
import { eventually } from '../eventually.ts';
import { scratchFolder } from '../scratch.ts';

useFcm();

describe('a send that succeeds', () => {
  test('M5 is one request to the project, and the id of the message comes back', async () => {
    expect(await sender.send(messageOf(), TOKEN)).toEqual({
      outcome: 'sent',
      messageId: expect.stringMatching(/^projects\/galaxy\/messages\/.+/),
    });
    expect(fcm.requests).toEqual([
      expect.objectContaining({
        token: TOKEN,
        projectId: 'galaxy',
        headers: expect.objectContaining({ authorization: expect.stringMatching(/^Bearer \S+$/) }),
      }),
    ]);
  });

  test('M5 the request holds the format for Android, iOS and the web', async () => {
    await sender.send(messageOf(), TOKEN);

    expect(fcm.requests[0]?.body.message).toEqual({
      token: TOKEN,
      notification: { title: 'Turn 54', body: 'Your move' },
      data: { turn: '54', channel: 'game', push_id: 'push-1' },
      android: { priority: 'high', notification: { tag: 'push-1', channel_id: 'game' } },
      apns: {
        headers: { 'apns-priority': '10', 'apns-collapse-id': 'push-1' },
        payload: { aps: { badge: 3, 'mutable-content': 1 } },
      },
      webpush: { headers: { Urgency: 'high', Topic: 'push-1' } },
    });
  });

  test('M5 one message goes to several tokens, one request each', async () => {
    const message = messageOf();
    await Promise.all(['a', 'b', 'c'].map((token) => sender.send(message, token)));

    expect(tokensSeen().sort()).toEqual(['a', 'b', 'c']);
    expect(message).toEqual(messageOf());
  });
});

describe('what FCM says', () => {
  test.each<[FcmError, FcmResult['outcome'], string]>([
    ['UNREGISTERED', 'remove', 'messaging/registration-token-not-registered'],
    ['INVALID_TOKEN', 'remove', 'messaging/invalid-argument'],
    ['SENDER_ID_MISMATCH', 'remove', 'messaging/mismatched-credential'],
    ['UNAVAILABLE', 'retry', 'messaging/server-unavailable'],
    ['UNSPECIFIED_ERROR', 'retry', 'messaging/unknown-error'],
    ['INTERNAL', 'retry', 'messaging/internal-error'],
    ['QUOTA_EXCEEDED', 'retry', 'messaging/quota-exceeded'],
    ['THIRD_PARTY_AUTH_ERROR', 'fatal', 'messaging/third-party-auth-error'],
  ])('M6 %s means %s', async (error, outcome, code) => {
    // A push that FCM takes proves the credential.
    await sender.send(messageOf(), 'proof');
    expect(await outcomeOf({ kind: 'error', error })).toMatchObject({ outcome, code });
    expect(tokensSeen()).toEqual(['proof', TOKEN]);
  });

  test('M6 an unknown code is retried', async () => {
    const body = JSON.stringify({ error: { code: 409, status: 'ABORTED', message: 'm', details: [] } });

    expect(await outcomeOf({ kind: 'answer', status: 409, body })).toMatchObject({
      outcome: 'retry',
      code: 'messaging/unknown-error',
    });
  });

  test.each([
    [{ message: 'The registration token is not a valid FCM registration token' }],
    [{ message: 'm', details: [{ fieldViolations: [{ field: 'message.token', description: 'd' }] }] }],
  ])('M6 the token is named by %j', async (error) => {
    const body = JSON.stringify({ error: { code: 400, status: 'INVALID_ARGUMENT', ...error } });

    expect(await outcomeOf({ kind: 'answer', status: 400, body })).toMatchObject({ outcome: 'remove' });
  });

  test('M6 a credential without permission costs no token', async () => {
    expect(await outcomeOf({ kind: 'error', error: 'PERMISSION_DENIED' })).toEqual({
      outcome: 'fatal',
      code: 'messaging/authentication-error',
      reason: 'status 403 PERMISSION_DENIED',
    });
  });

  test.each<[number, FcmResult['outcome'], string]>([
    [200, 'retry', 'messaging/unknown-error'],
    [400, 'retry', 'messaging/invalid-argument'],
    [403, 'fatal', 'messaging/authentication-error'],
    [404, 'retry', 'messaging/unknown-error'],
    [429, 'retry', 'messaging/quota-exceeded'],
    [500, 'retry', 'messaging/internal-error'],
    [502, 'retry', 'messaging/unknown-error'],
    [503, 'retry', 'messaging/server-unavailable'],
  ])('M6 status %i with HTML means %s', async (status, outcome, code) => {
    const failure = await outcomeOf({ kind: 'answer', status, body: '<h1>That is an error.</h1>' });

    expect(failure).toMatchObject({ outcome, code });
    expect(fcm.requests).toHaveLength(1);
  });

  test.each(['{}', '{"name":""}', '[]', 'null', '{"error":null}', '{"error":{"details":[null]}}'])(
    'M6 200 with %s is no success, and worth another try',
    async (body) => {
      expect(await outcomeOf({ kind: 'answer', status: 200, body })).toMatchObject({ outcome: 'retry' });
    },
  );

  test.each([
    [502, `<html>${'x'.repeat(10_000)} Authorization: Bearer local ${TOKEN} Your move`, 'status 502'],
    [200, `Authorization: Bearer local, ${TOKEN}: Your move`, 'status 200'],
    [
      400,
      JSON.stringify({
        error: {
          status: 'INVALID_ARGUMENT',
          message: `Invalid value at 'message.notification.body' (TYPE_STRING), "Your move"; token ${TOKEN}`,
          details: [
            { fieldViolations: [{ field: 'message.notification.body', description: 'Your move' }] },
            {
              '@type': 'type.googleapis.com/google.rpc.ErrorInfo',
              reason: 'Your move: no',
              errorCode: TOKEN,
            },
          ],
        },
      }),
      'status 400 INVALID_ARGUMENT message.notification.body',
    ],
    [
      403,
      JSON.stringify({
        error: {
          status: 'PERMISSION_DENIED',
          message: 'Cloud Messaging API is disabled',
          details: [{ '@type': 'type.googleapis.com/google.rpc.ErrorInfo', reason: 'SERVICE_DISABLED' }],
        },
      }),
      'status 403 PERMISSION_DENIED SERVICE_DISABLED',
    ],
  ])(
    'M6 subscription-B9 of an answer %i only words of the protocol are kept',
    async (status, body, reason) => {
      const failure = await outcomeOf({ kind: 'answer', status, body });

      expect(failure).toMatchObject({ reason });
      expect(JSON.stringify(failure)).not.toMatch(/Your move|Bearer|APA91/);
    },
  );

  test('M6 subscription-B9 what a token server quotes of the request is not kept', () => {
    const assertion = ['eyJhbGciOiJSUzI1NiJ9', 'a'.repeat(200), 'b'.repeat(300)].join('.');

    expect(failureWithoutAnswer(new AccessTokenError(`"502 ${assertion}".`))).toMatchObject({
      reason: '"502 …".',
    });
  });

  test('M6 a token that an answer quotes as a word of the protocol is not kept', () => {
    const error = { status: 'INVALID_ARGUMENT', details: [{ reason: 'APA91b_word' }] };

    expect(failureOf({ status: 400, body: { error } }, 'APA91b_word')).toMatchObject({
      reason: 'status 400 INVALID_ARGUMENT <token>',
    });
  });

  test('M6 an empty token is removed, and nothing is asked', async () => {
    expect(await sender.send(messageOf(), '')).toMatchObject({ outcome: 'remove' });
    expect(fcm.requests).toEqual([]);
  });

  test.each([
    ['invalid_grant: Invalid JWT Signature.', 'fatal', 'messaging/authentication-error'],
    ['request to https://oauth2.googleapis.com/token failed', 'retry', 'app/invalid-credential'],
  ])('M6 an access token that cannot be had, %s: %s', (message, outcome, code) => {
    expect(failureWithoutAnswer(new AccessTokenError(message))).toMatchObject({ outcome, code });
  });
});

describe('the life of a sender', () => {
  test('M10 it leaves nothing behind when it is closed', async () => {
    await sender.send(messageOf(), TOKEN);
    sender.close();

    await eventually('the end of its connection', async () => fcm.sockets.open === 0);
    expect((await sender.send(messageOf(), TOKEN)).outcome).toBe('retry');
  });

  test('M10 sends under way come to an end with it', async () => {
    fcm.fail({ failure: NEVER });
    const send = sender.send(messageOf(), TOKEN);
    await eventually('the request', async () => fcm.requests.length === 1);
    sender.close();

    expect((await send).outcome).toBe('retry');
  });
});

describe('credentials', () => {
  const { privateKey } = generateKeyPairSync('rsa', {
    modulusLength: 2_048,
    privateKeyEncoding: { type: 'pkcs8', format: 'pem' },
    publicKeyEncoding: { type: 'spki', format: 'pem' },
  });
  const account = {
    type: 'service_account',
    project_id: 'galaxy',
    client_email: 'push@galaxy.iam.gserviceaccount.com',
    private_key: privateKey,
  };
  const { dir } = scratchFolder('fcm');
  const NO_ACCOUNT = 'cannot be used: Service account object must contain a string "project_id" property.';

  function problemOf(content: string | undefined): string {
    const credentialsFile = join(dir, 'account.json');
    rmSync(credentialsFile, { force: true });
    if (content !== undefined) writeFileSync(credentialsFile, content);
    try {
      senderWith({ target: { credentialsFile } });
      return '';
    } catch (error) {
      expect((error as Error).cause).toBeUndefined();
      return (error as Error).message.replace(credentialsFile, '<path>');
    }
  }

  test('kinds-S3 M6 a credential that is opened again has no access token of the one before', () => {
    const credential = openCredential(account as ServiceAccount);
    expect(openCredential(account as ServiceAccount)).not.toBe(credential);
  });

  test('kinds-S3 M6 the SDK, which keeps every credential for good, keeps few of a long time of refused ones', () => {
    const opened = Array.from({ length: 1_000 }, () => openCredential(account as ServiceAccount));
    expect(new Set(opened).size).toBeLessThanOrEqual(100);
    // An access token lives for an hour, and a fresh one is fetched once a minute at most.
    expect(new Set(opened.slice(0, 70)).size).toBe(70);
  });

  test('M10 a whole service account is taken', () => {
    expect(problemOf(JSON.stringify(account))).toBe('');
  });

  test.each<[string, string | undefined, string]>([
    ['does not exist', undefined, 'cannot be read: ENOENT'],
    ['is empty', '', NO_ACCOUNT],
    ['is cut off', JSON.stringify(account).slice(0, -20), NO_ACCOUNT],
    [
      'is of a user',
      JSON.stringify({ type: 'authorized_user', client_id: 'id', refresh_token: 'secret' }),
      NO_ACCOUNT,
    ],
    [
      'names its project in another way',
      JSON.stringify({ ...account, project_id: undefined, projectId: 'galaxy' }),
      'has no project_id',
    ],
    [
      'has a broken key',
      JSON.stringify({ ...account, private_key: privateKey.slice(0, 500) }),
      'cannot be used: Failed to parse private key.',
    ],
  ])(
    'M10 a file that %s is named with what it lacks, and nothing of it is shown',
    (_what, content, problem) => {
      expect(problemOf(content)).toBe(`service account file <path> ${problem}`);
    },
  );
});
