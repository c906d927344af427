/**
 * The role of the service, apart from the owner of the tables: it reads and writes rows, and changes no table. `setup`
 * gives it what it needs, as the owner.
 */
import pg from 'pg';
import { SelfExplanatoryError } from '../api/errors.ts';
import { SESSION_SETTINGS } from '../api/postgres-session.ts';
import { withClient } from './migrate.ts';

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
 * Each schema, table, sequence and function of ours that is not open to the role as it must be. Which migrations there
 * were is the owner's word alone; of actions of operators nothing but details can be changed, and policies bound that.
 */
const LACKING_GRANTS = `
  SELECT format('GRANT USAGE ON SCHEMA %I TO %I', nspname, $1::text) AS statement
    FROM pg_namespace
   WHERE nspname = ANY ($2::text[]) AND NOT has_schema_privilege($1, oid, 'USAGE')
  UNION ALL
  SELECT format('GRANT %s ON %I.%I TO %I', array_to_string(lacking, ', '), nspname, relname, $1)
    FROM (SELECT nspname, relname,
                 ARRAY(SELECT privilege
                         FROM unnest(CASE
                           WHEN relkind = 'S' THEN '{USAGE}'
                           WHEN relname = 'schema_migrations' THEN '{SELECT}'
                           WHEN relname = 'operator_actions' THEN '{SELECT, INSERT, DELETE}'
                           ELSE '{SELECT, INSERT, UPDATE, DELETE}'
                         END::text[]) AS wanted (privilege)
                        WHERE CASE relkind
                                WHEN 'S' THEN NOT has_sequence_privilege($1, relation.oid, privilege)
                                ELSE NOT has_table_privilege($1, relation.oid, privilege)
                              END) AS lacking
            FROM pg_class AS relation JOIN pg_namespace ON pg_namespace.oid = relnamespace
           WHERE nspname = ANY ($2::text[]) AND relkind IN ('r', 'S')
             AND relname <> 'schema_migrations_id_seq') AS found
   WHERE cardinality(lacking) > 0
  UNION ALL
  SELECT format('GRANT UPDATE (detail) ON notification.operator_actions TO %I', $1::text)
    FROM pg_class
   WHERE oid = to_regclass('notification.operator_actions') AND NOT has_column_privilege($1, oid, 'detail', 'UPDATE')
  UNION ALL
  SELECT format('GRANT EXECUTE ON FUNCTION %s TO %I', routine.oid::regprocedure, $1)
    FROM pg_proc AS routine JOIN pg_namespace ON pg_namespace.oid = pronamespace
   WHERE nspname = ANY ($2::text[]) AND NOT has_function_privilege($1, routine.oid, 'EXECUTE')`;

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
