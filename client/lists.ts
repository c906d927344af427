/** Lists of rows: their statements, their pages, how rows become views, and which of them an operation is about. */
import type { Pool } from 'pg';
import type { Given } from '../api/given.ts';
import { given } from '../api/given.ts';

/**
 * The WHERE clause of a list. Only the filters that were given become part of the statement, so that PostgreSQL plans
 * for those and can use an index; one statement with `$1 IS NULL OR ...` for each filter would scan the table.
 */
export interface Conditions {
  /** The clause with its leading WHERE; empty without conditions. */
  readonly where: string;
  readonly values: unknown[];
  /** The parameter after those of the conditions, for the limit. */
  readonly next: `$${number}`;
}

/** Rows of a list that are returned by default, and the most that can be asked for. */
export const DEFAULT_LIMIT = 50;
export const MAX_LIMIT = 10_000;

/** One bounded part of a list, newest first. */
export interface Page<T> {
  items: T[];
  /** More matched than `limit`. */
  hasMore: boolean;
}

/** @param rows of a statement that asked for one more than `limit`. */
export function pageOf<Row, T>(rows: readonly Row[], limit: number, itemOf: (row: Row) => T): Page<T> {
  return { items: rows.slice(0, limit).map(itemOf), hasMore: rows.length > limit };
}

/** A list of a table, as data. */
export interface Listing<Filter extends object> {
  /** Columns, each named as the field of the view. */
  columns: string;
  from: string;
  order: string;
  /** A condition for each filter, with a `?` for its value. */
  filters?: { readonly [Name in keyof Filter]?: string };
  /** A condition of every row. */
  always?: string;
}

/** Conditions for the filters `since` and `until`, both included. */
export const spanOf = (time: string) => ({ since: `${time} >= ?`, until: `${time} <= ?` });

/** @returns the conditions of a list for the filters that are given. Their SQL is never made of what a user typed. */
export function conditionsOf<Filter extends object>(
  { filters = {}, always }: Pick<Listing<Filter>, 'filters' | 'always'>,
  filter: Filter,
): Conditions {
  const values: unknown[] = [];
  const texts = always === undefined ? [] : [always];
  for (const [name, sql] of Object.entries(filters as Record<string, string>)) {
    const value = (filter as Record<string, unknown>)[name];
    if (value !== undefined) texts.push(sql.replace('?', () => `$${values.push(value)}`));
  }
  const where = texts.length === 0 ? '' : `WHERE ${texts.join('\n   AND ')}`;
  return { where, values, next: `$${values.length + 1}` };
}

/** @returns the statement that reads a list, for one row more than the limit. */
export function statementOf<Filter extends object>(
  listing: Listing<Filter>,
  { limit = DEFAULT_LIMIT, ...filter }: Filter & { limit?: number },
): { text: string; values: unknown[] } {
  const { columns, from, order } = listing;
  const { where, values, next } = conditionsOf(listing, filter as unknown as Filter);
  const text = `SELECT ${columns} FROM ${from} ${where} ORDER BY ${order} LIMIT ${next}`;
  return { text, values: [...values, limit + 1] };
}

/** Reads the first page of a list. @param itemOf makes a view of a row; default: the row without nulls. */
export async function listOf<Row extends object, Filter extends object, Item = Given<Row>>(
  db: Pick<Pool, 'query'>,
  listing: Listing<Filter>,
  filter: Filter & { limit?: number },
  itemOf: (row: Row) => Item = given as unknown as (row: Row) => Item,
): Promise<Page<Item>> {
  const { rows } = await db.query<Row>(statementOf(listing, filter));
  return pageOf(rows, filter.limit ?? DEFAULT_LIMIT, itemOf);
}

/** Reads the row of a list with this key. @param more columns of it alone, each behind a comma. */
export async function rowOf<Row extends object>(
  db: Pick<Pool, 'query'>,
  { columns, from }: Pick<Listing<object>, 'columns' | 'from'>,
  key: string,
  id: string,
  more = '',
): Promise<Row | undefined> {
  const { rows } = await db.query<Row>(`SELECT ${columns}${more} FROM ${from} WHERE ${key} = $1`, [id]);
  return rows[0];
}

// --- What an operation is about: the rows that match when it is asked for, the oldest first -----------------------------

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

/** What an operation is about, as data. */
export interface Grouped {
  /** Of notification.operation_items, without those that say which item it is. */
  columns: readonly ('notification_id' | 'route_id' | 'job_id')[];
  /** FROM and what follows, without conditions. */
  from: string;
  /** When each item came to be; of `from`. */
  at: string;
  conditions: Conditions;
  /** Columns of `from` by the names of a group's fields. */
  groups: Readonly<Record<string, string>>;
  /** The name of their number. */
  counted: string;
  /** Aggregates besides, each behind a comma. */
  more?: string;
}

/** @returns the statement that writes down what is chosen. Columns of the same name in `from` must be one. */
export function chosenBy(
  { columns, from, at, conditions }: Grouped,
  operationId: string,
  limit: number,
): { text: string; values: unknown[] } {
  const names = columns.join(', ');
  const next = conditions.values.length + 1;
  return {
    text: `
  INSERT INTO notification.operation_items (operation_id, position, ${names})
  SELECT $${next}, row_number() OVER (ORDER BY at, ${names}), ${names}
    FROM (SELECT ${names}, ${at} AS at
            FROM ${from}
           ${conditions.where}
           ORDER BY at, ${names}
           LIMIT $${next + 1}) AS chosen`,
    values: [...conditions.values, operationId, Math.min(limit, MAX_ITEMS)],
  };
}

/** Times of the items of a group. */
export interface Span {
  oldest: Date;
  newest: Date;
}

/** How many items match, by what they have in common. */
export async function groupsOf<Group extends Span>(
  db: Pool,
  { from, at, conditions, groups, counted, more = '' }: Grouped,
): Promise<Group[]> {
  const fields = Object.entries(groups).map(([name, column]) => `${column} AS ${name}`);
  const positions = fields.map((_, i) => i + 1).join(', ');
  const { rows } = await db.query<Group>(
    `SELECT ${fields.join(', ')}, count(*)::int AS ${counted}, min(${at}) AS oldest, max(${at}) AS newest${more}
       FROM ${from}
      ${conditions.where}
      GROUP BY ${positions}
      ORDER BY ${counted} DESC, ${positions}`,
    conditions.values,
  );
  return rows;
}
