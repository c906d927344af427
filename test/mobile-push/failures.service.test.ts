/** What FCM can answer, each to the end: attempts, rows, the device's token, log events. */
import type { FcmError, FcmStandIn } from '../../dev/stand-ins/mobile-push/fcm.ts';
import type { Slot } from '../harness.ts';
import { eventually, takeSlot } from '../harness.ts';
import type { MobileSlot } from './jobs.ts';
import { QUICK, withMobilePush } from './jobs.ts';

type FcmFailure = Parameters<FcmStandIn['fail']>[0]['failure'];

let slot: Slot;
let mobile: MobileSlot;
beforeAll(async () => {
  slot = await takeSlot();
  mobile = await withMobilePush(slot);
  await slot.startService({ ...QUICK, NOTIFICATION_MOBILE_SEND_ATTEMPTS: '2' });
});
afterAll(() => slot.release());
afterEach(() => slot.fcm.heal());

const failWith = (token: string, error: FcmError, more: { times?: number; retryAfter?: string } = {}) => {
  const { times, retryAfter } = more;
  slot.fcm.fail({
    token,
    failure: { kind: 'error', error, ...(retryAfter === undefined ? {} : { retryAfter }) },
    ...(times === undefined ? {} : { times }),
  });
};

const eventsOf = (event: string, jobId: string) =>
  mobile.logged(event).filter((line) => line['job_id'] === jobId);

describe('remove', () => {
  test.each<[code: string, error: FcmError]>([
    ['messaging/invalid-registration-token', 'INVALID_REGISTRATION'],
    ['messaging/registration-token-not-registered', 'UNREGISTERED'],
    ['messaging/invalid-argument', 'INVALID_TOKEN'],
    ['messaging/mismatched-credential', 'SENDER_ID_MISMATCH'],
  ])('M6 M7 %s deletes the token after one request', async (code, error) => {
    const token = `dead by ${error}`;
    const proof = await mobile.userWith(`proof of ${error}`);
    await mobile.settled(await mobile.publishTo(proof.userId));
    const { userId, ids } = await mobile.userWith(token);
    failWith(token, error);
    const jobId = await mobile.publishTo(userId);

    expect(await mobile.settled(jobId)).toMatchObject({ status: 'failed', removed: 1, failed: 0 });
    expect((await mobile.sends(jobId, ids))[token]).toMatchObject({
      status: 'removed',
      attempts: 1,
      last_code: code,
    });
    expect(await mobile.tokensOf(userId)).toEqual([]);
    expect(mobile.requests()[token]).toBe(1);
    expect((await mobile.ended(jobId)).status.name).toBe('COMPLETED');
  });
});

describe('retry', () => {
  const retried: [code: string, failure: FcmFailure][] = [
    ['messaging/server-unavailable', { kind: 'error', error: 'UNAVAILABLE' }],
    ['messaging/unknown-error', { kind: 'error', error: 'UNSPECIFIED_ERROR' }],
    ['messaging/internal-error', { kind: 'error', error: 'INTERNAL' }],
    ['messaging/quota-exceeded', { kind: 'error', error: 'QUOTA_EXCEEDED' }],
    ['messaging/unknown-error', { kind: 'answer', status: 418, body: '<h1>I am a teapot</h1>' }],
    ['app/network-error', { kind: 'reset' }],
  ];
  test.each(retried)(
    'M2 M6 M8 %s is tried again until the budget is spent, and keeps the token',
    async (code, failure) => {
      const token = `down by ${JSON.stringify(failure)}`;
      const { userId, ids } = await mobile.userWith(token);
      slot.fcm.fail({ token, failure });
      const jobId = await mobile.publishTo(userId);

      const row = await mobile.settled(jobId);
      expect(row).toMatchObject({ status: 'failed', failed: 1, error_code: code });
      // What a replay needs stays.
      expect(row.content).toMatchObject({ title: 'Secret title' });
      expect((await mobile.sends(jobId, ids))[token]).toMatchObject({ status: 'failed', attempts: 2 });
      expect(await mobile.tokensOf(userId)).toEqual([token]);
      expect(mobile.requests()[token]).toBe(2);
      expect(eventsOf('notifications.max_retries', jobId)).toEqual([
        expect.objectContaining({ device_token_id: ids.get(token), code, attempts: 2, level: 'error' }),
      ]);
    },
  );

  test('M9 Retry-After decides when the next attempt is made', async () => {
    const { userId } = await mobile.userWith('patient');
    failWith('patient', 'UNAVAILABLE', { times: 1, retryAfter: '2' });
    const jobId = await mobile.publishTo(userId);
    await mobile.settled(jobId);
    const [first, second] = slot.fcm.requests.filter(({ token }) => token === 'patient');
    expect(second!.at - first!.at).toBeGreaterThanOrEqual(2_000);
  });

  test('M9 after a 429 all sends wait, and those that only wait spend nothing', async () => {
    const limited = await mobile.userWith('limited');
    const held = await mobile.userWith('held');
    failWith('limited', 'QUOTA_EXCEEDED', { times: 1, retryAfter: '2' });
    const first = await mobile.publishTo(limited.userId);
    await eventually('the 429', async () => mobile.requests()['limited'] === 1);
    const second = await mobile.publishTo(held.userId);
    await Promise.all([first, second].map(mobile.settled));

    const at = (token: string) => slot.fcm.requests.filter((request) => request.token === token);
    expect(at('held')).toHaveLength(1);
    expect(at('held')[0]!.at - at('limited')[0]!.at).toBeGreaterThanOrEqual(1_900);
    expect((await mobile.sends(second, held.ids))['held']).toMatchObject({ status: 'sent', attempts: 1 });
    expect((await mobile.sends(first, limited.ids))['limited']).toMatchObject({
      status: 'sent',
      attempts: 2,
    });
  });
});

