/** What FCM can answer, each to the end: attempts, rows, the device's token, log events. */
import type { FcmError } from '../../dev/stand-ins/mobile-push/fcm.ts';
import { eventually, slotOfTests } from '../harness.ts';
import { collectorOfTests } from '../otlp-collector.ts';
import { QUICK, mobileOfTests } from './jobs.ts';

const slot = slotOfTests();
const mobile = mobileOfTests(slot);
const collector = collectorOfTests();
beforeAll(() =>
  slot.startService({
    ...QUICK,
    NOTIFICATION_MOBILE_SEND_ATTEMPTS: '2',
    // Jobs without a workflow are not to be taken up.
    NOTIFICATION_RECONCILIATION_INTERVAL: '24h',
    OTEL_EXPORTER_OTLP_ENDPOINT: `${collector.url}/`,
    OTEL_METRIC_EXPORT_INTERVAL: '250',
  }),
);
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

/** A metric's points as `attribute values: count`. */
const pointsOf = (name: string): Record<string, number> =>
  Object.fromEntries(
    collector.latest(name).map(({ attributes, value }) => [
      Object.entries(attributes)
        .map(([key, of]) => `${key}=${of}`)
        .sort()
        .join(' '),
      value,
    ]),
  );

// Before the others, which are counted as well.
test('M3 M6 M8 M9 jobs by status, sends by result and code, malformed entries and what was given up', async () => {
  const { userId } = await mobile.userWith('fine', 'stale', 'away');
  failWith('stale', 'UNREGISTERED');
  failWith('away', 'UNAVAILABLE');
  const jobs = [
    await mobile.publishTo(userId),
    await mobile.publishTo('nobody'),
    await mobile.publish({ x: 'y' }),
  ];
  for (const jobId of jobs) await mobile.settled(jobId);

  await eventually('all of it to be exported', async () => {
    expect(pointsOf('notification.mobile.jobs')).toEqual({ 'status=partial': 1, 'status=no_tokens': 1 });
    return true;
  });
  expect(pointsOf('notification.mobile.sends')).toEqual({
    'code=none result=sent': 1,
    'code=messaging/registration-token-not-registered result=removed': 1,
    'code=messaging/server-unavailable result=retry': 1,
    'code=messaging/server-unavailable result=failed': 1,
  });
  expect(pointsOf('notification.mobile.malformed')).toEqual({ 'failure_code=missing_field': 1 });
  expect(pointsOf('notification.mobile.max_retries')).toEqual({ 'what=send': 1 });

  slot.fcm.heal();
  const gauge = 'notification.mobile.oldest_pending_age_ms';
  await eventually('no job to be left', async () => pointsOf(gauge)[''] === 0);
  await slot.db.query(
    `INSERT INTO notifications.notification_log (job_id, user_id, content, updated_at)
     VALUES ('1-1', 'nobody', '{}', now() - interval '2 hours'), ('1-2', 'nobody', '{}', now())`,
  );
  await eventually('the job that is not done to be seen', async () => pointsOf(gauge)['']! >= 2 * 3_600_000);
  await slot.db.query("DELETE FROM notifications.notification_log WHERE job_id LIKE '1-_'");
});

describe('retry', () => {
  test('M2 M6 M8 a device that stays down is tried again until the budget is spent, and keeps its token', async () => {
    const { userId, ids } = await mobile.userWith('down');
    failWith('down', 'UNAVAILABLE');
    const jobId = await mobile.publishTo(userId);

    const row = await mobile.settled(jobId);
    const code = 'messaging/server-unavailable';
    expect(row).toMatchObject({ status: 'failed', failed: 1, error_code: code });
    // What a replay needs stays.
    expect(row.content).toMatchObject({ title: 'Secret title' });
    expect((await mobile.sends(jobId, ids))['down']).toMatchObject({ status: 'failed', attempts: 2 });
    expect(await mobile.tokensOf(userId)).toEqual(['down']);
    expect(mobile.requests()['down']).toBe(2);
    expect(eventsOf('notifications.max_retries', jobId)).toEqual([
      expect.objectContaining({ device_token_id: ids.get('down'), code, attempts: 2, level: 'error' }),
    ]);
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
  test('bug-P12 M6 M7 one refusal ends no job: an operator is called, and the next attempt decides', async () => {
    const { userId, ids } = await mobile.userWith('refused once');
    failWith('refused once', 'THIRD_PARTY_AUTH_ERROR', { times: 1 });
    const jobId = await mobile.publishTo(userId);

    expect(await mobile.settled(jobId)).toMatchObject({ status: 'sent', sent: 1 });
    const [device_token_id, code] = [ids.get('refused once'), 'messaging/third-party-auth-error'];
    expect(eventsOf('notifications.fcm_fatal', jobId)).toEqual([
      expect.objectContaining({ device_token_id, code, level: 'error' }),
    ]);
  });

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

test('kinds-V4 M7 an argument that FCM names costs no device its token', async () => {
  const { userId, ids } = await mobile.userWith('iphone of many', 'android of many');
  failWith('iphone of many', 'INVALID_PAYLOAD');
  const jobId = await mobile.publishTo(userId);

  expect(await mobile.settled(jobId)).toMatchObject({ status: 'partial', sent: 1, removed: 0, failed: 1 });
  expect(await mobile.tokensOf(userId)).toEqual(['android of many', 'iphone of many']);
  expect((await mobile.sends(jobId, ids))['iphone of many']).toMatchObject({
    status: 'failed',
    ...{ attempts: 1, last_code: 'messaging/invalid-argument' },
  });
  expect((await mobile.ended(jobId)).status.name).toBe('FAILED');
});

test('kinds-V9 M8 each of many devices, more than a page, gets its push once through an outage of FCM', async () => {
  const devices = Array.from({ length: 130 }, (_, index) => `outage-${index}`);
  const { userId, ids } = await mobile.userWith(...devices);
  // Fewer than a page: no device fails twice.
  slot.fcm.fail({ failure: { kind: 'error', error: 'UNAVAILABLE' }, times: 60 });
  const jobId = await mobile.publishTo(userId);

  const everything = { status: 'sent', tokens: devices.length, sent: devices.length };
  expect(await mobile.settled(jobId)).toMatchObject(everything);
  expect((await mobile.ended(jobId)).status.name).toBe('COMPLETED');
  const accepted = slot.fcm.requests.filter(
    ({ token, isAccepted }) => isAccepted && token.startsWith('outage-'),
  );
  expect(accepted.map(({ token }) => token).sort()).toEqual(devices.toSorted());
  const sends = Object.values(await mobile.sends(jobId, ids));
  expect(sends.filter(({ status }) => status === 'sent')).toHaveLength(devices.length);
});
