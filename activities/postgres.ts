/** What the activities share about PostgreSQL. Each owns the SQL of its tables itself. */
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
