/** The sender to FCM, over TLS against the stand-in: requests, connections, limits, and what is asked about tokens. */
import { generateKeyPairSync } from 'node:crypto';
import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { parseRetryAfter } from '../../activities/http/caller.ts';
import type { FcmResult, FcmSender, FcmSenderOptions } from '../../activities/mobile-push/fcm.ts';
import { createBrake, createFcmSender } from '../../activities/mobile-push/fcm.ts';
import type { MobileMessage } from '../../api/mobile-push/message.ts';
import { mobileMessage } from '../../api/mobile-push/message.ts';
import { holdAnswers } from '../../dev/stand-ins/failure-scripts.ts';
import type { FcmError, FcmFailure, FcmStandIn } from '../../dev/stand-ins/mobile-push/fcm.ts';
import { startFcm } from '../../dev/stand-ins/mobile-push/fcm.ts';
import { eventually } from '../eventually.ts';
import { scratchFolder } from '../scratch.ts';

/** Long enough to be reached only by what never ends, and the reverse. */
const PATIENT_MS = 14_000;
const IMPATIENT_MS = 300;
const NEVER: FcmFailure = holdAnswers().failure;
const TOKEN = 'token-of-a-phone:APA91b';
const LONG = 'x'.repeat(100_000);

let fcm: FcmStandIn;
/** A patient one, to the project `galaxy`. */
let sender: FcmSender;
let senders: FcmSender[];

beforeEach(async () => {
  fcm = await startFcm();
  senders = [];
  sender = senderWith({});
});
afterEach(async () => {
  for (const each of senders) each.close();
  await fcm.stop();
});

/** Another sender, closed with the test. */
function senderWith(options: Partial<FcmSenderOptions>): FcmSender {
  const target = { endpoint: fcm.url, caPem: fcm.caPem, projectId: 'galaxy' };
  const created = createFcmSender({ target, timeoutMs: PATIENT_MS, ...options });
  senders.push(created);
  return created;
}

const { message: MESSAGE } = mobileMessage({ title: 'Turn 54', data: {} }, 'push-1') as {
  message: MobileMessage;
};

const tokensSeen = (): string[] => fcm.requests.map(({ token }) => token);

const outcomeTo = async (token: string, of = sender) => (await of.send(MESSAGE, token)).outcome;

const untilDisconnected = () => eventually('the end of the connection', async () => fcm.sockets.open === 0);

/** What becomes of a send whose first request fails like this. */
async function outcomeOf(failure: FcmFailure, of: FcmSender = sender): Promise<FcmResult> {
  fcm.fail({ failure, times: 1 });
  return of.send(MESSAGE, TOKEN);
}

test('M5 a push is one request to the project, and the id of the message comes back', async () => {
  expect(await sender.send(MESSAGE, TOKEN)).toEqual({
    outcome: 'sent',
    messageId: expect.stringMatching(/^projects\/galaxy\/messages\/.+/),
  });
  expect(fcm.requests).toMatchObject([
    {
      ...{ token: TOKEN, projectId: 'galaxy', body: { message: { ...MESSAGE, token: TOKEN } } },
      headers: { authorization: expect.stringMatching(/^Bearer \S+$/) as string },
    },
  ]);
});

