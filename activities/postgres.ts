/** What the activities share about PostgreSQL. Each owns the SQL of its tables itself. */
import { ApplicationFailure } from '@temporalio/activity';
import type { Pool, PoolClient, QueryResultRow } from 'pg';
import { POSTGRES_UNAVAILABLE } from '../workflows/failures.ts';
import { reasonOf } from './reason.ts';

/** A statement that is prepared once per connection under its name. */
export interface Statement {
  name: string;
  text: string;
}

/**
 * Runs a prepared statement.
 *
 * @throws ApplicationFailure `PostgresUnavailable` (retried) with PostgreSQL's reason.
 */
export async function query<Row extends QueryResultRow>(
  db: Pool | PoolClient,
  statement: Statement,
  values: unknown[],
): Promise<Row[]> {
  try {
    const { rows } = await db.query<Row>({ ...statement, values });
    return rows;
  } catch (error) {
    throw ApplicationFailure.create({
      type: POSTGRES_UNAVAILABLE,
      message: `PostgreSQL did not run ${statement.name}: ${reasonOf(error)}`,
    });
  }
}

export function isPostgresUnavailable(error: unknown): boolean {
  return error instanceof ApplicationFailure && error.type === POSTGRES_UNAVAILABLE;
}
