/** What can be wrong with the database. */
import type { Pool } from 'pg';
import { SESSION_SETTINGS } from '../api/postgres-session.ts';
import { isPooledDatabase } from '../api/postgres-transaction.ts';
import type { Config } from '../config/load.ts';
import { compareMigrations } from '../migrations/migrate.ts';
import type { CheckGroup, Diagnosis } from './checks.ts';
import { error, ok, rowCheck, warnIf } from './checks.ts';
import { countOf } from './output.ts';

/** Clocks that differ by more make next attempts and logs hard to read, ms. */
const SKEW_LIMIT_MS = 2_000;

export function postgresChecks(
  db: Pool,
  reach: () => Promise<void>,
  { production, values }: Config,
): CheckGroup {
  const operationTimeoutMs = values.NOTIFICATION_POSTGRES_OPERATION_TIMEOUT;
  return [
    ['PostgreSQL', () => answers(db, reach)],
    ['PostgreSQL: schema', () => schema(db)],
    rowCheck(db, 'PostgreSQL: role', ROLE, (rows: RoleRow[]) => diagnosisOfRole(rows[0]!, production)),
    ...(isPooledDatabase(db)
      ? [['PostgreSQL: sessions', () => sessions(db, operationTimeoutMs)] as const]
      : []),
    ['PostgreSQL: clock', () => clock(db)],
  ];
}

async function answers(db: Pool, reach: () => Promise<void>): Promise<Diagnosis> {
  await reach();
  const began = performance.now();
  const { rows } = await db.query<{ version: string; is_standby: boolean }>(
    "SELECT current_setting('server_version') AS version, pg_is_in_recovery() AS is_standby",
  );
  const { version, is_standby: isStandby } = rows[0]!;
  const detail = `version ${version}, answers in ${Math.round(performance.now() - began)} ms`;
  return isStandby
    ? error(`${detail}, a standby`, 'point NOTIFICATION_POSTGRES_PRIMARY_DSN at the primary')
    : ok(detail);
}

async function schema(db: Pool): Promise<Diagnosis> {
  const { applied, missing, unknown } = await compareMigrations(db);
  if (applied.length === 0)
    return error(
      'there are no tables',
      'run galaxy-notify setup, or start a service whose role owns the database',
    );
  if (unknown.length > 0)
    return error(`newer than this release: ${unknown.join(', ')}`, 'use that release or a later one');
  if (missing.length > 0)
    return error(`not applied: ${missing.join(', ')}`, 'run galaxy-notify setup of this release');
  return ok(countOf(applied.length, 'migration') + ' applied');
}

interface RoleRow {
  name: string;
  mayChange: boolean;
  isAdministrator: boolean;
}

const ROLE = `
  SELECT current_user AS name, rolsuper AS "isAdministrator",
         has_database_privilege(current_database(), 'CREATE')
           OR coalesce(pg_has_role((SELECT nspowner FROM pg_namespace WHERE nspname = 'notification'), 'USAGE'), false)
           AS "mayChange"
    FROM pg_roles WHERE rolname = current_user`;

/** Who steals the service's password should not be able to change tables. */
function diagnosisOfRole({ name, mayChange, isAdministrator }: RoleRow, production: boolean): Diagnosis {
  if (!mayChange) return ok(`${name} reads and writes rows, and changes no table`);
  return warnIf(
    production,
    `${name} ${isAdministrator ? 'is a superuser' : 'may change and drop tables'}`,
    'give the service its own role, and NOTIFICATION_POSTGRES_OWNER_DSN to setup: docs/deploy/postgresql.md',
  );
}

/** Through a pooler a session has the settings of its role. */
async function sessions(db: Pool, operationTimeoutMs: number): Promise<Diagnosis> {
  const { rows } = await db.query<{ name: string; setting: string }>(
    "SELECT name, setting FROM pg_settings WHERE name = ANY ($1 || ARRAY['statement_timeout'])",
    [Object.keys(SESSION_SETTINGS)],
  );
  const found = new Map(rows.map(({ name, setting }) => [name, setting]));
  const limitMs = Number(found.get('statement_timeout'));
  const others = Object.entries(SESSION_SETTINGS).filter(([name, value]) => found.get(name) !== value);
  const detail = [
    `statements end ${limitMs === 0 ? 'never' : `after ${limitMs / 1_000} s`}`,
    `times are in ${found.get('TimeZone')}`,
    ...others.flatMap(([name]) => (name === 'TimeZone' ? [] : [`${name} is ${found.get(name)}`])),
  ].join(', ');
  return warnIf(
    limitMs !== operationTimeoutMs || others.length > 0,
    detail,
    'run galaxy-notify setup, then RECONNECT in the console of PgBouncer',
  );
}

async function clock(db: Pool): Promise<Diagnosis> {
  const before = Date.now();
  const { rows } = await db.query<{ now: Date }>('SELECT clock_timestamp() AS now');
  // The answer was made somewhere between the two looks at our own clock.
  const skewMs = Math.round(rows[0]!.now.getTime() - (before + Date.now()) / 2);
  const detail = `${Math.abs(skewMs)} ms ${skewMs < 0 ? 'behind' : 'ahead of'} this machine`;
  return warnIf(Math.abs(skewMs) > SKEW_LIMIT_MS, detail, 'let NTP set both clocks');
}
