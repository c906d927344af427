/** The steps of a job on real tables, with answers of FCM that no server gives on demand; and the retention of jobs. */
import { randomUUID } from 'node:crypto';
import type { ApplicationFailure } from '@temporalio/common';
import { metrics } from '@opentelemetry/api';
import { Redis } from 'ioredis';
import type { FcmResult } from '../../activities/mobile-push/fcm.ts';
import { createMobilePushMetrics } from '../../activities/mobile-push/metrics.ts';
import { createMobilePushActivities } from '../../activities/mobile-push/activities.ts';
import type { SendKey } from '../../workflows/mobile-push/contract.ts';
import { mobileTables } from '../../activities/mobile-push/rows.ts';
import { deleteExpired } from '../../dev/retention.ts';
import { createLogger } from '../../workers/logger.ts';
import type { Slot } from '../harness.ts';
import { eventually, slotOfEachTest, slotOfTests } from '../harness.ts';
import { mobileOfEachTest, mobileOfTests } from './jobs.ts';

const STALE = {
  outcome: 'remove',
  code: 'messaging/registration-token-not-registered',
  reason: 'gone',
} as const;
const SENT = { outcome: 'sent', messageId: 'projects/p/messages/1' } as const;

const slot = slotOfTests();
const mobile = mobileOfTests(slot);

/** Activities whose FCM answers as told; `sent` lists the tokens that it was asked for. */
function activitiesWith(
  answer: (token: string) => Promise<FcmResult>,
  redis: Redis = slot.redis,
  db = slot.db,
) {
  const sent: string[] = [];
  const activities = createMobilePushActivities({
    ...{ db, redis, log: createLogger('silent') },
    metrics: createMobilePushMetrics(metrics.getMeter('test')),
    fcm: {
      send: (_message, token) => {
        sent.push(token);
        return answer(token);
      },
    },
    mobile: { sendAttempts: 2, attemptIntervalMs: 1_000 },
  });
  return { activities, sent };
}

const memoryKeys = () => slot.redis.keys('notification:mobile_sends:*');
/** So that the rows alone know what was sent. */
const redisForgets = async () => slot.redis.del('none', ...(await memoryKeys()));

let jobs = 0;
/** A job as intake writes it down, and two others of the user with sends to the same devices. */
async function jobFor(userId: string, db = slot.db): Promise<string> {
  const jobId = `${(jobs += 1)}-0`;
  await db.query(
    `INSERT INTO notifications.notification_log (job_id, user_id, content)
     SELECT prefix || $1, $2, $3 FROM unnest(ARRAY['', 'pending-', 'failed-']) AS prefix`,
    [jobId, userId, { title: 'T', data: {} }],
  );
  await db.query(
    `INSERT INTO notifications.notification_sends (job_id, device_token_id, status)
     SELECT status || '-' || $1, id::text, status
       FROM public.device_token, unnest(ARRAY['pending', 'failed']) AS status WHERE "userId"::text = $2`,
    [jobId, userId],
  );
  return jobId;
}
afterEach(async () => {
  const { rows: changedOfOthers } = await slot.db.query(
    `SELECT * FROM notifications.notification_sends AS send JOIN notifications.notification_log AS job USING (job_id)
      WHERE job_id ~ '^(pending|failed)-'
        AND (send.status <> split_part(job_id, '-', 1) OR attempts > 0
             OR job.status <> 'pending' OR opened_by IS NOT NULL)`,
  );
  expect(changedOfOthers).toEqual([]);
});

/** A job to one device, opened, with activities whose FCM answers as told. */
async function openedFor(token: string, answer: (token: string) => Promise<FcmResult>, redis?: Redis) {
  const { userId, ids } = await mobile.userWith(token);
  const jobId = await jobFor(userId);
  const { activities, sent } = activitiesWith(answer, redis);
  await activities.openJob({ jobId, openedBy: 'run' });
  const key = { jobId, deviceTokenId: ids.get(token)! };
  const rowOf = async () => (await mobile.sends(jobId, ids))[token];
  return { ...{ userId, jobId, key, activities, sent, rowOf }, send: () => activities.sendToDevice(key) };
}
const DOWN = { outcome: 'retry', code: 'messaging/server-unavailable', reason: 'down' } as const;
/** By another process. */
const sentBy = (key: SendKey) => activitiesWith(async () => SENT).activities.sendToDevice(key);

