/**
 * Rows of the intents that a stream has brought. The reader writes them in the statement that moves its offset behind their
 * entries, so PostgreSQL never knows of one without the other, also when it falls back to an earlier state.
 */
import { hash } from 'node:crypto';
import type { Pool } from 'pg';
import type { Catalog } from '../../api/intent/catalog.ts';
import { isUrgentType } from '../../api/intent/catalog.ts';
import type { Intent, MalformedIntent } from '../../api/intent/entry.ts';
import { fingerprintOf } from '../../api/intent/entry.ts';
import { STREAM_START } from '../../api/stream-ids.ts';
import { cutText, wellFormedText } from '../../api/text.ts';
import { columnsOf, isPostgresRefusal, query, saveIsolated } from '../postgres.ts';
import type { RefusalResources } from './malformed.ts';
import { refuse, refusedIntent, reusedIntent } from './malformed.ts';

/** Where the reader is in a stream. */
export interface StreamPosition {
  /** Id of the last entry that was passed. */
  offset: string;
  /** How many entries were ever added up to the offset; undefined when they were not counted. */
  entriesPassed: number | undefined;
}

/** @returns the position of a reader that passes some entries more, up to `offset`. */
export const positionBehind = (
  { entriesPassed }: StreamPosition,
  offset: string,
  entries: number,
): StreamPosition => ({
  ...{ offset, entriesPassed: entriesPassed === undefined ? undefined : entriesPassed + entries },
});

/** One entry after its checks. */
export type ReadEntry =
  { id: string; ok: true; intent: Intent } | { id: string; ok: false; malformed: MalformedIntent };

type EntryResources = RefusalResources & { catalog: Catalog };

/** How many intents are new, and how many entries are malformed. */
interface Saved {
  taken: number;
  malformed: number;
}

/** Another reader, or a PostgreSQL that fell back, has moved the offset. */
export class OffsetMovedError extends Error {
  override name = 'OffsetMovedError';
}

/**
 * Where the last reader was. A stream that was never read gets a row.
 *
 * @param start where a stream without a row is read from. @throws ApplicationFailure of PostgreSQL.
 */
export async function loadPosition(db: Pool, stream: string, start: string): Promise<StreamPosition> {
  const values = [stream, start, start === STREAM_START ? 0 : null];
  const [row] = await query<{ offset: string; passed: number | null }>(db, LOAD_POSITION, values);
  const { offset, passed } = row!;
  return { offset, entriesPassed: passed ?? undefined };
}

/**
 * Records entries and moves the offset behind them: intents as rows that are open, others as malformed. An entry that comes
 * again changes nothing, and one with the id of another intent is recorded as `entry_id_reused`.
 *
 * @param from where the reader is. @param to where it is afterwards.
 * @throws OffsetMovedError; ApplicationFailure of PostgreSQL. Malformed entries may be recorded then, and are found so.
 */
export async function saveEntries(
  resources: EntryResources,
  stream: string,
  entries: readonly ReadEntry[],
  from: StreamPosition,
  to: StreamPosition,
): Promise<Saved> {
  const { db, catalog } = resources;
  const total = { taken: 0, malformed: 0 };
  let position = from;
  await saveIsolated(entries, save);
  return total;

  /** One alone that PostgreSQL does not take is recorded as malformed. */
  async function save(some: readonly ReadEntry[]): Promise<void> {
    const last = some.at(-1)!;
    const next = last === entries.at(-1) ? to : positionBehind(position, last.id, some.length);
    let refused = some.flatMap((entry) => (entry.ok ? [] : [entry.malformed]));
    let intents = some.flatMap((entry) => (entry.ok ? [entry.intent] : []));
    for (let malformed = 0; ;) {
      for (const one of refused) await refuse(resources, one);
      malformed += refused.length;
      try {
        const offsets = [stream, position.offset, next.offset, next.entriesPassed ?? null];
        const values = [...offsets, ...valuesOf(catalog, intents)];
        const [saved] = (await query<SavedRow>(db, SAVE_ENTRIES, values)) as [SavedRow];
        if (saved.moved_to !== null) {
          position = next;
          total.taken += saved.inserted;
          total.malformed += malformed;
          return;
        }
        if (saved.reused.length === 0)
          throw new OffsetMovedError(`${position.offset} is not the offset any more`);
        const isReused = ({ notificationId }: Intent) => saved.reused.includes(notificationId);
        refused = intents.filter(isReused).map(reusedIntent);
        intents = intents.filter((intent) => !isReused(intent));
      } catch (error) {
        if (!isPostgresRefusal(error) || some.length > 1 || intents.length === 0) throw error;
        refused = intents.map((intent) => refusedIntent(intent, 'unstorable', error.message));
        intents = [];
      }
    }
  }
}

interface SavedRow {
  moved_to: string | null;
  inserted: number;
  reused: string[];
}

