/** How the sender gets on with the network and with FCM's limits: retries, time-outs, connections, the brake. */
import fc from 'fast-check';
import { createBrake } from '../../activities/mobile-push/fcm.ts';
import { parseRetryAfter } from '../../activities/http/caller.ts';
import { holdAnswers } from '../../dev/stand-ins/failure-scripts.ts';
import type { FcmError, FcmFailure } from '../../dev/stand-ins/mobile-push/fcm.ts';
import {
  IMPATIENT_MS,
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

const LONG = 'x'.repeat(100_000);

useFcm();

describe('what the network does', () => {
  test('M9 503 is one request, not five', async () => {
    fcm.fail({ failure: { kind: 'error', error: 'UNAVAILABLE' } });

    expect(await sender.send(messageOf(), TOKEN)).toMatchObject({ outcome: 'retry' });
    expect(await sender.send(messageOf(), TOKEN)).toMatchObject({ outcome: 'retry' });
    expect(fcm.requests).toHaveLength(2);
  });

  test('M6 M9 a reset is one request, and worth another try', async () => {
    fcm.fail({ failure: { kind: 'reset' } });

    expect(await sender.send(messageOf(), TOKEN)).toMatchObject({
      outcome: 'retry',
      code: 'app/network-error',
      reason: 'socket hang up',
    });
    expect(fcm.requests).toHaveLength(1);
  });

  test('M6 no server listens', async () => {
    await fcm.stop();

    expect(await sender.send(messageOf(), TOKEN)).toMatchObject({
      outcome: 'retry',
      code: 'app/network-error',
    });
  });

  test('M6 an answer that never comes ends with the time-out', async () => {
    const impatient = senderWith({ timeoutMs: IMPATIENT_MS });

    expect(await outcomeOf(NEVER, impatient)).toMatchObject({
      outcome: 'retry',
      code: 'app/network-timeout',
    });
    await eventually('the end of its connection', async () => fcm.sockets.open === 0);
  });

  test.each<[string, FcmFailure, string]>([
    ['is cut off', { kind: 'cut-off' }, 'aborted'],
    ['has 100 KB', { kind: 'answer', status: 200, body: LONG }, 'the answer is longer than 65536 bytes'],
    [
      'refuses with 100 KB',
      { kind: 'answer', status: 400, body: LONG },
      'the answer is longer than 65536 bytes',
    ],
  ])('security-17 M6 an answer that %s ends its connection and its send', async (_what, failure, reason) => {
    expect(await outcomeOf(failure)).toEqual({ outcome: 'retry', code: 'app/network-error', reason });
    await eventually('the end of its connection', async () => fcm.sockets.open === 0);
  });

  test('M9 a send that timed out while it waited for a connection is not sent later', async () => {
    const narrow = senderWith({ timeoutMs: IMPATIENT_MS, maxSockets: 1 });
    fcm.fail({ failure: NEVER, token: 'first' });
    const send = (token: string) => narrow.send(messageOf(), token);

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
    await eventually('a send', async () => (await send('third')).outcome === 'sent');
    expect(tokensSeen()).not.toContain(timedOut);
  });

  test('M5 a connection is used again', async () => {
    for (let index = 0; index < 10; index += 1) await sender.send(messageOf(), TOKEN);

    expect(fcm.requests).toHaveLength(10);
    expect(fcm.sockets.opened).toBe(1);
  });

  test('M5 no more than so many connections are open, however many sends are under way', async () => {
    const most = 4;
    // No send times out while a slow machine makes the connections.
    const bounded = senderWith({ timeoutMs: 120_000, maxSockets: most });
    const answers = holdAnswers();
    fcm.fail({ failure: answers.failure });
    const sends = Array.from({ length: most + 70 }, (_, index) => bounded.send(messageOf(), `t-${index}`));
    await eventually('all connections to be in use', async () => fcm.requests.length === most);
    answers.release();

    expect((await Promise.all(sends)).every(({ outcome }) => outcome === 'sent')).toBe(true);
    expect(fcm.sockets).toMatchObject({ highest: most, opened: most });
    expect(new Set(tokensSeen()).size).toBe(most + 70);
  });

  test('M5 a server that is not trusted gets nothing', async () => {
    const target = { endpoint: fcm.url };
    const distrustful = senderWith({ target });

    expect(await distrustful.send(messageOf(), TOKEN)).toMatchObject({
      outcome: 'retry',
      reason: expect.stringContaining('self-signed certificate'),
    });
    expect(fcm.requests).toEqual([]);
  });
});

describe('Retry-After', () => {
  test.each<[FcmError, string, number]>([
    ['UNAVAILABLE', '7', 7_000],
    ['INTERNAL', '0', 0],
    ['QUOTA_EXCEEDED', '90', 90_000],
    // Less than the brake's minute.
    ['QUOTA_EXCEEDED', '5', 60_000],
  ])('M9 of %s in seconds: %s', async (error, retryAfter, expected) => {
    const failure = await outcomeOf({ kind: 'error', error, retryAfter });

    expect(failure).toMatchObject({ outcome: 'retry' });
    const { retryAfterMs } = failure as { retryAfterMs: number };
    expect(retryAfterMs).toBeGreaterThan(expected - 200);
    expect(retryAfterMs).toBeLessThanOrEqual(error === 'QUOTA_EXCEEDED' ? 1.5 * expected : expected);
  });

  test('M9 absent or of no use: the workflow decides', async () => {
    expect(await outcomeOf({ kind: 'error', error: 'UNAVAILABLE' })).not.toHaveProperty('retryAfterMs');
    expect(await outcomeOf({ kind: 'error', error: 'UNAVAILABLE', retryAfter: 'soon' })).not.toHaveProperty(
      'retryAfterMs',
    );
  });

  test('M9 is read as ms from now, never below 0 and never above an hour', () => {
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
});

describe('the brake', () => {
  afterEach(() => jest.restoreAllMocks());

  test.each<[string, FcmFailure, number]>([
    ['without Retry-After', { kind: 'error', error: 'QUOTA_EXCEEDED' }, 60_000],
    ['with Retry-After', { kind: 'error', error: 'QUOTA_EXCEEDED', retryAfter: '120' }, 120_000],
    ['that is not JSON', { kind: 'answer', status: 429, body: 'slow down' }, 60_000],
  ])('M9 after a 429 %s no process sends for a while', async (_what, failure, holdMs) => {
    expect(await outcomeOf(failure)).toMatchObject({ code: 'messaging/quota-exceeded' });

    const next = await sender.send(messageOf(), 'another-token');
    expect(next).toEqual({ outcome: 'braked', retryInMs: expect.any(Number) });
    const { retryInMs } = next as { retryInMs: number };
    // Held sends come back over half the time of the hold behind its end.
    expect(retryInMs).toBeLessThanOrEqual(1.5 * holdMs);
    expect(retryInMs).toBeGreaterThan(holdMs - 10_000);
    expect(tokensSeen()).toEqual([TOKEN]);
  });

  test('M9 sends go on when it has run out', async () => {
    const brisk = senderWith({ brakeMs: 200 });

    expect(await outcomeOf({ kind: 'error', error: 'QUOTA_EXCEEDED' }, brisk)).toMatchObject({
      outcome: 'retry',
    });
    const sent = await eventually('a send', async () => {
      const outcome = await brisk.send(messageOf(), TOKEN);
      return outcome.outcome !== 'braked' && outcome;
    });
    expect(sent.outcome).toBe('sent');
    expect(fcm.requests).toHaveLength(2);
  });

  test.each<FcmError>(['UNAVAILABLE', 'INTERNAL', 'UNAUTHENTICATED', 'UNREGISTERED'])(
    'M9 %s brakes no send',
    async (error) => {
      await outcomeOf({ kind: 'error', error, retryAfter: '120' });

      expect((await sender.send(messageOf(), TOKEN)).outcome).toBe('sent');
    },
  );

  test('kinds-V6 M9 the quota of one device holds up no other device, and that device for as long as a hold', async () => {
    expect(await outcomeOf({ kind: 'error', error: 'DEVICE_QUOTA_EXCEEDED' })).toMatchObject({
      outcome: 'retry',
      ...{ code: 'messaging/device-message-rate-exceeded', retryAfterMs: 60_000 },
    });
    expect((await sender.send(messageOf(), 'another-token')).outcome).toBe('sent');
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
    const braked = (await sender.send(messageOf(), 'another-token')) as { retryInMs: number };
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
