/** The schema that the migrations make, compared with the committed description of it. */
import { randomUUID } from 'node:crypto';
import pg from 'pg';
import { LATE_INDEXES, buildLateIndexes } from '../../migrations/indexes.ts';
import { SchemaNewerThanCodeError, migrate, pendingMigrations } from '../../migrations/migrate.ts';
import { eventually, stackOfRun } from '../harness.ts';

const MIGRATIONS = [
  '0001-intent',
  '0002-operation',
  '0003-mobile-push',
  '0004-symbol-config',
  '0005-account-callback',
  '0006-subscription',
  '0008-intent-acceptance',
  '0009-drain',
  '0011-mobile-push-rounds',
  '0012-symbol-config',
  '0013-subscription-due',
  '0014-subscription',
  '0016-bounded-statements',
  '0017-outbound',
  '0018-inbound-streams',
  '0019-keys',
  '0020-subscription-events',
  '0021-intent-slices',
  '0022-subscription-routers',
  '0023-cancelled-intents',
  '0025-operators',
  '0028-operation',
  '0030-intent-trace',
  '0031-intent-outcomes',
  '0032-forgotten-users',
  '0033-producer-pauses',
  '0034-intent-expiry',
  '0035-operations',
  '0036-operator-actions',
  '0037-operations-paused',
  '0039-subscription',
  '0040-outbound',
  '0041-symbol-config',
  '0042-mobile-push',
  '0045-operator-actions',
];

let dsn: string;
let db: pg.Client;

beforeEach(async () => {
  const { postgresDsn } = stackOfRun();
  const database = `migrations_${randomUUID().replaceAll('-', '')}`;
  const admin = new pg.Client({ connectionString: postgresDsn });
  await admin.connect();
  await admin.query(`CREATE DATABASE ${database}`);
  await admin.end();
  const url = new URL(postgresDsn);
  url.pathname = `/${database}`;
  dsn = url.href;
  db = new pg.Client({ connectionString: dsn });
  await db.connect();
});
afterEach(() => db.end());

async function lines(sql: string): Promise<string[]> {
  const { rows } = await db.query<{ line: string }>(sql);
  return rows.map(({ line }) => line);
}

/** Tables with their columns, constraints and indexes, one line each, in a stable order. */
async function describeSchema(): Promise<string> {
  const columns = await lines(`
    SELECT format('%s.%s %s%s%s%s', table_name, column_name, data_type,
                  CASE is_nullable WHEN 'NO' THEN ' NOT NULL' ELSE '' END,
                  CASE WHEN column_default IS NULL THEN '' ELSE ' DEFAULT ' || column_default END,
                  CASE is_generated WHEN 'ALWAYS' THEN ' AS ' || generation_expression ELSE '' END) AS line
      FROM information_schema.columns
     WHERE table_schema IN ('notification', 'notifications', 'subscriptions') AND table_name <> 'schema_migrations'
     ORDER BY table_schema, table_name, ordinal_position`);
  const constraints = await lines(`
    SELECT format('%s %s %s', conrelid::regclass, conname, pg_get_constraintdef(oid)) AS line
      FROM pg_constraint
     WHERE connamespace::regnamespace::text IN ('notification', 'notifications', 'subscriptions') AND contype <> 'n'
       AND conrelid::regclass::text NOT LIKE '%schema_migrations'
     ORDER BY 1`);
  const indexes = await lines(`
    SELECT indexdef AS line FROM pg_indexes
     WHERE schemaname IN ('notification', 'notifications', 'subscriptions') AND tablename <> 'schema_migrations' ORDER BY 1`);
  return [...columns, '', ...constraints, '', ...indexes].join('\n');
}

test('I27 the migrations make exactly the described schema', async () => {
  expect(await migrate(dsn)).toEqual(MIGRATIONS);
  await buildLateIndexes(dsn);
  expect(await describeSchema()).toMatchSnapshot();
});

/** A transaction that has written to the last of the tables, and goes on until its connection ends. */
async function startWriting(): Promise<pg.Client> {
  const writer = new pg.Client({ connectionString: dsn });
  await writer.connect();
  await writer.query('BEGIN');
  await writer.query("INSERT INTO notification.duplicates VALUES ('3-0', 'x', now())");
  return writer;
}

/** For whoever writes to the table that it has come to. */
const untilBuildWaits = () =>
  eventually('the build to wait', async () => {
    const { rows } = await db.query(`
      SELECT FROM pg_stat_activity
       WHERE datname = current_database() AND application_name = 'galaxy-notify indexes' AND wait_event_type = 'Lock'`);
    return rows.length > 0;
  });

test('I27 indexes of large tables are built beside what goes on, by one process, and a half-built one is mended', async () => {
  const names = LATE_INDEXES.map(({ name }) => name);
  await migrate(dsn);
  // As a process leaves it that died while it built.
  await db.query("INSERT INTO notification.duplicates VALUES ('1-0', 'x', now()), ('2-0', 'x', now())");
  await expect(
    db.query(
      'CREATE UNIQUE INDEX CONCURRENTLY duplicates_duplicate_of_idx ON notification.duplicates (duplicate_of)',
    ),
  ).rejects.toThrow('could not create unique index');
  const isWhole = async () =>
    (
      await lines(
        "SELECT indisvalid::text AS line FROM pg_index WHERE indexrelid = 'notification.duplicates_duplicate_of_idx'::regclass",
      )
    )[0];
  expect(await isWhole()).toBe('false');

  const writer = await startWriting();
  const first = buildLateIndexes(dsn);
  // Until the transaction ends the first one waits, and holds nobody up.
  await untilBuildWaits();
  expect(await buildLateIndexes(dsn)).toEqual({ built: [], isComplete: false });
  await writer.end();
  expect(await first).toEqual({ built: names, isComplete: true });
  expect(await isWhole()).toBe('true');
  expect(await buildLateIndexes(dsn)).toEqual({ built: [], isComplete: true });
});

