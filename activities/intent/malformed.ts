/** The table of stream entries that could not become a record. */
import { createHash } from 'node:crypto';
import { ApplicationFailure } from '@temporalio/activity';
import type { Pool } from 'pg';
import { canonicalJson, fieldNamedIn, rawFieldsOf } from '../../api/intent/entry.ts';
import { searchableKey } from '../../api/ids.ts';
import type { Intent, MalformedCode, MalformedIntent } from '../../api/intent/entry.ts';
import { cutText, wellFormedText } from '../../api/text.ts';
import { POSTGRES_UNUSABLE } from '../../workflows/failures.ts';
import { isPostgresRefusal, query } from '../postgres.ts';
import type { IntentResources } from './resources.ts';
import { logFieldsOf } from './metrics.ts';

/** Of the reason in a bare row, characters. */
const MAX_REASON = 500;

/**
 * $9 the intent that is decided by it, or null: one that is not open any more is left as it is. $10 the field that the refusal
 * is about. Without what an entry before held, nothing can be said of whether it is another one.
 */
const RECORD_MALFORMED = {
  name: 'record_malformed_intent',
  text: `
    WITH settled AS (
      UPDATE notification.intents
         SET status = CASE WHEN $8::text IS NULL THEN 'refused' ELSE 'conflict' END, other = $8, reason = $5, entry = NULL,
             updated_at = statement_timestamp()
       WHERE notification_id = $9::text AND status = 'open'
      RETURNING notification_id
    ), refused AS (
      INSERT INTO notification.malformed_intents
        (stream_entry_id, notification_type, producer, idempotency_key, failure_code, failure_message, raw_fields,
         recorded_at, conflicts_with)
      SELECT $1::text, $2::text, $3::text, $4::text, $5::text, $6::text, $7::jsonb, now(), $8::text
       WHERE $9::text IS NULL OR EXISTS (SELECT FROM settled)
      ON CONFLICT (stream_entry_id) DO NOTHING
      RETURNING *
    )
    SELECT notification.tell_refusal(stream_entry_id,
                                     CASE WHEN conflicts_with IS NULL THEN 'malformed' ELSE 'conflict' END,
                                     CASE WHEN conflicts_with IS NULL
                                          THEN json_build_object('failure_code', failure_code, 'field', $10::text)
                                          ELSE json_build_object('conflicts_with', conflicts_with) END,
                                     notification_type, producer, idempotency_key, NULL, NULL)::text AS told,
           true AS is_new, false AS is_other
      FROM refused
     UNION ALL
    SELECT NULL, false, raw_fields <> $7::jsonb AND failure_code <> 'unstorable'
      FROM notification.malformed_intents
     WHERE stream_entry_id = $1::text`,
};

/** @returns the row for an intent that cannot become a notification, although nothing is wrong with its form. */
export const refusedIntent = (
  intent: Intent,
  failureCode: MalformedCode,
  failureMessage: string,
): MalformedIntent => ({
  streamEntryId: intent.notificationId,
  notificationType: intent.notificationType,
  producer: intent.producer,
  idempotencyKey: intent.idempotencyKey,
  failureCode,
  failureMessage,
  rawFields: rawFieldsOf(intent),
});

/** Of what an entry holds, hexadecimal characters. */
const HASH_LENGTH = 12;

/** @returns the row for an entry whose id is that of another one with other content: it gets its own id. */
function reusedEntry(malformed: MalformedIntent, ofWhat: string): MalformedIntent {
  const { streamEntryId, rawFields } = malformed;
  const hash = createHash('sha256').update(canonicalJson(rawFields)).digest('hex').slice(0, HASH_LENGTH);
  return {
    ...malformed,
    streamEntryId: `${streamEntryId}/${hash}`,
    failureCode: 'entry_id_reused',
    failureMessage: `entry id ${streamEntryId} is that of ${ofWhat} with other content: the stream was replaced, or Redis lost entries and gave their ids again`,
  };
}

