/** What `top` shows of one kind of work, and how much of it is counted. */
import type { Pool } from 'pg';
import { causeOf } from './errors.ts';

/** Rates are means over this time, ms. */
export const RATE_WINDOW_MS = 10_000;
/**
 * A look is repeated each few seconds on tables of any size: rows are counted up to here where an index alone has them,
 * and up to the smaller number where their rows are read. The number itself stands for more.
 */
export const COUNTED_AT_MOST = 100_000;
export const READ_AT_MOST = 10_000;

/** Something that waits. */
export interface Wait {
  what: string;
  /** Absent where only the time is known. */
  count?: number;
  /** How long the oldest has waited, or has been due, ms; 0: none is late. */
  oldestMs: number;
}

export interface Dead {
  failure: string;
  count: number;
}

/** What the stores of the service know of one kind of work. */
export interface KindLook {
  /** Taken per second. Absent where no index tells. */
  arrivedPerSecond?: number;
  /** Handed off or acknowledged per second. Absent as above. */
  donePerSecond?: number;
  /** Only what waits. */
  waits: Wait[];
  /** Given up and not replayed since, by the reason, most frequent first: of the newest READ_AT_MOST. */
  dead: Dead[];
  /** What could not be found out, and why. */
  unknown: string[];
}

/** Parts of a look. Each stands alone: one whose server is away leaves the others. */
export async function lookOf(
  ...parts: readonly (readonly [what: string, read: () => Promise<Partial<KindLook>>])[]
): Promise<KindLook> {
  const found = await Promise.all(
    parts.map(([what, read]) =>
      read().catch((error: unknown): Partial<KindLook> => ({ unknown: [`${what}: ${causeOf(error)}`] })),
    ),
  );
  return {
    ...found.reduce((all, part) => ({ ...all, ...part }), {}),
    waits: found.flatMap(({ waits = [] }) => waits).filter(isWaiting),
    dead: found.flatMap(({ dead = [] }) => dead).toSorted((one, other) => other.count - one.count),
    unknown: found.flatMap(({ unknown = [] }) => unknown),
  };
}

const isWaiting = ({ count, oldestMs }: Wait): boolean => (count ?? oldestMs) > 0;

/** @param statement selects `what`, `count` or null, and `oldestMs`. */
export async function readWaits(
  db: Pool,
  statement: string,
  values: unknown[] = [],
): Promise<Pick<KindLook, 'waits'>> {
  const { rows } = await db.query<{ what: string; count: number | null; oldestMs: number }>(
    statement,
    values,
  );
  return {
    waits: rows.map(({ count, ...row }) => ({ ...row, ...(count === null ? {} : { count }) })),
  };
}

/** @param statement selects `failure` and `count`. */
export async function readDead(db: Pool, statement: string): Promise<Pick<KindLook, 'dead'>> {
  const { rows } = await db.query<Dead>(statement);
  return { dead: rows };
}

/** @param statement selects `arrived` and `done`, either of them null where it is not known. */
export async function readRates(
  db: Pool,
  statement: string,
): Promise<Pick<KindLook, 'arrivedPerSecond' | 'donePerSecond'>> {
  const { rows } = await db.query<{ arrived: number | null; done: number | null }>(statement);
  const perSecond = (count: number) => (count * 1_000) / RATE_WINDOW_MS;
  const { arrived, done } = rows[0]!;
  return {
    ...(arrived === null ? {} : { arrivedPerSecond: perSecond(arrived) }),
    ...(done === null ? {} : { donePerSecond: perSecond(done) }),
  };
}

/** For statements: the beginning of the window of rates. */
export const WINDOW_BEGIN = `now() - interval '${RATE_WINDOW_MS} milliseconds'`;
/** For statements: how long ago a time is, ms; 0 when it is to come, or there is none. `float8`, which the driver hands out as a number. */
export const ageMs = (time: string): string =>
  `coalesce(greatest(0, extract(epoch FROM clock_timestamp() - ${time}) * 1000), 0)::float8`;
