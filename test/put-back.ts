/** PostgreSQL as it was a moment ago: what a restored backup, or a standby that lagged, is to those that use it. */
import type { Pool } from 'pg';

/** Keeps every row of the service. `putBack` makes all later changes undone, under the feet of whoever is connected. */
export async function keepRows(db: Pool): Promise<{ putBack(): Promise<void> }> {
  const { rows } = await db.query<{ name: string }>(
    "SELECT relname AS name FROM pg_class WHERE relnamespace = 'notification'::regnamespace AND relkind = 'r'",
  );
  const tables = rows.map(({ name }) => name);
  await db.query('DROP SCHEMA IF EXISTS kept CASCADE');
  await db.query('CREATE SCHEMA kept');
  for (const table of tables) await db.query(`CREATE TABLE kept.${table} AS TABLE notification.${table}`);
  return {
    async putBack() {
      const client = await db.connect();
      try {
        await client.query('BEGIN');
        // No constraint is checked while rows come back in whatever order.
        await client.query('SET LOCAL session_replication_role = replica');
        await client.query(`TRUNCATE ${tables.map((table) => `notification.${table}`).join(', ')}`);
        for (const table of tables) {
          await client.query(
            `INSERT INTO notification.${table} OVERRIDING SYSTEM VALUE SELECT * FROM kept.${table}`,
          );
        }
        await client.query('COMMIT');
      } finally {
        client.release();
      }
    },
  };
}
