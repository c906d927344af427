/** Which records and malformed intents are old enough to be deleted. */
import type { RetentionResources } from '../retention.ts';
import { deleteOlderThan, deletionOf } from '../retention.ts';

/** An intent that waits is tried every half minute: one that was not for so long was terminated. */
const ABANDONED_AFTER_MS = 7 * 86_400_000;

export type IntentRetentionActivities = ReturnType<typeof createIntentRetentionActivities>;

export function createIntentRetentionActivities(resources: RetentionResources) {
  const { recordRetentionMs, malformedIntentRetentionMs } = resources.retention;
  return {
    /**
     * Removes records past their retention with their routes and dead letters, unless their key is still reserved; and
     * what is known about intents without a record.
     *
     * @returns how many records.
     */
    async deleteExpiredRecords(): Promise<number> {
      await deleteOlderThan(recordRetentionMs, DELETE_DUPLICATES, resources);
      await deleteOlderThan(ABANDONED_AFTER_MS, DELETE_ABANDONED, resources);
      return deleteOlderThan(recordRetentionMs, DELETE_RECORDS, resources);
    },
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

const DELETE_DUPLICATES = deletionOf({
  name: 'delete_expired_duplicates',
  table: 'notification.duplicates',
  key: 'notification_id',
  since: 'decided_at',
});

const DELETE_ABANDONED = deletionOf({
  name: 'delete_abandoned_waiting_intents',
  table: 'notification.waiting_intents',
  key: 'notification_id',
  since: 'updated_at',
});
