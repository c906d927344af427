/** The schema that the migrations make, compared with the committed description of it. */
import { readdirSync } from 'node:fs';
import path from 'node:path';
import { SchemaNewerThanCodeError, migrate, pendingMigrations } from '../../migrations/migrate.ts';
import { slotOfEachTest } from '../harness.ts';

const MIGRATIONS = readdirSync(path.join(import.meta.dirname, '../../migrations'))
  .filter((file) => file.endsWith('.sql'))
  .map((file) => path.basename(file, '.sql'))
  .sort();

const slot = slotOfEachTest({ isEmpty: true });

/** Tables with their columns, constraints and indexes, one line each, in a stable order. */
async function describeSchema(): Promise<string> {
  const ours = "IN ('notification', 'notifications', 'subscriptions')";
  const parts = [
    `SELECT format('%s.%s %s%s%s%s', table_name, column_name, data_type,
                   CASE is_nullable WHEN 'NO' THEN ' NOT NULL' ELSE '' END,
                   CASE WHEN column_default IS NULL THEN '' ELSE ' DEFAULT ' || column_default END,
                   CASE is_generated WHEN 'ALWAYS' THEN ' AS ' || generation_expression ELSE '' END) AS line
       FROM information_schema.columns WHERE table_schema ${ours} AND table_name <> 'schema_migrations'
      ORDER BY table_schema, table_name, ordinal_position`,
    `SELECT format('%s %s %s', conrelid::regclass, conname, pg_get_constraintdef(oid)) AS line
       FROM pg_constraint
      WHERE connamespace::regnamespace::text ${ours} AND contype <> 'n'
        AND conrelid::regclass::text NOT LIKE '%schema_migrations'
      ORDER BY 1`,
    `SELECT indexdef AS line FROM pg_indexes
      WHERE schemaname ${ours} AND tablename <> 'schema_migrations' ORDER BY 1`,
  ];
  const found = await Promise.all(parts.map((sql) => slot.db.query<{ line: string }>(sql)));
  return found.map(({ rows }) => rows.map(({ line }) => line).join('\n')).join('\n\n');
}

test('I27 the migrations make exactly the described schema', async () => {
  expect(await migrate(slot.ownerDsn)).toEqual(MIGRATIONS);
  expect(await describeSchema()).toMatchSnapshot();
});

test('I27 a second run changes nothing, two concurrent ones do not clash', async () => {
  const results = await Promise.all([migrate(slot.ownerDsn), migrate(slot.ownerDsn)]);
  expect(results.flat()).toEqual(MIGRATIONS);
  expect(await migrate(slot.ownerDsn)).toEqual([]);
});

test('I27 a schema that breaks with this release is refused by name', async () => {
  await migrate(slot.ownerDsn);
  await slot.db.query(
    "INSERT INTO notification.schema_migrations (name, run_on) VALUES ('9998-future', now()), ('9999-breaking-future', now())",
  );
  for (const ask of [migrate, pendingMigrations]) {
    const failure = (await ask(slot.ownerDsn).catch((error: unknown) => error)) as Error;
    expect(failure).toBeInstanceOf(SchemaNewerThanCodeError);
    expect(failure.message).toMatch(/^(?!.*9998).*9999-breaking-future/);
  }
});

test('I27 security-6 a schema that a newer release has only added to is good enough', async () => {
  await migrate(slot.ownerDsn);
  await slot.db.query(`
    INSERT INTO notification.schema_migrations (name, run_on) VALUES ('9999-future', now());
    ALTER TABLE notification.routes ADD COLUMN of_the_future text`);
  expect(await pendingMigrations(slot.ownerDsn)).toEqual([]);
  expect(await migrate(slot.ownerDsn)).toEqual([]);
});
