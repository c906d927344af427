/**
 * Every statement of a recurring step is bounded in time and rows. A statement that reads a table as a whole does well for
 * as long as the table is small, and then stops what it belongs to for good: each run ends by its time-out.
 */
import pg from 'pg';
import type { Statement } from '../../activities/postgres.ts';
import { STATEMENTS as OF_ACCOUNTS } from '../../client/account-callback/places.ts';
import { STATEMENTS as OF_INTENTS } from '../../client/intent/why.ts';
import { STATEMENTS as OF_PUSHES } from '../../client/mobile-push/jobs.ts';
import { STATEMENTS as OF_TOP } from '../../client/top.ts';
import { createDeviceTokens } from '../../dev/stand-ins/mobile-push/device-tokens.ts';
import { slotOfTests } from '../harness.ts';
import { allStatements, namesInSources, planOf, unboundedParts, unnamedQueries } from './statements.ts';

/** Statements that may take longer the more there is, and why. */
const EXCEPTIONS: Record<string, string> = {
  find_due_callback_day:
    'passes over users who wait for a daily retry; there are few of them, or the daily callbacks of all stand still',
  begin_daily_callbacks: 'the same',
  count_silent_routers:
    'one look for each router of each agent that is open; after 2 s its gauge is left out',
};

const ROWS = 20_000;
const AGENTS = 4_000;

/** Tables that do not grow with users, intents or devices, and why. They may be read as a whole. */
const SMALL: Record<string, string> = {
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

const HOST = "'v' || n / 1000";
/** Those of columns of which many rows have the same value. */
const SHARED: Record<string, string> = {
  agent_id: `'v' || n % ${AGENTS}`,
  ...{ host: HOST, smp_host: HOST, ntf_host: HOST, port: '443', smp_port: '443', ntf_port: '443' },
};

/** Tables of which one agent may have all rows. */
const OF_AN_AGENT =
  'connections events ntf_subscriptions ntf_tokens_to_delete rcv_queues servers_stats'.split(' ');

/** Of one connection. */
let db: pg.Pool;
// Before the slot is given back.
afterAll(() => db.end());
const slot = slotOfTests();
let statements: Map<string, Statement>;
let large: Set<string>;

beforeAll(async () => {
  const dsn = slot.endpoints.postgresDsn;
  db = new pg.Pool({ connectionString: dsn, max: 1 });
  large = new Set(await fillWithBulkRows(dsn));
  statements = await allStatements();
}, 180_000);

test('I50 every statement has a name', () => {
  expect(namesInSources().filter((name) => !statements.has(name))).toEqual([]);
  expect(unnamedQueries()).toEqual([]);
});

test('I50 every table has rows in bulk here, or stays small', async () => {
  const { rows } = await db.query<{ name: string }>(
    "SELECT relname AS name FROM pg_class WHERE relkind = 'r' AND relnamespace::regnamespace::text ~ '^(notification|subscriptions|public)'",
  );
  expect(rows.map(({ name }) => name).sort()).toEqual([...large, ...Object.keys(SMALL)].sort());
});

test('I50 no statement takes longer the more rows there are that it is not about', async () => {
  expect(await unboundedStatements(large)).toEqual(Object.keys(EXCEPTIONS).sort());
}, 120_000);

test('I50 no statement about an agent takes no longer the more connections the agent has', async () => {
  // Most installations have one: PostgreSQL is to believe that all rows are of it.
  for (const table of OF_AN_AGENT)
    await db.query(
      `ALTER TABLE subscriptions.${table} ALTER agent_id SET (n_distinct = 1); ANALYZE subscriptions.${table}`,
    );
  const found = await unboundedStatements(new Set(OF_AN_AGENT), ['agent_id']);
  expect(found.filter((name) => !(name in EXCEPTIONS))).toEqual([]);
}, 120_000);

async function unboundedStatements(tables: ReadonlySet<string>, shared?: readonly string[]) {
  const found: string[] = [];
  for (const [name, statement] of statements)
    if (unboundedParts(await planOf(db, statement), tables, shared).length > 0) found.push(name);
  return found.sort();
}

test('U1 U11 what why and top read takes no longer the more rows there are of others', async () => {
  await db.query('ANALYZE');
  const all = [OF_INTENTS, OF_PUSHES, OF_ACCOUNTS, OF_TOP].flatMap((texts) => Object.entries<string>(texts));
  for (const [name, text] of all)
    expect([name, unboundedParts(await planOf(db, { name, text }), large)]).toEqual([name, []]);
});

test('I50 what is done for each intent is planned once, and not for each of its values', async () => {
  const values = [['1-0'], ['push:user:user-1'], [new Date().toISOString()], ['1-1'], [null], ['pending']];
  for (let times = 0; times < 10; times += 1) await db.query({ ...statements.get('settle_routes')!, values });
  const planned = "SELECT FROM pg_prepared_statements WHERE name = 'settle_routes' AND generic_plans > 0";
  expect((await db.query(planned)).rowCount).toBe(1);
});

test.each([
  ['reads all of records', 'SELECT 1 FROM notification.records WHERE payload_json = $1'],
  [
    'walks all of records_pkey',
    'SELECT notification_id FROM notification.records WHERE trace_id = $1 ORDER BY 1 LIMIT $2',
  ],
  [
    'walks a range without a limit of records_accepted_at_idx',
    "DELETE FROM notification.records WHERE accepted_at < $1::timestamptz - interval '1 year'",
  ],
  [
    'sorts all that it finds, for a few',
    'SELECT notification_id FROM notification.records WHERE accepted_at < $1 ORDER BY accepted_at::text LIMIT $2',
  ],
])('I50 a statement that %s is found', async (problem, text) => {
  // For what a small table would not make it do.
  await db.query(`SET enable_seqscan = ${problem.startsWith('reads') ? 'on' : 'off'}`);
  expect(unboundedParts(await planOf(db, { name: 'planted', text }), large)).toEqual([problem]);
});

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
  if (value === undefined)
    throw new Error(`test/platform/statements.service.test.ts has no value for ${type}`);
  return isNullable ? `CASE WHEN n / 7 % 2 = 0 THEN (${value})::${type} END` : value;
}

/**
 * Fills the database: every table that grows has so many rows that PostgreSQL does not read it as a whole for a few of them.
 *
 * @returns names of the tables that have rows in bulk.
 */
async function fillWithBulkRows(dsn: string): Promise<string[]> {
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
