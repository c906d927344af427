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

/** A condition with a `?` for each of its values. Left out when one of them is undefined. */
export type Candidate = readonly [sql: string, ...values: unknown[]];

/** The SQL of the candidates is written in the code, never made of what a user typed. */
export function conditions(candidates: readonly Candidate[]): Conditions {
  const values: unknown[] = [];
  const texts = candidates
    .filter(([, ...given]) => !given.includes(undefined))
    .map(([sql, ...given]) => {
      let position = values.length;
      values.push(...given);
      return sql.replaceAll('?', () => `$${(position += 1)}`);
    });
  return {
    where: texts.length === 0 ? '' : `WHERE ${texts.join('\n   AND ')}`,
    values,
    next: `$${values.length + 1}`,
  };
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
  [Name in keyof Row as null extends Row[Name] ? never : Name]: Row[Name];
} & {
  [Name in keyof Row as null extends Row[Name] ? Name : never]?: NonNullable<Row[Name]>;
};

export function withoutNulls<Row extends object>(row: Row): WithoutNulls<Row> {
  return Object.fromEntries(Object.entries(row).filter(([, value]) => value !== null)) as WithoutNulls<Row>;
}
