/**
 * Forward-only schema migrations: the numbered SQL files of this folder, applied by node-pg-migrate under its
 * advisory lock, in one transaction, before any listener is ready.
 */
import { readdir } from 'node:fs/promises';
import { runner } from 'node-pg-migrate';
import pg from 'pg';
import { SelfExplanatoryError } from '../api/errors.ts';

const SCHEMA = 'notification';
const MIGRATIONS_TABLE = 'schema_migrations';

/** The database was migrated by a newer release than this one. Running older code on it would corrupt data. */
export class SchemaNewerThanCodeError extends SelfExplanatoryError {
  override name = 'SchemaNewerThanCodeError';
}

/**
 * Brings the database up to the newest migration of this release.
 *
 * @param dsn PostgreSQL connection string; the role needs CREATE on the database.
 * @returns names of the migrations applied now, oldest first; empty when the schema was current.
 * @throws SchemaNewerThanCodeError when the database has migrations that this release does not know.
 */
export async function migrate(dsn: string): Promise<string[]> {
  const client = await connect(dsn);
  try {
    await refuseNewerSchema(client);
    const applied = await runner({
      dbClient: client,
      dir: import.meta.dirname,
      // Everything that is not a numbered migration; the library anchors the pattern at both ends.
      ignorePattern: '(?!\\d{4}-.*\\.sql$).*',
      direction: 'up',
      schema: SCHEMA,
      createSchema: true,
      migrationsSchema: SCHEMA,
      migrationsTable: MIGRATIONS_TABLE,
      advisoryLockMode: 'wait',
      checkOrder: true,
      log: () => undefined,
    });
    return applied.map(({ name }) => name);
  } finally {
    await client.end();
  }
}

/**
 * @returns names of the migrations that `migrate` would apply, oldest first.
 * @throws SchemaNewerThanCodeError as `migrate` does.
 */
export async function pendingMigrations(dsn: string): Promise<string[]> {
  const client = await connect(dsn);
  try {
    await refuseNewerSchema(client);
    const applied = new Set(await appliedMigrations(client));
    return (await migrationNames()).filter((name) => !applied.has(name)).sort();
  } finally {
    await client.end();
  }
}

async function connect(dsn: string): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: dsn, application_name: 'galaxy-notify migrate' });
  // A server that goes away between two queries makes the next one reject; nothing else is to end this process.
  client.on('error', () => undefined);
  await client.connect();
  return client;
}

async function appliedMigrations(client: pg.Client): Promise<string[]> {
  const { rows: tables } = await client.query<{ table: string | null }>('SELECT to_regclass($1) AS table', [
    `${SCHEMA}.${MIGRATIONS_TABLE}`,
  ]);
  if (!tables[0]?.table) return [];
  const { rows } = await client.query<{ name: string }>(
    `SELECT name FROM ${SCHEMA}.${MIGRATIONS_TABLE} ORDER BY id`,
  );
  return rows.map(({ name }) => name);
}

async function refuseNewerSchema(client: pg.Client): Promise<void> {
  const known = new Set(await migrationNames());
  const unknown = (await appliedMigrations(client)).filter((name) => !known.has(name));
  if (unknown.length > 0) {
    throw new SchemaNewerThanCodeError(
      `the database schema is newer than this release: it has ${unknown.join(', ')}; run that release or a later one`,
    );
  }
}

async function migrationNames(): Promise<string[]> {
  const files = await readdir(import.meta.dirname);
  return files.filter((file) => /^\d{4}-.*\.sql$/.test(file)).map((file) => file.replace(/\.sql$/, ''));
}
