/**
 * What was decided about intents: the SQL of `records`, of the creation of routes, and of `duplicates`.
 */
import type { Pool, PoolClient } from 'pg';
import type { Channel } from '../../api/intent/catalog.ts';
import { expiryOf } from '../../api/intent/catalog.ts';
import { routeRefOf } from '../../api/ids.ts';
import { KEYS_OF_ENTRY, forgottenKeySql } from '../../api/intent/forgotten.ts';
import type { Intent } from '../../api/intent/entry.ts';
import type { IntentContent } from '../../api/intent/fingerprint.ts';
import { differingFields } from '../../api/intent/fingerprint.ts';
import { MAX_TIMESTAMP_MS } from '../../api/intent/entry.ts';
import type { Acceptance, NotificationInput, RouteToPublish } from '../../workflows/intent/contract.ts';
import { MAX_CHILDREN_PER_PARENT } from '../../workflows/intent/contract.ts';
import { forFew, query } from '../postgres.ts';
import { inTransaction } from '../transactions.ts';
import type { Audience, ChannelBudgets, RouteSlot } from './audience.ts';
import { materializeRoutes } from './audience.ts';
import type { Outcomes } from './outcomes.ts';
import { END_ACCEPTANCE, acceptance, moreRoutes, outcomeForFew, refusal } from './outcomes.ts';
import type { AcceptanceMoment, RouteRow } from './route-rows.ts';
import { RECIPIENT_UNUSABLE, freshRoute } from './route-rows.ts';

/** Recipients whose routes one statement writes: short of its time-out on a slow disk, too. */
const RECIPIENTS_PER_STATEMENT = 2_500;

/** Intents, and recipients of all of them, that a plan for any number serves as well as one for this number. */
const FEW_INTENTS = 3;
const FEW_RECIPIENTS = 10;

export type Decision =
  | Acceptance
  | { outcome: 'earlier_waits'; notificationId: string; slice: string | null }
  /** The earlier one that its reader knew of is not decided, nor does it wait: PostgreSQL has forgotten it. */
  | { outcome: 'earlier_unknown'; notificationId: string };

interface ListedRoute {
  route_id: string;
  channel: Channel;
  status: string;
}

type Accepted = Extract<Acceptance, { outcome: 'accepted' }>;

/** An intent as its workflow has it. */
export type TakenIntent = Intent & Pick<NotificationInput, 'slice' | 'earlier'>;

/** An intent, and the identity of its content. */
export interface Candidate {
  intent: TakenIntent;
  fingerprint: string;
}

/**
 * What was decided about these entries, or else about earlier entries with their idempotency keys, even if that is only
 * that the earlier one waits. An entry id may come again with other content: then the notification of that id is another one.
 *
 * @returns decisions by notification id; nothing about those that are still to be decided.
 */
export async function findDecisions(
  db: Pool,
  candidates: readonly Candidate[],
): Promise<Map<string, Decision>> {
  if (candidates.length === 0) return new Map();
  const statement = candidates.length <= FEW_INTENTS ? FIND_DECISIONS_FOR_FEW : FIND_DECISIONS;
  const rows = await query<DecisionRow>(db, statement, [
    candidates.map(({ intent }) => intent.producer),
    candidates.map(({ intent }) => intent.idempotencyKey),
    candidates.map(({ intent }) => intent.notificationId),
    candidates.map(({ intent }) => intent.earlier ?? null),
  ]);
  const fingerprints = new Map(
    candidates.map(({ intent, fingerprint }) => [intent.notificationId, fingerprint]),
  );
  const decisions = rows.map(async (row): Promise<[string, Decision]> => [
    row.entry_id,
    await decisionOf(db, row, fingerprints.get(row.entry_id)!),
  ]);
  return new Map(await Promise.all(decisions));
}

interface DecisionRow {
  entry_id: string;
  kind: string;
  notification_id: string | null;
  /** Of a record, its fingerprint; of an intent that waits, the slice that took it. */
  detail: string | null;
}

