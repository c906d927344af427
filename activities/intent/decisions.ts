/**
 * What was decided about intents: the SQL by which a row of `intents` gets its status, with `records` and routes.
 */
import { createHash } from 'node:crypto';
import { ApplicationFailure } from '@temporalio/activity';
import type { Redis } from 'ioredis';
import type { Pool, PoolClient } from 'pg';
import type { Catalog, Channel } from '../../api/intent/catalog.ts';
import { CHANNELS } from '../../api/intent/catalog.ts';
import { routeRefOf } from '../../api/ids.ts';
import type { SkipReason } from '../../api/intent/outcome.ts';
import { ROUTE_THROTTLED } from '../../api/intent/outcome.ts';
import { forgottenKeySql } from '../../api/intent/forgotten.ts';
import type { Intent, IntentContent } from '../../api/intent/entry.ts';
import { differingFields, MAX_TIMESTAMP_MS, expiryOf } from '../../api/intent/entry.ts';
import { ACCEPTANCE_DEFERRED } from '../../workflows/failures.ts';
import type { Acceptance } from '../../workflows/intent/contract.ts';
import { MAX_CHILDREN_PER_PARENT } from '../../workflows/intent/contract.ts';
import { columnsOf, query, inTransaction } from '../postgres.ts';
import { reasonOf } from '../reason.ts';
import type { Audience } from './audience.ts';
import { materializeRoutes } from './audience.ts';
import type { ClosingSlot } from './collapse.ts';
import { closeWindows } from './collapse.ts';
import { EARLIER } from './entries.ts';
import { handOff, handOffKey } from './hand-off.ts';
import type { IntentResources } from './resources.ts';
import type { RouteName } from './route-rows.ts';
import { countRoutes, listRoutes } from './route-rows.ts';

/** Routes that one statement writes: short of its time-out on a slow disk, too. Even: each recipient has two. */
const ROUTES_PER_STATEMENT = 5_000;

export type Decision =
  | Acceptance
  /** An earlier intent with the same key is not decided yet. */
  | { outcome: 'earlier_waits'; notificationId: string };

type Accepted = Extract<Acceptance, { outcome: 'accepted' }>;

/** An intent as its row has it. */
export interface FoundIntent {
  /** Undefined when the row is not open. */
  intent: Intent | undefined;
  /** Undefined when it is to be decided now. */
  decision: Decision | undefined;
}

/**
 * What is known about intents: what was decided about each, or else about the one that has its idempotency key, even if
 * that is only that an earlier one is not decided yet.
 *
 * @returns those that have a row, by notification id. @throws ApplicationFailure of PostgreSQL.
 */
export async function findIntents(
  db: Pool,
  notificationIds: readonly string[],
): Promise<Map<string, FoundIntent>> {
  if (notificationIds.length === 0) return new Map();
  const rows = await query<IntentRow>(db, FIND_INTENTS, [notificationIds]);
  const found = rows.map(async ({ id, entry, decision }): Promise<[string, FoundIntent]> => {
    const known = decision?.outcome === 'accepted' ? await acceptanceOf(db, id) : decision;
    return [id, { intent: entry ?? undefined, decision: known ?? undefined }];
  });
  return new Map(await Promise.all(found));
}

interface IntentRow {
  id: string;
  entry: Intent | null;
  /** Of an open one whose key is taken, what that makes of it. */
  decision: Exclude<Decision, Accepted> | Pick<Accepted, 'outcome'> | null;
}

/** @returns why an intent is refused whose key another one has with other content. @throws ApplicationFailure of PostgreSQL. */
export async function conflictText(db: Pool, intent: Intent, conflictsWith: string): Promise<string> {
  const [before] = await query<IntentContent>(db, LOAD_CONTENT, [conflictsWith]);
  // Retention may have removed it meanwhile.
  const fields = before === undefined ? '' : ` (${differingFields(before, intent).join(', ')})`;
  return `idempotency_key was used for notification ${conflictsWith} with other content${fields}`;
}