describe('tokens', () => {
  test('M6 an empty token is removed, and nothing is asked', async () => {
    expect(await outcomeTo('')).toBe('remove');
    expect(fcm.requests).toEqual([]);
  });

  test('kinds-V4 M7 of an argument that FCM does not name, a check of the token alone tells what it is', async () => {
    fcm.fail({ token: 'sound', failure: { kind: 'error', error: 'INVALID_ARGUMENT', ofPayload: true } });
    fcm.fail({ token: 'malformed', failure: { kind: 'error', error: 'INVALID_ARGUMENT' } });

    expect(await outcomeTo('sound')).toBe('refused');
    expect(await outcomeTo('malformed')).toBe('remove');
    expect(fcm.probes).toEqual(['sound', 'malformed']);
  });

  test.each<[FcmError, string]>([
    ['UNAVAILABLE', 'retry'],
    ['UNAUTHENTICATED', 'fatal'],
    ['INVALID_PAYLOAD', 'refused'],
  ])('kinds-V4 M7 a check that %s prevents keeps it', async (error, outcome) => {
    fcm.fail({ failure: { kind: 'error', error: 'INVALID_ARGUMENT' }, times: 1 });
    fcm.fail({ failure: { kind: 'error', error } });

    expect(await sender.send(MESSAGE, TOKEN)).toMatchObject({ outcome });
  });

  test('kinds-S3 M7 tokens of another project are deleted only while FCM takes pushes with our credential, ten a push', async () => {
    fcm.fail({ token: 'of this project', failure: { kind: 'hold', until: Promise.resolve() } });
    fcm.fail({ failure: { kind: 'error', error: 'SENDER_ID_MISMATCH' } });
    const outcomes = async (count: number) => {
      const seen: string[] = [];
      for (let index = 0; index < count; index += 1) seen.push(await outcomeTo(`of another ${index}`));
      return seen;
    };

    // A process that has just started, perhaps again and again, with a credential of another project.
    expect(await outcomes(2)).toEqual(['fatal', 'fatal']);
    expect(await outcomeTo('of this project')).toBe('sent');
    expect(await outcomes(12)).toEqual([...Array<string>(10).fill('remove'), 'fatal', 'fatal']);
    expect(await outcomeTo('of this project')).toBe('sent');
    expect(await outcomes(1)).toEqual(['remove']);
  });
});

describe('what the network does', () => {
  test.each<[string, FcmFailure, object]>([
    ['503', { kind: 'error', error: 'UNAVAILABLE' }, { code: 'messaging/server-unavailable' }],
    ['a reset', { kind: 'reset' }, { code: 'app/network-error', reason: 'socket hang up' }],
    ...['{}', '{"name":""}', '[]', 'null', '{"error":{"details":[null]}}'].map(
      (body): [string, FcmFailure, object] => [`200 with ${body}`, { kind: 'answer', status: 200, body }, {}],
    ),
  ])('M6 M9 %s is one request, and worth another try', async (_what, failure, expected) => {
    expect(await outcomeOf(failure)).toMatchObject({ outcome: 'retry', ...expected });
    expect(fcm.requests).toHaveLength(1);
  });

  const TOO_LONG = { code: 'app/network-error', reason: 'the answer is longer than 65536 bytes' };
  test.each<[string, FcmFailure, object]>([
    ['never comes', NEVER, { code: 'app/network-timeout' }],
    ['is cut off', { kind: 'cut-off' }, { code: 'app/network-error', reason: 'aborted' }],
    ['has 100 KB', { kind: 'answer', status: 200, body: LONG }, TOO_LONG],
    ['refuses with 100 KB', { kind: 'answer', status: 400, body: LONG }, TOO_LONG],
  ])(
    'security-17 M6 an answer that %s ends its connection and its send',
    async (_what, failure, expected) => {
      const timeoutMs = failure === NEVER ? IMPATIENT_MS : PATIENT_MS;
      expect(await outcomeOf(failure, senderWith({ timeoutMs }))).toMatchObject({
        outcome: 'retry',
        ...expected,
      });
      await untilDisconnected();
    },
  );

  test('M9 a send that timed out while it waited for a connection is not sent later', async () => {
    const narrow = senderWith({ timeoutMs: IMPATIENT_MS, maxSockets: 1 });
    fcm.fail({ failure: NEVER, token: 'first' });
    const send = (token: string) => narrow.send(MESSAGE, token);

    // The end of the first one may let it through just before its own time is up.
    let pairs = 0;
    const timedOut = await eventually('a send that times out while it waits', async () => {
      pairs += 1;
      const token = `second-${pairs}`;
      const [first, second] = await Promise.all([send('first'), send(token)]);
      expect(first).toMatchObject({ code: 'app/network-timeout' });
      const hasTimedOut = 'code' in second && second.code === 'app/network-timeout';
      return hasTimedOut && !tokensSeen().includes(token) && token;
    });
    // Queues behind it, which would have gone before.
    await eventually('a send', async () => (await outcomeTo('third', narrow)) === 'sent');
    expect(tokensSeen()).not.toContain(timedOut);
  });

  test('M5 no more than so many connections are open, however many sends are under way, and each is used again', async () => {
    const most = 4;
    // No send times out while a slow machine makes the connections.
    const bounded = senderWith({ timeoutMs: 120_000, maxSockets: most });
    const answers = holdAnswers();
    fcm.fail({ failure: answers.failure });
    const sends = Array.from({ length: most + 70 }, (_, index) => bounded.send(MESSAGE, `t-${index}`));
    await eventually('all connections to be in use', async () => fcm.requests.length === most);
    answers.release();

    expect((await Promise.all(sends)).every(({ outcome }) => outcome === 'sent')).toBe(true);
    expect(fcm.sockets).toMatchObject({ highest: most, opened: most });
    expect(new Set(tokensSeen()).size).toBe(most + 70);
  });

  test('M5 a server that is not trusted gets nothing', async () => {
    expect(await senderWith({ target: { endpoint: fcm.url } }).send(MESSAGE, TOKEN)).toMatchObject({
      outcome: 'retry',
      reason: expect.stringContaining('self-signed certificate'),
    });
    expect(fcm.requests).toEqual([]);
  });
});

