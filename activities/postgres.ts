/**
 * What the activities share about PostgreSQL: statements, transactions, and saving many items of which some may be refused.
 * Each owns the SQL of its tables itself.
 */
import { ApplicationFailure } from '@temporalio/activity';
import type { Pool, PoolClient, QueryResultRow } from 'pg';
import pg from 'pg';
import {
  POSTGRES_AWAY,
  POSTGRES_REFUSED,
  POSTGRES_UNAVAILABLE,
  POSTGRES_UNUSABLE,
} from '../workflows/failures.ts';
import { refuseIfLate } from './attempt.ts';
import { isOfType, reasonOf } from './reason.ts';
import { KeyBoxError } from '../api/key-box.ts';
import { runTransaction } from '../api/postgres-transaction.ts';

/** A statement that is prepared once per connection under its name. */
export interface Statement {
  name: string;
  text: string;
}

/**
 * Runs a prepared statement.
 *
 * @throws ApplicationFailure as {@link postgresFailure} says, or `AttemptLate`; nothing is changed then.
 */
export async function query<Row extends QueryResultRow>(
  db: Pool | PoolClient,
  statement: Statement,
  values: unknown[],
): Promise<Row[]> {
  refuseIfLate(statement.name);
  try {
    const { rows } = await db.query<Row>({ ...statement, values });
    return rows;
  } catch (error) {
    throw postgresFailure(statement.name, error);
  }
}

/** Columns of rows as lists, which a statement unnests; what is undefined is NULL. */
export const columnsOf = <Row>(rows: readonly Row[], ...names: (keyof Row)[]): unknown[][] =>
  names.map((name) => rows.map((row) => row[name] ?? null));

/**
 * About the values of this statement: data exceptions (22), more or fewer rows than one (21), violated constraints
 * (23, 44), and values that are too large or too deep (54). The same values are refused again.
 */
const ABOUT_VALUES = /^(2[123]|44|54)/;
const DATA_EXCEPTION = /^22/;

/**
 * About the installation, which an operator must fix: no right, table or function (42), no such database or schema (3D,
 * 3F), no log-in (28), a read-only server (25006), a full disk (53100), a pool that loses prepared statements (26),
 * corrupted data (XX001, XX002).
 */
const ABOUT_INSTALLATION = /^(42|3D|3F|28|26|25006|53100|XX00[12])/;

/**
 * What a failed statement is to be called, by its SQLSTATE, with PostgreSQL's reason. All are retried unless their
 * caller decides otherwise: only it knows what the values belong to, and can set that aside.
 *
 * @param what the name of the statement, or other words for what was not run.
 * @returns `PostgresRefused` for the sake of the values; `PostgresUnusable` for the sake of the installation; otherwise
 * `PostgresUnavailable`.
 */
export function postgresFailure(what: string, error: unknown): ApplicationFailure {
  const sqlState = sqlStateOf(error);
  const reason = DATA_EXCEPTION.test(sqlState ?? '') ? withoutValues(reasonOf(error)) : reasonOf(error);
  const message = `PostgreSQL did not run ${what}: ${reason}`;
  if (sqlState === undefined) return ApplicationFailure.create({ type: POSTGRES_UNAVAILABLE, message });
  return ApplicationFailure.create({
    type: typeOf(sqlState),
    message: `${message} (SQLSTATE ${sqlState})`,
    details: [{ sqlState } satisfies PostgresFailureDetails],
  });
}

/** A data exception quotes the value, which must not get into logs and histories. */
const withoutValues = (reason: string): string => reason.replace(/"[^"]*"/g, '"…"');

function typeOf(sqlState: string): string {
  if (ABOUT_VALUES.test(sqlState)) return POSTGRES_REFUSED;
  return ABOUT_INSTALLATION.test(sqlState) ? POSTGRES_UNUSABLE : POSTGRES_UNAVAILABLE;
}

const QUERY_CANCELED = '57014';

interface PostgresFailureDetails {
  sqlState: string;
}

/** PostgreSQL's code of an error; undefined for one that is not from the server, such as a broken connection. */
export function sqlStateOf(error: unknown): string | undefined {
  return error instanceof pg.DatabaseError ? error.code : undefined;
}

/** Nothing is wrong with the values: the same statement succeeds once PostgreSQL is back, or fixed, or in the next attempt. */
export const isPostgresAway = (error: unknown): error is ApplicationFailure =>
  POSTGRES_AWAY.some((type) => isOfType(error, type));

/** PostgreSQL works, and does not take these values: they are to be set aside. */
export function isPostgresRefusal(error: unknown): error is ApplicationFailure {
  return isOfType(error, POSTGRES_REFUSED);
}

/** The statement took longer than it may. With fewer rows it may not. */
export function isStatementTimeout(error: unknown): boolean {
  return detailsOf(error).sqlState === QUERY_CANCELED;
}

function detailsOf(error: unknown): Partial<PostgresFailureDetails> {
  const [details] = (error instanceof ApplicationFailure ? error.details : undefined) ?? [];
  return (details as PostgresFailureDetails | undefined) ?? {};
}

/** The same failure, not retried if it is a refusal: for callers that have nothing to set aside and cannot wait. */
export function finalIfRefused(failure: ApplicationFailure): ApplicationFailure {
  if (!isPostgresRefusal(failure)) return failure;
  return ApplicationFailure.nonRetryable(failure.message, POSTGRES_REFUSED, ...(failure.details ?? []));
}

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