test('M4 devices beyond those that one statement adds are listed with the next page, each token once', async () => {
  const { userId } = await mobile.userWith(
    ...Array.from({ length: 1_010 }, (_, index) => `many-${index}`),
    'many-0',
  );
  const jobId = await jobFor(userId);
  const { activities } = activitiesWith(async () => SENT);
  const pages = [await activities.openJob({ jobId, openedBy: 'run' })];
  await slot.db.query("UPDATE notifications.notification_sends SET status = 'failed' WHERE job_id = $1", [
    jobId,
  ]);
  pages.push(await activities.openJob({ jobId, openedBy: 'run' }));
  expect(pages.map(({ deviceTokenIds, hasMore }) => [deviceTokenIds.length, hasMore])).toEqual([
    [100, true],
    [10, false],
  ]);
});

test('M7 a token that the device has replaced meanwhile is kept, and gets the next attempt', async () => {
  const { userId, sent, send } = await openedFor('old', async (token) => {
    if (token === 'new') return SENT;
    await slot.db.query("UPDATE public.device_token SET token = 'new' WHERE token = 'old'");
    return STALE;
  });
  await expect(send()).rejects.toMatchObject({ type: 'MobileSendFailed', nextRetryDelay: 1_000 });
  expect(await mobile.tokensOf(userId)).toEqual(['new']);
  expect(await send()).toMatchObject({ status: 'sent' });
  expect(sent).toEqual(['old', 'new']);
});

test.each([
  ['sooner', 0, 1_000],
  ['later', 5_000, 5_000],
])('kinds-F6 M9 an FCM that asks for %s gets the next attempt', async (when, retryAfterMs, retryInMs) => {
  const { send } = await openedFor(`asked ${when}`, async () => ({ ...DOWN, retryAfterMs }));
  await expect(send()).rejects.toMatchObject({ type: 'MobileSendFailed', nextRetryDelay: retryInMs });
});

test('bug-P10 a push that waited too long is not sent, nor replayed, and its content goes', async () => {
  const { jobId, activities, sent, send } = await openedFor('waiting', async () => DOWN);
  await expect(send()).rejects.toMatchObject({ type: 'MobileSendFailed' });
  await slot.db.query(
    `UPDATE notifications.notification_log SET content = content || '{"expiresAtMs": 1790000000000}' WHERE job_id = $1`,
    [jobId],
  );

  expect(await send()).toEqual({ status: 'failed' });
  expect(sent).toEqual(['waiting']);
  expect(await activities.settleJob({ jobId })).toMatchObject({ status: 'failed', code: 'expired' });
  expect((await mobile.logRow(jobId))!.content).toBeNull();
  expect(await activities.openJob({ jobId, openedBy: 'replay' })).toMatchObject({ deviceTokenIds: [] });
});

test('M4 a device that has gone to another user gets nothing', async () => {
  const { userId, sent, send } = await openedFor('handed on', async () => SENT);
  await slot.db.query('UPDATE public.device_token SET "userId" = $1 WHERE "userId" = $2', ['other', userId]);
  expect(await send()).toEqual({ status: 'removed' });
  expect(sent).toEqual([]);
  expect(await mobile.tokensOf('other')).toEqual(['handed on']);
});

