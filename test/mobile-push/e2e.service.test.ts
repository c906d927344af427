/**
 * A mobile push job from its stream entry to FCM: shapes, devices, what FCM can answer, statuses, retries, replay (seed
 * mobile-push).
 */
import {
  MOBILE_PUSH_WORKFLOW,
  mobilePushWorkflowId,
  mobileReplay,
} from '../../workflows/mobile-push/contract.ts';
import { eventually, operatorOf, slotOfTests } from '../harness.ts';
import { keptByTemporal } from '../kept.ts';
import { collectorOfTests } from '../otlp-collector.ts';
import { GROUP, JOBS, QUICK, mobileOfTests } from './jobs.ts';

const slot = slotOfTests();
const mobile = mobileOfTests(slot);
const collector = collectorOfTests();
beforeAll(() =>
  slot.startService({
    ...QUICK,
    // Jobs without a workflow are not to be taken up.
    NOTIFICATION_RECONCILIATION_INTERVAL: '24h',
    OTEL_EXPORTER_OTLP_ENDPOINT: `${collector.url}/`,
    OTEL_METRIC_EXPORT_INTERVAL: '250',
  }),
);
afterEach(() => {
  slot.fcm.heal();
  slot.fcm.forget();
});

const eventsOf = (event: string, jobId: string) =>
  mobile.logged(event).filter((line) => line['job_id'] === jobId);

const replay = (jobId: string) =>
  slot.client.workflow.signalWithStart(
    MOBILE_PUSH_WORKFLOW,
    mobileReplay(jobId, 'user', { requestedBy: 'nina' }),
  );

// Before the others, which are counted as well.
test('M3 M6 M8 M9 jobs by status, sends by result and code, malformed entries and what was given up', async () => {
  const { userId } = await mobile.userWith('fine', 'stale', 'away');
  mobile.refuse('stale', 'UNREGISTERED');
  mobile.refuse('away', 'UNAVAILABLE');
  const jobs = [
    await mobile.publishTo(userId),
    await mobile.publishTo('nobody'),
    await mobile.publish({ x: 'y' }),
  ];
  for (const jobId of jobs) await mobile.settled(jobId);
  expect(await mobile.logRow(jobs[1]!)).toMatchObject({ status: 'no_tokens', tokens: 0, content: null });
  expect((await mobile.ended(jobs[1]!)).status.name).toBe('COMPLETED');

  await eventually('all of it to be exported', async () => {
    expect(collector.counts('notification.mobile.jobs')).toEqual({
      'status=partial': 1,
      'status=no_tokens': 1,
    });
    return true;
  });
  expect(collector.counts('notification.mobile.sends')).toEqual({
    'code=none result=sent': 1,
    'code=messaging/registration-token-not-registered result=removed': 1,
    'code=messaging/server-unavailable result=retry': 4,
    'code=messaging/server-unavailable result=failed': 1,
  });
  expect(collector.counts('notification.mobile.malformed')).toEqual({ 'failure_code=missing_field': 1 });
  expect(collector.counts('notification.mobile.max_retries')).toEqual({ 'what=send': 1 });

  slot.fcm.heal();
  const gauge = 'notification.mobile.oldest_pending_age_ms';
  await eventually('no job to be left', async () => collector.counts(gauge)[''] === 0);
  await slot.db.query(
    `INSERT INTO notifications.notification_log (job_id, user_id, content, updated_at)
     VALUES ('1-1', 'nobody', '{}', now() - interval '2 hours'), ('1-2', 'nobody', '{}', now())`,
  );
  await eventually(
    'the job that is not done to be seen',
    async () => collector.counts(gauge)['']! >= 2 * 3_600_000,
  );
  await slot.db.query("DELETE FROM notifications.notification_log WHERE job_id LIKE '1-_'");
});

test('M1 M3 M4 M5 a flat job reaches every device of its user, and no other device', async () => {
  const { userId, ids } = await mobile.userWith('phone', 'tablet');
  await mobile.userWith('of another user');
  const jobId = await mobile.publishTo(userId, { badge: '7', data: '{"game":"g-1","turn":3}' });

  expect(await mobile.settled(jobId)).toMatchObject({
    status: 'sent',
    ...{ tokens: 2, sent: 2, removed: 0, failed: 0, error_code: null },
    // What people were told is not kept when nothing is left to send.
    content: null,
  });
  expect(mobile.requests()).toEqual({ phone: 1, tablet: 1 });
  const sends = await mobile.sends(jobId, ids);
  for (const { token, body } of slot.fcm.requests) {
    const { push_id } = sends[token]!;
    expect(body.message).toMatchObject({
      notification: { title: 'Secret title', body: 'Secret body' },
      data: { game: 'g-1', turn: '3', channel: 'alerts', push_id },
      apns: { payload: { aps: { badge: 7 } } },
    });
  }
  await eventually('the acknowledgement', async () => (await mobile.pending()) === 0);
});

