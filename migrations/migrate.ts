/**
 * Forward-only schema migrations: the numbered SQL files of this folder, applied by node-pg-migrate under its
 * advisory lock, in one transaction, before any listener is ready.
 *
 * The role of the service may be another one than the owner of the tables: it reads and writes rows, and changes no table.
 * `setup` gives it what it needs, as the owner.
 */
import { readdir } from 'node:fs/promises';
import { runner } from 'node-pg-migrate';
import pg from 'pg';
import { SelfExplanatoryError } from '../api/errors.ts';
import { SESSION_SETTINGS } from '../api/postgres-session.ts';
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

/** Who may make schemas in this database, and owns what is there of ours, may migrate. */
async function rightsOf(client: pg.Client) {
  const { rows } = await client.query<{ name: string; mayMigrate: boolean }>(
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

// --- The role of the service, apart from the owner of the tables.

/** The schemas that the role of the service works in. */
const SCHEMAS = ['notification', 'notifications', 'subscriptions'];

/** A database administrator must change roles first. */
export class RoleError extends SelfExplanatoryError {
  override name = 'RoleError';
}

/** What the role lacks, as statements that give it, for an owner to run. */
async function lackingGrants(client: pg.Client, role: string): Promise<string[]> {
  const { rows: roles } = await client.query('SELECT FROM pg_roles WHERE rolname = $1', [role]);
  if (roles.length === 0) {
    throw new RoleError(
      `there is no role ${role} in PostgreSQL, which NOTIFICATION_POSTGRES_PRIMARY_DSN names; create it first: CREATE ROLE ${pg.escapeIdentifier(role)} LOGIN PASSWORD '…'`,
    );
  }
  const { rows } = await client.query<{ statement: string }>(LACKING_GRANTS, [role, SCHEMAS]);
  return rows.map(({ statement }) => statement);
}

/**
 * Each right that the role must have on a schema, table, sequence or function of ours and has not. Which migrations there were is
 * the owner's word alone; of actions of operators nothing but details can be changed, and policies bound that.
 */
const LACKING_GRANTS = `
  SELECT format('GRANT %s ON %s TO %I', privilege, object, $1::text) AS statement
    FROM (SELECT 'USAGE', format('SCHEMA %I', nspname), has_schema_privilege($1, oid, 'USAGE')
            FROM pg_namespace
           WHERE nspname = ANY ($2::text[])
           UNION ALL
          SELECT privilege, format('TABLE %s', oid::regclass), has_table_privilege($1, oid, privilege)
            FROM pg_class CROSS JOIN unnest('{SELECT, INSERT, UPDATE, DELETE}'::text[]) AS wanted (privilege)
           WHERE relnamespace::regnamespace::text = ANY ($2) AND relkind = 'r'
             AND NOT (relname = 'schema_migrations' AND privilege <> 'SELECT')
             AND NOT (relname = 'operator_actions' AND privilege = 'UPDATE')
           UNION ALL
          SELECT 'UPDATE (detail)', format('TABLE %s', oid::regclass), has_column_privilege($1, oid, 'detail', 'UPDATE')
            FROM pg_class
           WHERE oid = to_regclass('notification.operator_actions')
           UNION ALL
          SELECT 'USAGE', format('SEQUENCE %s', seqrelid::regclass), has_sequence_privilege($1, seqrelid, 'USAGE')
            FROM pg_sequence JOIN pg_class ON pg_class.oid = seqrelid
           WHERE relnamespace::regnamespace::text = ANY ($2) AND relname <> 'schema_migrations_id_seq'
           UNION ALL
          SELECT 'EXECUTE', format('FUNCTION %s', oid::regprocedure), has_function_privilege($1, oid, 'EXECUTE')
            FROM pg_proc
           WHERE pronamespace::regnamespace::text = ANY ($2)) AS wanted (privilege, object, is_given)
   WHERE NOT is_given`;

/**
 * Gives the role of the service what it lacks.
 *
 * @param isDryRun says only what that would be.
 * @returns the statements. @throws RoleError when the role does not exist, or the connected role is not the owner.
 */
export async function grantToService(
  ownerDsn: string,
  role: string,
  { isDryRun }: { isDryRun: boolean },
): Promise<string[]> {
  return withClient(ownerDsn, async (client) => {
    const statements = await lackingGrants(client, role);
    if (isDryRun || statements.length === 0) return statements;
    await client.query('BEGIN');
    for (const statement of statements) await client.query(statement);
    await client.query('COMMIT');
    // PostgreSQL only warns a role that owns nothing.
    if ((await lackingGrants(client, role)).length > 0) {
      throw new RoleError(
        `the role of NOTIFICATION_POSTGRES_OWNER_DSN does not own all tables, so it cannot give their rights to ${role}`,
      );
    }
    return statements;
  });
}

/**
 * Has each session of a role begin with the settings that a pooler does not let clients ask for. A role may say so of itself.
 *
 * @returns whether something was to be changed; sessions that are open keep what they have.
 */
export async function setSessionDefaults(
  dsn: string,
  { statementTimeoutMs }: { statementTimeoutMs: number },
  { isDryRun }: { isDryRun: boolean },
): Promise<boolean> {
  return withClient(dsn, async (client) => {
    const settings = { ...SESSION_SETTINGS, statement_timeout: String(statementTimeoutMs) };
    const wanted = Object.entries(settings);
    const { rows } = await client.query<{ settings: string[] }>(
      `SELECT coalesce((SELECT setconfig FROM pg_db_role_setting
                         WHERE setrole = current_user::regrole
                           AND setdatabase = (SELECT oid FROM pg_database WHERE datname = current_database())), '{}') AS settings`,
    );
    if (wanted.every(([name, value]) => rows[0]!.settings.includes(`${name}=${value}`))) return false;
    if (isDryRun) return true;
    const { rows: names } = await client.query<{ name: string }>('SELECT current_database() AS name');
    const database = pg.escapeIdentifier(names[0]!.name);
    for (const [name, value] of wanted) {
      await client.query(`ALTER ROLE CURRENT_USER IN DATABASE ${database} SET ${name} = '${value}'`);
    }
    return true;
  });
}
