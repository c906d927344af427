/** The tables of outbox.sql: what the relay and operators read and change. Every statement is bounded in rows. */
import type { Pool, PoolClient } from 'pg';
import { SelfExplanatoryError } from '../../api/errors.ts';
import { isPooledDatabase, runTransaction } from '../../api/postgres-transaction.ts';
import type { Listing, Page } from '../lists.ts';
import { listOf } from '../lists.ts';

/** What a statement may take, and a relay that has stopped in the middle of a batch may keep the others waiting, ms. */
const LIMIT_MS = 30_000;
/** PostgreSQL's codes for what does not exist, and for what is not allowed. */
const MISSING = ['3F000', '42P01'];
const NOT_ALLOWED = '42501';
/** Rows that one statement changes at most. */
const PAGE = 5_000;
/** Rows are counted up to here: a status shows that there are so many, or more. */
const COUNTED_AT_MOST = 100_000;

export const OUTBOX_STATES = ['pending', 'published', 'passed', 'set_aside'] as const;
export type OutboxState = (typeof OUTBOX_STATES)[number];

/** Why a row is set aside, besides the failure codes of the service. */
export const KEY_MAY_BE_FORGOTTEN = 'key_may_be_forgotten';

/** The outbox is not there, or not open to this role. */
export class OutboxUnusableError extends SelfExplanatoryError {
  override name = 'OutboxUnusableError';
}

/** The row of notification_outbox.relay. */
export interface RelayRow {
  outboxId: string;
  stream: string | null;
  batch: number;
  redisBatch: number;
}

/** @throws OutboxUnusableError that says what to do. */
export async function checkOutbox(db: Pool): Promise<void> {
  try {
    await db.query('SELECT FROM notification_outbox.relay');
  } catch (error) {
    const { code, message } = error as { code?: string; message: string };
    if (code === NOT_ALLOWED) throw new OutboxUnusableError(`${message}: see the GRANTs in outbox.sql`);
    if (!MISSING.includes(code ?? '')) throw error;
    throw new OutboxUnusableError(
      'this database has no outbox: run outbox.sql there (galaxy-notify outbox install)',
    );
  }
}

/**
 * Works in a transaction that has the outbox for itself.
 *
 * @returns undefined when another relay holds the lock. @throws the error of the work or of PostgreSQL; nothing is changed then.
 */
export async function withOutbox<T>(
  db: Pool,
  work: (client: PoolClient, relay: RelayRow) => Promise<T>,
  { wait = false }: { wait?: boolean } = {},
): Promise<T | undefined> {
  const begin = `BEGIN; SET LOCAL statement_timeout = ${LIMIT_MS}; SET LOCAL idle_in_transaction_session_timeout = ${LIMIT_MS}`;
  const locked = async (client: PoolClient) => {
    const { rows } = await client.query<RelayRow>(LOCK_RELAY + (wait ? '' : ' SKIP LOCKED'));
    return rows[0] && (await work(client, rows[0]));
  };
  return runTransaction(db, locked, { begin });
}

/** The numbers of batches as the driver returns them as numbers, exact for many years of them. */
const LOCK_RELAY = `
  SELECT outbox_id AS "outboxId", stream, batch::float8 AS batch, redis_batch::float8 AS "redisBatch"
    FROM notification_outbox.relay
     FOR UPDATE`;

export interface PendingRow {
  id: string;
  entry: Record<string, string>;
}

/** At most so many rows, and no further one once they have so many bytes. */
interface PageLimits {
  rows: number;
  bytes: number;
}

/** The oldest rows that are to be published. */
export const pendingRows = (client: PoolClient, limits: PageLimits): Promise<PendingRow[]> =>
  oldestRows(client, 'id, entry', 'pending', 'id', limits);

/** Whether the stream has entries that the service has not been seen to pass. */
export async function hasPublishedRows(client: PoolClient): Promise<boolean> {
  const found = "SELECT FROM notification_outbox.intents WHERE state = 'published' LIMIT 1";
  return (await client.query(found)).rowCount === 1;
}

export interface PublishedRow {
  id: string;
  entryId: string;
}

/** The oldest of them in the order of the stream. They are bounded because looking at an entry copies it within Redis. */
export const publishedRows = (client: PoolClient, limits: PageLimits): Promise<PublishedRow[]> =>
  oldestRows(client, 'id, entry_id AS "entryId"', 'published', 'batch, id', limits);

async function oldestRows<Row extends object>(
  client: PoolClient,
  columns: string,
  state: OutboxState,
  order: string,
  { rows: limit, bytes }: PageLimits,
): Promise<Row[]> {
  const { rows } = await client.query<Row>(
    `SELECT ${columns}
       FROM (SELECT *, sum(bytes) OVER (ORDER BY ${order}) - bytes AS before
               FROM (SELECT * FROM notification_outbox.intents
                      WHERE state = '${state}' ORDER BY ${order} LIMIT $1) AS oldest) AS page
      WHERE before < $2
      ORDER BY ${order}`,
    [limit, bytes],
  );
  return rows;
}

