/** The table of stream entries that could not become a record. */
import type { Pool } from 'pg';
import type { MalformedIntent } from '../../api/intent/entry.ts';
import { query } from '../postgres.ts';

const RECORD_MALFORMED = {
  name: 'record_malformed_intent',
  text: `
    INSERT INTO notification.malformed_intents
      (stream_entry_id, notification_type, producer, idempotency_key, failure_code, failure_message, raw_fields, recorded_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, now())
    ON CONFLICT (stream_entry_id) DO NOTHING
    RETURNING 1`,
};

/**
 * Keeps one row per entry however often the entry is read.
 *
 * @returns whether the row is new.
 * @throws ApplicationFailure `PostgresUnavailable`.
 */
export async function recordMalformed(db: Pool, malformed: MalformedIntent): Promise<boolean> {
  const inserted = await query(db, RECORD_MALFORMED, [
    malformed.streamEntryId,
    malformed.notificationType ?? null,
    malformed.producer ?? null,
    malformed.idempotencyKey ?? null,
    malformed.failureCode,
    malformed.failureMessage,
    JSON.stringify(malformed.rawFields),
  ]);
  return inserted.length === 1;
}
