/** The table of outbox.sql: what the relay and operators read and change. Every statement is bounded in rows. */
import type { Pool, PoolClient } from 'pg';
import { SelfExplanatoryError } from '../../api/errors.ts';
import { runTransaction } from '../../api/postgres-transaction.ts';

/** What a statement may take, and a relay that has stopped in the middle of a batch may keep the others waiting, ms. */
const LIMIT_MS = 30_000;
/** PostgreSQL's codes for what does not exist, and for what is not allowed. */
const MISSING = ['3F000', '42P01'];
const NOT_ALLOWED = '42501';
/** Rows that one statement deletes at most. */
export const PAGE = 5_000;
/** Rows are counted up to here: a status shows that there are so many, or more. */
const COUNTED_AT_MOST = 100_000;

const OUTBOX_STATES = ['pending', 'published', 'passed', 'set_aside'] as const;
export type OutboxState = (typeof OUTBOX_STATES)[number];

/** The outbox is not there, or not open to this role. */
export class OutboxUnusableError extends SelfExplanatoryError {
  override name = 'OutboxUnusableError';
}

/** @throws OutboxUnusableError that says what to do. */
export async function checkOutbox(db: Pool): Promise<void> {
  try {
    await db.query('SELECT FROM notification_outbox.intents LIMIT 0');
  } catch (error) {
    const { code, message } = error as { code?: string; message: string };
    if (code === NOT_ALLOWED) throw new OutboxUnusableError(`${message}: see the GRANTs in outbox.sql`);
    if (!MISSING.includes(code ?? '')) throw error;
    throw new OutboxUnusableError(
      'this database has no outbox: run outbox.sql there (galaxy-notify outbox sql)',
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
  work: (client: PoolClient) => Promise<T>,
): Promise<T | undefined> {
  const begin = `BEGIN; SET LOCAL statement_timeout = ${LIMIT_MS}; SET LOCAL idle_in_transaction_session_timeout = ${LIMIT_MS}`;
  const locked = async (client: PoolClient) => {
    const { rows } = await client.query<{ isLocked: boolean }>(LOCK_OUTBOX);
    return rows[0]!.isLocked ? work(client) : undefined;
  };
  return runTransaction(db, locked, { begin });
}

/** The lock of outbox.sql. */
const LOCK_OUTBOX = `SELECT pg_try_advisory_xact_lock(hashtext('notification_outbox')) AS "isLocked"`;

export interface OutboxRow {
  id: string;
  entry: Record<string, string>;
}

/** A row whose entry is in the stream, unless Redis has lost it. */
export interface PublishedRow {
  id: string;
  entryId: string;
  idempotencyKey: string;
}

/** At most so many rows, and no further one once they have so many bytes. */
export interface PageLimits {
  rows: number;
  bytes: number;
}

/** The oldest rows that are to be published. */
export const pendingRows = (client: PoolClient, limits: PageLimits): Promise<OutboxRow[]> =>
  firstRows(client, 'id, entry', 'pending', 'id', limits);

/** Published rows in the order of the stream: the first ones, or with `DESC` the last ones. */
export const publishedRows = (
  client: PoolClient,
  order: 'ASC' | 'DESC',
  limits: PageLimits,
): Promise<PublishedRow[]> =>
  firstRows(
    client,
    `id, entry_id AS "entryId", entry ->> 'idempotency_key' AS "idempotencyKey"`,
    'published',
    `string_to_array(entry_id, '-')::numeric[] ${order}`,
    limits,
  );

async function firstRows<Row extends object>(
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
  ids: readonly string[],
  entryIds: readonly string[],
): Promise<void> {
  await client.query(
    `UPDATE notification_outbox.intents AS intents
        SET state = 'published', entry_id = appended.entry_id,
            published_at = coalesce(published_at, clock_timestamp())
       FROM unnest($1::bigint[], $2::text[]) AS appended (id, entry_id)
      WHERE intents.id = appended.id`,
    [ids, entryIds],
  );
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

/**
 * Has lost rows published again; those that were published first too long ago are set aside, since the service may not
 * know their keys any more and would tell their users twice.
 */
export async function putBack(
  client: PoolClient,
  ids: readonly string[],
  keyLifetimeMs: number,
): Promise<{ pending: number; setAside: number }> {
  const { rows } = await client.query<{ pending: number; setAside: number }>(
    `WITH put_back AS (
       UPDATE notification_outbox.intents AS intents
          SET state = CASE WHEN is_old THEN 'set_aside' ELSE 'pending' END,
              ended_at = CASE WHEN is_old THEN clock_timestamp() END,
              problem_code = CASE WHEN is_old THEN 'key_may_be_forgotten' END,
              problem = CASE WHEN is_old THEN $3 END,
              entry_id = NULL
         FROM (SELECT id, published_at < clock_timestamp() - $2::double precision * interval '1 ms' AS is_old
                 FROM notification_outbox.intents WHERE id = ANY ($1)) AS lost
        WHERE intents.id = lost.id
       RETURNING is_old
     )
     SELECT count(*) FILTER (WHERE NOT is_old)::int AS pending, count(*) FILTER (WHERE is_old)::int AS "setAside"
       FROM put_back`,
    [
      ids,
      keyLifetimeMs,
      'Redis lost it, and it was published first so long ago that the service may have forgotten its key: look whether it was delivered (galaxy-notify notifications list --key), then publish it again if it was not',
    ],
  );
  return rows[0]!;
}

/** @returns how many rows were deleted after their time, a page at most. */
export async function deleteEnded(
  client: PoolClient,
  { keepPassedMs, keepSetAsideMs }: { keepPassedMs: number; keepSetAsideMs: number },
): Promise<number> {
  const ended = (state: OutboxState, keepMs: string) =>
    `SELECT id FROM notification_outbox.intents
      WHERE state = '${state}' AND ended_at < clock_timestamp() - ${keepMs}::double precision * interval '1 ms'`;
  const { rowCount } = await client.query(
    `DELETE FROM notification_outbox.intents WHERE id IN (
       ${ended('passed', '$1')} UNION ALL ${ended('set_aside', '$2')} LIMIT $3)`,
    [keepPassedMs, keepSetAsideMs, PAGE],
  );
  return rowCount ?? 0;
}

/** State of an outbox. */
export interface OutboxStatus {
  /** Rows by state, each counted up to COUNTED_AT_MOST. */
  counts: Record<OutboxState, number>;
  /** Ages of the oldest row that waits for Redis, and of the oldest one that the service has not passed, ms. */
  oldestPendingMs: number;
  oldestPublishedMs: number;
}

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
    `SELECT json_build_object(${counts.join(', ')}) AS counts, ${age('pending', 'id')} AS "oldestPendingMs",
            ${age('published', "string_to_array(entry_id, '-')::numeric[]")} AS "oldestPublishedMs"`,
  );
  return rows[0]!;
}
