/** What an operation is about: which rows of a list match when it is asked for, the oldest first. */
import type { Pool } from 'pg';
import type { Conditions } from './lists.ts';

/** Items of one operation. */
export const MAX_ITEMS = 1_000_000;
/** Items that are begun per second unless the operator says otherwise, and the most that can be asked for. */
export const DEFAULT_REPLAY_RATE = 20;
export const MAX_REPLAY_RATE = 1_000;

/** Deaths are written with PostgreSQL's clock; this one's may be off. */
export async function clockOf(db: Pool): Promise<string> {
  const { rows } = await db.query<{ now: string }>('SELECT clock_timestamp()::text AS now');
  return rows[0]!.now;
}

export interface Choice {
  /** Of notification.operation_items, without those that say which item it is. */
  columns: readonly ('notification_id' | 'route_id' | 'job_id' | 'conn_id')[];
  /** FROM and what follows, without conditions. */
  from: string;
  /** When each item came to be; of `from`. */
  at: string;
  given: Conditions;
}

/** @returns the statement that writes down what is chosen. Columns of the same name in `from` must be one. */
export function chosenBy(
  { columns, from, at, given }: Choice,
  operationId: string,
  limit: number,
): { text: string; values: unknown[] } {
  const names = columns.join(', ');
  const next = given.values.length + 1;
  return {
    text: `
  INSERT INTO notification.operation_items (operation_id, position, ${names})
  SELECT $${next}, row_number() OVER (ORDER BY at, ${names}), ${names}
    FROM (SELECT ${names}, ${at} AS at
            FROM ${from}
           ${given.where}
           ORDER BY at, ${names}
           LIMIT $${next + 1}) AS chosen`,
    values: [...given.values, operationId, Math.min(limit, MAX_ITEMS)],
  };
}

export interface Grouped extends Choice {
  /** Columns of `from` by the names of a group's fields. */
  groups: Readonly<Record<string, string>>;
  /** The name of their number. */
  counted: string;
  /** Aggregates besides, each behind a comma. */
  more?: string;
}

/** Times of the items of a group. */
export interface Span {
  oldest: Date;
  newest: Date;
}

/** How many items match, by what they have in common. */
export async function groupsOf<Group extends Span>(
  db: Pool,
  { from, at, given, groups, counted, more = '' }: Grouped,
): Promise<Group[]> {
  const fields = Object.entries(groups).map(([name, column]) => `${column} AS ${name}`);
  const positions = fields.map((_, i) => i + 1).join(', ');
  const { rows } = await db.query<Group>(
    `SELECT ${fields.join(', ')}, count(*)::int AS ${counted}, min(${at}) AS oldest, max(${at}) AS newest${more}
       FROM ${from}
      ${given.where}
      GROUP BY ${positions}
      ORDER BY ${counted} DESC, ${positions}`,
    given.values,
  );
  return rows;
}
