/**
 * Devices that FCM refuses, and a process that dies after each step of that. The way without failures is in
 * ../platform/crash-points.hard.test.ts.
 */
import { createCrashWalk } from '../crash-walk.ts';
import { eventually, operatorOf, slotOfEachTest } from '../harness.ts';
import { ofEachTest } from '../of-tests.ts';
import { scratchFolder } from '../scratch.ts';
import { QUICK, mobileOfEachTest } from './jobs.ts';

const LIMIT_MS = 240_000;
jest.setTimeout(600_000);
const ATTEMPTS = 5;

const slot = slotOfEachTest();
const mobile = mobileOfEachTest(slot);
const scratch = scratchFolder('crash-fcm');
const walk = ofEachTest(
  () =>
    createCrashWalk(slot, {
      ...QUICK,
      NOTIFICATION_FCM_ENDPOINT: slot.fcm.url,
      NOTIFICATION_HTTP_CA_FILE: scratch.write('ca.pem', slot.fcm.caPem),
      // Jobs that were in the hands of processes that died are to be taken, not given up.
      NOTIFICATION_MOBILE_MAX_DELIVERY_COUNT: '50',
      NOTIFICATION_MOBILE_SEND_ATTEMPTS: String(ATTEMPTS),
    }),
  (begun) => begun.release(),
);

test('M5 M6 M7 a process that dies after any step of a refused send: the token is gone, counted once, and no other is', async () => {
  const jobs: { jobId: string; userId: string }[] = [];
  /** A device that takes the push, and one that FCM refuses it for. */
  const put = (error: 'INVALID_ARGUMENT' | 'UNREGISTERED' | 'UNAVAILABLE', times?: number) => async () => {
    const [good, odd] = [`${jobs.length}-good`, `${jobs.length}-odd`];
    const { userId } = await mobile.userWith(good, odd);
    slot.fcm.fail({
      token: odd,
      failure: { kind: 'error', error },
      ...(times === undefined ? {} : { times }),
    });
    const jobId = await mobile.publishTo(userId);
    jobs.push({ jobId, userId });
    return async () => {
      const status = (await mobile.logRow(jobId))?.status;
      return status !== undefined && status !== 'pending';
    };
  };
  const kills = {
    // The answer, the deletion of the token, and the row that says so.
    malformed: await walk.through('sendToDevice', put('INVALID_ARGUMENT'), 4),
    stale: await walk.through('sendToDevice', put('UNREGISTERED'), 4),
  };
  const refused = jobs.length;
  const retried = await walk.through('sendToDevice', put('UNAVAILABLE', 1), 4);
  console.info(`processes that died: ${JSON.stringify({ ...kills, retried })}`);
  expect(kills.malformed).toBeGreaterThanOrEqual(2);
  expect(kills.stale).toBeGreaterThanOrEqual(2);
  expect(retried).toBeGreaterThanOrEqual(2);

  await walk.survivor();
  for (const [index, { jobId, userId }] of jobs.entries()) {
    await eventually(
      `job ${jobId} to be settled`,
      async () => (await mobile.logRow(jobId))?.status !== 'pending',
      LIMIT_MS,
    );
    await mobile.ended(jobId);
    const [sent, removed] = index < refused ? [1, 1] : [2, 0];
    expect(await mobile.logRow(jobId)).toMatchObject({ tokens: 2, sent, removed, failed: 0 });
    const tokens = [`${index}-good`, `${index}-odd`].slice(0, sent);
    expect(await mobile.tokensOf(userId)).toEqual(tokens);
  }
});

test('U2 M8 a process that dies after any step of an operation: what failed is sent again once', async () => {
  await walk.survivor();
  const operator = operatorOf(slot);
  const operations: string[] = [];
  let failed: string;
  const died = await walk.through(
    'doPage',
    async () => {
      const { operationId } = await operator.operations.begin(
        'resend',
        { userId: failed },
        { requestedBy: 'crash' },
      );
      operations.push(operationId);
      return async () => (await operator.operations.show(operationId)).endedAt !== undefined;
    },
    undefined,
    async () => {
      const token = `${operations.length}-down`;
      slot.fcm.fail({ token, failure: { kind: 'error', error: 'UNAVAILABLE' } });
      const { userId } = await mobile.userWith(token);
      failed = userId;
      for (const jobId of [await mobile.publishTo(userId), await mobile.publishTo(userId)]) {
        await eventually(
          `job ${jobId} to fail`,
          async () => (await mobile.logRow(jobId))?.status === 'failed',
          LIMIT_MS,
        );
      }
      expect(mobile.requests()[token]!).toBeGreaterThanOrEqual(2 * ATTEMPTS);
    },
  );
  // Two orders, and that they were given.
  expect(died).toBeGreaterThanOrEqual(3);
  await walk.survivor();
  for (const operationId of operations) {
    const ended = await operator.operations.follow(operationId, { limitMs: LIMIT_MS });
    expect(ended).toMatchObject({ status: 'done', done: 2, ordered: 2 });
    await eventually(
      `the jobs of ${operationId} to end`,
      async () => {
        const { rows } = await slot.db.query(
          `SELECT FROM notification.operation_items JOIN notifications.notification_log USING (job_id)
            WHERE operation_id = $1 AND status = 'failed'`,
          [operationId],
        );
        return rows.length === 2;
      },
      LIMIT_MS,
    );
  }
  const { rows } = await slot.db.query<{ attempts: number }>(
    'SELECT attempts FROM notifications.notification_sends',
  );
  expect(rows).toEqual(operations.flatMap(() => [{ attempts: ATTEMPTS }, { attempts: ATTEMPTS }]));
  const requests = mobile.requests();
  // A death between FCM's answer and its row has one more.
  for (const index of operations.keys()) {
    expect(requests[`${index}-down`]).toBeGreaterThanOrEqual(4 * ATTEMPTS);
    expect(requests[`${index}-down`]).toBeLessThan(6 * ATTEMPTS);
  }
});
