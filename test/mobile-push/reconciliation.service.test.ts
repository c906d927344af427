/** Push jobs whose workflows are lost, or whose rows were put back: they are taken up by their rows. */
import { beatKey } from '../../api/intent/stream.ts';
import { holdAnswers } from '../../dev/stand-ins/failure-scripts.ts';
import { MOBILE_TASK_QUEUE, mobilePushWorkflowId } from '../../workflows/mobile-push/contract.ts';
import type { Slot } from '../harness.ts';
import { eventually, slotOfEachTest } from '../harness.ts';
import { reconcile as reconcileAll } from '../reconcile.ts';
import { namespaceOf } from '../slots.ts';
import { JOBS, QUICK, mobileOfEachTest } from './jobs.ts';

/** Nothing runs by itself: each test says when, and how much time has passed. */
const BY_HAND = {
  ...QUICK,
  NOTIFICATION_RECONCILIATION_INTERVAL: '24h',
  // A job is not to end before the test lets it.
  NOTIFICATION_MOBILE_SEND_ATTEMPTS: '1000',
};

const slot = slotOfEachTest();
/** Its Temporal knows nothing of the first one's work. */
const empty = slotOfEachTest();
const mobile = mobileOfEachTest(slot);

const tenMinutesPass = () =>
  slot.db.query(`UPDATE notifications.notification_log SET created_at = created_at - interval '10 minutes'`);

const reconcile = (of: Slot) => reconcileAll(of, MOBILE_TASK_QUEUE);

test('I49 M8 a Temporal that has lost everything: jobs under way are taken up, and each device gets its push once', async () => {
  const before = await slot.startService(BY_HAND);
  const { userId, ids } = await mobile.userWith('quick', 'slow');
  mobile.refuse('slow', 'UNAVAILABLE', { retryAfter: '3600' });
  const jobId = await mobile.publishTo(userId);
  await eventually('one device to have it, the other to wait', async () => {
    const { quick, slow } = await mobile.sends(jobId, ids);
    return quick?.status === 'sent' && slow?.attempts === 1;
  });
  await before.stop();
  slot.fcm.heal();

  await slot.startService({ ...BY_HAND, TEMPORAL_NAMESPACE: namespaceOf(empty.slot) });
  // What was taken a moment ago may be about to be started.
  await slot.db.query('UPDATE notifications.notification_log SET created_at = now()');
  expect(await reconcile(empty)).toEqual({ pending: 0, restarted: 0, failed: 0 });
  await tenMinutesPass();
  expect(await reconcile(empty)).toEqual({ pending: 1, restarted: 1, failed: 0 });
  expect(await mobile.settled(jobId)).toMatchObject({ status: 'sent', sent: 2 });
  expect(mobile.requests()).toEqual({ quick: 1, slow: 2 });
  expect(slot.logs.filter(({ msg }) => msg === 'overdue work was taken up')).toHaveLength(1);
  expect(await reconcile(empty)).toEqual({ pending: 0, restarted: 0, failed: 0 });
});

test.each([
  { forgotten: 'the list of devices', sql: 'DELETE FROM notifications.notification_sends' },
  {
    forgotten: 'what was sent',
    sql: `UPDATE notifications.notification_sends SET status = 'pending', attempts = 0, message_id = NULL`,
  },
])(
  'I52 M8 a PostgreSQL that is put back under a job forgets $forgotten: the job does not end by that, and is taken up',
  async ({ sql }) => {
    await slot.startService(BY_HAND);
    const { userId, ids } = await mobile.userWith('quick', 'slow');
    const answers = holdAnswers();
    slot.fcm.fail({ token: 'slow', failure: answers.failure, times: 1 });
    const jobId = await mobile.publishTo(userId);
    await answers.arrived;
    await eventually(
      'the other device to have it',
      async () => (await mobile.sends(jobId, ids))['quick']?.status === 'sent',
    );
    await slot.db.query(sql);
    answers.release();
    await mobile.ended(jobId);
    await tenMinutesPass();

    expect(await reconcile(slot)).toEqual({ pending: 1, restarted: 1, failed: 0 });
    expect(await mobile.settled(jobId)).toMatchObject({ status: 'sent', sent: 2 });
    expect(mobile.requests()['quick']).toBe(1);
    for (const token of ['quick', 'slow']) expect(mobile.pushIdsTo(token)).toHaveLength(1);
  },
);

test('I52 a Redis that was put back may have forgotten that jobs were given again: it gives them once more, also when PostgreSQL was started since', async () => {
  await slot.startService(BY_HAND);
  const { userId } = await mobile.userWith('device');
  const jobId = await mobile.publishTo(userId);
  await mobile.settled(jobId);
  await mobile.ended(jobId);
  const key = beatKey('mobile-push', JOBS);
  const beat = async () => (await slot.redis.get(key)) ?? '';
  await eventually('a look', async () => (await beat()) !== '');
  const before = await beat();
  await eventually('some more', async () => Number.parseInt(await beat()) > Number.parseInt(before) + 4);

  // What PostgreSQL lost, and what Redis knew of that.
  await slot.db.query('DELETE FROM notifications.notification_log WHERE job_id = $1', [jobId]);
  await slot.redis.set(key, `${Number.parseInt(before)} 0`);
  await eventually('the job to be written down again', () => mobile.logRow(jobId));
  expect(slot.logs.filter(({ reason }) => String(reason).startsWith('Redis fell back'))).toHaveLength(1);
});

test('I49 a job that is worked on is left alone, and one that an operator has terminated goes on', async () => {
  await slot.startService(BY_HAND);
  const { userId } = await mobile.userWith('slow');
  mobile.refuse('slow', 'UNAVAILABLE', { retryAfter: '3600' });
  const jobId = await mobile.publishTo(userId);
  await eventually('a first attempt', async () => mobile.requests()['slow'] === 1);
  await tenMinutesPass();
  expect(await reconcile(slot)).toEqual({ pending: 1, restarted: 0, failed: 0 });
  slot.fcm.heal();
  await slot.client.workflow.getHandle(mobilePushWorkflowId(jobId)).terminate('by mistake');
  expect(await reconcile(slot)).toEqual({ pending: 1, restarted: 1, failed: 0 });
  expect(await mobile.settled(jobId)).toMatchObject({ status: 'sent', sent: 1 });
});