test('M8 what FCM took is not sent again, even if PostgreSQL was away and the process has died with the result', async () => {
  await redisForgets();
  let outage: Awaited<ReturnType<Slot['cutOffDatabase']>> | undefined;
  const { jobId, key, activities, sent, send } = await openedFor('in doubt', async () => {
    outage = await slot.cutOffDatabase();
    return SENT;
  });
  expect(await send()).toEqual({ status: 'sent', messageId: SENT.messageId, isRecorded: false });
  await expect(activities.recordSent(key, SENT.messageId)).rejects.toMatchObject({
    type: 'PostgresUnavailable',
  });
  await outage!.restore();
  const [memory] = await memoryKeys();
  expect(await slot.redis.pttl(memory!)).toBeGreaterThan(24 * 3_600_000);

  expect(await sentBy(key)).toEqual({ status: 'sent', messageId: SENT.messageId, isRecorded: true });
  expect(await activities.settleJob({ jobId })).toMatchObject({ status: 'sent', sent: 1 });
  await eventually('the memory to be as long as it is of use', async () => {
    const left = await slot.redis.pttl(memory!);
    return left > 0 && left <= 600_000;
  });
  await redisForgets();
  expect(await send()).toMatchObject({ status: 'sent', isRecorded: true });
  expect(sent).toEqual(['in doubt']);
});

test('M8 while Redis cannot say whether FCM has a push nothing is sent and nothing is spent', async () => {
  // Ended: it answers nothing.
  const away = new Redis({ lazyConnect: true, enableOfflineQueue: false, maxRetriesPerRequest: 0 });
  away.disconnect();
  const { key, sent, send, rowOf } = await openedFor('unknown', async () => SENT, away);
  await expect(send()).rejects.toMatchObject({ type: 'MobileSendDeferred', nonRetryable: false });
  expect(sent).toEqual([]);
  expect(await rowOf()).toMatchObject({ status: 'pending', attempts: 0 });
  expect(await sentBy(key)).toMatchObject({ status: 'sent' });
});

test('M8 a push on its way to FCM is not sent by another attempt, which comes back when the first has ended', async () => {
  const asked = Promise.withResolvers<void>();
  const answer = Promise.withResolvers<FcmResult>();
  const { key, send, rowOf } = await openedFor('twice concurrently', () => {
    asked.resolve();
    return answer.promise;
  });
  const sending = send();
  await asked.promise;
  // Its process was thought dead.
  const second = activitiesWith(async () => SENT);
  const failure = (await second.activities
    .sendToDevice(key)
    .catch((error: unknown) => error)) as ApplicationFailure;
  expect(failure).toMatchObject({
    ...{ type: 'MobileSendDeferred', nonRetryable: false },
    message: 'nothing was sent or spent: another attempt is at it',
  });
  expect(failure.nextRetryDelay).toBeGreaterThan(10_000);
  expect(failure.nextRetryDelay).toBeLessThanOrEqual(20_000);

  answer.resolve(SENT);
  expect(await sending).toMatchObject({ status: 'sent' });
  expect(await second.activities.sendToDevice(key)).toMatchObject({ status: 'sent' });
  expect(second.sent).toEqual([]);
  expect(await rowOf()).toMatchObject({ status: 'sent', attempts: 1 });
});

test('M8 whatever an attempt comes to, the next one need not wait for its lease', async () => {
  const answers: FcmResult[] = [{ outcome: 'braked', retryInMs: 5 }, DOWN, SENT];
  const { sent, send, rowOf } = await openedFor('let go', async () => answers.shift()!);
  await expect(send()).rejects.toMatchObject({ type: 'MobileSendBraked' });
  await expect(send()).rejects.toMatchObject({ type: 'MobileSendFailed' });
  expect(await send()).toMatchObject({ status: 'sent' });
  expect(sent).toHaveLength(3);
  const { push_id: pushId } = (await rowOf())!;
  await eventually(
    'the lease to be given back',
    async () => !(await slot.redis.exists(`notification:mobile_sends:${pushId}:lease`)),
  );
});