test('M9 Retry-After is read as ms from now, never below 0 and never above an hour', () => {
  const now = Date.parse('2026-10-20T10:00:00Z');
  fc.assert(
    fc.property(fc.integer({ min: -100_000, max: 100_000 }), (seconds) => {
      const expected = Math.min(3_600_000, Math.max(0, seconds * 1_000));
      const date = new Date(now + seconds * 1_000).toUTCString();

      expect(parseRetryAfter(date, now)).toBe(expected);
      if (seconds >= 0) expect(parseRetryAfter(String(seconds), now)).toBe(expected);
    }),
  );
  expect(parseRetryAfter('', now)).toBeUndefined();
  expect(parseRetryAfter(undefined, now)).toBeUndefined();
});

describe('the brake', () => {
  afterEach(() => jest.restoreAllMocks());

  test.each<[string, FcmFailure, number]>([
    ['without Retry-After', { kind: 'error', error: 'QUOTA_EXCEEDED' }, 60_000],
    ['with Retry-After', { kind: 'error', error: 'QUOTA_EXCEEDED', retryAfter: '120' }, 120_000],
    ['that is not JSON', { kind: 'answer', status: 429, body: 'slow down' }, 60_000],
  ])('M9 after a 429 %s no process sends for a while', async (_what, failure, holdMs) => {
    expect(await outcomeOf(failure)).toMatchObject({ code: 'messaging/quota-exceeded' });

    const next = await sender.send(MESSAGE, 'another-token');
    expect(next).toEqual({ outcome: 'braked', retryInMs: expect.any(Number) });
    const { retryInMs } = next as { retryInMs: number };
    // Held sends come back over half the time of the hold behind its end.
    expect(retryInMs).toBeLessThanOrEqual(1.5 * holdMs);
    expect(retryInMs).toBeGreaterThan(holdMs - 10_000);
    expect(tokensSeen()).toEqual([TOKEN]);
  });

  test('M9 sends go on when it has run out', async () => {
    const brisk = senderWith({ brakeMs: 200 });

    expect((await outcomeOf({ kind: 'error', error: 'QUOTA_EXCEEDED' }, brisk)).outcome).toBe('retry');
    await eventually('a send', async () => (await outcomeTo(TOKEN, brisk)) === 'sent');
    expect(fcm.requests).toHaveLength(2);
  });

  test.each<FcmError>(['UNAVAILABLE', 'INTERNAL', 'UNAUTHENTICATED', 'UNREGISTERED'])(
    'M9 %s brakes no send',
    async (error) => {
      expect(await outcomeOf({ kind: 'error', error, retryAfter: '120' })).toHaveProperty(
        'retryAfterMs',
        120_000,
      );
      expect(await outcomeTo(TOKEN)).toBe('sent');
    },
  );

  test('kinds-V6 M9 the quota of one device holds up no other device, and that device for as long as a hold', async () => {
    expect(await outcomeOf({ kind: 'error', error: 'DEVICE_QUOTA_EXCEEDED' })).toMatchObject({
      outcome: 'retry',
      ...{ code: 'messaging/device-message-rate-exceeded', retryAfterMs: 60_000 },
    });
    expect(await outcomeTo('another-token')).toBe('sent');
  });

  test('kinds-V6 M9 sends that were held up come back spread, few at first', () => {
    const brake = createBrake(60_000);
    brake.hold(0, 0);
    const at = Array.from({ length: 100 }, (_, index) => {
      jest.spyOn(Math, 'random').mockReturnValue(index / 100);
      return brake.comeBackMs(1_000) + 1_000;
    });
    expect(Math.min(...at)).toBe(60_000);
    expect(Math.max(...at)).toBeLessThanOrEqual(90_000);
    const within = (from: number, to: number) => at.filter((ms) => ms >= from && ms < to).length;
    expect(within(60_000, 66_000)).toBeLessThanOrEqual(5);
    expect(within(84_000, 90_000)).toBeGreaterThanOrEqual(30);
    expect(brake.comeBackMs(60_000)).toBe(0);
  });

  test('kinds-V6 M9 no send comes back at the very end of a hold, not even the send that met it', async () => {
    jest.spyOn(Math, 'random').mockReturnValue(1);
    const met = (await outcomeOf({ kind: 'error', error: 'QUOTA_EXCEEDED' })) as { retryAfterMs: number };
    const braked = (await sender.send(MESSAGE, 'another-token')) as { retryInMs: number };
    for (const ms of [met.retryAfterMs, braked.retryInMs]) {
      expect(ms).toBeGreaterThan(75_000);
      expect(ms).toBeLessThanOrEqual(90_000);
    }
  });

  test('M9 it holds until the latest end that any 429 asked for', () => {
    const times = fc.record({ at: fc.nat(1_000_000), ms: fc.nat(500_000) });
    fc.assert(
      fc.property(fc.array(times), fc.nat(2_000_000), (holds, now) => {
        const brake = createBrake(60_000);
        for (const { at, ms } of holds) brake.hold(ms, at);

        const end = Math.max(0, ...holds.map(({ at, ms }) => at + Math.max(60_000, ms)));
        expect(brake.remainingMs(now)).toBe(Math.max(0, end - now));
      }),
    );
  });
});