async function decisionOf(db: Pool, found: DecisionRow, fingerprint: string): Promise<Decision> {
  const { entry_id: notificationId } = found;
  const other = found.notification_id ?? '';
  switch (found.kind) {
    case 'duplicate':
      return { outcome: 'duplicate', of: other };
    case 'recipient_not_found':
    case 'unstorable':
    case 'cancelled':
      return { outcome: found.kind };
    case 'idempotency_conflict':
      return { outcome: 'idempotency_conflict', with: other };
    case 'earlier_waits':
      return { outcome: 'earlier_waits', notificationId: other, slice: found.detail };
    case 'earlier_unknown':
      return { outcome: 'earlier_unknown', notificationId: other };
  }
  if (found.detail !== fingerprint)
    return other === notificationId
      ? { outcome: 'entry_id_reused' }
      : { outcome: 'idempotency_conflict', with: other };
  return other === notificationId ? acceptanceOf(db, notificationId) : { outcome: 'duplicate', of: other };
}

/** @returns why an intent is refused whose key another one has with other content. @throws ApplicationFailure of PostgreSQL. */
export async function conflictText(db: Pool, intent: Intent, conflictsWith: string): Promise<string> {
  const [before] = await query<IntentContent>(db, LOAD_CONTENT, [conflictsWith]);
  // Retention may have removed it meanwhile.
  const fields = before === undefined ? '' : ` (${differingFields(before, intent).join(', ')})`;
  return `idempotency_key was used for notification ${conflictsWith} with other content${fields}`;
}

async function acceptanceOf(db: Pool, notificationId: string): Promise<Acceptance> {
  const [counts] = await query<{ routes: number; skipped: number }>(db, COUNT_ROUTES, [notificationId]);
  const { routes, skipped } = counts!;
  const isListed = routes - skipped <= MAX_CHILDREN_PER_PARENT;
  return {
    outcome: 'accepted',
    routes: isListed ? await listRoutesToPublish(db, notificationId, 0, null) : [],
    routeCount: routes,
    skipped,
  };
}

/** The routes to publish among those at [offset, offset + limit) of a notification, ordered by route id. */
export async function listRoutesToPublish(
  db: Pool,
  notificationId: string,
  offset: number,
  limit: number | null,
): Promise<RouteToPublish[]> {
  return routesToPublish(await query<ListedRoute>(db, LIST_ROUTES, [notificationId, offset, limit]));
}

function routesToPublish(rows: ListedRoute[]): RouteToPublish[] {
  return rows.flatMap(({ route_id, channel, status }) =>
    status === 'skipped'
      ? []
      : [
          {
            routeRef: routeRefOf(route_id),
            channel,
            ...(status === 'published' ? { isPublished: true as const } : {}),
          },
        ],
  );
}

/** @returns the notifications whose row is new. */
export async function recordDuplicates(
  db: Pool,
  outcomes: Outcomes,
  duplicates: readonly { intent: Intent; of: string }[],
): Promise<Set<string>> {
  if (duplicates.length === 0) return new Set();
  const intents = duplicates.map(({ intent }) => intent);
  const values = [intents.map(({ notificationId }) => notificationId), duplicates.map(({ of }) => of)];
  const inserted = await outcomes.run<{ notification_id: string }>(db, RECORD_DUPLICATES, values, () => [
    intents.map(({ notificationType }) => notificationType),
    intents.map(({ producer }) => producer),
    intents.map(({ idempotencyKey }) => idempotencyKey),
    intents.map(({ requestId }) => requestId ?? null),
    intents.map(({ traceId }) => traceId ?? null),
  ]);
  return new Set(inserted.map(({ notification_id }) => notification_id));
}

/** An intent that is to be accepted for an audience. */
export interface ToInsert extends Candidate {
  audience: Audience;
}

/** How an intent was accepted. */
export interface AcceptedNow {
  acceptance: Accepted;
  /** Its routes, unless they are many; for whoever makes first attempts. */
  fresh?: () => RouteRow[];
}

interface InsertOptions {
  budgets: ChannelBudgets;
  idempotencyTtlMs: number;
}

/**
 * Writes records and routes, all or nothing: usually in one statement, and those of a large audience in several of one
 * transaction. Of two with one idempotency key the first has it.
 *
 * @returns those that are accepted now, by notification id. Of the others nothing is written: their idempotency key is
 * taken, an earlier intent waits for it, or they were cancelled.
 * @throws ApplicationFailure of PostgreSQL.
 */
