/** Which records and malformed intents are old enough to be deleted. */
import type { RetentionResources } from '../retention.ts';
import { deleteOlderThan, deletionOf } from '../retention.ts';

export type IntentRetentionActivities = ReturnType<typeof createIntentRetentionActivities>;

export function createIntentRetentionActivities(resources: RetentionResources) {
  const { recordRetentionMs, malformedIntentRetentionMs } = resources.retention;
  return {
    /** Removes records past their retention with their routes and dead letters, unless their key is still reserved. */
    deleteExpiredRecords: () => deleteOlderThan(recordRetentionMs, DELETE_RECORDS, resources),
    deleteExpiredMalformedIntents: () =>
      deleteOlderThan(malformedIntentRetentionMs, DELETE_MALFORMED, resources),
  };
}

const DELETE_RECORDS = deletionOf({
  name: 'delete_expired_records',
  table: 'notification.records',
  key: 'notification_id',
  since: 'accepted_at',
  condition: 'idempotency_expires_at < now()',
});

const DELETE_MALFORMED = deletionOf({
  name: 'delete_expired_malformed_intents',
  table: 'notification.malformed_intents',
  key: 'stream_entry_id',
  since: 'recorded_at',
});
