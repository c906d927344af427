/**
 * Places that keep something of people, and how it goes from a table: found by an index, or on a walk over the whole table
 * where no index leads to it. Each statement is bounded, whatever the table holds.
 */
import type { Pool } from 'pg';

/** Rows of one statement: never one long lock. */
const BATCH_SIZE = 1_000;
/** Rows that one step of a walk looks at. */
const WALK_STEP = 2_000;
/** Ids that one sentence names. */
export const NAMED = 20;

/** Whom it is about, and how that shows. */
export interface Person {
  userId: string;
  /** As routes name their recipient: a user, or an administrator by the address. */
  recipientRefs: readonly string[];
  /** Of the routes that they can have. */
  routeIds: readonly string[];
  /** The id, addresses that its routes have, and what the caller names besides. */
  values: readonly string[];
  /** The same as they stand in JSON, and in JSON that is text in JSON. */
  quoted: readonly string[];
  nested: readonly string[];
  /** A pattern of PostgreSQL: a field of JSON for ids of users, as group 1, and the id in it. */
  inUserField: string;
  /** Finds one of them in a text where neither letter nor digit is next to it; of PostgreSQL, and of JavaScript. */
  pattern: string;
  names: RegExp;
}

export function personOf(userId: string, more: readonly string[]): Person {
  const values = [...new Set([userId, ...more])];
  const quoted = values.map((value) => JSON.stringify(value));
  const recipientRefs = [`user:${userId}`, `email:${userId}`];
  return {
    userId,
    recipientRefs,
    routeIds: ['push', 'email'].flatMap((channel) => recipientRefs.map((ref) => `${channel}:${ref}`)),
    values,
    quoted,
    nested: quoted.map((value) => JSON.stringify(value).slice(1, -1)),
    inUserField: `("(?:[a-z_]+_)?user_id"[[:space:]]*:[[:space:]]*)${escapedForPostgres(quoted[0]!)}`,
    pattern: `(?<![[:alnum:]])(?:${values.map(escapedForPostgres).join('|')})(?![[:alnum:]])`,
    names: new RegExp(`(?<![\\p{L}\\p{N}])(?:${values.map(escaped).join('|')})(?![\\p{L}\\p{N}])`, 'u'),
  };
}

const escaped = (value: string): string => value.replaceAll(/[\\^$.*+?()[\]{}|/]/g, String.raw`\$&`);

/** There, what is no letter and no digit means itself behind a backslash. */
const escapedForPostgres = (value: string): string =>
  value.replaceAll(/[^\p{L}\p{N}]/gu, (character) => `\\${character}`);

/** One place. */
export interface Place {
  /** A table with its schema, or a stream. */
  what: string;
  /** How much of the person it keeps that can go now. Changes nothing. */
  count(): Promise<number>;
  /** Removes or blanks that. To be repeated when it was cut off. @returns how much it was. */
  forget(): Promise<number>;
}

interface Rows {
  table: string;
  /** Columns of its key. */
  key: readonly string[];
  /** SQL with `values`, as $1, $2 and so on. */
  where: string;
  values: readonly unknown[];
}

/** Rows that an index leads to, deleted. */
export function rowsOf(db: Pool, { table, key, where, values }: Rows): Place {
  const keys = key.join(', ');
  const limit = `$${values.length + 1}`;
  const isDoomed = key.map((column) => `old.${column} = doomed.${column}`).join(' AND ');
  const count = `SELECT count(*)::int AS count FROM ${table} WHERE ${where}`;
  const remove = `
    WITH doomed AS (SELECT ${keys} FROM ${table} WHERE ${where} LIMIT ${limit} FOR UPDATE)
    DELETE FROM ${table} AS old USING doomed WHERE ${isDoomed}`;
  return {
    what: table,
    count: () => countOf(db, count, values),
    async forget() {
      for (let total = 0; ;) {
        const { rowCount } = await db.query(remove, [...values, BATCH_SIZE]);
        total += rowCount ?? 0;
        if ((rowCount ?? 0) < BATCH_SIZE) return total;
      }
    },
  };
}

interface Walk extends Rows {
  /** What becomes of those rows; default: they are deleted. */
  set?: string;
}

/** Rows of a table that no index leads to, deleted or blanked on a walk by its key. */
export function walkOf(db: Pool, { table, key, where, values, set }: Walk): Place {
  const change = set === undefined ? `DELETE FROM ${table}` : `UPDATE ${table} SET ${set}`;
  return {
    what: table,
    count: () =>
      walk(db, { table, key }, values, ({ condition, all }) =>
        countOf(db, `SELECT count(*)::int AS count FROM ${table} WHERE ${condition} AND (${where})`, all),
      ),
    forget: () =>
      walk(db, { table, key }, values, async ({ condition, all }) => {
        const { rowCount } = await db.query(`${change} WHERE ${condition} AND (${where})`, [...all]);
        return rowCount ?? 0;
      }),
  };
}

export interface Range {
  /** SQL that holds for the rows of this step. */
  condition: string;
  /** The values given, and those of the condition. */
  all: readonly unknown[];
}

/**
 * Goes through a table by its key, so many rows a step.
 *
 * @param work what is done about a step. @returns the sum of what it returned.
 */
export async function walk(
  db: Pool,
  { table, key }: Pick<Rows, 'table' | 'key'>,
  values: readonly unknown[],
  work: (range: Range) => Promise<number>,
): Promise<number> {
  const keys = key.join(', ');
  const after = (first: number) => `(${keys}) > (${key.map((_, i) => `$${first + i}`).join(', ')})`;
  let total = 0;
  let from: unknown[] = [];
  for (;;) {
    const { rows } = await db.query<Record<string, unknown>>(
      `SELECT ${keys} FROM ${table} WHERE ${from.length > 0 ? after(1) : 'true'} ORDER BY ${keys} OFFSET ${WALK_STEP} LIMIT 1`,
      from,
    );
    const upTo = rows[0] ? key.map((column) => rows[0]![column]) : [];
    const lower = from.length > 0 ? after(values.length + 1) : 'true';
    const upper = upTo.length > 0 ? `NOT ${after(values.length + from.length + 1)}` : 'true';
    total += await work({ condition: `${lower} AND ${upper}`, all: [...values, ...from, ...upTo] });
    if (upTo.length === 0) return total;
    from = upTo;
  }
}

async function countOf(db: Pool, statement: string, values: readonly unknown[]): Promise<number> {
  const { rows } = await db.query<{ count: number }>(statement, [...values]);
  return rows[0]!.count;
}

/** What is still there afterwards. */
export interface Remaining {
  what: string;
  /** When it is gone by itself; absent: `ends` says what ends it. */
  until?: Date;
  ends: string;
}

/** What a kind of work has to say about a person. */
export interface PartOfForgetting {
  /** What is under way, as sentences: nothing is forgotten before it ended. */
  underWay(): Promise<string[]>;
  /** In the order in which they are worked on. */
  places: readonly Place[];
  remains(): Promise<Remaining[]>;
}

/** One for all of them, or none. */
export function sentence(
  ids: readonly string[],
  what: string,
  advice: string,
  thing = 'notification',
): string[] {
  if (ids.length === 0) return [];
  const named = ids.slice(0, NAMED).join(', ');
  const more = ids.length > NAMED ? ' and more' : '';
  return [`${thing} ${named}${more} ${what}: ${advice}`];
}