export async function markPublished(
  client: PoolClient,
  { stream, batch, rows }: { stream: string; batch: number; rows: readonly PublishedRow[] },
): Promise<void> {
  await client.query(
    `UPDATE notification_outbox.intents AS intents
        SET state = 'published', batch = $1, entry_id = appended.entry_id, publications = publications + 1,
            published_at = coalesce(published_at, clock_timestamp())
       FROM unnest($2::bigint[], $3::text[]) AS appended (id, entry_id)
      WHERE intents.id = appended.id`,
    [batch, rows.map(({ id }) => id), rows.map(({ entryId }) => entryId)],
  );
  await client.query('UPDATE notification_outbox.relay SET stream = $1, batch = $2, redis_batch = $2', [
    stream,
    batch,
  ]);
}

export async function markPassed(client: PoolClient, ids: readonly string[]): Promise<void> {
  await client.query(
    "UPDATE notification_outbox.intents SET state = 'passed', ended_at = clock_timestamp() WHERE id = ANY ($1)",
    [ids],
  );
}

export async function setAside(
  client: PoolClient,
  refused: readonly { id: string; code: string; problem: string }[],
): Promise<void> {
  await client.query(
    `UPDATE notification_outbox.intents AS intents
        SET state = 'set_aside', ended_at = clock_timestamp(), problem_code = refused.code, problem = refused.problem
       FROM unnest($1::bigint[], $2::text[], $3::text[]) AS refused (id, code, problem)
      WHERE intents.id = refused.id`,
    [refused.map(({ id }) => id), refused.map(({ code }) => code), refused.map(({ problem }) => problem)],
  );
}

/** Which published rows Redis has lost. */
type Lost = { behindBatch: number } | { ids: readonly string[] };

/** A page of them. */
export interface PutBack {
  pending: number;
  setAside: number;
  /** There may be more of them. */
  isFull: boolean;
}

/**
 * Has lost rows published again; those that were published first too long ago are set aside, since the service may not
 * know their keys any more and would tell their users twice.
 */
export async function putBack(client: PoolClient, lost: Lost, keyLifetimeMs: number): Promise<PutBack> {
  const [condition, value] =
    'ids' in lost ? (['id = ANY ($1)', lost.ids] as const) : (['batch > $1', lost.behindBatch] as const);
  const { rows } = await client.query<{ pending: number; old: number }>(
    `WITH lost AS (
       SELECT id, published_at < clock_timestamp() - $2::double precision * interval '1 ms' AS is_old
         FROM notification_outbox.intents WHERE state = 'published' AND ${condition}
        ORDER BY batch DESC, id DESC LIMIT $3
     ), put_back AS (
       UPDATE notification_outbox.intents AS intents
          SET state = CASE WHEN is_old THEN 'set_aside' ELSE 'pending' END,
              ended_at = CASE WHEN is_old THEN clock_timestamp() END,
              problem_code = CASE WHEN is_old THEN $4 END,
              problem = CASE WHEN is_old THEN $5 END,
              entry_id = NULL, batch = NULL
         FROM lost WHERE intents.id = lost.id
       RETURNING is_old
     )
     SELECT count(*) FILTER (WHERE NOT is_old)::int AS pending, count(*) FILTER (WHERE is_old)::int AS old FROM put_back`,
    [
      value,
      keyLifetimeMs,
      PAGE,
      KEY_MAY_BE_FORGOTTEN,
      'Redis lost it, and it was published first so long ago that the service may have forgotten its key: look whether it was delivered (galaxy-notify notifications list --key), then publish it again if it was not',
    ],
  );
  const { pending, old } = rows[0]!;
  return { pending, setAside: old, isFull: pending + old === PAGE };
}

/** From now on Redis need not know the batches that it has lost. */
export async function acceptLoss(client: PoolClient, knownBatch: number): Promise<void> {
  await client.query('UPDATE notification_outbox.relay SET redis_batch = $1', [knownBatch]);
}

/** @returns how many rows were deleted, a page at most. */
export async function deleteEnded(
  client: PoolClient,
  state: 'passed' | 'set_aside',
  keepMs: number,
): Promise<{ deleted: number; isFull: boolean }> {
  const { rowCount } = await client.query(
    `DELETE FROM notification_outbox.intents WHERE id IN (
       SELECT id FROM notification_outbox.intents
        WHERE state = $1 AND ended_at < clock_timestamp() - $2::double precision * interval '1 ms'
        ORDER BY ended_at LIMIT $3)`,
    [state, keepMs, PAGE],
  );
  return { deleted: rowCount ?? 0, isFull: rowCount === PAGE };
}

