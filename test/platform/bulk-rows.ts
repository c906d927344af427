/** Rows in bulk: every table that grows has so many that PostgreSQL does not read it as a whole for a few of them. */
import type { Pool } from 'pg';
import { createDeviceTokens } from '../../dev/stand-ins/mobile-push/device-tokens.ts';

const ROWS = 20_000;
const AGENTS = 4_000;

/** Tables that do not grow with users, intents or devices, and why. They may be read as a whole. */
export const SMALL: Record<string, string> = {
  schema_migrations: 'one row for each migration',
  installation: 'one row',
  inbound_streams: 'one',
  outbound_streams: 'three',
  symbols: 'those that are traded',
  symbol_snapshots: 'a hundred are kept',
  symbol_targets: 'those of the configuration',
  callback_settings: 'one',
  holds: 'one for each channel and producer',
};

/** The values of the n-th row by the type of their column. */
const VALUES: Record<string, string> = {
  text: "'v' || n",
  'text[]': "ARRAY['v' || n]",
  bigint: 'n',
  integer: 'n',
  smallint: 'n % 30000',
  boolean: 'n % 2 = 0',
  'timestamp with time zone': "now() - n * interval '1 minute'",
  'timestamp with time zone[]': 'ARRAY[now()]',
  'double precision': 'n',
  date: 'current_date - n % 1000',
  json: "'{}'",
  jsonb: "'{}'",
  uuid: 'gen_random_uuid()',
  bytea: "''",
};

/** Those of columns of which many rows have the same value. */
const SHARED: Record<string, string> = {
  agent_id: `'v' || n % ${AGENTS}`,
  ...Object.fromEntries(
    ['', 'smp_', 'ntf_'].flatMap((kind) => [
      [`${kind}host`, "'v' || n / 1000"],
      [`${kind}port`, '443'],
    ]),
  ),
};

interface Column {
  table: string;
  name: string;
  type: string;
  isNullable: boolean;
  /** The condition of a column that takes a few values only. */
  check: string | null;
}

const COLUMNS = `
  SELECT format('%I.%I', nspname, relname) AS table, quote_ident(attname) AS name, format_type(atttypid, NULL) AS type,
         NOT attnotnull AS "isNullable", (
           SELECT max(pg_get_constraintdef(pg_constraint.oid)) FROM pg_constraint
            WHERE conrelid = attrelid AND contype = 'c' AND conkey = ARRAY[attnum]
         ) AS check
    FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid JOIN pg_namespace ON pg_namespace.oid = relnamespace
   WHERE relkind = 'r' AND nspname IN ('notification', 'notifications', 'subscriptions', 'public')
     AND NOT relname = ANY ($1) AND attnum > 0 AND NOT attisdropped AND attgenerated = '' AND attidentity = ''
   ORDER BY 1, attnum`;

/** Half of the rows have no value where there need not be one; states and kinds take turns. */
function valueOf({ table, name, type, isNullable, check }: Column): string {
  const allowed = [...(check?.matchAll(/'([^']*)'::text/g) ?? [])].map(([quoted]) => quoted);
  const value =
    name in SHARED && table !== 'subscriptions.agents'
      ? SHARED[name]
      : allowed.length > 1
        ? `(ARRAY[${allowed.join()}])[1 + n % ${allowed.length}]`
        : VALUES[type];
  if (value === undefined) throw new Error(`test/platform/bulk-rows.ts has no value for ${type}`);
  return isNullable ? `CASE WHEN n / 7 % 2 = 0 THEN (${value})::${type} END` : value;
}

/** Fills a migrated database. @returns names of the tables that have rows in bulk. */
export async function fillWithBulkRows(db: Pool, dsn: string): Promise<string[]> {
  await createDeviceTokens(dsn, { samples: false });
  const { rows: columns } = await db.query<Column>(COLUMNS, [Object.keys(SMALL)]);
  // References and conditions of rows need not hold here.
  await db.query('SET session_replication_role = replica');
  await db.query(`
    DO $$ DECLARE one record; BEGIN
      FOR one IN SELECT conrelid::regclass AS owner, conname FROM pg_constraint WHERE contype = 'c' AND conrelid > 0 LOOP
        EXECUTE format('ALTER TABLE %s DROP CONSTRAINT %I', one.owner, one.conname);
      END LOOP;
    END $$`);
  for (const [table, own] of Map.groupBy(columns, (column) => column.table))
    await db.query(
      `INSERT INTO ${table} (${own.map(({ name }) => name).join()})
       SELECT ${own.map(valueOf).join()} FROM generate_series(1, ${ROWS}) AS n ON CONFLICT DO NOTHING`,
    );
  // Of a table that is looked at as a whole, PostgreSQL would take the few rows of each agent for all that there may be.
  await db.query('SET default_statistics_target = 10');
  await db.query('VACUUM ANALYZE');
  const { rows } = await db.query<{ name: string }>(
    `SELECT relname AS name FROM pg_class
      WHERE relkind = 'r' AND relnamespace::regnamespace::text IN ('notification', 'notifications', 'subscriptions', 'public')
        AND reltuples > 1000`,
  );
  return rows.map(({ name }) => name);
}

/** Tables of which one agent may have all rows. */
export const OF_AN_AGENT = [
  'connections',
  'events',
  'ntf_subscriptions',
  'ntf_tokens_to_delete',
  'rcv_queues',
  'servers_stats',
];

/** Has PostgreSQL believe that all rows are of one agent: most installations have one. */
export async function pretendOneAgent(db: Pool): Promise<void> {
  for (const table of OF_AN_AGENT) {
    await db.query(`ALTER TABLE subscriptions.${table} ALTER agent_id SET (n_distinct = 1)`);
    await db.query(`ANALYZE subscriptions.${table}`);
  }
}
