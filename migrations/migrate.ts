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

/**
 * What the name of a migration begins with that the release before cannot live with: `0042-breaking-intent`. The name is
 * all that an older release knows of it.
 */
const BREAKING = /^\d+-breaking-/;

/** A newer release has changed the database so that this one cannot run on it. */
export class SchemaNewerThanCodeError extends SelfExplanatoryError {
  override name = 'SchemaNewerThanCodeError';
}

/**
 * Brings the database up to the newest migration of this release.
 *
 * @param dsn PostgreSQL connection string; the role needs CREATE on the database.
 * @returns names of the migrations applied now, oldest first; empty when the schema was current, or ahead by migrations
 * that leave everything in place that this release needs.
 * @throws SchemaNewerThanCodeError when the database has breaking migrations that this release does not know.
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
      singleTransaction: true,
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
  const breaking = (await appliedMigrations(client)).filter(
    (name) => !known.has(name) && BREAKING.test(name),
  );
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
