/** The counters and the gauge of mobile push, as a collector receives them from the running service. */
import { eventually, slotOfTests } from '../harness.ts';
import { QUICK, withMobilePush } from './jobs.ts';
import { collectorOfTests } from '../otlp-collector.ts';

const slot = slotOfTests();
const collector = collectorOfTests();

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

test('M3 M6 M8 M9 jobs by status, sends by result and code, malformed entries and what was given up', async () => {
  const mobile = await withMobilePush(slot);
  await slot.startService({
    ...QUICK,
    NOTIFICATION_MOBILE_SEND_ATTEMPTS: '2',
    OTEL_EXPORTER_OTLP_ENDPOINT: `${collector.url}/`,
    OTEL_METRIC_EXPORT_INTERVAL: '250',
  });
  const { userId } = await mobile.userWith('fine', 'stale', 'down');
  slot.fcm.fail({ token: 'stale', failure: { kind: 'error', error: 'UNREGISTERED' } });
  slot.fcm.fail({ token: 'down', failure: { kind: 'error', error: 'UNAVAILABLE' } });
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
});
