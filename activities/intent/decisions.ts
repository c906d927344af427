/**
 * What was decided about intents: the SQL of `records`, of the creation of routes, and of `duplicates`.
 */
import type { Pool, PoolClient } from 'pg';
import type { Channel } from '../../api/intent/catalog.ts';
import { routeRefOf } from '../../api/ids.ts';
import type { Intent } from '../../api/intent/entry.ts';
import type { Acceptance, RouteToPublish } from '../../workflows/intent/contract.ts';
import { MAX_CHILDREN_PER_PARENT } from '../../workflows/intent/contract.ts';
import { query } from '../postgres.ts';
import { inTransaction } from '../transactions.ts';
import type { Audience, ChannelBudgets, RouteSlot } from './audience.ts';
import { materializeRoutes } from './audience.ts';

/** Recipients whose routes one statement writes: short of its time-out on a slow disk, too. */
const RECIPIENTS_PER_STATEMENT = 2_500;

/** Classification of an e-mail route that is skipped because the User Service has no usable answer about its user. */
const RECIPIENT_UNUSABLE = 'recipient_unusable';

export type Decision = Acceptance | { outcome: 'earlier_waits'; notificationId: string };

interface RouteRow {
  route_id: string;
  channel: Channel;
  status: string;
}

/**
 * What was decided about this entry, or else about an earlier entry with its idempotency key, even if that is only that
 * the earlier one waits. An entry id may come again with other content: then the notification of that id is another one.
 */
export async function findDecision(
  db: Pool,
  intent: Intent,
  fingerprint: string,
): Promise<Decision | undefined> {
  const { notificationId } = intent;
  const [found] = await query<{ kind: string; notification_id: string | null; request_fingerprint: string }>(
    db,
    FIND_DECISION,
    [intent.producer, intent.idempotencyKey, notificationId],
  );
  if (!found) return undefined;
  const other = found.notification_id ?? '';
  switch (found.kind) {
    case 'duplicate':
      return { outcome: 'duplicate', of: other };
    case 'recipient_not_found':
    case 'unstorable':
      return { outcome: found.kind };
    case 'idempotency_conflict':
      return { outcome: 'idempotency_conflict', with: other };
    case 'earlier_waits':
      return { outcome: 'earlier_waits', notificationId: other };
  }
  if (found.request_fingerprint !== fingerprint)
    return other === notificationId
      ? { outcome: 'entry_id_reused' }
      : { outcome: 'idempotency_conflict', with: other };
  return other === notificationId ? acceptanceOf(db, notificationId) : { outcome: 'duplicate', of: other };
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
  return routesToPublish(await query<RouteRow>(db, LIST_ROUTES, [notificationId, offset, limit]));
}

