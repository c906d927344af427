/**
 * Where the marks of a run ended up: everything that Temporal keeps, every line that was logged, every column that
 * explains a failure. An address or a token belongs into the rows of its owner and to its receiver, and nowhere else.
 */
import type { Pool } from 'pg';
import type { TemporalRow } from './temporal-rows.ts';
import type { Planted } from './work.ts';

interface MarkSearch {
  planted: readonly Planted[];
}

/** Is in the history of each run's reader, encrypted or not. */
const IN_HISTORIES = { what: 'the type of a workflow', value: 'streamBridge' };

/** Columns that say what went wrong. `raw_fields` are not among them: they keep what came in, to be looked at. */
const EXPLAINING_COLUMNS = `
  SELECT table_schema AS schema, table_name AS table, column_name AS column
    FROM information_schema.columns
   WHERE table_schema IN ('notification', 'notifications', 'subscriptions')
     AND column_name ~ '(error|failure|reason|hint|message|code)'
     AND data_type IN ('text', 'jsonb', 'json', 'character varying')`;

/** @returns a line for each place that has a mark and must not. */
export async function marksInRows(db: Pool, { planted }: MarkSearch): Promise<string[]> {
  const found: string[] = [];
  const columns = await db.query<{ schema: string; table: string; column: string }>(EXPLAINING_COLUMNS);
  for (const { schema, table, column } of columns.rows) {
    for (const { what, value } of planted) {
      const { rows } = await db.query<{ count: number }>(
        `SELECT count(*)::int AS count FROM "${schema}"."${table}" WHERE position($1 IN "${column}"::text) > 0`,
        [value],
      );
      if (rows[0]!.count > 0) found.push(`${what}: ${rows[0]!.count} rows of ${schema}.${table}.${column}`);
    }
  }
  return found;
}

/** @param logs by the name of who wrote them. */
export function marksInLogs(logs: Readonly<Record<string, string>>, { planted }: MarkSearch): string[] {
  return Object.entries(logs).flatMap(([name, text]) =>
    planted.flatMap(({ what, value }) => {
      const at = text.indexOf(value);
      if (at < 0) return [];
      const line = text.slice(text.lastIndexOf('\n', at) + 1, text.indexOf('\n', at));
      return [`${what}: the log of ${name}, such as ${line.slice(0, 400)}`];
    }),
  );
}

/**
 * Looks at every value of every table of Temporal's database, histories as well as indexes.
 *
 * @throws Error when what must be there is not: then this would find nothing anywhere.
 */
export async function marksInTemporal(
  rows: AsyncIterable<TemporalRow>,
  { planted }: MarkSearch,
): Promise<string[]> {
  const counts = new Map<string, number>();
  const values = [...planted, IN_HISTORIES].map((mark) => ({ ...mark, bytes: Buffer.from(mark.value) }));
  for await (const { table, row } of rows) {
    for (const [column, content] of Object.entries(row)) {
      const bytes = bytesOf(content);
      for (const { what, bytes: mark } of values) {
        const place = `${what}: ${table}.${column} of Temporal`;
        if (bytes?.includes(mark)) counts.set(place, (counts.get(place) ?? 0) + 1);
      }
    }
  }
  if (![...counts.keys()].some((place) => place.startsWith(`${IN_HISTORIES.what}: history_node`)))
    throw new Error(`${IN_HISTORIES.what} is not in any history: looking for marks does not work`);
  return [...counts]
    .filter(([place]) => !place.startsWith(`${IN_HISTORIES.what}: `))
    .map(([place, count]) => `${place}, ${count} times`);
}

function bytesOf(content: unknown): Buffer | undefined {
  if (typeof content === 'string' || content instanceof Uint8Array) return Buffer.from(content as Uint8Array);
  // PostgreSQL has documents.
  return typeof content === 'object' && content !== null ? Buffer.from(JSON.stringify(content)) : undefined;
}
