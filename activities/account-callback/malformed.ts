/** The table of stream entries that break their contract, `malformed_account_inputs`. */
import type { Pool } from 'pg';
import type { MalformedInputCode } from '../../api/account-callback/input.ts';
import { wellFormedText } from '../../api/text.ts';
import { isPostgresRefusal, query } from '../postgres.ts';
import type { Expiring } from '../retention.ts';

export interface MalformedInput {
  entryId: string;
  code: MalformedInputCode;
  message: string;
  rawFields: Record<string, string>;
}

/**
 * Keeps one row per entry, however often it comes; one whose fields PostgreSQL does not take without them.
 *
 * @returns the ids of those that are new.
 * @throws ApplicationFailure of PostgreSQL.
 */
export async function recordMalformedInputs(
  db: Pool,
  inputs: readonly MalformedInput[],
): Promise<Set<string>> {
  const insert = (fieldsOf: (input: MalformedInput) => Record<string, string>) =>
    query<{ stream_entry_id: string }>(db, RECORD_MALFORMED, [
      inputs.map(({ entryId }) => entryId),
      inputs.map(({ code }) => code),
      inputs.map(({ message }) => wellFormedText(message)),
      inputs.map((input) => JSON.stringify(fieldsOf(input))),
    ]);
  const rows = await insert(({ rawFields }) => rawFields).catch((error: unknown) => {
    if (!isPostgresRefusal(error)) throw error;
    return insert(() => ({}));
  });
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

export const MALFORMED_INPUTS: Expiring = {
  name: 'malformed_account_inputs',
  table: 'notification.malformed_account_inputs',
  since: 'recorded_at',
};