describe('fatal', () => {
  const refusals: [id: string, code: string, failure: FcmFailure][] = [
    [
      'bug-P2',
      'messaging/authentication-error',
      { kind: 'answer', status: 403, body: '<h1>Access denied by proxy</h1>' },
    ],
    ['bug-P2', 'messaging/authentication-error', { kind: 'error', error: 'PERMISSION_DENIED' }],
    ['bug-P12', 'messaging/third-party-auth-error', { kind: 'error', error: 'THIRD_PARTY_AUTH_ERROR' }],
  ];
  test.each(refusals)(
    '%s M6 M7 one %s ends no job: an operator is called, and the next attempt decides',
    async (_id, code, failure) => {
      const token = `refused once by ${JSON.stringify(failure)}`;
      const { userId, ids } = await mobile.userWith(token);
      slot.fcm.fail({ token, failure, times: 1 });
      const jobId = await mobile.publishTo(userId);

      expect(await mobile.settled(jobId)).toMatchObject({ status: 'sent', sent: 1 });
      expect(eventsOf('notifications.fcm_fatal', jobId)).toEqual([
        expect.objectContaining({ device_token_id: ids.get(token), code, level: 'error' }),
      ]);
    },
  );

  test('bug-P2 M6 M7 a device that stays refused costs the others none of their attempts', async () => {
    const { userId, ids } = await mobile.userWith('odd', 'later', 'soon');
    failWith('odd', 'PERMISSION_DENIED');
    failWith('later', 'UNAVAILABLE', { times: 1, retryAfter: '1' });
    failWith('soon', 'UNAVAILABLE', { times: 1 });
    const jobId = await mobile.publishTo(userId);

    expect(await mobile.settled(jobId)).toMatchObject({ status: 'partial', sent: 2, failed: 1 });
    expect(mobile.requests()).toMatchObject({ odd: 2, later: 2, soon: 2 });
    const code = 'messaging/authentication-error';
    expect((await mobile.sends(jobId, ids))['odd']).toMatchObject({ status: 'failed', last_code: code });
    expect(eventsOf('notifications.fcm_fatal', jobId)).toHaveLength(2);
    expect(await mobile.tokensOf(userId)).toEqual(['later', 'odd', 'soon']);
    expect((await mobile.ended(jobId)).status.name).toBe('FAILED');
  });
});

describe('an invalid argument', () => {
  const refuse = (token: string, error: FcmError, ofPayload = false) =>
    slot.fcm.fail({ token, failure: { kind: 'error', error, ofPayload } });

  test('kinds-V4 M7 costs no device its token when FCM names the part for its platform', async () => {
    const { userId, ids } = await mobile.userWith('iphone of many', 'android of many');
    refuse('iphone of many', 'INVALID_PAYLOAD');
    const jobId = await mobile.publishTo(userId);

    expect(await mobile.settled(jobId)).toMatchObject({ status: 'partial', sent: 1, removed: 0, failed: 1 });
    expect(await mobile.tokensOf(userId)).toEqual(['android of many', 'iphone of many']);
    expect((await mobile.sends(jobId, ids))['iphone of many']).toMatchObject({
      status: 'failed',
      ...{ attempts: 1, last_code: 'messaging/invalid-argument' },
    });
    expect((await mobile.ended(jobId)).status.name).toBe('FAILED');
  });

  test('kinds-V4 M7 removes a token when FCM refuses that token by itself, too, and no other', async () => {
    const { userId, ids } = await mobile.userWith('odd one', 'innocent');
    refuse('odd one', 'INVALID_ARGUMENT');
    refuse('innocent', 'INVALID_ARGUMENT', true);
    const jobId = await mobile.publishTo(userId);

    expect(await mobile.settled(jobId)).toMatchObject({ status: 'failed', sent: 0, removed: 1, failed: 1 });
    expect(await mobile.tokensOf(userId)).toEqual(['innocent']);
    expect((await mobile.sends(jobId, ids))['odd one']).toMatchObject({
      last_code: 'messaging/invalid-argument',
    });
  });
});

test('kinds-V4 M7 answers that are not about the token cost none of three devices its token', async () => {
  const tokens = ['of a project 1', 'of a project 2', 'of a project 3'];
  const { userId } = await mobile.userWith(...tokens);
  for (const token of tokens) failWith(token, 'NOT_FOUND');
  const jobId = await mobile.publishTo(userId);

  expect(await mobile.settled(jobId)).toMatchObject({ status: 'failed', removed: 0, failed: 3 });
  expect(await mobile.tokensOf(userId)).toEqual(tokens);
});
