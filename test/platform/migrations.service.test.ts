/** The schema that the migrations make, compared with the committed description of it. */
import { randomUUID } from 'node:crypto';
import { readdirSync } from 'node:fs';
import path from 'node:path';
import pg from 'pg';
import { SchemaNewerThanCodeError, migrate, pendingMigrations } from '../../migrations/migrate.ts';
import { stackOfRun } from '../harness.ts';

const MIGRATIONS = readdirSync(path.join(import.meta.dirname, '../../migrations'))
  .filter((file) => file.endsWith('.sql'))
  .map((file) => path.basename(file, '.sql'))
  .sort();

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
  expect(await describeSchema()).toMatchSnapshot();
});

test('I27 a second run changes nothing, two concurrent ones do not clash', async () => {
  const results = await Promise.all([migrate(dsn), migrate(dsn)]);
  expect(results.flat()).toEqual(MIGRATIONS);
  expect(await migrate(dsn)).toEqual([]);
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