async function acceptanceOf(db: Pool, notificationId: string): Promise<Acceptance> {
  const { skipped, published, ...others } = await countRoutes(db, notificationId);
  const wanted = published + others.deadLettered + others.open;
  const counts = { outcome: 'accepted' as const, routeCount: wanted + skipped, skipped };
  if (wanted > MAX_CHILDREN_PER_PARENT) return counts;
  const left = (await listRoutes(db, notificationId, counts.routeCount)).filter(
    ({ status }) => status !== 'skipped' && status !== 'published',
  );
  return { ...counts, routes: left.map(({ routeId }) => routeRefOf(routeId)) };
}

/** An intent that is to be accepted for an audience. */
export interface ToInsert {
  intent: Intent;
  audience: Audience;
}

/** @returns groups to insert: an intent of a type with windows has a transaction to itself, since others may have the same. */
export function insertedTogether({ types }: Catalog, items: readonly ToInsert[]): ToInsert[][] {
  const isAlone = ({ intent }: ToInsert) => types.get(intent.notificationType)?.collapse !== undefined;
  return [items.filter((item) => !isAlone(item)), ...items.filter(isAlone).map((item) => [item])];
}

/** How an intent was accepted. */
export interface AcceptedNow {
  acceptance: Accepted;
  /** Its routes that are skipped, but for those of channels that its type does not use. */
  skipped: { channel: Channel; reason: SkipReason }[];
  /** Its routes to publish, unless they are many. */
  toPublish: RouteName[];
}

/** Redis is asked about types with a throttle alone. */
type InsertOptions = Pick<IntentResources, 'catalog' | 'redis'> &
  Pick<IntentResources['intent'], 'budgets' | 'idempotencyTtlMs'>;

/**
 * Writes records and routes, all or nothing: usually in one statement, and those of a large audience in several of one
 * transaction, as windows are closed. Of two with one idempotency key the first has it.
 *
 * @param items one alone, if its type has windows.
 * @returns those that are accepted now, by notification id. Of the others nothing is written: they are decided, their
 * idempotency key is taken, or an earlier intent waits for it.
 * @throws ApplicationFailure of PostgreSQL, or `AcceptanceDeferred` when Redis does not answer about a type with a throttle.
 */
export async function insertRecords(
  db: Pool,
  items: readonly ToInsert[],
  { catalog, budgets, idempotencyTtlMs, redis }: InsertOptions,
): Promise<Map<string, AcceptedNow>> {
  if (items.length === 0) return new Map();
  const [{ intent: only }] = items as [ToInsert];
  const collapses = catalog.types.get(only.notificationType)?.collapse !== undefined;
  const isLarge = items.some(
    ({ audience }) =>
      audience.kind === 'user' && audience.recipients.length * CHANNELS.length > ROUTES_PER_STATEMENT,
  );
  const throttles = throttleColumns(catalog, items);

  const insert = async (client: Pool | PoolClient): Promise<Map<string, AcceptedNow>> => {
    const closing = collapses ? await closeWindows(client, catalog, only) : undefined;
    const slotsOf = async ({ intent, audience }: ToInsert): Promise<SlotOfRecord[]> => {
      const { notificationId, notificationType } = intent;
      const all = materializeRoutes(catalog, notificationType, audience, budgets);
      const slots = closing ? all.map(closing.slotOf) : all;
      const isThrottled = catalog.types.get(notificationType)?.throttle !== undefined;
      const handedOff = isThrottled ? await findHandedOff(redis, notificationId, slots) : undefined;
      return slots.map((slot) => ({ ...slot, notificationId, wasHandedOff: handedOff?.has(slot) ?? false }));
    };
    const parts = (await Promise.all(items.map(slotsOf))).map(partsOf);
    const intents = items.map(({ intent }) => intent);
    const complete = intents.filter((_, index) => parts[index]!.length === 1);
    const values = [
      intents.map(({ notificationId }) => notificationId),
      intents.map(({ occurredAtMs }) => isoOf(occurredAtMs)),
      intents.map((intent) => isoOf(closing ? closing.expiresAtMs : expiryOf(catalog, intent))),
      intents.map(() => (closing?.contents.length ? `[${closing.contents.join(',')}]` : null)),
      idempotencyTtlMs,
      ...slotColumns(parts.flatMap(([first]) => first!)),
      complete.map(({ notificationId }) => notificationId),
      ...throttles,
    ];
    const rows = await query<Throttled & { notification_id: string }>(client, INSERT_RECORDS, values);
    const throttledOf = new Map(rows.map((row) => [row.notification_id, row.throttled]));
    const inserted = new Map<string, AcceptedNow>();
    for (const [index, { notificationId }] of intents.entries()) {
      const throttled = throttledOf.get(notificationId);
      if (!throttled) continue;
      const all = parts[index]!;
      for (const part of all.slice(1)) {
        const columns = [...slotColumns(part), part === all.at(-1) ? [notificationId] : []];
        const [more] = await query<Throttled>(client, INSERT_ROUTES, [...columns, ...throttles]);
        throttled.push(...more!.throttled);
      }
      inserted.set(notificationId, acceptedNow(notificationId, all.flat(), throttled));
    }
    return inserted;
  };
  return isLarge || collapses ? inTransaction(db, insert) : insert(db);
}