function valuesOf(catalog: Catalog, intents: readonly Intent[]): unknown[] {
  const rows = intents.map((intent) => ({
    ...intent,
    fingerprint: fingerprintOf(intent),
    lane: isUrgentType(catalog, intent.notificationType) ? 0 : 1,
    content: JSON.stringify(intent),
    ...windowsOf(catalog, intent),
  }));
  return [
    ...columnsOf(rows, 'notificationId', 'notificationType', 'producer', 'idempotencyKey', 'fingerprint'),
    ...columnsOf(rows, 'lane', 'content', 'deliverAtMs', 'windowMs', 'windows'),
  ];
}

/** An intent to more recipients has no windows: they bound the statement that closes windows. */
const MAX_COLLAPSED_RECIPIENTS = 100;

/** @returns one id for each user, or one for all administrators: a hash of recipient, type and key. */
function windowsOf({ types }: Catalog, { notificationType, recipientUserIds, payloadJson }: Intent) {
  const collapse = types.get(notificationType)?.collapse;
  if (!collapse || recipientUserIds.length > MAX_COLLAPSED_RECIPIENTS) return undefined;
  const payload = JSON.parse(payloadJson) as Record<string, unknown>;
  const group = [notificationType, ...collapse.key.map((name) => payload[name])];
  const recipients = recipientUserIds.length === 0 ? [null] : recipientUserIds;
  const ids = recipients.map((recipient) => hash('md5', JSON.stringify([recipient, ...group])));
  return { windowMs: collapse.windowMs, windows: `{${ids.join(',')}}` };
}

/**
 * Puts the offset, or the count of entries that belongs to it, right.
 *
 * @param from where the reader is. @throws OffsetMovedError; ApplicationFailure of PostgreSQL.
 */
export async function moveOffset(db: Pool, stream: string, from: string, to: StreamPosition): Promise<void> {
  const rows = await query(db, MOVE_OFFSET, [stream, from, to.offset, to.entriesPassed ?? null]);
  if (rows.length === 0) throw new OffsetMovedError(`${from} is not the offset any more`);
}

/** An open intent with the key of `intent` that comes before it in the stream. */
export const EARLIER = `
         SELECT earlier.notification_id, earlier.due_at IS NOT NULL AS is_scheduled,
                earlier.fingerprint = intent.fingerprint AS is_same
           FROM notification.intents AS earlier
          WHERE earlier.producer = intent.producer AND earlier.idempotency_key = intent.idempotency_key
            AND earlier.status = 'open'
            AND (split_part(earlier.notification_id, '-', 1)::numeric, split_part(earlier.notification_id, '-', 2)::numeric)
                < (split_part(intent.notification_id, '-', 1)::numeric, split_part(intent.notification_id, '-', 2)::numeric)`;

/** $1 stream, $2 where a new one begins, $3 how many entries were added up to there. */
const LOAD_POSITION = {
  name: 'load_stream_position',
  text: `
    INSERT INTO notification.inbound_streams AS known (stream, beat, passed_id, entries_passed, seen_at)
    VALUES ($1, 0, $2, $3::bigint, clock_timestamp())
    ON CONFLICT (stream) DO UPDATE SET stream = known.stream
    RETURNING passed_id AS offset, entries_passed::float8 AS passed`,
};

/** $1 stream, $2 offset, $3 the next one, $4 entries that were added up to it. */
const MOVE_OFFSET = {
  name: 'move_stream_offset',
  text: `
    UPDATE notification.inbound_streams SET passed_id = $3, entries_passed = $4::bigint
     WHERE stream = $1 AND passed_id = $2
    RETURNING 1`,
};

/**
 * $1 stream, $2 offset, $3 the next one, $4 entries that were added up to it, $5 to $14 intents in the order of the stream.
 * A reader that was replaced finds another offset and writes nothing. Retention may have removed the row of an intent
 * that still has a record.
 */
const SAVE_ENTRIES = {
  name: 'save_intent_entries',
  text: `
    WITH entry AS MATERIALIZED (
      SELECT *, greatest(to_timestamp(asked_at_ms / 1000.0),
                         statement_timestamp() + window_ms * interval '1 millisecond') AS deliver_at
        FROM unnest($5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::smallint[], $11::jsonb[],
                    $12::bigint[], $13::bigint[], $14::text[])
               WITH ORDINALITY
               AS entry (id, type, producer, idempotency_key, fingerprint, lane, content, asked_at_ms, window_ms, windows, position)
    ), reused AS (
      SELECT entry.id
        FROM entry
        JOIN notification.intents AS before ON before.notification_id = entry.id
       WHERE before.fingerprint <> entry.fingerprint
    ), moved AS (
      UPDATE notification.inbound_streams SET passed_id = $3, entries_passed = $4::bigint
       WHERE stream = $1 AND passed_id = $2 AND NOT EXISTS (SELECT FROM reused)
      RETURNING passed_id
    ), inserted AS (
      INSERT INTO notification.intents
        (notification_id, notification_type, producer, idempotency_key, fingerprint, lane, status, entry, windows, due_at,
         read_at, updated_at)
      SELECT id, type, producer, idempotency_key, fingerprint, lane, 'open', content, windows::text[],
             CASE WHEN deliver_at > statement_timestamp() THEN deliver_at END, statement_timestamp(), statement_timestamp()
        FROM entry
       CROSS JOIN moved
       WHERE NOT EXISTS (SELECT FROM notification.records WHERE records.notification_id = entry.id)
       ORDER BY position
      ON CONFLICT (notification_id) DO NOTHING
      RETURNING 1
    )
    SELECT (SELECT passed_id FROM moved) AS moved_to, (SELECT count(*)::int FROM inserted) AS inserted,
           ARRAY(SELECT id FROM reused) AS reused`,
};

