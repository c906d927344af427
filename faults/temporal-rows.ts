/** Every row that Temporal has, whatever it has them in. */
import { readdirSync } from 'node:fs';
import path from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import pg from 'pg';

export interface TemporalRow {
  table: string;
  row: object;
}

/** Rows that are read together: histories are large. */
const ROWS_AT_ONCE = 500;

/** @param folder of the embedded server, which must have ended. */
export function* rowsOfSqlite(folder: string): Generator<TemporalRow, void> {
  const file = readdirSync(folder).find((name) => name.endsWith('.db'))!;
  const database = new DatabaseSync(path.join(folder, file));
  try {
    const tables = database.prepare("SELECT name FROM sqlite_master WHERE type = 'table'").all() as {
      name: string;
    }[];
    for (const { name } of tables)
      for (const row of database.prepare(`SELECT * FROM "${name}"`).iterate()) yield { table: name, row };
  } finally {
    database.close();
  }
}

/** @param dsn of the database of a cluster, with one for visibility beside it. */
export async function* rowsOfPostgres(dsn: string): AsyncGenerator<TemporalRow, void> {
  for (const database of ['temporal', 'temporal_visibility']) {
    const address = new URL(dsn);
    address.pathname = `/${database}`;
    const client = new pg.Client({ connectionString: address.href });
    await client.connect();
    try {
      await client.query('BEGIN');
      const { rows: tables } = await client.query<{ name: string }>(
        "SELECT tablename AS name FROM pg_tables WHERE schemaname = 'public'",
      );
      for (const { name } of tables) {
        await client.query(`DECLARE every_row CURSOR FOR SELECT * FROM "${name}"`);
        for (;;) {
          const { rows } = await client.query<object>(`FETCH ${ROWS_AT_ONCE} FROM every_row`);
          if (rows.length === 0) break;
          for (const row of rows) yield { table: name, row };
        }
        await client.query('CLOSE every_row');
      }
    } finally {
      await client.end();
    }
  }
}
