/** Transactions over several statements, and saving many items of which some may be refused. */
import { ApplicationFailure } from '@temporalio/activity';
import type { Pool, PoolClient, QueryResultRow } from 'pg';
import { KeyBoxError } from '../api/key-box.ts';
import { runTransaction } from '../api/postgres-transaction.ts';
import { refuseIfLate } from './attempt.ts';
import type { Statement } from './postgres.ts';
import { finalIfRefused, isPostgresRefusal, postgresFailure, sqlStateOf } from './postgres.ts';

/** Runs that a transaction gets when others stand in its way. */
const ATTEMPTS = 5;
const DEADLOCK_OR_SERIALIZATION = new Set(['40P01', '40001']);
const READ_ONLY = '25006';

/** Runs a prepared statement within a transaction. Rejects with PostgreSQL's own error. */
export async function run<Row extends QueryResultRow>(
  client: PoolClient,
  statement: Statement,
  values: unknown[],
): Promise<Row[]> {
  const { rows } = await client.query<Row>({ ...statement, values });
  return rows;
}

/**
 * Runs `body` in a transaction, again when a deadlock ended it.
 *
 * @throws ApplicationFailure `PostgresUnavailable` or `PostgresUnusable` (retried), or `PostgresRefused` (not retried), with
 * PostgreSQL's reason; `AttemptLate`; another failure of `body` as it is. Nothing is changed then.
 */
export async function inTransaction<T>(db: Pool, body: (client: PoolClient) => Promise<T>): Promise<T> {
  const fencedBody = async (client: PoolClient): Promise<T> => {
    const result = await body(client);
    refuseIfLate('a transaction');
    return result;
  };
  for (let attempt = 1; ; attempt += 1) {
    refuseIfLate('a transaction');
    try {
      // A server has become read-only: the next connection may lead to another one.
      return await runTransaction(db, fencedBody, { isUnusable: (error) => sqlStateOf(error) === READ_ONLY });
    } catch (error) {
      if (error instanceof ApplicationFailure || error instanceof KeyBoxError) throw error;
      const code = sqlStateOf(error);
      if (code !== undefined && DEADLOCK_OR_SERIALIZATION.has(code) && attempt < ATTEMPTS) continue;
      throw finalIfRefused(postgresFailure('a transaction', error));
    }
  }
}

/**
 * Saves items together; if PostgreSQL refuses a value, by halves, so that one does not take the others along.
 *
 * @param save rejects as {@link query} does, and leaves nothing of what it was given then.
 * @returns the refused items with PostgreSQL's reason.
 * @throws every other failure of `save`.
 */
export async function saveIsolated<Item>(
  items: readonly Item[],
  save: (items: readonly Item[]) => Promise<unknown>,
): Promise<{ item: Item; reason: string }[]> {
  if (items.length === 0) return [];
  try {
    await save(items);
    return [];
  } catch (error) {
    if (!isPostgresRefusal(error)) throw error;
    if (items.length === 1) return [{ item: items[0]!, reason: error.message }];
    const middle = Math.ceil(items.length / 2);
    const first = await saveIsolated(items.slice(0, middle), save);
    return [...first, ...(await saveIsolated(items.slice(middle), save))];
  }
}

/** Runs a part of a transaction. If PostgreSQL refuses it, the rest goes on without it. @throws the refusal as {@link query}. */
export async function inSavepoint(client: PoolClient, work: () => Promise<unknown>): Promise<void> {
  await client.query('SAVEPOINT item');
  try {
    await work();
    await client.query('RELEASE SAVEPOINT item');
  } catch (error) {
    const failure = postgresFailure('a part of a transaction', error);
    if (!isPostgresRefusal(failure)) throw error;
    await client.query('ROLLBACK TO SAVEPOINT item');
    throw failure;
  }
}
