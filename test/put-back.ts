/** PostgreSQL as it was a moment ago: what a restored backup, or a standby that lagged, is to those that use it. */
import type { Client } from '@temporalio/client';
import { WorkflowNotFoundError } from '@temporalio/client';
import type { Redis } from 'ioredis';
import type { Pool } from 'pg';
import { notificationWorkflowId } from '../workflows/intent/contract.ts';
import { beatKey } from '../api/intent/stream.ts';
import { eventually } from './eventually.ts';

/**
 * Waits for the workflows of intents to end: one that still ran would say, after rows were put back, that nothing is to be
 * done. Each is asked for, because the list of workflows lags behind.
 */
export async function untilWorkflowsEnd(
  { client }: { client: Client },
  ids: readonly string[],
): Promise<void> {
  for (const id of ids) {
    await eventually(`the workflow of ${id} to end`, async () => {
      const { status } = await client.workflow
        .getHandle(notificationWorkflowId(id))
        .describe()
        .catch((error: unknown) => {
          if (error instanceof WorkflowNotFoundError) return { status: undefined };
          throw error;
        });
      return status?.name !== 'RUNNING';
    });
  }
}

/** Waits until a role has once more noted in both stores how far its stream was taken. */
export async function anotherLook(redis: Redis, role: string, stream: string): Promise<void> {
  const beat = () => redis.get(beatKey(role, stream));
  const before = await beat();
  await eventually('a look more', async () => (await beat()) !== before);
}

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
