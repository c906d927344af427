/** Where the stores still have a text: rows of PostgreSQL, entries and values of Redis, runs of Temporal, as a client reads them. */
import { createHash } from 'node:crypto';
import type { WorkflowHandle } from '@temporalio/client';
import type { Redis } from 'ioredis';
import type { Pool } from 'pg';

/** Every row of every table as text. */
export async function rowsOfAll(db: Pool): Promise<{ table: string; row: string }[]> {
  const { rows: tables } = await db.query<{ name: string }>(
    `SELECT format('%I.%I', schemaname, tablename) AS name FROM pg_tables
      WHERE schemaname IN ('notification', 'notifications', 'subscriptions', 'public')
      ORDER BY 1`,
  );
  const found = await Promise.all(
    tables.map(async ({ name }) => {
      const { rows } = await db.query<{ row: string }>(`SELECT one::text AS row FROM ${name} AS one`);
      return rows.map(({ row }) => ({ table: name, row }));
    }),
  );
  return found.flat();
}

/** Every key with what it holds, as text; keys are text in base64url in parts. */
export async function valuesOfAll(redis: Redis): Promise<{ key: string; value: string }[]> {
  const keys = await redis.keys('*');
  const found = await Promise.all(
    keys.map(async (key) => {
      if ((await redis.type(key)) !== 'stream') return [{ key, value: String(await redis.get(key)) }];
      const entries = await redis.xrange(key, '-', '+');
      return entries.map((entry) => ({ key, value: JSON.stringify(entry) }));
    }),
  );
  return found.flat();
}

/** The tables and keys that have one of the texts. */
export async function placesWith(
  { db, redis }: { db: Pool; redis: Redis },
  texts: readonly string[],
): Promise<string[]> {
  const has = (text: string) => texts.some((one) => text.includes(one));
  const rows = await rowsOfAll(db);
  const values = await valuesOfAll(redis);
  return [
    ...new Set([
      ...rows.flatMap(({ table, row }) => (has(row) ? [table] : [])),
      ...values.flatMap(({ key, value }) => (has(value) ? [key] : [])),
    ]),
  ].sort();
}

/** Everything that Temporal keeps of a workflow's run, as text, with what is base64 decoded. */
export async function keptByTemporal(run: WorkflowHandle): Promise<string> {
  const kept = JSON.stringify([await run.fetchHistory(), (await run.describe()).raw]);
  const decoded = [...kept.matchAll(/"data":"([^"]*)"/g)].map(([, data]) =>
    Buffer.from(data!, 'base64').toString('latin1'),
  );
  return [kept, ...decoded].join('\n');
}

/** What rows have in place of the key of a forgotten user. */
export const forgottenKeyOf = (key: string): string =>
  `forgotten:${createHash('sha256').update(key).digest('hex')}`;