test('M8 a process that gets to FCM too late after it has looked sends nothing', async () => {
  const redis = slot.redis.duplicate();
  const { key, sent, send } = await openedFor('asleep', async () => SENT, redis);
  const now = performance.now.bind(performance);
  let sleptMs = 0;
  const clock = jest.spyOn(performance, 'now').mockImplementation(() => now() + sleptMs);
  const evaluate = redis.eval.bind(redis) as (...args: unknown[]) => Promise<unknown>;
  jest.spyOn(redis, 'eval').mockImplementation(async (...args: unknown[]) => {
    const answer = await evaluate(...args);
    sleptMs = 5_001;
    return answer;
  });
  try {
    await expect(send()).rejects.toMatchObject({ type: 'MobileSendDeferred' });
  } finally {
    clock.mockRestore();
    redis.disconnect();
  }
  expect(sent).toEqual([]);
  expect(await sentBy(key)).toMatchObject({ status: 'sent' });
});

test('M8 a Redis that goes away does not make a push fail that FCM took', async () => {
  const going = slot.redis.duplicate();
  const answer = async () => {
    going.disconnect();
    return SENT;
  };
  const { send } = await openedFor('gone by then', answer, going);
  expect(await send().finally(() => going.disconnect())).toMatchObject({ status: 'sent', isRecorded: true });
});

test('M8 an attempt that comes late does not make a push fail that was sent', async () => {
  const { jobId, key, activities, send } = await openedFor('late', async () => {
    // By another attempt, whose process was thought dead, while FCM answers this one.
    await activities.recordSent(key, SENT.messageId);
    return { outcome: 'refused', code: 'messaging/invalid-payload', reason: 'no' };
  });
  await send();
  expect(await activities.settleJob({ jobId })).toMatchObject({ status: 'sent', sent: 1, failed: 0 });
});

test('M8 a job that is cancelled keeps what was sent, and fails the rest', async () => {
  const { userId, ids } = await mobile.userWith('reached', 'left');
  const jobId = await jobFor(userId);
  const { activities } = activitiesWith(async () => SENT);
  await activities.openJob({ jobId, openedBy: 'run' });
  await activities.sendToDevice({ jobId, deviceTokenId: ids.get('reached')! });
  const settled = await activities.settleJob({ jobId, stopCode: 'cancelled' });
  expect(settled).toMatchObject({ status: 'partial', sent: 1, failed: 1 });
  expect(await mobile.sends(jobId, ids)).toMatchObject({
    reached: { status: 'sent' },
    left: { status: 'failed', last_code: 'cancelled' },
  });
});

test('M8 the same opening gives one fresh budget, another opening gives another', async () => {
  const { jobId, key, activities, sent, send } = await openedFor('down', async () => DOWN);
  const spendsTwo = async () => {
    await expect(send()).rejects.toMatchObject({ type: 'MobileSendFailed' });
    expect(await send()).toEqual({ status: 'failed' });
  };
  const openedBy = async (run: string) => (await activities.openJob({ jobId, openedBy: run })).deviceTokenIds;
  await spendsTwo();
  expect(await openedBy('run')).toEqual([]);
  expect(await send()).toEqual({ status: 'failed' });
  expect(await openedBy('another')).toEqual([key.deviceTokenId]);
  await spendsTwo();
  expect(sent).toHaveLength(4);
});

test('bug-P9 M4 M8 a token in several rows gets one push, also after one more row was added', async () => {
  const { userId } = await mobile.userWith('twin', 'twin', 'single');
  const jobId = await jobFor(userId);
  const { activities, sent } = activitiesWith(async () => SENT);
  const run = async (openedBy: string) => {
    const { deviceTokenIds } = await activities.openJob({ jobId, openedBy });
    for (const deviceTokenId of deviceTokenIds) await activities.sendToDevice({ jobId, deviceTokenId });
  };
  await run('first');
  // Before all others in the order of ids.
  await slot.db.query(
    `INSERT INTO public.device_token (id, "userId", token) VALUES ('00000000-0000-0000-0000-000000000009', $1, 'twin')`,
    [userId],
  );
  await run('replay');

  expect(sent.sort()).toEqual(['single', 'twin']);
  expect(await activities.settleJob({ jobId })).toMatchObject({ status: 'sent', tokens: 2, sent: 2 });
});

