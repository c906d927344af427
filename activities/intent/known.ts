/** What the rows say about entries of the intent stream that are read again. */
import type { Pool } from 'pg';
import type { Intent } from '../../api/intent/entry.ts';
import { fingerprintOf } from '../../api/intent/fingerprint.ts';
import { KEYS_OF_ENTRY } from '../../api/intent/forgotten.ts';
import { query } from '../postgres.ts';

/** `taken`: it is decided or cancelled, or waits and is looked after. `reused`: its id is that of a notification with other content. */
export type Knowledge = 'taken' | 'reused';

/** @returns what is known, by notification id; nothing about those that have no row. @throws ApplicationFailure of PostgreSQL. */
export async function findKnown(db: Pool, intents: readonly Intent[]): Promise<Map<string, Knowledge>> {
  if (intents.length === 0) return new Map();
  const rows = await query<{ id: string; is_same: boolean }>(db, FIND_KNOWN, [
    intents.map(({ notificationId }) => notificationId),
    intents.map(({ producer }) => producer),
    intents.map(({ idempotencyKey }) => idempotencyKey),
    intents.map(fingerprintOf),
  ]);
  return new Map(rows.map(({ id, is_same }) => [id, is_same ? 'taken' : 'reused']));
}

/** @returns the ids of those that were cancelled before anybody had begun them. @throws ApplicationFailure of PostgreSQL. */
export async function findCancelled(db: Pool, intents: readonly Intent[]): Promise<Set<string>> {
  const rows = await query<{ id: string }>(db, FIND_CANCELLED, [
    intents.map(({ notificationId }) => notificationId),
    intents.map(({ producer }) => producer),
    intents.map(({ idempotencyKey }) => idempotencyKey),
  ]);
  return new Set(rows.map(({ id }) => id));
}

/** $1 notifications, $2 their producers, $3 idempotency keys. */
const FIND_CANCELLED = {
  name: 'find_cancelled_intents',
  text: `
    SELECT id
      FROM unnest($1::text[], $2::text[], $3::text[]) AS entry (id, producer, idempotency_key)
      JOIN notification.cancelled_intents AS cancelled
        ON cancelled.notification_id = entry.id AND cancelled.producer = entry.producer
       AND cancelled.idempotency_key IN ${KEYS_OF_ENTRY}`,
};

/**
 * A malformed or cancelled entry takes no id away from another one. $1 notifications, $2 their producers, $3 idempotency keys, $4
 * fingerprints.
 */
const FIND_KNOWN = {
  name: 'find_known_intents',
  text: `
    SELECT entry.id,
           CASE WHEN record.notification_id IS NOT NULL
                THEN record.producer = entry.producer AND record.idempotency_key IN ${KEYS_OF_ENTRY}
                     AND record.request_fingerprint = entry.fingerprint
                WHEN waiting.notification_id IS NOT NULL
                THEN waiting.producer = entry.producer AND waiting.idempotency_key = entry.idempotency_key
                ELSE true
            END AS is_same
      FROM unnest($1::text[], $2::text[], $3::text[], $4::text[])
             AS entry (id, producer, idempotency_key, fingerprint)
      LEFT JOIN notification.records AS record ON record.notification_id = entry.id
      LEFT JOIN notification.waiting_intents AS waiting ON waiting.notification_id = entry.id
      LEFT JOIN notification.duplicates AS duplicate ON duplicate.notification_id = entry.id
      LEFT JOIN notification.malformed_intents AS malformed
        ON malformed.stream_entry_id = entry.id
       AND (malformed.failure_code = 'unstorable'
            OR malformed.producer = entry.producer AND malformed.idempotency_key IN ${KEYS_OF_ENTRY})
      LEFT JOIN notification.cancelled_intents AS cancelled
        ON cancelled.notification_id = entry.id AND cancelled.producer = entry.producer
       AND cancelled.idempotency_key IN ${KEYS_OF_ENTRY}
     WHERE coalesce(record.notification_id, waiting.notification_id, duplicate.notification_id,
                    malformed.stream_entry_id, cancelled.notification_id) IS NOT NULL`,
};