export async function insertRecords(
  db: Pool,
  outcomes: Outcomes,
  items: readonly ToInsert[],
  { budgets, idempotencyTtlMs }: InsertOptions,
): Promise<Map<string, AcceptedNow>> {
  if (items.length === 0) return new Map();
  const tallies = new Map(items.map(({ intent }) => [intent.notificationId, tallyOf()]));
  const slotsOf = ({ intent, part }: PartOfItem): SlotOfRecord[] => {
    const { notificationId, notificationType } = intent;
    const slots = materializeRoutes(notificationType, part, budgets);
    tallies.get(notificationId)!.add(slots);
    return slots.map((slot) => ({ notificationId, slot }));
  };
  const parts = items.map(({ intent, audience }) =>
    partsOf(audience).map((part): PartOfItem => ({ intent, part })),
  );
  /** How many routes each has: open ones, all, and skipped ones. One that comes in parts is held open until its end. */
  const counts = (): unknown[] => {
    const all = parts.map(([first, ...rest]) => {
      const { routeCount, skipped } = tallies.get(first!.intent.notificationId)!.counts();
      const more = rest.flatMap(({ intent, part }) =>
        materializeRoutes(intent.notificationType, part, budgets).map(({ status }) => status),
      );
      const skippedInAll = skipped + more.filter((status) => status === 'skipped').length;
      const routes = routeCount + more.length;
      return { routes, skipped: skippedInAll, open: routes - skippedInAll + Math.min(1, rest.length) };
    });
    return [
      items.map(({ intent }) => intent.notificationId),
      all.map(({ open }) => open),
      all.map(({ routes }) => routes),
      all.map(({ skipped }) => skipped),
    ];
  };

  const insert = async (client: Pool | PoolClient): Promise<Map<string, AcceptanceMoment>> => {
    for (const tally of tallies.values()) tally.clear();
    const values = [
      ...recordColumns(items),
      idempotencyTtlMs,
      ...slotColumns(parts.flatMap(([first]) => slotsOf(first!))),
    ];
    const statement = areFew(items) ? INSERT_RECORDS_FOR_FEW : INSERT_RECORDS;
    const rows = await outcomes.run<InsertedRecord>(client, statement, values, counts);
    const inserted = new Map(rows.map((row) => [row.notification_id, row]));
    const heldOpen = new Set<string>();
    for (const part of parts.flatMap(([, ...rest]) => rest)) {
      const { notificationId } = part.intent;
      if (!inserted.has(notificationId)) continue;
      await outcomes.run(client, INSERT_ROUTES, slotColumns(slotsOf(part)));
      heldOpen.add(notificationId);
    }
    if (heldOpen.size > 0) await outcomes.run(client, END_ACCEPTANCE, [[...heldOpen]]);
    return inserted;
  };
  const inserted = await (parts.every(({ length }) => length === 1) ? insert(db) : inTransaction(db, insert));
  return new Map(
    items.flatMap(({ intent }): [string, AcceptedNow][] => {
      const moment = inserted.get(intent.notificationId);
      if (!moment) return [];
      const { acceptance, slots } = tallies.get(intent.notificationId)!.accepted();
      const fresh = slots && { fresh: () => slots.map((slot) => freshRoute(intent, slot, moment)) };
      return [[intent.notificationId, { acceptance, ...fresh }]];
    }),
  );
}

interface InsertedRecord extends AcceptanceMoment {
  notification_id: string;
}

function areFew(items: readonly ToInsert[]): boolean {
  const recipients = items.reduce((sum, { audience }) => sum + sizeOf(audience), 0);
  return items.length <= FEW_INTENTS && recipients <= FEW_RECIPIENTS;
}

const sizeOf = (audience: Audience): number =>
  audience.kind === 'user' ? audience.recipients.length : audience.emails.length;

interface PartOfItem {
  intent: TakenIntent;
  part: Audience;
}

interface SlotOfRecord {
  notificationId: string;
  slot: RouteSlot;
}

const recordColumns = (items: readonly ToInsert[]): unknown[] => [
  items.map(({ intent }) => intent.notificationId),
  items.map(({ intent }) => intent.notificationType),
  items.map(({ intent }) => intent.producer),
  items.map(({ intent }) => intent.audienceKind),
  items.map(({ intent }) =>
    intent.audienceKind === 'user' ? JSON.stringify(intent.recipientUserIds) : null,
  ),
  items.map(({ intent }) => intent.payloadJson),
  items.map(({ intent }) => intent.idempotencyKey),
  items.map(({ fingerprint }) => fingerprint),
  items.map(({ intent }) => intent.requestId ?? null),
  items.map(({ intent }) => intent.traceId ?? null),
  items.map(({ intent }) => new Date(intent.occurredAtMs).toISOString()),
  items.map(({ intent }) => intent.slice ?? null),
  items.map(({ intent }) => intent.earlier ?? null),
  items.map(({ intent }) => intent.traceparent ?? null),
  items.map(({ intent }) => isoOf(expiryOf(intent))),
];

