/** A mobile push job from its stream entry to FCM: shapes, devices, statuses, retries, replay (seed mobile-push). */
import {
  MOBILE_PUSH_WORKFLOW,
  mobilePushWorkflowId,
  mobileReplay,
} from '../../workflows/mobile-push/contract.ts';
import { eventually, operatorOf, slotOfTests } from '../harness.ts';
import { GROUP, JOBS, QUICK, mobileOfTests } from './jobs.ts';

const slot = slotOfTests();
const mobile = mobileOfTests(slot);
beforeAll(() => slot.startService(QUICK));
afterEach(() => slot.fcm.heal());

const error = (name: 'UNAVAILABLE' | 'UNREGISTERED' | 'SENDER_ID_MISMATCH' | 'QUOTA_EXCEEDED') => ({
  kind: 'error' as const,
  error: name,
});

const replay = (jobId: string) =>
  slot.client.workflow.signalWithStart(
    MOBILE_PUSH_WORKFLOW,
    mobileReplay(jobId, 'user', { requestedBy: 'nina' }),
  );

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

test('M3 a user without devices gets the status no_tokens', async () => {
  const jobId = await mobile.publishTo('nobody');

  expect(await mobile.settled(jobId)).toMatchObject({ status: 'no_tokens', tokens: 0, content: null });
  expect((await mobile.ended(jobId)).status.name).toBe('COMPLETED');
});

test.each([
  ['invalid_entry', 'userId is given beside payload; give one or the other', { payload: '{}' }],
  ['missing_field', 'title, body, badge, data are all missing', { title: undefined, body: undefined }],
  ['invalid_message', 'data key "from" is reserved by FCM', { data: '{"from":"x"}' }],
  ['invalid_message', expect.stringMatching(/^payload is \d+ bytes long/), { body: 'x'.repeat(4_096) }],
])('M1 a malformed job is recorded as %s and does not hold the stream up', async (code, message, change) => {
  const { userId } = await mobile.userWith('of the malformed');
  const fields = { userId, title: 'T', body: 'B', channel: 'c', ...change };
  const present = Object.entries(fields).filter((entry): entry is [string, string] => entry[1] !== undefined);
  const jobId = await mobile.publish(Object.fromEntries(present));

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
  slot.fcm.fail({ token: 'stale', failure: error('UNREGISTERED') });
  slot.fcm.fail({ token: 'mismatched', failure: error('SENDER_ID_MISMATCH') });
  slot.fcm.fail({ token: 'limited', failure: error('QUOTA_EXCEEDED'), times: 1 });
  slot.fcm.fail({ token: 'flaky', failure: error('UNAVAILABLE'), times: 2 });
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

test('M8 an operator sees attempt, failure and next time; the history holds ids only', async () => {
  const { userId, ids } = await mobile.userWith('seen-token');
  slot.fcm.fail({ token: 'seen-token', failure: { ...error('UNAVAILABLE'), retryAfter: '1' }, times: 1 });
  // The wait for the next one lasts as long as it is looked at.
  slot.fcm.fail({ token: 'seen-token', failure: { ...error('UNAVAILABLE'), retryAfter: '3600' } });
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
  expect(await mobile.settled(jobId)).toMatchObject({ status: 'failed', error_code: 'cancelled' });
  await mobile.ended(jobId);
  const history = await mobile.historyText(jobId);
  expect(history).toContain(ids.get('seen-token'));
  expect(history).not.toMatch(/seen-token|Secret/);
  expect(JSON.stringify(slot.logs)).not.toMatch(/seen-token|Secret/);
});

test('M8 a replay sends to the devices that were not reached, with a fresh budget and the same push id', async () => {
  const { userId, ids } = await mobile.userWith('reached', 'unreached');
  slot.fcm.fail({ token: 'unreached', failure: error('UNAVAILABLE') });
  const jobId = await mobile.publishTo(userId);
  expect(await mobile.settled(jobId)).toMatchObject({
    status: 'partial',
    ...{ sent: 1, failed: 1, error_code: 'messaging/server-unavailable' },
  });
  expect((await mobile.ended(jobId)).status.name).toBe('FAILED');
  expect(mobile.requests()).toMatchObject({ reached: 1, unreached: 5 });
  const before = (await mobile.sends(jobId, ids))['unreached']!;
  expect(before).toMatchObject({ status: 'failed', attempts: 5 });

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
  slot.fcm.fail({ token: 'tried twice', failure: error('UNAVAILABLE'), times: 5 });
  const jobId = await mobile.publishTo(userId);
  await eventually('the second attempt', async () => (mobile.requests()['tried twice'] ?? 0) >= 2);
  await replay(jobId);
  await eventually('the job to be sent', async () => (await mobile.logRow(jobId))?.status === 'sent');
  expect(mobile.requests()['tried twice']).toBe(6);
});

test('M8 a cancelled job writes down what was not sent, and can be replayed', async () => {
  const { userId } = await mobile.userWith('cancelled');
  slot.fcm.fail({ token: 'cancelled', failure: { ...error('UNAVAILABLE'), retryAfter: '60' } });
  const jobId = await mobile.publishTo(userId);
  await eventually('the first attempt', async () => (mobile.requests()['cancelled'] ?? 0) === 1);
  await slot.client.workflow.getHandle(mobilePushWorkflowId(jobId)).cancel();

  expect(await mobile.settled(jobId)).toMatchObject({ status: 'failed', error_code: 'cancelled', failed: 1 });
  expect((await mobile.ended(jobId)).status.name).toBe('CANCELLED');
  slot.fcm.heal();
  await replay(jobId);
  await eventually('the job to be sent', async () => (await mobile.logRow(jobId))?.status === 'sent');
});

test('M1 the group is read from the beginning and its consumers carry host and process', async () => {
  const [info] = (await slot.redis.xinfo('CONSUMERS', JOBS, GROUP)) as string[][];
  expect(info?.[info.indexOf('name') + 1]).toMatch(new RegExp(`-${process.pid}$`));
});