test('M8 a job that is not there is not waited for', async () => {
  const { activities } = activitiesWith(async () => SENT);
  await expect(activities.openJob({ jobId: 'none', openedBy: 'run' })).rejects.toMatchObject({
    type: 'MobileJobNotFound',
    nonRetryable: true,
  });
});

describe('a table of tokens whose owner has decided for another type of user ids', () => {
  const other = slotOfEachTest();
  const mobileOfOther = mobileOfEachTest(other);
  const uuid = randomUUID();

  test.each([
    ['uuid', uuid, uuid.toUpperCase()],
    ['integer', '7', '007'],
  ])('kinds-V5 M4 %s: %s is the user whom a job calls %s, and no id is one', async (type, id, userId) => {
    const { db, redis } = other;
    await db.query(
      `ALTER TABLE public.device_token ALTER COLUMN "userId" TYPE ${type} USING "userId"::${type}`,
    );
    await db.query('INSERT INTO public.device_token ("userId", token) VALUES ($1, $2)', [id, 'phone']);
    const { activities, sent } = activitiesWith(async () => SENT, redis, db);
    const jobId = await jobFor(userId, db);
    const { deviceTokenIds } = await activities.openJob({ jobId, openedBy: 'run' });
    await activities.sendToDevice({ jobId, deviceTokenId: deviceTokenIds[0]! });
    expect(sent).toEqual(['phone']);

    const impossible = await jobFor('guest-7', db);
    const { stopCode } = await activities.openJob({ jobId: impossible, openedBy: 'run' });
    expect(await activities.settleJob({ jobId: impossible, stopCode: stopCode! })).toMatchObject({
      ...{ status: 'failed', tokens: 0, code: 'user_id_refused' },
    });
    // What a replay needs, when the other table has changed.
    expect((await mobileOfOther.logRow(impossible))!.content).toMatchObject({ title: 'T' });
  });
});

test('kinds-V10 M3 jobs past their retention go with their sends, and none that is under way', async () => {
  await slot.db.query(`
    INSERT INTO notifications.notification_log (job_id, user_id, content, raw_fields, status, created_at)
    SELECT name, 'u', CASE WHEN status = 'malformed' THEN NULL ELSE '{}'::jsonb END,
           CASE WHEN status = 'malformed' THEN '{}'::jsonb END, status, now() - age::interval
      FROM (VALUES ('old-sent', 'sent', '721 hours'), ('old-failed', 'failed', '721 hours'),
                   ('old-pending', 'pending', '721 hours'),
                   ('old-stuck', 'pending', '721 hours'), ('young', 'sent', '719 hours'),
                   ('old-malformed', 'malformed', '2161 hours'), ('young-malformed', 'malformed', '721 hours'))
           AS job (name, status, age);
    UPDATE notifications.notification_log SET updated_at = created_at WHERE user_id = 'u';
    INSERT INTO notifications.notification_sends (job_id, device_token_id, updated_at)
    SELECT job_id, '1', CASE job_id WHEN 'old-stuck' THEN now() - interval '25 hours' ELSE now() END
      FROM notifications.notification_log WHERE user_id = 'u'`);
  const DAY_MS = 86_400_000;
  const { deleted } = await deleteExpired(slot.db, mobileTables(30 * DAY_MS, 90 * DAY_MS));
  expect(deleted).toEqual({ mobile_jobs: 2, stuck_mobile_jobs: 1, malformed_mobile_jobs: 1 });
  for (const table of ['notification_log', 'notification_sends']) {
    const { rows } = await slot.db.query<{ job_id: string }>(
      `SELECT job_id FROM notifications.${table} WHERE job_id ~ '^(old|young)' ORDER BY 1`,
    );
    expect(rows.map(({ job_id }) => job_id)).toEqual(['old-pending', 'young', 'young-malformed']);
  }
});
