/**
 * A mobile push job from its stream entry to FCM: shapes, devices, what FCM can answer, statuses, retries, replay (seed
 * mobile-push).
 */
import type { FcmError } from '../../dev/stand-ins/mobile-push/fcm.ts';
import {
  MOBILE_PUSH_WORKFLOW,
  mobilePushWorkflowId,
  mobileReplay,
} from '../../workflows/mobile-push/contract.ts';
import { eventually, operatorOf, slotOfTests } from '../harness.ts';
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

const replay = (jobId: string) =>
  slot.client.workflow.signalWithStart(
    MOBILE_PUSH_WORKFLOW,
    mobileReplay(jobId, 'user', { requestedBy: 'nina' }),
  );

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
  expect(await mobile.logRow(jobs[1]!)).toMatchObject({ status: 'no_tokens', tokens: 0, content: null });
  expect((await mobile.ended(jobs[1]!)).status.name).toBe('COMPLETED');

  await eventually('all of it to be exported', async () => {
    expect(pointsOf('notification.mobile.jobs')).toEqual({ 'status=partial': 1, 'status=no_tokens': 1 });
    return true;
  });
  expect(pointsOf('notification.mobile.sends')).toEqual({
    'code=none result=sent': 1,
    'code=messaging/registration-token-not-registered result=removed': 1,
    'code=messaging/server-unavailable result=retry': 4,
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

test('M1 M3 M4 M5 a flat job reaches every device of its user, and no other device', async () => {
  const { userId, ids } = await mobile.userWith('phone', 'tablet');
  await mobile.userWith('of another user');
  const jobId = await mobile.publishTo(userId, { badge: '7', data: '{"game":"g-1","turn":3}' });

  expect(await mobile.settled(jobId)).toMatchObject({
    status: 'sent',
    ...{ tokens: 2, sent: 2, removed: 0, failed: 0, error_code: null },
  });
  expect(mobile.requests()).toEqual({ phone: 1, tablet: 1 });
  const sends = await mobile.sends(jobId, ids);
  for (const { token, body } of slot.fcm.requests) {
    const { push_id } = sends[token]!;
    expect(body.message).toMatchObject({
      notification: { title: 'Secret title', body: 'Secret body' },
      data: { game: 'g-1', turn: '3', channel: 'alerts', push_id },
      android: { priority: 'high', notification: { channel_id: 'alerts' } },
      apns: {
        headers: { 'apns-collapse-id': push_id },
        payload: { aps: { badge: 7, 'mutable-content': 1 } },
      },
    });
  }
  expect(await mobile.outcome(jobId)).toEqual({ status: 'sent', tokens: 2, sent: 2, removed: 0, failed: 0 });
  // What people were told is not kept when nothing is left to send.
  const { rows } = await slot.db.query(
    'SELECT content FROM notifications.notification_log WHERE job_id = $1',
    [jobId],
  );
  expect(rows).toEqual([{ content: null }]);
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
  await eventually('the line in the log', () =>
    Promise.resolve(slot.logs.some((line) => line['job_id'] === jobId && line['failure_code'] === code)),
  );
  await eventually('the acknowledgement', async () => (await mobile.pending()) === 0);
  expect(mobile.requests()['of the malformed']).toBeUndefined();
});

test('M6 M7 M8 M9 five devices that answer in five ways: one send to each success, right removals, status', async () => {
  const { userId, ids } = await mobile.userWith('stale', 'mismatched', 'limited', 'flaky', 'fine');
  failWith('stale', 'UNREGISTERED');
  failWith('mismatched', 'SENDER_ID_MISMATCH');
  failWith('limited', 'QUOTA_EXCEEDED', { times: 1 });
  failWith('flaky', 'UNAVAILABLE', { times: 2 });
  const jobId = await mobile.publishTo(userId);

  expect(await mobile.settled(jobId)).toMatchObject({
    status: 'partial',
    ...{ tokens: 5, sent: 3, removed: 2, failed: 0, content: null },
  });
  expect(await mobile.tokensOf(userId)).toEqual(['fine', 'flaky', 'limited']);
  expect(mobile.requests()).toMatchObject({ stale: 1, mismatched: 1, limited: 2, flaky: 3, fine: 1 });
  const sends = await mobile.sends(jobId, ids);
  expect(sends['flaky']).toMatchObject({ status: 'sent', attempts: 3 });
  expect(sends['limited']).toMatchObject({ status: 'sent', attempts: 2 });
  const pushIds = (token: string) =>
    slot.fcm.requests
      .filter((request) => request.token === token)
      .map(({ body }) => (body.message['data'] as Record<string, string>)['push_id']);
  expect(new Set(pushIds('flaky'))).toEqual(new Set([sends['flaky']!.push_id]));
  // Stale tokens are nothing that a replay could reach.
  expect((await mobile.ended(jobId)).status.name).toBe('COMPLETED');
});

test('M8 an operator sees attempt, failure and next time, cancels the job and replays it; the history holds ids only', async () => {
  const { userId, ids } = await mobile.userWith('seen-token');
  failWith('seen-token', 'UNAVAILABLE', { retryAfter: '1', times: 1 });
  // The wait for the next one lasts as long as it is looked at.
  failWith('seen-token', 'UNAVAILABLE', { retryAfter: '3600' });
  const jobId = await mobile.publishTo(userId);
  const handle = slot.client.workflow.getHandle(mobilePushWorkflowId(jobId));

  const pending = await eventually('a retry that waits', async () => {
    const { raw } = await handle.describe();
    const [activity] = raw.pendingActivities ?? [];
    return activity?.lastFailure ? activity : undefined;
  });
  expect(pending.lastFailure?.message).toBe('2 of 5 attempts spent: messaging/server-unavailable');
  expect((await operatorOf(slot).mobile.show(jobId)).sends).toMatchObject([
    { attempts: 2, lastCode: 'messaging/server-unavailable', nextAttemptAt: expect.any(Date) as Date },
  ]);
  const found = await eventually('the search attribute', async () => {
    const query = `MobileStatus = 'retrying' AND UserId = '${userId}'`;
    for await (const { workflowId } of slot.client.workflow.list({ query })) return workflowId;
    return undefined;
  });
  expect(found).toBe(mobilePushWorkflowId(jobId));

  await handle.cancel();
  expect(await mobile.settled(jobId)).toMatchObject({ status: 'failed', error_code: 'cancelled', failed: 1 });
  expect((await mobile.ended(jobId)).status.name).toBe('CANCELLED');
  const history = await mobile.historyText(jobId);
  expect(history).toContain(ids.get('seen-token'));
  expect(history).not.toMatch(/seen-token|Secret/);
  expect(JSON.stringify(slot.logs)).not.toMatch(/seen-token|Secret/);
  slot.fcm.heal();
  await replay(jobId);
  await eventually('the job to be sent', async () => (await mobile.logRow(jobId))?.status === 'sent');
});

test('M2 M6 M8 a device that stays down spends its budget and keeps its token; a replay sends to the devices that were not reached, with a fresh budget and the same push id', async () => {
  const { userId, ids } = await mobile.userWith('reached', 'unreached');
  failWith('unreached', 'UNAVAILABLE');
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
  await eventually('the job to be sent', async () => (await mobile.logRow(jobId))?.status === 'sent');
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

test('M8 a replay that is ordered while sends are under way follows them', async () => {
  const { userId } = await mobile.userWith('tried twice');
  failWith('tried twice', 'UNAVAILABLE', { times: 5 });
  const jobId = await mobile.publishTo(userId);
  await eventually('the second attempt', async () => (mobile.requests()['tried twice'] ?? 0) >= 2);
  await replay(jobId);
  await eventually('the job to be sent', async () => (await mobile.logRow(jobId))?.status === 'sent');
  expect(mobile.requests()['tried twice']).toBe(6);
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

test('kinds-V4 bug-P2 bug-P12 M6 M7 devices that are refused keep their tokens, and cost the others none of their attempts', async () => {
  const { userId, ids } = await mobile.userWith('odd', 'payload', 'refused once', 'later', 'soon');
  failWith('odd', 'PERMISSION_DENIED');
  failWith('payload', 'INVALID_PAYLOAD');
  failWith('refused once', 'THIRD_PARTY_AUTH_ERROR', { times: 1 });
  failWith('later', 'UNAVAILABLE', { times: 1, retryAfter: '1' });
  failWith('soon', 'UNAVAILABLE', { times: 1 });
  const jobId = await mobile.publishTo(userId);

  expect(await mobile.settled(jobId)).toMatchObject({ status: 'partial', sent: 3, failed: 2, removed: 0 });
  expect(mobile.requests()).toMatchObject({ odd: 5, payload: 1, 'refused once': 2, later: 2, soon: 2 });
  expect(await mobile.sends(jobId, ids)).toMatchObject({
    odd: { status: 'failed', attempts: 5, last_code: 'messaging/authentication-error' },
    payload: { status: 'failed', attempts: 1, last_code: 'messaging/invalid-argument' },
  });
  expect(await mobile.tokensOf(userId)).toEqual(['later', 'odd', 'payload', 'refused once', 'soon']);
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

test('M1 the group is read from the beginning and its consumers carry host and process', async () => {
  const [info] = (await slot.redis.xinfo('CONSUMERS', JOBS, GROUP)) as string[][];
  expect(info?.[info.indexOf('name') + 1]).toMatch(new RegExp(`-${process.pid}$`));
});