const isoOf = (atMs: number | undefined): string | null =>
  atMs === undefined ? null : new Date(Math.min(atMs, MAX_TIMESTAMP_MS)).toISOString();

/** At least one part. */
function partsOf(audience: Audience): Audience[] {
  if (audience.kind === 'admin_email') return [audience];
  const { recipients } = audience;
  const count = Math.max(1, Math.ceil(recipients.length / RECIPIENTS_PER_STATEMENT));
  return Array.from({ length: count }, (_, index) => ({
    kind: 'user',
    recipients: recipients.slice(index * RECIPIENTS_PER_STATEMENT, (index + 1) * RECIPIENTS_PER_STATEMENT),
  }));
}

/** Histories stay small: a large notification's routes are listed by its batches, not handed over here. */
function tallyOf() {
  const slots: RouteSlot[] = [];
  let [routeCount, skipped] = [0, 0];
  return {
    /** A transaction is run again after a deadlock. */
    clear(): void {
      slots.length = 0;
      [routeCount, skipped] = [0, 0];
    },
    counts: () => ({ routeCount, skipped }),
    add(more: readonly RouteSlot[]): void {
      routeCount += more.length;
      skipped += more.filter(isSkipped).length;
      if (routeCount - skipped <= MAX_CHILDREN_PER_PARENT) slots.push(...more);
    },
    accepted(): { acceptance: Accepted; slots?: RouteSlot[] } {
      const counts = { outcome: 'accepted' as const, routeCount, skipped };
      if (slots.length < routeCount) return { acceptance: { ...counts, routes: [] } };
      const open = slots.filter((slot) => !isSkipped(slot));
      const routes = open.map(({ routeId, channel }) => ({ routeRef: routeRefOf(routeId), channel }));
      return { acceptance: { ...counts, routes }, slots };
    },
  };
}

const isSkipped = ({ status }: RouteSlot): boolean => status === 'skipped';

const slotColumns = (slots: readonly SlotOfRecord[]): unknown[] => [
  slots.map(({ notificationId }) => notificationId),
  slots.map(({ slot }) => slot.routeId),
  slots.map(({ slot }) => slot.channel),
  slots.map(({ slot }) => slot.recipientRef),
  slots.map(({ slot }) => slot.status),
  slots.map(({ slot }) => slot.maxAttempts),
  slots.map(({ slot }) => slot.email),
  slots.map(({ slot }) => slot.locale),
  slots.map(({ slot }) => slot.problem ?? null),
];

/** The ids of entries `waiting.notification_id` and `entry.id`, in the order of the stream. */
const IS_EARLIER = `
           (split_part(waiting.notification_id, '-', 1)::numeric, split_part(waiting.notification_id, '-', 2)::numeric)
           < (split_part(entry.id, '-', 1)::numeric, split_part(entry.id, '-', 2)::numeric)`;

/** The id of `entry` may be that of an earlier entry with other content, which alone was cancelled. */
const IS_CANCELLED = `
              cancelled.notification_id = entry.id AND cancelled.producer = entry.producer
              AND cancelled.idempotency_key IN ${KEYS_OF_ENTRY}`;

/** `entry` itself was refused. */
const IS_REFUSED = `
              stream_entry_id = entry.id
              AND failure_code IN ('recipient_not_found', 'unstorable', 'idempotency_conflict')
              AND (failure_code = 'unstorable'
                   OR malformed.producer = entry.producer AND malformed.idempotency_key IN ${KEYS_OF_ENTRY})`;

/** Nothing is known of the earlier one of `entry` that its reader knew of. */
const IS_EARLIER_UNKNOWN = `
              entry.earlier IS NOT NULL
              AND NOT EXISTS (SELECT FROM notification.records WHERE notification_id = entry.earlier)
              AND NOT EXISTS (SELECT FROM notification.duplicates WHERE notification_id = entry.earlier)
              AND NOT EXISTS (SELECT FROM notification.malformed_intents WHERE stream_entry_id = entry.earlier)
              AND NOT EXISTS (SELECT FROM notification.cancelled_intents WHERE notification_id = entry.earlier)`;