interface Throttled {
  /** Ids of routes. */
  throttled: string[];
}

type SlotOfRecord = ClosingSlot & { notificationId: string; wasHandedOff: boolean };

/** @returns those that were handed off before PostgreSQL fell back: no throttle skips them. */
async function findHandedOff(
  redis: Redis,
  notificationId: string,
  slots: readonly ClosingSlot[],
): Promise<Set<ClosingSlot>> {
  const open = slots.filter(({ status }) => status === 'pending');
  const keyOf = ({ collapse, routeId }: ClosingSlot) =>
    handOffKey(collapse?.newest ?? notificationId, routeId, 0);
  try {
    const entries = await handOff.entriesOf(redis, open.map(keyOf));
    return new Set(open.filter((_, index) => entries[index] !== undefined));
  } catch (error) {
    const message = `Redis does not say what was handed off before: ${reasonOf(error)}`;
    throw ApplicationFailure.create({ type: ACCEPTANCE_DEFERRED, message });
  }
}

const isoOf = (atMs: number | undefined): string | null =>
  atMs === undefined ? null : new Date(Math.min(atMs, MAX_TIMESTAMP_MS)).toISOString();

/** At least one part. The statements of one transaction lock throttles in the order in which each of them does. */
function partsOf(slots: SlotOfRecord[]): SlotOfRecord[][] {
  if (slots.length <= ROUTES_PER_STATEMENT) return [slots];
  const order = ({ recipientRef: one }: SlotOfRecord, { recipientRef: other }: SlotOfRecord) =>
    one === other ? 0 : one < other ? -1 : 1;
  const sorted = slots.toSorted(order);
  return Array.from({ length: Math.ceil(slots.length / ROUTES_PER_STATEMENT) }, (_, part) =>
    sorted.slice(part * ROUTES_PER_STATEMENT, (part + 1) * ROUTES_PER_STATEMENT),
  );
}

/** Histories stay small: they do not list the routes of a large notification. */
function acceptedNow(
  notificationId: string,
  slots: readonly ClosingSlot[],
  throttled: readonly string[],
): AcceptedNow {
  const beyond = new Set(throttled);
  const open = slots.filter(({ status, routeId }) => status === 'pending' && !beyond.has(routeId));
  const isListed = open.length <= MAX_CHILDREN_PER_PARENT;
  const counts = { routeCount: slots.length, skipped: slots.length - open.length };
  const routes = isListed && { routes: open.map(({ routeId }) => routeRefOf(routeId)) };
  return {
    acceptance: { outcome: 'accepted', ...counts, ...routes },
    skipped: slots.flatMap(({ routeId, channel, mark }) => {
      const reason = beyond.has(routeId) ? ROUTE_THROTTLED : mark;
      return reason === undefined ? [] : [{ channel, reason }];
    }),
    toPublish: isListed ? open.map(({ routeId }) => ({ notificationId, routeId })) : [],
  };
}