test('M10 sends under way come to an end with their sender, which leaves no connection behind', async () => {
  fcm.fail({ failure: NEVER });
  const send = sender.send(MESSAGE, TOKEN);
  await eventually('the request', async () => fcm.requests.length === 1);
  sender.close();

  expect((await send).outcome).toBe('retry');
  await untilDisconnected();
  expect(await outcomeTo(TOKEN)).toBe('retry');
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

  const accountWith = (changes: object) => JSON.stringify({ ...account, ...changes });
  test('M10 a file of a service account is taken, and another one is named with what it lacks; nothing of it is shown', () => {
    expect(problemOf(accountWith({}))).toBe('');
    for (const [content, problem] of [
      [undefined, 'cannot be read: ENOENT'],
      ['', NO_ACCOUNT],
      [accountWith({}).slice(0, -20), NO_ACCOUNT],
      [JSON.stringify({ type: 'authorized_user', client_id: 'id', refresh_token: 'secret' }), NO_ACCOUNT],
      [accountWith({ project_id: undefined, projectId: 'galaxy' }), 'has no project_id'],
      [
        accountWith({ private_key: privateKey.slice(0, 500) }),
        'cannot be used: Failed to parse private key.',
      ],
    ] as const)
      expect(problemOf(content)).toBe(`service account file <path> ${problem}`);
  });
});
