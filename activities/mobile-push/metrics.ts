/** The counters of mobile pushes. */
import type { Meter } from '@opentelemetry/api';
import type { MalformedJobCode } from '../../api/mobile-push/job.ts';
import type { MobileStatus } from '../../workflows/mobile-push/contract.ts';
import { countersOf } from '../counters.ts';

/** How an attempt went. `removed`: its token was stale and is deleted. `braked`: nothing was sent. */
type MobileSendResult = 'sent' | 'removed' | 'retry' | 'failed' | 'braked';

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
    mobileEntriesLost: adder(
      'notification.mobile.entries_lost',
      'Stream entries deleted while they were being taken',
    ),
  };
}
