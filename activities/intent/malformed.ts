/** The table of stream entries that could not become a record. */
import { ApplicationFailure } from '@temporalio/activity';
import type { Pool } from 'pg';
import type { MalformedIntent } from '../../api/intent/entry.ts';
import { cutText, wellFormedText } from '../../api/text.ts';
import { POSTGRES_UNUSABLE } from '../../workflows/failures.ts';
import { isPostgresRefusal, query } from '../postgres.ts';

/** Of the reason in a bare row, characters. */
const MAX_REASON = 500;

const RECORD_MALFORMED = {
  name: 'record_malformed_intent',
  text: `
    INSERT INTO notification.malformed_intents
      (stream_entry_id, notification_type, producer, idempotency_key, failure_code, failure_message, raw_fields, recorded_at,
       conflicts_with)
    VALUES ($1, $2, $3, $4, $5, $6, $7, now(), $8)
    ON CONFLICT (stream_entry_id) DO NOTHING
    RETURNING 1`,
};

/**
 * Keeps one row per entry however often the entry is read. One that PostgreSQL does not take is kept bare, as
 * `unstorable` with the reason: an entry must not hold up those behind it.
 *
 * @param conflictsWith the notification that has the idempotency key, for `idempotency_conflict`.
 * @returns the row, and whether it is new.
 * @throws ApplicationFailure `PostgresUnavailable`, or `PostgresUnusable`, also when not even a bare row is taken: then
 * nothing is wrong with the entry.
 */
export async function recordMalformed(
  db: Pool,
  malformed: MalformedIntent,
  conflictsWith?: string,
): Promise<{ recorded: MalformedIntent; isNew: boolean }> {
  try {
    return { recorded: malformed, isNew: await insert(db, malformed, conflictsWith) };
  } catch (error) {
    if (!isPostgresRefusal(error)) throw error;
    const bare = bareOf(malformed, error.message);
    return { recorded: bare, isNew: await insert(db, bare).catch(blameTable) };
  }
}

async function insert(db: Pool, malformed: MalformedIntent, conflictsWith?: string): Promise<boolean> {
  const inserted = await query(db, RECORD_MALFORMED, [
    malformed.streamEntryId,
    malformed.notificationType ?? null,
    malformed.producer ?? null,
    malformed.idempotencyKey ?? null,
    malformed.failureCode,
    malformed.failureMessage,
    JSON.stringify(malformed.rawFields),
    conflictsWith ?? null,
  ]);
  return inserted.length === 1;
}

const bareOf = ({ streamEntryId, failureCode }: MalformedIntent, reason: string): MalformedIntent => ({
  streamEntryId,
  failureCode: 'unstorable',
  failureMessage: cutText(wellFormedText(`${failureCode}; ${reason}`), MAX_REASON),
  rawFields: {},
});

function blameTable(error: unknown): never {
  if (!isPostgresRefusal(error)) throw error;
  throw ApplicationFailure.create({ type: POSTGRES_UNUSABLE, message: error.message });
}