const slotColumns = (slots: readonly SlotOfRecord[]): unknown[] => [
  ...columnsOf(slots, 'notificationId', 'routeId', 'channel', 'recipientRef', 'status', 'maxAttempts'),
  ...columnsOf(slots, 'email', 'locale', 'mark', 'problem', 'collapse', 'wasHandedOff'),
];

/** Those of intents whose type has a throttle, with what it counts them by. */
function throttleColumns({ types }: Catalog, items: readonly ToInsert[]): unknown[] {
  const throttles = items.flatMap(({ intent: { notificationId, notificationType, payloadJson } }) => {
    const throttle = types.get(notificationType)?.throttle;
    if (throttle === undefined) return [];
    const { field } = throttle;
    // The payload of an entry that was read before the catalog changed may lack the field.
    const text = field && String((JSON.parse(payloadJson) as Record<string, unknown>)[field]);
    const value = text === undefined ? '' : createHash('sha256').update(text).digest('hex');
    return [{ ...throttle, notificationId, value }];
  });
  return columnsOf(throttles, 'notificationId', 'value', 'limit', 'windowMs', 'summary');
}

/**
 * The key of an open intent is that of its owner, or else of an earlier open one. An earlier one for later may wait for a year:
 * its key is taken meanwhile. $1 notifications.
 */
const FIND_INTENTS = {
  name: 'find_intents',
  text: `
    SELECT intent.notification_id AS id, intent.entry,
           CASE WHEN waits THEN json_build_object('outcome', 'earlier_waits', 'notificationId', holder_id)
                WHEN status = 'duplicate' OR is_same
                THEN json_build_object('outcome', 'duplicate', 'of', coalesce(holder_id, other))
                WHEN status = 'conflict' OR NOT is_same
                THEN json_build_object('outcome', 'idempotency_conflict', 'with', coalesce(holder_id, other))
                WHEN status = 'refused' AND reason <> 'recipient_not_found' THEN '{"outcome": "unstorable"}'
                WHEN status = 'refused' THEN json_build_object('outcome', reason)
                WHEN status <> 'open' THEN json_build_object('outcome', status) END AS decision
      FROM notification.intents AS intent
      LEFT JOIN LATERAL (
        (SELECT notification_id AS holder_id, owner.request_fingerprint = intent.fingerprint AS is_same, false AS waits, 1 AS rank
           FROM notification.records AS owner
          WHERE owner.producer = intent.producer
            AND owner.idempotency_key IN (intent.idempotency_key, ${forgottenKeySql('intent.idempotency_key')})
          LIMIT 1)
         UNION ALL
        (SELECT notification_id, is_same, NOT is_scheduled, 2 FROM (${EARLIER}) AS earlier ORDER BY is_scheduled LIMIT 1)
         ORDER BY rank
         LIMIT 1) AS holder ON intent.status = 'open'
     WHERE intent.notification_id = ANY ($1::text[])`,
};

const LOAD_CONTENT = {
  name: 'load_intent_content',
  text: `
    SELECT notification_type AS "notificationType", producer, audience_kind AS "audienceKind",
           coalesce(recipient_user_ids, '[]') AS "recipientUserIds", idempotency_key AS "idempotencyKey",
           (extract(epoch FROM occurred_at) * 1000)::float8 AS "occurredAtMs", payload_json AS "payloadJson"
      FROM notification.records
     WHERE notification_id = $1`,
};

/**
 * Counts the recipients of throttled types; `throttled` has those that are beyond. The rows of throttles are locked in one
 * order by every process, and each statement sees them as the one before has left them. What has expired is not sent, nor counted.
 * What was handed off before counts first, and passes in any case.
 * Full joins are no nested loops: the plan is made once, for as few rows as there were then.
 *
 * @param records that they are of. @param first number of the first of twelve parameters. @param throttle number of the first of five.
 */