/** State of an outbox. */
export interface OutboxStatus {
  outboxId: string;
  /** Null before the first publication. */
  stream: string | null;
  /** Rows by state, each counted up to COUNTED_AT_MOST. */
  counts: Record<OutboxState, number>;
  /** Ages of the oldest row that waits for Redis, and of the oldest one that the service has not passed, ms. */
  oldestPendingMs: number;
  oldestPublishedMs: number;
  /** Relays that are connected to this database. */
  relays: number | null;
}

/** How relays are named among the connections of a database. */
export const RELAY_NAME = 'galaxy-notify outbox relay';

/** @throws OutboxUnusableError; what PostgreSQL fails with. */
export async function outboxStatus(db: Pool): Promise<OutboxStatus> {
  await checkOutbox(db);
  const counts = OUTBOX_STATES.map(
    (state) =>
      `'${state}', (SELECT count(*) FROM (SELECT FROM notification_outbox.intents WHERE state = '${state}' LIMIT ${COUNTED_AT_MOST}) AS rows)`,
  );
  const age = (state: OutboxState, order: string) =>
    `coalesce((SELECT round(extract(epoch FROM clock_timestamp() - created_at) * 1000) FROM notification_outbox.intents
                WHERE state = '${state}' ORDER BY ${order} LIMIT 1), 0)::double precision`;
  const { rows } = await db.query<OutboxStatus>(
    `SELECT outbox_id AS "outboxId", stream, json_build_object(${counts.join(', ')}) AS counts,
            ${age('pending', 'id')} AS "oldestPendingMs", ${age('published', 'batch, id')} AS "oldestPublishedMs",
            (SELECT count(*)::int FROM pg_stat_activity
              WHERE datname = current_database() AND application_name = $1) AS relays
       FROM notification_outbox.relay`,
    [RELAY_NAME],
  );
  return { ...rows[0]!, ...(isPooledDatabase(db) ? { relays: null } : {}) };
}

/** One row, as operators see it. */
export interface OutboxItem {
  id: string;
  state: OutboxState;
  type: string | null;
  producer: string | null;
  idempotencyKey: string | null;
  createdAt: Date;
  publications: number;
  entryId: string | null;
  problemCode: string | null;
  problem: string | null;
}

/** The newest rows first. @throws OutboxUnusableError; what PostgreSQL fails with. */
export async function listOutbox(
  db: Pool,
  filter: { state?: OutboxState; limit?: number } = {},
): Promise<Page<OutboxItem>> {
  await checkOutbox(db);
  return listOf<OutboxItem, { state?: OutboxState }, OutboxItem>(db, ROWS, filter, (row) => row);
}

const ROWS: Listing<{ state?: OutboxState }> = {
  columns: `id, state, entry ->> 'notification_type' AS type, entry ->> 'producer' AS producer,
            entry ->> 'idempotency_key' AS "idempotencyKey", created_at AS "createdAt", publications,
            entry_id AS "entryId", problem_code AS "problemCode", problem`,
  from: 'notification_outbox.intents',
  order: 'id DESC',
  filters: { state: 'state = ?' },
};

/** Rows to publish again: some by their number, those that are set aside, or all that were written since a time. */
export interface RepublishFilter {
  ids?: readonly string[];
  state?: OutboxState;
  createdSince?: Date;
}

/**
 * Has rows published again that were published, passed or set aside. The service sees by their keys what it has already.
 *
 * @returns how many. @throws OutboxUnusableError; what PostgreSQL fails with.
 */
export async function republish(db: Pool, { ids, state, createdSince }: RepublishFilter): Promise<number> {
  await checkOutbox(db);
  let total = 0;
  for (let behind = '0', isFull = true; isFull;) {
    const values = [behind, ids ?? null, state ?? null, createdSince ?? null, PAGE];
    const again = (client: PoolClient) =>
      client.query<{ count: number; last: string | null }>(REPUBLISH, values);
    const { count, last } = (await withOutbox(db, again, { wait: true }))!.rows[0]!;
    total += count;
    isFull = count === PAGE;
    behind = last ?? behind;
  }
  return total;
}

/** $1 the row before the first one, $2 rows or null, $3 state or null, $4 time or null, $5 rows at most. */
const REPUBLISH = `
  WITH chosen AS (
    SELECT id FROM notification_outbox.intents
     WHERE id > $1 AND state <> 'pending' AND ($2::bigint[] IS NULL OR id = ANY ($2))
       AND ($3::text IS NULL OR state = $3) AND ($4::timestamptz IS NULL OR created_at >= $4)
     ORDER BY id LIMIT $5
  ), put_back AS (
    UPDATE notification_outbox.intents AS intents
       SET state = 'pending', ended_at = NULL, problem_code = NULL, problem = NULL, entry_id = NULL, batch = NULL,
           published_at = NULL
      FROM chosen WHERE intents.id = chosen.id
    RETURNING intents.id
  )
  SELECT count(*)::int AS count, max(id) AS last FROM put_back`;