/** $1 producers, $2 idempotency keys, $3 notifications, $4 the earlier ones of their keys that readers knew of. */
const FIND_DECISIONS = {
  name: 'find_decisions',
  text: `
    SELECT entry.id AS entry_id, found.kind, found.notification_id, found.detail
      FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) AS entry (producer, idempotency_key, id, earlier)
     CROSS JOIN LATERAL (
       SELECT 1 AS rank, 'record' AS kind, notification_id, request_fingerprint AS detail
         FROM notification.records
        WHERE notification_id = entry.id
        UNION ALL
       SELECT 1, 'duplicate', duplicate_of, NULL
         FROM notification.duplicates
        WHERE notification_id = entry.id
        UNION ALL
       SELECT 1, failure_code, conflicts_with, NULL
         FROM notification.malformed_intents AS malformed
        WHERE ${IS_REFUSED}
        UNION ALL
       SELECT 2, 'cancelled', NULL, NULL
         FROM notification.cancelled_intents AS cancelled
        WHERE ${IS_CANCELLED}
        UNION ALL
       SELECT 3, 'record', notification_id, request_fingerprint
         FROM notification.records
        WHERE records.producer = entry.producer AND records.idempotency_key IN ${KEYS_OF_ENTRY}
        UNION ALL
       SELECT 4, 'earlier_waits', notification_id, waiting.intent ->> 'slice'
         FROM notification.waiting_intents AS waiting
        WHERE waiting.producer = entry.producer AND waiting.idempotency_key = entry.idempotency_key
          AND ${IS_EARLIER}
        UNION ALL
       SELECT 5, 'earlier_unknown', entry.earlier, NULL
        WHERE ${IS_EARLIER_UNKNOWN}
        ORDER BY rank
        LIMIT 1
     ) AS found`,
};

const FIND_DECISIONS_FOR_FEW = forFew(FIND_DECISIONS);

const LOAD_CONTENT = {
  name: 'load_intent_content',
  text: `
    SELECT notification_type AS "notificationType", producer, audience_kind AS "audienceKind",
           coalesce(recipient_user_ids, '[]') AS "recipientUserIds", idempotency_key AS "idempotencyKey",
           (extract(epoch FROM occurred_at) * 1000)::float8 AS "occurredAtMs", payload_json AS "payloadJson"
      FROM notification.records
     WHERE notification_id = $1`,
};

const COUNT_ROUTES = {
  name: 'count_routes',
  text: `
    SELECT count(*)::int AS routes, count(*) FILTER (WHERE status = 'skipped')::int AS skipped
      FROM notification.routes
     WHERE notification_id = $1`,
};

const LIST_ROUTES = {
  name: 'list_routes',
  text: `
    SELECT route_id, channel, status
      FROM notification.routes
     WHERE notification_id = $1
     ORDER BY route_id
    OFFSET $2 LIMIT $3`,
};

/** With outcomes, $4 to $8 say what the intents are. */
const RECORD_DUPLICATES = refusal({
  name: 'record_duplicates',
  inserts: `
    WITH refused AS (
      INSERT INTO notification.duplicates (notification_id, duplicate_of, decided_at)
      SELECT notification_id, duplicate_of, now()
        FROM unnest($1::text[], $2::text[]) AS decided (notification_id, duplicate_of)
       ORDER BY notification_id
      ON CONFLICT (notification_id) DO NOTHING
      RETURNING notification_id, duplicate_of
    )`,
  result: 'SELECT notification_id FROM refused',
  parameters: 2,
  kind: "'duplicate'",
  details: "json_build_object('duplicate_of', duplicate_of)",
  subjects: `(SELECT * FROM unnest($1::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[])
                AS intent (notification_id, notification_type, producer, idempotency_key, request_id, trace_id))`,
});