const countSlots = (records: string, first: number, throttle: number): string => `slot AS MATERIALIZED (
      SELECT *
        FROM unnest($${first}::text[], $${first + 1}::text[], $${first + 2}::text[], $${first + 3}::text[],
                    $${first + 4}::text[], $${first + 5}::int[], $${first + 6}::text[], $${first + 7}::text[],
                    $${first + 8}::text[], $${first + 9}::text[], $${first + 10}::jsonb[], $${first + 11}::boolean[])
               AS slot (notification_id, route_id, channel, recipient_ref, status, max_attempts, email, locale, mark, problem,
                        collapse, was_handed_off)
    ), asked AS MATERIALIZED (
      SELECT notification_id, notification_type, recipient_ref, value, most, length, message, accepted_at, has_passed,
             row_number() OVER (PARTITION BY recipient_ref, notification_type, value
                                ORDER BY NOT has_passed, position) AS nth
        FROM unnest($${throttle}::text[], $${throttle + 1}::text[], $${throttle + 2}::int[], $${throttle + 3}::bigint[],
                    $${throttle + 4}::text[])
               WITH ORDINALITY AS throttle (notification_id, value, most, length, message, position)
        JOIN ${records} AS record USING (notification_id)
        JOIN (SELECT notification_id, recipient_ref, bool_or(was_handed_off) AS has_passed
                FROM slot
               WHERE status = 'pending'
               GROUP BY notification_id, recipient_ref) AS recipient
       USING (notification_id)
       WHERE coalesce(expires_at > accepted_at, true)
    ), counted AS (
      INSERT INTO notification.throttles AS throttle
        (recipient_ref, notification_type, value, passed_at, room, ends_at)
      SELECT recipient_ref, notification_type, value, array_fill(accepted_at, ARRAY[least(count(*), most)::int]), most,
             accepted_at + length * interval '1 millisecond'
        FROM asked
       GROUP BY recipient_ref, notification_type, value, accepted_at, most, length
       ORDER BY recipient_ref COLLATE "C", notification_type, value
      ON CONFLICT (recipient_ref, notification_type, value) DO UPDATE
         SET (passed_at, room, ends_at) = (
               SELECT kept || excluded.passed_at[1:excluded.room - cardinality(kept)], excluded.room - cardinality(kept),
                      excluded.ends_at
                 FROM (SELECT ARRAY(
                         SELECT at
                           FROM unnest(throttle.passed_at) AS at
                          WHERE excluded.passed_at[1] - at < excluded.ends_at - excluded.passed_at[1])) AS earlier (kept))
      RETURNING recipient_ref, notification_type, value, room
    ), throttled AS MATERIALIZED (
      SELECT notification_id, recipient_ref, message
        FROM asked
        FULL JOIN counted USING (recipient_ref, notification_type, value)
       WHERE coalesce(nth > room, false) AND NOT has_passed
    )`;

/** As `slots`, after {@link countSlots}; `beyond` has the routes of each notification that a throttle skips. @param records that they are of, by the name `record`. */
const insertSlots = (records: string): string => `
      INSERT INTO notification.routes
        (notification_id, route_id, channel, recipient_ref, status, max_attempts, resolved_email, resolved_locale,
         created_at, updated_at, next_attempt_at, skipped_at, last_error_classification, last_error_message, last_error_at,
         collapse)
      SELECT notification_id, slot.route_id, slot.channel, slot.recipient_ref, slot.status, slot.max_attempts,
             slot.email, slot.locale, accepted_at, accepted_at,
             CASE slot.status WHEN 'pending' THEN accepted_at END,
             CASE slot.status WHEN 'skipped' THEN accepted_at END, slot.mark, slot.problem,
             CASE WHEN slot.mark IS NOT NULL THEN accepted_at END, slot.collapse
        FROM (SELECT notification_id, route_id, channel, recipient_ref, max_attempts, email, locale, collapse,
                     CASE WHEN is_throttled THEN 'skipped' ELSE status END AS status,
                     CASE WHEN is_throttled THEN '${ROUTE_THROTTLED}' ELSE mark END AS mark,
                     CASE WHEN is_throttled THEN message ELSE problem END AS problem
                FROM slot
                FULL JOIN throttled USING (notification_id, recipient_ref)
               CROSS JOIN LATERAL (SELECT status = 'pending' AND message IS NOT NULL) AS fate (is_throttled)) AS slot
        JOIN ${records} USING (notification_id)
      RETURNING notification_id, route_id, last_error_classification
    ), beyond AS MATERIALIZED (
      SELECT notification_id, array_agg(route_id) AS route_ids
        FROM slots
       WHERE last_error_classification = '${ROUTE_THROTTLED}'
       GROUP BY notification_id`;