test.each([
  ['invalid_entry', 'userId is given beside payload; give one or the other', { payload: '{}' }],
  ['invalid_message', 'data key "from" is reserved by FCM', { data: '{"from":"x"}' }],
])('M1 a malformed job is recorded as %s and does not hold the stream up', async (code, message, change) => {
  const { userId } = await mobile.userWith('of the malformed');
  const jobId = await mobile.publish({ userId, title: 'T', body: 'B', channel: 'c', ...change });

  const row = await mobile.settled(jobId);
  expect(row).toMatchObject({ status: 'malformed', error_code: code, error_message: message, content: null });
  expect(row.raw_fields).toMatchObject({ userId });
  // The line comes by a pipe, and may come behind the row.
  await eventually('the line in the log', async () =>
    slot.logs.some((line) => line['job_id'] === jobId && line['failure_code'] === code),
  );
  await eventually('the acknowledgement', async () => (await mobile.pending()) === 0);
  expect(mobile.requests()['of the malformed']).toBeUndefined();
});

test('M6 M7 M8 M9 kinds-V4 bug-P2 bug-P12 devices that answer in every way: one send to each success, right removals, its own budget to each', async () => {
  const devices = {
    fine: { status: 'sent', attempts: 1 },
    stale: { status: 'removed', attempts: 1 },
    mismatched: { status: 'removed', attempts: 1 },
    limited: { status: 'sent', attempts: 2 },
    flaky: { status: 'sent', attempts: 3 },
    later: { status: 'sent', attempts: 2 },
    'refused once': { status: 'sent', attempts: 2 },
    odd: { status: 'failed', attempts: 5, last_code: 'messaging/authentication-error' },
    payload: { status: 'failed', attempts: 1, last_code: 'messaging/invalid-argument' },
  };
  // A token of another project is deleted only while FCM takes pushes with our credential.
  const before = await mobile.userWith('before');
  await mobile.sent(await mobile.publishTo(before.userId));
  const { userId, ids } = await mobile.userWith(...Object.keys(devices));
  mobile.refuse('stale', 'UNREGISTERED');
  mobile.refuse('mismatched', 'SENDER_ID_MISMATCH');
  mobile.refuse('limited', 'QUOTA_EXCEEDED', { times: 1 });
  mobile.refuse('flaky', 'UNAVAILABLE', { times: 2 });
  mobile.refuse('later', 'UNAVAILABLE', { times: 1, retryAfter: '1' });
  mobile.refuse('refused once', 'THIRD_PARTY_AUTH_ERROR', { times: 1 });
  mobile.refuse('odd', 'PERMISSION_DENIED');
  mobile.refuse('payload', 'INVALID_PAYLOAD');
  const jobId = await mobile.publishTo(userId);

  expect(await mobile.settled(jobId)).toMatchObject({
    ...{ status: 'partial', tokens: 9, sent: 5, removed: 2, failed: 2 },
  });
  expect(await mobile.sends(jobId, ids)).toMatchObject(devices);
  expect(mobile.requests()).toMatchObject(
    Object.fromEntries(Object.entries(devices).map(([token, { attempts }]) => [token, attempts])),
  );
  const kept = Object.keys(devices).filter((token) => token !== 'stale' && token !== 'mismatched');
  expect(await mobile.tokensOf(userId)).toEqual(kept.sort());
  expect(mobile.pushIdsTo('flaky')).toHaveLength(1);
  // An operator is called for each refusal of a credential, and the next attempt decides.
  const fatal = eventsOf('notifications.fcm_fatal', jobId);
  expect(fatal).toHaveLength(6);
  expect(fatal).toContainEqual(
    expect.objectContaining({
      ...{ device_token_id: ids.get('refused once'), code: 'messaging/third-party-auth-error' },
      level: 'error',
    }),
  );
  expect((await mobile.ended(jobId)).status.name).toBe('FAILED');
});

