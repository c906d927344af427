/** PostgreSQL as it was a moment ago: what a restored backup, or a standby that lagged, is to those that use it. */
import type { Client } from '@temporalio/client';
import type { Pool } from 'pg';
import { eventually } from './eventually.ts';

/** One that still ran would say, after rows were put back, that nothing is to be done. */
export const noWorkflows = ({ client }: { client: Client }) =>
  eventually('workflows of notifications to end', async () => {
    const types = "WorkflowType IN ('notification', 'notificationRoute', 'notificationRoutes')";
    const { count } = await client.workflow.count(`ExecutionStatus = 'Running' AND ${types}`);
    return count === 0;
  });

/** Keeps every row of the service. `putBack` makes all later changes undone, while clients stay connected. */
export async function keepRows(db: Pool): Promise<{ putBack(): Promise<void> }> {
  // Generated columns are computed again.
  const { rows: tables } = await db.query<{ name: string; columns: string }>(
    `SELECT format('%I.%I', table_schema, table_name) AS name, string_agg(quote_ident(column_name), ', ') AS columns
       FROM information_schema.tables JOIN information_schema.columns USING (table_schema, table_name)
      WHERE table_schema IN ('notification', 'notifications', 'subscriptions') AND table_type = 'BASE TABLE'
        AND is_generated = 'NEVER'
      GROUP BY 1`,
  );
  await db.query('DROP SCHEMA IF EXISTS kept CASCADE');
  await db.query('CREATE SCHEMA kept');
  const keptOf = (name: string) => `kept.${name.replace('.', '_')}`;
  for (const { name } of tables) await db.query(`CREATE TABLE ${keptOf(name)} AS TABLE ${name}`);
  return {
    async putBack() {
      const client = await db.connect();
      try {
        await client.query('BEGIN');
        // No constraint is checked while rows come back in whatever order.
        await client.query('SET LOCAL session_replication_role = replica');
        await client.query(`TRUNCATE ${tables.map(({ name }) => name).join(', ')}`);
        for (const { name, columns } of tables) {
          await client.query(
            `INSERT INTO ${name} (${columns}) OVERRIDING SYSTEM VALUE SELECT ${columns} FROM ${keptOf(name)}`,
          );
        }
        await client.query('COMMIT');
      } finally {
        client.release();
      }
    },
  };
}
