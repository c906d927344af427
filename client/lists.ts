/** Lists of rows: their statements, their pages, and how rows become views. */
import type { Pool } from 'pg';

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

/** A row as a view: fields of columns that are null are absent. */
export type WithoutNulls<Row> = {
  [
    Name in keyof Row as null extends Row[Name] ? never : undefined extends Row[Name] ? never : Name
  ]: Row[Name];
} & {
  [
    Name in keyof Row as null extends Row[Name] ? Name : undefined extends Row[Name] ? Name : never
  ]?: NonNullable<Row[Name]>;
};

/** @returns the fields that have a value. */
export function withoutNulls<Row extends object>(row: Row): WithoutNulls<Row> {
  return Object.fromEntries(
    Object.entries(row).filter(([, value]) => value !== null && value !== undefined),
  ) as WithoutNulls<Row>;
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
export async function listOf<Row extends object, Filter extends object, Item = WithoutNulls<Row>>(
  db: Pick<Pool, 'query'>,
  listing: Listing<Filter>,
  filter: Filter & { limit?: number },
  itemOf: (row: Row) => Item = withoutNulls as unknown as (row: Row) => Item,
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
