/** What becomes of an order to send that a process carries out after it stood still. */
import { metrics } from '@opentelemetry/api';
import { createMobilePushActivities } from '../../activities/mobile-push/activities.ts';
import { createMobilePushMetrics } from '../../activities/mobile-push/metrics.ts';
import { createLogger } from '../../workers/logger.ts';
import { slotOfTests } from '../harness.ts';
import { REFUSED, runLate } from '../late-attempts.ts';
import { mobileOfTests } from './jobs.ts';

const slot = slotOfTests();
const mobile = mobileOfTests(slot);

test('kinds-F2 a late run of a job does not open it again after its replay has ended', async () => {
  const { db, redis } = slot;
  const { userId } = await mobile.userWith('phone');
  await db.query(
    `INSERT INTO notifications.notification_log (job_id, user_id, channel, content) VALUES ('1-0', $1, 'c', $2)`,
    [userId, { title: 'T', body: 'B', channel: 'c', data: {} }],
  );
  const activities = createMobilePushActivities({
    ...{ db, redis, log: createLogger('silent') },
    metrics: createMobilePushMetrics(metrics.getMeter('test')),
    fcm: { send: async () => ({ outcome: 'refused', code: 'messaging/invalid-argument', reason: 'no' }) },
    mobile: { sendAttempts: 1, sendIntervalMs: 1_000 },
  });
  async function sendAndSettle(openedBy: string) {
    const { deviceTokenIds } = await activities.openJob({ jobId: '1-0', openedBy });
    for (const deviceTokenId of deviceTokenIds)
      await activities.sendToDevice({ jobId: '1-0', deviceTokenId });
    return activities.settleJob({ jobId: '1-0' });
  }

  const late = await runLate(slot, activities, {
    ...{ name: 'openJob', args: [{ jobId: '1-0', openedBy: 'run' }] },
    async between() {
      expect(await sendAndSettle('run')).toMatchObject({ status: 'failed' });
      expect(await sendAndSettle('replay')).toMatchObject({ status: 'failed' });
    },
  });
  expect(late).toMatchObject(REFUSED);
  const { rows } = await db.query('SELECT status, opened_by FROM notifications.notification_log');
  expect(rows).toEqual([{ status: 'failed', opened_by: 'replay' }]);
});