function routesToPublish(rows: RouteRow[]): RouteToPublish[] {
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

/** @returns whether the row is new. */
export async function recordDuplicate(
  db: Pool,
  notificationId: string,
  duplicateOf: string,
): Promise<boolean> {
  const inserted = await query(db, RECORD_DUPLICATE, [notificationId, duplicateOf]);
  return inserted.length === 1;
}

interface ToInsert {
  fingerprint: string;
  audience: Audience;
  budgets: ChannelBudgets;
  idempotencyTtlMs: number;
}

/**
 * Writes record and routes, all or nothing: usually in one statement, and a large audience in several of one transaction.
 *
 * @returns undefined when the idempotency key is taken, or an earlier intent waits for it; then nothing is written.
 * @throws ApplicationFailure of PostgreSQL.
 */
export async function insertRecord(
  db: Pool,
  intent: Intent,
  { fingerprint, audience, budgets, idempotencyTtlMs }: ToInsert,
): Promise<Acceptance | undefined> {
  const record = [
    intent.notificationId,
    intent.notificationType,
    intent.producer,
    intent.audienceKind,
    intent.audienceKind === 'user' ? JSON.stringify(intent.recipientUserIds) : null,
    intent.payloadJson,
    intent.idempotencyKey,
    fingerprint,
    intent.requestId ?? null,
    intent.traceId ?? null,
    new Date(intent.occurredAtMs).toISOString(),
    idempotencyTtlMs,
  ];
  const tally = tallyOf();
  const slotsOf = (part: Audience) =>
    columnsOf(tally.add(materializeRoutes(intent.notificationType, part, budgets)));
  const [first, ...rest] = partsOf(audience);

  const insert = async (client: Pool | PoolClient): Promise<boolean> => {
    const [inserted] = await query<{ accepted_at: string }>(client, INSERT_RECORD, [
      ...record,
      ...slotsOf(first),
    ]);
    if (!inserted) return false;
    for (const part of rest) {
      await query(client, INSERT_ROUTES, [intent.notificationId, inserted.accepted_at, ...slotsOf(part)]);
    }
    return true;
  };
  const isNew = await (rest.length === 0 ? insert(db) : inTransaction(db, insert));
  return isNew ? tally.acceptance() : undefined;
}

/** At least one part. */
function partsOf(audience: Audience): [Audience, ...Audience[]] {
  if (audience.kind === 'admin_email') return [audience];
  const { recipients } = audience;
  const part = (from: number): Audience => ({
    kind: 'user',
    recipients: recipients.slice(from, from + RECIPIENTS_PER_STATEMENT),
  });
  const count = Math.ceil(recipients.length / RECIPIENTS_PER_STATEMENT);
  return [
    part(0),
    ...Array.from({ length: count - 1 }, (_, index) => part((index + 1) * RECIPIENTS_PER_STATEMENT)),
  ];
}

/** Histories stay small: a large notification's routes are listed by its batches, not handed over here. */
function tallyOf() {
  const routes: RouteToPublish[] = [];
  let [routeCount, skipped] = [0, 0];
  return {
    add(slots: RouteSlot[]): RouteSlot[] {
      for (const { routeId, channel, status } of slots) {
        routeCount += 1;
        if (status === 'skipped') skipped += 1;
        else if (routes.length <= MAX_CHILDREN_PER_PARENT)
          routes.push({ routeRef: routeRefOf(routeId), channel });
      }
      return slots;
    },
    acceptance: (): Acceptance => ({
      outcome: 'accepted',
      routes: routes.length <= MAX_CHILDREN_PER_PARENT ? routes : [],
      routeCount,
      skipped,
    }),
  };
}

const columnsOf = (slots: RouteSlot[]): unknown[] => [
  slots.map(({ routeId }) => routeId),
  slots.map(({ channel }) => channel),
  slots.map(({ recipientRef }) => recipientRef),
  slots.map(({ status }) => status),
  slots.map(({ maxAttempts }) => maxAttempts),
  slots.map(({ email }) => email),
  slots.map(({ locale }) => locale),
  slots.map(({ problem }) => problem ?? null),
];

/** The ids of entries `waiting.notification_id` and $3, in the order of the stream. */
const IS_EARLIER = `
           (split_part(waiting.notification_id, '-', 1)::numeric, split_part(waiting.notification_id, '-', 2)::numeric)
           < (split_part($ID, '-', 1)::numeric, split_part($ID, '-', 2)::numeric)`;

const FIND_DECISION = {
  name: 'find_decision',
  text: `
    SELECT 1 AS rank, 'record' AS kind, notification_id, request_fingerprint
      FROM notification.records
     WHERE notification_id = $3
     UNION ALL
    SELECT 1, 'duplicate', duplicate_of, NULL
      FROM notification.duplicates
     WHERE notification_id = $3
     UNION ALL
    SELECT 1, failure_code, conflicts_with, NULL
      FROM notification.malformed_intents
     WHERE stream_entry_id = $3 AND failure_code IN ('recipient_not_found', 'unstorable', 'idempotency_conflict')
       AND (failure_code = 'unstorable' OR producer = $1 AND idempotency_key = $2)
     UNION ALL
    SELECT 2, 'record', notification_id, request_fingerprint
      FROM notification.records
     WHERE producer = $1 AND idempotency_key = $2
     UNION ALL
    SELECT 3, 'earlier_waits', notification_id, NULL
      FROM notification.waiting_intents AS waiting
     WHERE producer = $1 AND idempotency_key = $2 AND ${IS_EARLIER.replaceAll('$ID', '$3')}
     ORDER BY rank
     LIMIT 1`,
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

const RECORD_DUPLICATE = {
  name: 'record_duplicate',
  text: `
    INSERT INTO notification.duplicates (notification_id, duplicate_of, decided_at)
    VALUES ($1, $2, now())
    ON CONFLICT (notification_id) DO NOTHING
    RETURNING 1`,
};

/** @param id, at SQL expressions. @param first number of the first of eight parameters. */
const insertSlots = (id: string, at: string, first: number): string => `
      INSERT INTO notification.routes
        (notification_id, route_id, channel, recipient_ref, status, max_attempts, resolved_email, resolved_locale,
         created_at, updated_at, next_attempt_at, skipped_at, last_error_classification, last_error_message, last_error_at)
      SELECT ${id}, slot.route_id, slot.channel, slot.recipient_ref, slot.status, slot.max_attempts,
             slot.email, slot.locale, ${at}, ${at},
             CASE slot.status WHEN 'pending' THEN ${at} END,
             CASE slot.status WHEN 'skipped' THEN ${at} END,
             CASE WHEN slot.problem IS NOT NULL THEN '${RECIPIENT_UNUSABLE}' END, slot.problem,
             CASE WHEN slot.problem IS NOT NULL THEN ${at} END
        FROM ROWS_OF_RECORD unnest($${first}::text[], $${first + 1}::text[], $${first + 2}::text[], $${first + 3}::text[],
                    $${first + 4}::int[], $${first + 5}::text[], $${first + 6}::text[], $${first + 7}::text[])
               AS slot (route_id, channel, recipient_ref, status, max_attempts, email, locale, problem)`;

/**
 * A taken idempotency key, and one that an earlier intent waits for, inserts nothing at all. All times are PostgreSQL's:
 * retention, channels and cancellation compare them with its clock. $12 how long the key stays reserved, ms.
 */
const INSERT_RECORD = {
  name: 'insert_record',
  text: `
    WITH record AS (
      INSERT INTO notification.records
        (notification_id, notification_type, producer, audience_kind, recipient_user_ids, payload_json,
         idempotency_key, request_fingerprint, request_id, trace_id, occurred_at, accepted_at, updated_at,
         idempotency_expires_at)
      SELECT $1, $2, $3, $4, $5::jsonb, $6, $7, $8, $9, $10, $11::timestamptz, statement_timestamp(),
             statement_timestamp(), statement_timestamp() + $12::bigint * interval '1 millisecond'
       WHERE NOT EXISTS (
             SELECT 1
               FROM notification.waiting_intents AS waiting
              WHERE producer = $3 AND idempotency_key = $7 AND ${IS_EARLIER.replaceAll('$ID', '$1')})
      ON CONFLICT DO NOTHING
      RETURNING notification_id, accepted_at
    ), slots AS (${insertSlots('record.notification_id', 'record.accepted_at', 13).replace('ROWS_OF_RECORD', 'record,')}
    ), waits_no_more AS (
      DELETE FROM notification.waiting_intents AS waiting USING record
       WHERE waiting.notification_id = record.notification_id
    )
    SELECT accepted_at::text FROM record`,
};

const INSERT_ROUTES = {
  name: 'insert_routes',
  text: insertSlots('$1', '$2::timestamptz', 3).replace('ROWS_OF_RECORD ', ''),
};