test('I27 a process that stops ends the building of indexes at once', async () => {
  await migrate(dsn);
  const writer = await startWriting();
  const stopping = new AbortController();
  const building = buildLateIndexes(dsn, stopping.signal);
  await untilBuildWaits();
  stopping.abort();
  expect(await building).toMatchObject({ isComplete: false });
  await writer.end();
});

test('I27 a second run changes nothing, two concurrent ones do not clash', async () => {
  const results = await Promise.all([migrate(dsn), migrate(dsn)]);
  expect(results.flat()).toEqual(MIGRATIONS);
  expect(await migrate(dsn)).toEqual([]);
});

test('I62 security-15 only a new database says that no payload may be in plain', async () => {
  const mayHoldPlain = async () => {
    const { rows } = await db.query<{ may_hold_plain: boolean }>(
      'SELECT may_hold_plain FROM notification.installation',
    );
    return rows.map((row) => row.may_hold_plain);
  };
  await migrate(dsn);
  expect(await mayHoldPlain()).toEqual([false]);
  // As the release before left it.
  await db.query(`
    DROP TABLE notification.installation, notification.outcomes, notification.outcome_tallies, notification.forgotten_users,
      notification.operator_actions, notification.callback_pauses;
    ALTER TABLE notification.outbound_streams DROP COLUMN pending, DROP COLUMN redis_db, DROP COLUMN empty_at,
      DROP COLUMN has_fallen_back;
    ALTER TABLE notification.records DROP COLUMN traceparent, DROP COLUMN forgotten_at, DROP COLUMN expires_at;
    ALTER TABLE notification.operations DROP COLUMN options, DROP COLUMN paused_by;
    DROP INDEX notification.operations_open_idx;
    ALTER TABLE notification.operation_items DROP COLUMN job_id, DROP COLUMN conn_id;
    ALTER TABLE subscriptions.rcv_queues DROP COLUMN is_imported, DROP CONSTRAINT rcv_queues_one_agent_key;
    ALTER TABLE notification.symbol_targets DROP COLUMN is_gone;
    ALTER TABLE notifications.notification_sends ADD COLUMN token_sha256 text;
    ALTER TABLE notifications.notification_log DROP COLUMN entry_hash;
    DELETE FROM notification.schema_migrations WHERE name >= '0028'`);
  await migrate(dsn);
  expect(await mayHoldPlain()).toEqual([true]);
});

test('I27 a schema that breaks with this release is refused by name', async () => {
  await migrate(dsn);
  await db.query(
    "INSERT INTO notification.schema_migrations (name, run_on) VALUES ('9998-future', now()), ('9999-breaking-future', now())",
  );
  for (const ask of [migrate, pendingMigrations]) {
    const failure = await ask(dsn).catch((error: unknown) => error);
    expect(failure).toBeInstanceOf(SchemaNewerThanCodeError);
    expect(String(failure)).toContain('9999-breaking-future');
    expect(String(failure)).not.toContain('9998');
  }
});

test('I27 security-6 a schema that a newer release has only added to is good enough', async () => {
  await migrate(dsn);
  await db.query(`
    INSERT INTO notification.schema_migrations (name, run_on) VALUES ('9999-future', now());
    ALTER TABLE notification.routes ADD COLUMN of_the_future text`);
  expect(await pendingMigrations(dsn)).toEqual([]);
  expect(await migrate(dsn)).toEqual([]);
});

test('I27 every time column is timestamptz, and deleting a record takes its routes, dead letters and replays along', async () => {
  await migrate(dsn);
  const others = await lines(`
    SELECT format('%s.%s', table_name, column_name) AS line FROM information_schema.columns
     WHERE table_schema IN ('notification', 'notifications', 'subscriptions') AND table_name <> 'schema_migrations'
       AND data_type LIKE '%time%' AND data_type <> 'timestamp with time zone'`);
  expect(others).toEqual([]);
  await db.query(`
    INSERT INTO notification.records VALUES
      ('1-1', 'game.turn.ready', 'game_master', 'user', '["u"]', '{}', 'k', 'f', NULL, NULL, now(), now(), now(), now());
    INSERT INTO notification.routes (notification_id, route_id, channel, recipient_ref, status, max_attempts, created_at,
                                     updated_at, dead_lettered_at)
      VALUES ('1-1', 'push:user:u', 'push', 'user:u', 'dead_letter', 3, now(), now(), now());
    INSERT INTO notification.dead_letters
      VALUES ('1-1', 'push:user:u', 'push', 'user:u', 3, 3, 'gateway_stream_publish_failed', 'm', 'h', now());
    INSERT INTO notification.replays VALUES ('1-1', 'push:user:u', 1, 'r', 'nina', NULL, now());
    DELETE FROM notification.records;`);
  expect(await lines('SELECT route_id AS line FROM notification.routes')).toEqual([]);
  expect(await lines('SELECT route_id AS line FROM notification.dead_letters')).toEqual([]);
  expect(await lines('SELECT route_id AS line FROM notification.replays')).toEqual([]);
});
