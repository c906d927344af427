/** The table of stream entries that are neither prices nor positions, `malformed_account_inputs`. */
import type { Pool } from 'pg';
import type { MalformedInputCode } from '../../api/account-callback/input.ts';
import { isPostgresRefusal, query } from '../postgres.ts';

export interface MalformedInput {
  entryId: string;
  code: MalformedInputCode;
  message: string;
  rawFields: Record<string, string>;
}

/**
 * Keeps one row per entry, however often it comes; one whose fields PostgreSQL does not take without them. Rows past their
 * retention go with every call, some at a time: more than come.
 *
 * @returns the ids of those that are new.
 * @throws ApplicationFailure of PostgreSQL.
 */
export async function recordMalformedInputs(
  db: Pool,
  inputs: readonly MalformedInput[],
  retentionMs: number,
): Promise<Set<string>> {
  const insert = (fieldsOf: (input: MalformedInput) => Record<string, string>) =>
    query<{ stream_entry_id: string }>(db, RECORD_MALFORMED, [
      inputs.map(({ entryId }) => entryId),
      inputs.map(({ code }) => code),
      inputs.map(({ message }) => message.toWellFormed().replaceAll('\0', '\ufffd')),
      inputs.map((input) => JSON.stringify(fieldsOf(input))),
    ]);
  const rows = await insert(({ rawFields }) => rawFields).catch((error: unknown) => {
    if (!isPostgresRefusal(error)) throw error;
    return insert(() => ({}));
  });
  await query(db, DELETE_EXPIRED, [retentionMs, 2 * inputs.length]);
  return new Set(rows.map((row) => row.stream_entry_id));
}

/** $1 ids, $2 codes, $3 messages, $4 fields. */
const RECORD_MALFORMED = {
  name: 'record_malformed_account_inputs',
  text: `
    INSERT INTO notification.malformed_account_inputs
      (stream_entry_id, failure_code, failure_message, raw_fields, recorded_at)
    SELECT *, clock_timestamp() FROM unnest($1::text[], $2::text[], $3::text[], $4::jsonb[])
    ON CONFLICT (stream_entry_id) DO NOTHING
    RETURNING stream_entry_id`,
};

/** $1 age in ms, $2 rows at most. */
const DELETE_EXPIRED = {
  name: 'delete_expired_malformed_account_inputs',
  text: `
    DELETE FROM notification.malformed_account_inputs
     WHERE stream_entry_id IN (
       SELECT stream_entry_id
         FROM notification.malformed_account_inputs
        WHERE recorded_at < now() - $1::bigint * interval '1 millisecond'
        ORDER BY recorded_at
        LIMIT $2
          FOR UPDATE SKIP LOCKED)`,
};
