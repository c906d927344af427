/** Retention of records and malformed intents (seed "Retention rules"). */
import type { Pool } from 'pg';
import type { Logger } from 'pino';
import { deleteInBatches } from '../expiry.ts';

export interface RetentionResources {
  db: Pool;
  log: Logger;
  retention: {
    recordRetentionMs: number;
    malformedIntentRetentionMs: number;
  };
}

export type RetentionActivities = ReturnType<typeof createRetentionActivities>;

export function createRetentionActivities(resources: RetentionResources) {
  const { retention } = resources;
  return {
    /** Removes records past their retention with their routes and dead letters, unless their key is still reserved. */
    deleteExpiredRecords: () => deleteInBatches(resources, DELETE_RECORDS, retention.recordRetentionMs),
    deleteExpiredMalformedIntents: () =>
      deleteInBatches(resources, DELETE_MALFORMED, retention.malformedIntentRetentionMs),
  };
}

const DELETE_RECORDS = {
  name: 'delete_expired_records',
  text: `
    WITH expired AS (
      SELECT notification_id
        FROM notification.records
       WHERE accepted_at < now() - $1::bigint * interval '1 millisecond' AND idempotency_expires_at < now()
       ORDER BY accepted_at
       LIMIT $2
         FOR UPDATE SKIP LOCKED
    ), deleted AS (
      DELETE FROM notification.records USING expired WHERE records.notification_id = expired.notification_id
      RETURNING 1
    )
    SELECT count(*) AS deleted FROM deleted`,
};

const DELETE_MALFORMED = {
  name: 'delete_expired_malformed_intents',
  text: `
    WITH expired AS (
      SELECT stream_entry_id
        FROM notification.malformed_intents
       WHERE recorded_at < now() - $1::bigint * interval '1 millisecond'
       ORDER BY recorded_at
       LIMIT $2
         FOR UPDATE SKIP LOCKED
    ), deleted AS (
      DELETE FROM notification.malformed_intents USING expired
       WHERE malformed_intents.stream_entry_id = expired.stream_entry_id
      RETURNING 1
    )
    SELECT count(*) AS deleted FROM deleted`,
};