/** @param records that they are of, by the name `record`. @param first number of the first of nine parameters. */
const insertSlots = (records: string, first: number): string => `
      INSERT INTO notification.routes
        (notification_id, route_id, channel, recipient_ref, status, max_attempts, resolved_email, resolved_locale,
         created_at, updated_at, next_attempt_at, skipped_at, last_error_classification, last_error_message, last_error_at)
      SELECT notification_id, slot.route_id, slot.channel, slot.recipient_ref, slot.status, slot.max_attempts,
             slot.email, slot.locale, accepted_at, accepted_at,
             CASE slot.status WHEN 'pending' THEN accepted_at END,
             CASE slot.status WHEN 'skipped' THEN accepted_at END,
             CASE WHEN slot.problem IS NOT NULL THEN '${RECIPIENT_UNUSABLE}' END, slot.problem,
             CASE WHEN slot.problem IS NOT NULL THEN accepted_at END
        FROM unnest($${first}::text[], $${first + 1}::text[], $${first + 2}::text[], $${first + 3}::text[],
                    $${first + 4}::text[], $${first + 5}::int[], $${first + 6}::text[], $${first + 7}::text[],
                    $${first + 8}::text[])
               AS slot (notification_id, route_id, channel, recipient_ref, status, max_attempts, email, locale, problem)
        JOIN ${records} USING (notification_id)
      RETURNING notification_id, route_id, channel, last_error_classification`;

/**
 * A taken idempotency key, one that an earlier intent waits for or has taken in what PostgreSQL forgot, and an intent that
 * was cancelled, refused or found a duplicate insert nothing at all. Keys are taken in one order by everybody, so that two of these never wait for each other, and those of one key in the order of the stream. All
 * times are PostgreSQL's: retention, channels and cancellation compare them with its clock. $16 how long a key stays
 * reserved, ms.
 */
const INSERT_RECORDS = acceptance({
  name: 'insert_records',
  inserts: `
    WITH record AS (
      INSERT INTO notification.records
        (notification_id, notification_type, producer, audience_kind, recipient_user_ids, payload_json,
         idempotency_key, request_fingerprint, request_id, trace_id, traceparent, occurred_at, expires_at, slice_id,
         accepted_at, updated_at, idempotency_expires_at)
      SELECT id, type, producer, audience, recipients::jsonb, payload, idempotency_key, fingerprint, request_id, trace_id,
             traceparent, occurred_at, expires_at, slice_id, statement_timestamp(), statement_timestamp(),
             statement_timestamp() + $16::bigint * interval '1 millisecond'
        FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[],
                    $9::text[], $10::text[], $11::timestamptz[], $12::text[], $13::text[], $14::text[],
                    $15::timestamptz[]) WITH ORDINALITY
               AS entry (id, type, producer, audience, recipients, payload, idempotency_key, fingerprint, request_id,
                         trace_id, occurred_at, slice_id, earlier, traceparent, expires_at, position)
       WHERE NOT EXISTS (
             SELECT 1
               FROM notification.waiting_intents AS waiting
              WHERE waiting.producer = entry.producer AND waiting.idempotency_key = entry.idempotency_key
                AND ${IS_EARLIER})
         AND NOT EXISTS (SELECT 1 FROM notification.cancelled_intents AS cancelled WHERE ${IS_CANCELLED})
         AND NOT EXISTS (SELECT 1 FROM notification.malformed_intents AS malformed WHERE ${IS_REFUSED})
         AND NOT EXISTS (SELECT 1 FROM notification.duplicates WHERE duplicates.notification_id = entry.id)
         AND NOT EXISTS (
             SELECT 1
               FROM notification.records AS forgotten
              WHERE forgotten.producer = entry.producer
                AND forgotten.idempotency_key = ${forgottenKeySql('entry.idempotency_key')})
         AND NOT (${IS_EARLIER_UNKNOWN})
       ORDER BY producer, idempotency_key, position
      ON CONFLICT DO NOTHING
      RETURNING notification_id, accepted_at, expires_at, notification_type, producer, idempotency_key, request_id, trace_id
    ), slots AS (${insertSlots('record', 17)}
    ), waits_no_more AS (
      DELETE FROM notification.waiting_intents AS waiting USING record
       WHERE waiting.notification_id = record.notification_id
    )`,
  result: `
    SELECT notification_id, accepted_at::text AS version,
           floor(extract(epoch FROM accepted_at) * 1000)::bigint AS accepted_at_ms,
           coalesce(expires_at <= accepted_at, false) AS is_expired,
           ARRAY(SELECT channel FROM notification.channels WHERE is_paused) AS paused
      FROM record`,
  parameters: 25,
});

const INSERT_RECORDS_FOR_FEW = outcomeForFew(INSERT_RECORDS);

const INSERT_ROUTES = moreRoutes({
  name: 'insert_routes',
  inserts: `
    WITH slots AS (${insertSlots('notification.records', 1)}
    )`,
  result: 'SELECT FROM slots WHERE false',
  parameters: 9,
});