// --- While an intent is open: trouble is noted, and it may be given up.

/** Longer reasons are cut: a person reads them in a table. */
const MAX_REASON_LENGTH = 500;

export interface Trouble {
  /** Of the activity; 0 for the first try within the workflow task. */
  attempt: number;
  /** Left as it is when undefined. */
  reason?: string;
  /** The attempt found all users but those for whom there is no usable answer. */
  isUnusableOnly?: boolean;
}

/**
 * Says why an intent is not decided yet.
 *
 * @returns how many of its attempts nothing spoilt but recipients without a usable answer, this one included.
 * @throws ApplicationFailure of PostgreSQL.
 */
export async function noteTrouble(
  db: Pool,
  notificationId: string,
  { attempt, reason, isUnusableOnly = false }: Trouble,
): Promise<number> {
  const [row] = await query<{ unusable_attempts: number }>(db, NOTE_TROUBLE, [
    notificationId,
    attempt,
    isUnusableOnly ? 1 : 0,
    reason === undefined ? null : cutText(wellFormedText(reason), MAX_REASON_LENGTH),
  ]);
  return row?.unusable_attempts ?? 0;
}

/**
 * Whether an open intent stays undecided, because an operator has ended its workflow. One that has completed or failed
 * without a decision wrote it into a PostgreSQL that has fallen back since, and is begun again.
 *
 * @param status of its workflow; undefined when Temporal does not know it.
 */
export const isGivenUp = (status: string | undefined): boolean =>
  status !== undefined && !['RUNNING', 'COMPLETED', 'FAILED', 'STUCK', 'CONTINUED_AS_NEW'].includes(status);

/**
 * Decides open intents without an acceptance: as duplicates of others, or as cancelled by an operator.
 *
 * @param of what a duplicate is one of.
 * @returns the notifications that were open. @throws ApplicationFailure of PostgreSQL.
 */
export async function endIntents(
  db: Pool,
  status: 'duplicate' | 'cancelled',
  intents: readonly { notificationId: string; of?: string }[],
): Promise<Set<string>> {
  if (intents.length === 0) return new Set();
  const values = [status, ...columnsOf(intents, 'notificationId', 'of')];
  const ended = await query<{ notification_id: string }>(db, END_INTENTS, values);
  return new Set(ended.map(({ notification_id }) => notification_id));
}

/** Cancels an intent that is open: it never will be accepted. @returns whether it was open. */
export async function giveUp(db: Pool, notificationId: string): Promise<boolean> {
  return (await endIntents(db, 'cancelled', [{ notificationId }])).size > 0;
}

/** $1 notification, $2 attempt, $3 whether only users without a usable answer spoilt it, $4 why or null. */
const NOTE_TROUBLE = {
  name: 'note_trouble_of_intent',
  text: `
    UPDATE notification.intents
       SET attempts = $2, unusable_attempts = unusable_attempts + $3,
           reason = coalesce($4, reason, 'its recipients are being looked up'), updated_at = statement_timestamp()
     WHERE notification_id = $1 AND status = 'open'
    RETURNING unusable_attempts`,
};

/** $1 status, $2 notifications, $3 what they are duplicates of, or nulls. */
const END_INTENTS = {
  name: 'end_intents',
  text: `
    WITH open AS (
      SELECT notification_id, entry, ended.duplicate_of
        FROM unnest($2::text[], $3::text[]) AS ended (notification_id, duplicate_of)
        JOIN notification.intents USING (notification_id)
       WHERE status = 'open'
       ORDER BY notification_id
         FOR UPDATE OF intents
    ), ended AS (
      UPDATE notification.intents AS intent
         SET status = $1, other = duplicate_of, entry = NULL, reason = NULL, updated_at = statement_timestamp(),
             recipient_user_ids = CASE $1 WHEN 'cancelled' THEN open.entry -> 'recipientUserIds' END
        FROM open
       WHERE intent.notification_id = open.notification_id
      RETURNING intent.notification_id, notification_type, producer, idempotency_key, duplicate_of, open.entry
    )
    SELECT notification_id,
           notification.tell_refusal(notification_id, $1,
                                     CASE WHEN duplicate_of IS NULL
                                          THEN json_build_object('published', 0, 'skipped', 0, 'dead_lettered', 0)
                                          ELSE json_build_object('duplicate_of', duplicate_of) END,
                                     notification_type, producer, idempotency_key, entry ->> 'requestId', entry ->> 'traceId')
      FROM ended`,
};
