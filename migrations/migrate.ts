/**
 * Forward-only schema migrations: the numbered SQL files of this folder, applied by node-pg-migrate under its
 * advisory lock, in one transaction, before any listener is ready.
 */
import { readdir } from 'node:fs/promises';
import { runner } from 'node-pg-migrate';
import pg from 'pg';
import { SelfExplanatoryError } from '../api/errors.ts';
import { isPooled } from '../api/postgres-transaction.ts';

const SCHEMA = 'notification';
const MIGRATIONS_TABLE = 'schema_migrations';

/**
 * Name of a migration after which the previous release does not run, such as `0042-breaking-intent`. The previous release
 * knows only the name.
 */
const BREAKING = /^\d+-breaking-/;

/** A newer release has changed the database so that this one cannot run on it. */
export class SchemaNewerThanCodeError extends SelfExplanatoryError {
  override name = 'SchemaNewerThanCodeError';
}

/** The database lacks what this release needs, and the service may not make it. */
export class SchemaBehindCodeError extends SelfExplanatoryError {
  override name = 'SchemaBehindCodeError';
}

/**
 * Brings the database up as {@link migrate} does, if the role may. One without the right to, and one that comes through a
 * pooler, which cannot hold the lock of a session, only looks.
 *
 * @returns names of the migrations applied now. @throws SchemaBehindCodeError, SchemaNewerThanCodeError.
 */
export const migrateOrCheck = (dsn: string): Promise<string[]> =>
  withClient(dsn, async (client) => {
    const { name, mayMigrate } = await rightsOf(client);
    if (mayMigrate && !isPooled(dsn)) return migrate(dsn);
    const missing = await missingMigrations(client);
    if (missing.length === 0) return [];
    const why = isPooled(dsn) ? 'no migration goes through a pooler' : `the role ${name} may not apply them`;
    throw new SchemaBehindCodeError(
      `the database lacks ${missing.join(', ')}, or does not show it, and ${why}: run galaxy-notify setup of this release with NOTIFICATION_POSTGRES_OWNER_DSN`,
    );
  });

interface RoleRights {
  name: string;
  mayMigrate: boolean;
}

/** Who may make schemas in this database, and owns what is there of ours, may migrate. */
async function rightsOf(client: pg.Client): Promise<RoleRights> {
  const { rows } = await client.query<RoleRights>(
    `SELECT current_user AS name,
            has_database_privilege(current_database(), 'CREATE')
            AND coalesce((SELECT pg_has_role(nspowner, 'USAGE') FROM pg_namespace WHERE nspname = $1), true) AS "mayMigrate"`,
    [SCHEMA],
  );
  return rows[0]!;
}

/**
 * Brings the database up to the newest migration of this release.
 *
 * @param dsn PostgreSQL connection string; the role needs CREATE on the database.
 * @returns names of the migrations applied now, oldest first; empty when the schema was current, or ahead by migrations
 * that leave everything in place that this release needs.
 * @throws SchemaNewerThanCodeError when the database has breaking migrations that this release does not know.
 */
export const migrate = (dsn: string): Promise<string[]> =>
  withClient(dsn, async (client) => {
    await refuseNewerSchema(client);
    const applied = await runner({
      dbClient: client,
      dir: import.meta.dirname,
      // Everything that is not a numbered migration; the library anchors the pattern at both ends.
      ignorePattern: '(?!\\d{4}-.*\\.sql$).*',
      direction: 'up',
      schema: SCHEMA,
      createSchema: true,
      singleTransaction: true,
      migrationsSchema: SCHEMA,
      migrationsTable: MIGRATIONS_TABLE,
      advisoryLockMode: 'wait',
      checkOrder: true,
      log: () => undefined,
    });
    return applied.map(({ name }) => name);
  });

/**
 * @returns names of the migrations that `migrate` would apply, oldest first.
 * @throws SchemaNewerThanCodeError as `migrate` does.
 */
export const pendingMigrations = (dsn: string): Promise<string[]> => withClient(dsn, missingMigrations);

async function missingMigrations(client: pg.Client): Promise<string[]> {
  await refuseNewerSchema(client);
  return (await compareMigrations(client)).missing;
}

/** Which migrations a database has, as far as the role may see it, and which this release has: oldest first. */
export async function compareMigrations(
  client: Pick<pg.Client, 'query'>,
): Promise<Record<'applied' | 'missing' | 'unknown', string[]>> {
  const [applied, known] = await Promise.all([appliedMigrations(client), migrationNames()]);
  const without = (names: string[], others: string[]) => names.filter((name) => !others.includes(name));
  return { applied, missing: without(known, applied).sort(), unknown: without(applied, known) };
}

/** Runs work on a connection that is closed after it. */
export async function withClient<T>(dsn: string, work: (client: pg.Client) => Promise<T>): Promise<T> {
  const client = new pg.Client({ connectionString: dsn, application_name: 'galaxy-notify migrate' });
  // If a server goes away between two queries, the next query rejects; the event must not end the process.
  client.on('error', () => undefined);
  try {
    await client.connect();
    return await work(client);
  } finally {
    // What is not committed goes with the session.
    await client.end().catch(() => undefined);
  }
}

async function appliedMigrations(client: Pick<pg.Client, 'query'>): Promise<string[]> {
  // A role to which nothing is granted yet may look for the table, but not by its name alone.
  const { rows: tables } = await client.query<{ isOpen: boolean }>(
    `SELECT has_schema_privilege(relnamespace, 'USAGE') AND has_table_privilege(pg_class.oid, 'SELECT') AS "isOpen"
       FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
      WHERE nspname = $1 AND relname = $2`,
    [SCHEMA, MIGRATIONS_TABLE],
  );
  if (!tables[0]?.isOpen) return [];
  const { rows } = await client.query<{ name: string }>(
    `SELECT name FROM ${SCHEMA}.${MIGRATIONS_TABLE} ORDER BY id`,
  );
  return rows.map(({ name }) => name);
}

async function refuseNewerSchema(client: pg.Client): Promise<void> {
  const { unknown } = await compareMigrations(client);
  const breaking = unknown.filter((name) => BREAKING.test(name));
  if (breaking.length > 0) {
    throw new SchemaNewerThanCodeError(
      `the database schema is newer than this release can live with: it has ${breaking.join(', ')}; run that release or a later one`,
    );
  }
}

async function migrationNames(): Promise<string[]> {
  const files = await readdir(import.meta.dirname);
  return files.filter((file) => /^\d{4}-.*\.sql$/.test(file)).map((file) => file.replace(/\.sql$/, ''));
}