/** @returns the row for an intent whose entry has the id of a notification with other content. */
export const reusedIntent = (intent: Intent): MalformedIntent =>
  reusedEntry(refusedIntent(intent, 'entry_id_reused', ''), 'a notification');

/** What a malformed row decides. */
interface Verdict {
  /** The intent, whose entry was taken. */
  intent?: Intent;
  /** The notification that has its idempotency key, for `idempotency_conflict`. */
  conflictsWith?: string | undefined;
}

export type RefusalResources = Pick<IntentResources, 'db' | 'log'> & {
  metrics: Pick<IntentResources['metrics'], 'intentMalformed'>;
};

/**
 * Records why an entry is refused: one row, however often the entry is read. One that PostgreSQL does not take is kept bare, as
 * `unstorable` with the reason: an entry must not hold up those behind it. The first time it is counted and logged.
 *
 * @returns whether it is the first time.
 * @throws ApplicationFailure `PostgresUnavailable`, or `PostgresUnusable`, also when not even a bare row is taken: then
 * nothing is wrong with the entry.
 */
export async function refuse(
  { db, log, metrics }: RefusalResources,
  malformed: MalformedIntent,
  decides: Verdict = {},
): Promise<boolean> {
  const recorded = await record(db, malformed, decides);
  if (!recorded) return false;
  const { notificationType: notification_type, producer, failureCode: failure_code } = recorded;
  metrics.intentMalformed({ failure_code, notification_type, producer });
  const { intent, conflictsWith: conflicts_with } = decides;
  if (intent) {
    const fields = { ...logFieldsOf(intent), outcome: 'rejected', failure_code, conflicts_with };
    log.warn(fields, 'intent rejected');
  } else {
    const { streamEntryId, idempotencyKey, failureMessage: reason } = recorded;
    const idempotency_key = idempotencyKey === undefined ? undefined : searchableKey(idempotencyKey);
    const fields = { notification_id: streamEntryId, notification_type, producer, idempotency_key };
    log.warn({ ...fields, outcome: 'malformed', failure_code, reason }, 'malformed intent recorded');
  }
  return true;
}

/** @returns the row, if it is new. */
async function record(
  db: Pool,
  malformed: MalformedIntent,
  decides: Verdict,
): Promise<MalformedIntent | undefined> {
  try {
    const { isNew, isOther } = await insertMalformed(db, malformed, decides);
    if (!isOther) return isNew ? malformed : undefined;
    const reused = reusedEntry(malformed, 'a malformed entry');
    return (await insertMalformed(db, reused, {})).isNew ? reused : undefined;
  } catch (error) {
    if (!isPostgresRefusal(error)) throw error;
    const { streamEntryId, failureCode } = malformed;
    const failureMessage = cutText(wellFormedText(`${failureCode}; ${error.message}`), MAX_REASON);
    const bare = { streamEntryId, failureCode: 'unstorable', failureMessage, rawFields: {} } as const;
    return (await insertMalformed(db, bare, decides).catch(blameTable)).isNew ? bare : undefined;
  }
}

async function insertMalformed(
  db: Pool,
  malformed: MalformedIntent,
  { intent, conflictsWith }: Verdict,
): Promise<{ isNew: boolean; isOther: boolean }> {
  const values = [
    malformed.streamEntryId,
    malformed.notificationType ?? null,
    malformed.producer ?? null,
    malformed.idempotencyKey ?? null,
    malformed.failureCode,
    malformed.failureMessage,
    JSON.stringify(malformed.rawFields),
    conflictsWith ?? null,
    intent?.notificationId ?? null,
    fieldNamedIn(malformed.failureMessage) ?? null,
  ];
  const [row] = await query<{ is_new: boolean; is_other: boolean }>(db, RECORD_MALFORMED, values);
  return { isNew: row?.is_new ?? false, isOther: row?.is_other ?? false };
}

function blameTable(error: unknown): never {
  if (!isPostgresRefusal(error)) throw error;
  throw ApplicationFailure.create({ type: POSTGRES_UNUSABLE, message: error.message });
}
