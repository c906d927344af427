/** Mobile pushes in this process: their settings, activities, FCM and the consumer of jobs. */
import { watchGroup } from '../activities/stream-memory.ts';
import { createMobilePushActivities } from '../activities/mobile-push/activities.ts';
import type { FcmSender } from '../activities/mobile-push/fcm.ts';
import { createFcmSender } from '../activities/mobile-push/fcm.ts';
import { createMobilePushMetrics, mobileGauges } from '../activities/mobile-push/metrics.ts';
import { mobileOperations, mobileReconciliation } from '../activities/mobile-push/intake.ts';
import { mobileTables } from '../activities/mobile-push/rows.ts';
import { consumeMobileJobs } from '../activities/mobile-push/stream.ts';
import { createOperationActivities } from '../activities/operations.ts';
import { DEFAULT_MOBILE_STREAM } from '../api/mobile-push/job.ts';
import { CONSUMER_GROUP } from '../api/stream-ids.ts';
import { MOBILE_TASK_QUEUE } from '../workflows/mobile-push/contract.ts';
import type { ProcessContext } from './context.ts';
import { reach, required } from './context.ts';
import { fcmTargetOf } from './embedded.ts';
import type { Role } from './role.ts';

export async function openMobilePushes(context: ProcessContext): Promise<Role> {
  const { config, log, meter } = context;
  const fcm = await openFcm(context);
  const { values } = config;
  const mobile = {
    attemptIntervalMs: values.NOTIFICATION_MOBILE_AUTOCLAIM_MIN_IDLE,
    maxDeliveries: values.NOTIFICATION_MOBILE_MAX_DELIVERY_COUNT,
    sendAttempts: values.NOTIFICATION_MOBILE_SEND_ATTEMPTS,
    timeToLiveMs: values.NOTIFICATION_MOBILE_TIME_TO_LIVE,
  };
  const metrics = createMobilePushMetrics(meter);

  return {
    taskQueue: MOBILE_TASK_QUEUE,
    longLived: [],
    expiring: mobileTables(
      values.NOTIFICATION_RECORD_RETENTION,
      values.NOTIFICATION_MALFORMED_INTENT_RETENTION,
    ),

    activities: ({ db, redis, client }) => ({
      ...createMobilePushActivities({ mobile, db, redis, log, metrics, fcm }),
      ...createOperationActivities(db, mobileOperations(client.workflow)),
    }),

    gauges: ({ db }) => mobileGauges(db),

    reconciled: ({ db, client }) =>
      mobileReconciliation({ mobile, db, workflows: client.workflow, log, metrics }),

    async startWork({ db, redis, client, openReader }) {
      const { workflow: workflows } = client;
      const consumer = consumeMobileJobs({ mobile, db, redis, workflows, log, metrics, openReader });
      const jobs = { stream: DEFAULT_MOBILE_STREAM, group: CONSUMER_GROUP, redis };
      const watch = watchGroup({ ...jobs, db, log, role: 'mobile-push' });
      return [consumer.stop, watch.stop];
    },
  };
}

/** Opens the sender. Nothing is asked of FCM yet: its credentials can be checked, its answers depend on the device. */
function openFcm({ config, endpoints, open, renewable }: ProcessContext): Promise<FcmSender> {
  return reach('FCM', 'GOOGLE_APPLICATION_CREDENTIALS or NOTIFICATION_FCM_ENDPOINT', () => {
    const brakeMs = config.values.NOTIFICATION_FCM_BRAKE;
    const sender = createFcmSender({ target: required(endpoints.fcm), brakeMs });
    open.add('FCM', () => sender.close());
    renewable.push({
      what: 'FCM',
      variables: ['GOOGLE_APPLICATION_CREDENTIALS', 'NOTIFICATION_HTTP_CA_FILE'],
      renew: ({ values }) => sender.use(fcmTargetOf(values) ?? required(endpoints.fcm)),
    });
    return sender;
  });
}
