/** The counters and gauges of mobile pushes. */
import type { Meter } from '@opentelemetry/api';
import type { Pool } from 'pg';
import type { MalformedJobCode } from '../../api/mobile-push/job.ts';
import type { MobileStatus } from '../../workflows/mobile-push/contract.ts';
import type { GaugeRead } from '../metrics.ts';
import { countersOf, gaugesOfRows, takenUpCounter } from '../metrics.ts';

/**
 * How an attempt went. `removed`: its token was stale and is deleted. `braked`: nothing was sent. `remembered`: nothing was
 * sent, as FCM has it.
 */
type MobileSendResult = 'sent' | 'remembered' | 'removed' | 'retry' | 'failed' | 'braked';

/** Recording functions, one per counter. */
export type MobilePushMetrics = ReturnType<typeof createMobilePushMetrics>;

export function createMobilePushMetrics(meter: Meter) {
  const { counter, adder } = countersOf(meter);
  return {
    mobileJob: counter<{ status: MobileStatus }>(
      'notification.mobile.jobs',
      'Mobile push jobs by how they ended; a replay ends once more',
    ),
    mobileMalformed: counter<{ failure_code: MalformedJobCode }>(
      'notification.mobile.malformed',
      'Stream entries recorded as malformed mobile push jobs',
    ),
    /** Codes are those of firebase-admin and Node, and few of ours. */
    mobileSend: counter<{ result: MobileSendResult; code: string }>(
      'notification.mobile.sends',
      'Attempts to send a mobile push to one device',
    ),
    mobileMaxRetries: counter<{ what: 'send' | 'entry' }>(
      'notification.mobile.max_retries',
      'Sends and stream entries that were given up after their last attempt',
    ),
    workTakenUp: takenUpCounter(meter),
    mobileEntriesLost: adder(
      'notification.mobile.entries_lost',
      'Stream entries deleted while they were being taken',
    ),
  };
}

export const mobileGauges = (db: Pool): GaugeRead[] => [
  gaugesOfRows(
    db,
    {
      'notification.mobile.oldest_pending_age_ms': {
        description:
          'For how long the oldest job is being sent, since it came or was replayed; 0 when none is',
        unit: 'ms',
      },
    },
    READ_OLDEST_PENDING,
  ),
];

/** Of the oldest thousand: a replay opens old ones again, which touches their rows. */
const READ_OLDEST_PENDING = {
  name: 'read_oldest_pending_job',
  text: `
    SELECT coalesce(extract(epoch FROM clock_timestamp() - min(updated_at)) * 1000, 0)::float8
             AS "notification.mobile.oldest_pending_age_ms"
      FROM (SELECT updated_at
              FROM notifications.notification_log
             WHERE status = 'pending'
             ORDER BY created_at
             LIMIT 1000) AS oldest`,
};