test('M8 an operator sees attempt, failure and next time, cancels the job and replays it; the history holds ids only', async () => {
  const { userId, ids } = await mobile.userWith('seen-token');
  mobile.refuse('seen-token', 'UNAVAILABLE', { retryAfter: '1', times: 1 });
  // The wait for the next one lasts as long as it is looked at.
  mobile.refuse('seen-token', 'UNAVAILABLE', { retryAfter: '3600' });
  const jobId = await mobile.publishTo(userId);
  const handle = slot.client.workflow.getHandle(mobilePushWorkflowId(jobId));

  const pending = await eventually('a retry that waits', async () => {
    const { raw } = await handle.describe();
    const [activity] = raw.pendingActivities ?? [];
    return activity?.lastFailure ? activity : undefined;
  });
  expect(pending.lastFailure?.message).toBe('2 of 5 attempts spent: messaging/server-unavailable');
  const { errorCode, sends } = await operatorOf(slot).mobile.show(jobId);
  expect(sends).toMatchObject([{ attempts: 2, lastCode: 'messaging/server-unavailable' }]);
  expect(errorCode).toBe('messaging/server-unavailable');
  const inMs = sends[0]!.nextAttemptAt!.getTime() - Date.now();
  expect([inMs > 3_000_000, inMs <= 3_600_000]).toEqual([true, true]);
  const found = await eventually('the search attribute', async () => {
    const query = `MobileStatus = 'retrying' AND UserId = '${userId}'`;
    for await (const { workflowId } of slot.client.workflow.list({ query })) return workflowId;
    return undefined;
  });
  expect(found).toBe(mobilePushWorkflowId(jobId));

  await handle.cancel();
  expect(await mobile.settled(jobId)).toMatchObject({ status: 'failed', error_code: 'cancelled', failed: 1 });
  expect((await mobile.ended(jobId)).status.name).toBe('CANCELLED');
  const kept = await keptByTemporal(handle);
  expect(kept).toContain(ids.get('seen-token'));
  expect(kept).not.toMatch(/seen-token|Secret/);
  expect(JSON.stringify(slot.logs)).not.toMatch(/seen-token|Secret/);
  slot.fcm.heal();
  await replay(jobId);
  await mobile.sent(jobId);
});

test('M2 M6 M8 a device that stays down spends its budget and keeps its token; a replay sends to the devices that were not reached, with a fresh budget and the same push id', async () => {
  const { userId, ids } = await mobile.userWith('reached', 'unreached');
  mobile.refuse('unreached', 'UNAVAILABLE');
  const jobId = await mobile.publishTo(userId);
  const code = 'messaging/server-unavailable';
  expect(await mobile.settled(jobId)).toMatchObject({
    ...{ status: 'partial', sent: 1, failed: 1, error_code: code },
    // What a replay needs stays.
    content: { title: 'Secret title' },
  });
  expect((await mobile.ended(jobId)).status.name).toBe('FAILED');
  expect(mobile.requests()).toMatchObject({ reached: 1, unreached: 5 });
  const before = (await mobile.sends(jobId, ids))['unreached']!;
  expect(before).toMatchObject({ status: 'failed', attempts: 5 });
  expect(await mobile.tokensOf(userId)).toEqual(['reached', 'unreached']);
  expect(eventsOf('notifications.max_retries', jobId)).toEqual([
    expect.objectContaining({ device_token_id: ids.get('unreached'), code, attempts: 5, level: 'error' }),
  ]);

  slot.fcm.heal();
  await replay(jobId);
  await mobile.sent(jobId);
  expect(mobile.requests()).toMatchObject({ reached: 1, unreached: 6 });
  expect((await mobile.sends(jobId, ids))['unreached']).toMatchObject({
    status: 'sent',
    attempts: 1,
    push_id: before.push_id,
  });
  expect(slot.logs).toContainEqual(expect.objectContaining({ job_id: jobId, requested_by: 'nina' }));
  expect((await mobile.ended(jobId)).status.name).toBe('COMPLETED');
  // A job that reached everybody is not started again.
  await expect(replay(jobId)).rejects.toThrow(/already started/i);
});

test('M1 the group is read from the beginning and its consumers carry host and process', async () => {
  const [info] = (await slot.redis.xinfo('CONSUMERS', JOBS, GROUP)) as string[][];
  expect(info?.[info.indexOf('name') + 1]).toMatch(new RegExp(`-${process.pid}$`));
});