/**
 * With the last of its routes, an intent is accepted. @param records that they are of, by the name `record`. @param complete
 * number of the parameter with notifications whose routes are all there then.
 */
const accept = (records: string, complete: number): string => `
      UPDATE notification.intents AS intent
         SET status = 'accepted', entry = NULL, reason = NULL, updated_at = accepted_at
        FROM ${records} AS record
       WHERE intent.notification_id = record.notification_id AND record.notification_id = ANY ($${complete}::text[])`;

/**
 * An intent that is not open, one whose key is taken, and one that an earlier intent with its key waits before insert nothing
 * at all. All processes take keys in one order, so that two of them never wait for each other. All times are
 * PostgreSQL's: retention, channels and cancellation compare them with its clock. $1 notifications, $2 when they
 * occurred, $3 when they expire, $4 contents, $5 how long a key stays reserved, ms, $6 to $17 routes, $18 notifications that have
 * no further ones, $19 to $23 notifications of throttled types.
 */
const INSERT_RECORDS = {
  name: 'insert_records',
  text: `
    WITH candidate AS (
      SELECT intent.*, asked.occurred_at, asked.expires_at, asked.contents
        FROM unnest($1::text[], $2::timestamptz[], $3::timestamptz[], $4::json[])
               AS asked (id, occurred_at, expires_at, contents)
        JOIN notification.intents AS intent ON intent.notification_id = asked.id
       WHERE intent.status = 'open'
         AND NOT EXISTS (${EARLIER})
         AND NOT EXISTS (
             SELECT FROM notification.records AS forgotten
              WHERE forgotten.producer = intent.producer
                AND forgotten.idempotency_key = ${forgottenKeySql('intent.idempotency_key')})
       ORDER BY intent.producer, intent.idempotency_key
         FOR UPDATE OF intent
    ), record AS (
      INSERT INTO notification.records
        (notification_id, notification_type, producer, audience_kind, recipient_user_ids, payload_json,
         idempotency_key, request_fingerprint, request_id, trace_id, traceparent, occurred_at, expires_at, contents,
         accepted_at, updated_at, idempotency_expires_at)
      SELECT notification_id, notification_type, producer, entry ->> 'audienceKind',
             CASE entry ->> 'audienceKind' WHEN 'user' THEN entry -> 'recipientUserIds' END, entry ->> 'payloadJson',
             idempotency_key, fingerprint, entry ->> 'requestId', entry ->> 'traceId', entry ->> 'traceparent',
             occurred_at, expires_at, contents, statement_timestamp(),
             statement_timestamp(), statement_timestamp() + $5::bigint * interval '1 millisecond'
        FROM candidate
      ON CONFLICT DO NOTHING
      RETURNING notification_id, notification_type, accepted_at, expires_at
    ), ${countSlots('record', 6, 19)}, slots AS (${insertSlots('record')}
    ), decided AS (${accept('record', 18)}
    )
    SELECT notification_id,
           coalesce((SELECT route_ids FROM beyond WHERE beyond.notification_id = record.notification_id), '{}') AS throttled
      FROM record`,
};

/** More routes of notifications that are accepted in the same transaction. */
const INSERT_ROUTES = {
  name: 'insert_routes',
  text: `
    WITH ${countSlots('notification.records', 1, 14)}, slots AS (${insertSlots('notification.records')}
    ), decided AS (${accept('notification.records', 13)}
    )
    SELECT coalesce((SELECT route_ids FROM beyond), '{}') AS throttled`,
};
