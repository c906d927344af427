/**
 * Deletes rows past their retention: one loop for all kinds of work. Each kind lists its tables as descriptors,
 * children before their parents.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { ApplicationFailure, Context } from '@temporalio/activity';
import type { Pool } from 'pg';
import type { Logger } from 'pino';
import type { RetentionResult } from '../workflows/recovery-contract.ts';
import type { GaugeRead } from './metrics.ts';
import { heartbeat } from './attempt.ts';
import type { Statement } from './postgres.ts';
import { isStatementTimeout, query } from './postgres.ts';
import { reasonOf } from './reason.ts';

/** Rows of one statement: no long lock, and no write that others wait for. */
const BATCH_SIZE = 1_000;
/** A batch is followed by a rest of so many times its own time, and of so many ms at most: heartbeats go on. */
const REST_FACTOR = 2;
const MOST_REST_MS = 10_000;
/** A table that has taken this long leaves its rest to the next activity, so that the other tables get their turn, ms. */
const MAX_TABLE_MS = 60_000;

/** Rows of one table that go when they are old enough. */
export interface Expiring {
  /** Of its prepared statement, log lines and metrics: unique. */
  name: string;
  table: string;
  /** Column with the time since when a row ages; of the parent, if there is one. Indexed for `condition`. */
  since: string;
  /** SQL about columns that a row must meet besides its age; of the parent, if there is one. */
  condition?: string;
  /** Rows of other tables that keep one of this table, or of the parent: SQL from FROM on, each with an index to look into. */
  keptBy?: readonly string[];
  /** The rows are parts of old rows of another table, which may have a great many of them. */
  parent?: { table: string; key: string; partCondition?: string };
}

/** A descriptor with its age, ms. */
export type Kept = Expiring & { keepMs: number };

const isOld = (since: string) => `${since} < now() - $1::bigint * interval '1 millisecond'`;

/** A subquery with a limit is a look into an index for each row; PostgreSQL may turn NOT EXISTS into a join of tables. */
const isFree = ({ keptBy = [] }: Expiring) =>
  keptBy.map((rows) => `(SELECT true ${rows} LIMIT 1) IS NULL`).join(' AND ') || 'true';

/**
 * A page of rows bounds a batch: rows that something else keeps are passed, however many there are.
 *
 * @returns the statement that deletes a batch. $1 age in ms, $2 rows at most, $3 where the batch before has come to.
 */
export function deletionOf(expiring: Expiring): Statement {
  const { name, table, since, condition = 'true', parent } = expiring;
  const { key, partCondition = 'true' } = parent ?? {};
  const aged = parent?.table ?? table;
  const isDue = `${isOld(since)} AND ${condition}`;
  const page = `
      SELECT ${key ?? 'ctid AS row_id'}, ${since} AS place
        FROM ${aged}
       WHERE ${isDue} AND ${since} >= $3::timestamptz
       ORDER BY ${since}
       LIMIT $2`;
  const expired = parent
    ? `
      SELECT part.row_id, whole.place
        FROM (SELECT * FROM page AS ${aged.split('.').at(-1)} WHERE ${isFree(expiring)}) AS whole
       CROSS JOIN LATERAL (
             SELECT ctid AS row_id
               FROM ${table} AS part
              WHERE part.${key} = whole.${key} AND ${partCondition}
              LIMIT $2
                FOR UPDATE SKIP LOCKED) AS part
       LIMIT $2`
    : `
      SELECT ctid AS row_id, NULL AS place
        FROM ${table}
       WHERE ctid = ANY (ARRAY(SELECT row_id FROM page)) AND ${isDue} AND ${isFree(expiring)}
         FOR UPDATE SKIP LOCKED`;
  // A batch that has as many parts as it may has not come to the last of its parents.
  const places = parent
    ? '(SELECT place FROM expired WHERE deleted = $2 UNION ALL SELECT place FROM page WHERE deleted < $2) AS places'
    : 'page';
  return {
    name: `delete_${name}`,
    text: `
    WITH page AS MATERIALIZED (${page}
    ), expired AS MATERIALIZED (${expired}
    ), deleted AS (
      DELETE FROM ${table} WHERE ctid = ANY (ARRAY(SELECT row_id FROM expired))
      RETURNING 1
    ), count AS (
      SELECT (SELECT count(*)::int FROM deleted) AS deleted, (SELECT count(*)::int FROM page) AS paged
    )
    SELECT deleted, greatest(deleted, paged) AS seen, (SELECT max(place)::text FROM ${places}) AS place
      FROM count`,
  };
}

/** Rows that something keeps past their retention are looked through up to here for the oldest that nothing keeps. */
const MOST_KEPT = 50_000;

/** @returns the statement that reads how long the oldest row is past its retention. $1 age in ms. */
export const overdueOf = (expiring: Expiring): Statement => {
  const { name, table, since, condition = 'true' } = expiring;
  return {
    name: `oldest_${name}`,
    text: `
    SELECT coalesce(extract(epoch FROM now() - $1::bigint * interval '1 millisecond' - (
             SELECT ${since}
               FROM (SELECT * FROM ${table} WHERE ${isOld(since)} AND ${condition} ORDER BY ${since} LIMIT ${MOST_KEPT})
                      AS ${table.split('.').at(-1)}
              WHERE ${isFree(expiring)}
              LIMIT 1
           )) * 1000, 0)::float8 AS overdue_ms`,
  };
};

export type RetentionActivities = ReturnType<typeof createRetentionActivities>;

export interface RetentionResources {
  db: Pool;
  log: Logger;
  tables: readonly Kept[];
}

export function createRetentionActivities({ db, log, tables }: RetentionResources) {
  const statements = tables.map((table) => ({ ...table, statement: deletionOf(table) }));
  return {
    /**
     * Deletes what is past its retention, for a minute a table at most. A table that fails does not stop the others.
     *
     * @throws ApplicationFailure `RetentionFailed`, which names the tables; the next attempt goes on.
     */
    async deleteExpired(): Promise<RetentionResult> {
      const result: RetentionResult = { deleted: {}, isUnfinished: false };
      const failed: string[] = [];
      for (const { name, keepMs, statement } of statements) {
        let rows = 0;
        try {
          const { deleted, isLate } = await inBatches(async (limit, place) => {
            const [batch] = await query<BatchRow>(db, statement, [keepMs, limit, place]);
            return batch!;
          });
          rows = deleted;
          result.isUnfinished ||= isLate;
        } catch (error) {
          Context.current().cancellationSignal.throwIfAborted();
          log.warn({ table: name, reason: reasonOf(error) }, 'expired rows are not deleted');
          failed.push(`${name}: ${reasonOf(error)}`);
        }
        if (rows > 0) log.info({ table: name, deleted: rows }, 'expired rows deleted');
        result.deleted[name] = rows;
      }
      if (failed.length > 0) throw ApplicationFailure.retryable(failed.join('; '), 'RetentionFailed');
      return result;
    },
  };
}

interface BatchRow {
  deleted: number;
  seen: number;
  place: string | null;
}

/**
 * Runs batches until one is not full, with a heartbeat after each. A batch that takes PostgreSQL longer than a statement
 * may is made again with half as many rows: how long a row takes depends on the rows that refer to it.
 *
 * @returns rows deleted, and whether the time was up before the end.
 * @throws what a batch throws, and the reason of a stop.
 */
async function inBatches(
  batch: (limit: number, place: string) => Promise<BatchRow>,
): Promise<{ deleted: number; isLate: boolean }> {
  const { cancellationSignal } = Context.current();
  const endAt = performance.now() + MAX_TABLE_MS;
  let deleted = 0;
  let place = '-infinity';
  for (let limit = BATCH_SIZE; ;) {
    let restMs = 0;
    try {
      const beganAt = performance.now();
      const row = await batch(limit, place);
      // Most of the time is left to those who wait for an answer.
      restMs = Math.min(MOST_REST_MS, REST_FACTOR * (performance.now() - beganAt));
      deleted += row.deleted;
      if (row.seen < limit) return { deleted, isLate: false };
      // Rows of one moment that are all kept: only a larger batch comes to those behind them.
      const isStuck = row.deleted === 0 && row.place === place;
      limit = isStuck ? limit * 2 : Math.min(BATCH_SIZE, limit * 2);
      // The rows before it are deleted, or stay: the next batch does not read them again.
      place = row.place ?? place;
    } catch (error) {
      if (limit === 1 || !isStatementTimeout(error)) throw error;
      limit = Math.ceil(limit / 2);
    }
    heartbeat();
    await sleep(restMs, undefined, { signal: cancellationSignal });
    // A minute that found nothing but rows that are kept leaves nothing that another one would find.
    if (performance.now() >= endAt) return { deleted, isLate: deleted > 0 };
  }
}

const OVERDUE = 'notification.retention.overdue_ms';

/** The gauge of the oldest row past its retention. */
export function retentionGauge(db: Pool, tables: readonly Kept[]): GaugeRead {
  const reads = tables
    // Parts go before their parents, which have the gauge.
    .filter(({ parent }) => !parent)
    .map((table) => ({ ...table, statement: overdueOf(table) }));
  return {
    gauges: {
      [OVERDUE]: {
        description: 'How long the oldest row of a table is past its retention; 0 when none is',
        unit: 'ms',
      },
    },
    async read() {
      return Promise.all(
        reads.map(async ({ name, keepMs, statement }) => {
          const [row] = await query<{ overdue_ms: number }>(db, statement, [keepMs]);
          return { gauge: OVERDUE, value: row!.overdue_ms, attributes: { table: name } };
        }),
      );
    },
  };
}

/** Rows of operators' requests. Any role may be the only one that runs, so each kind deletes them. */
const OPERATOR_TABLES: Expiring[] = [
  {
    // One operation may have a million of them.
    name: 'operation_items',
    table: 'notification.operation_items',
    since: 'created_at',
    parent: { table: 'notification.operations', key: 'operation_id' },
  },
  {
    name: 'operations',
    table: 'notification.operations',
    since: 'created_at',
    keptBy: ['FROM notification.operation_items AS item WHERE item.operation_id = operations.operation_id'],
  },
  { name: 'operator_actions', table: 'notification.operator_actions', since: 'acted_at' },
  { name: 'forgotten_users', table: 'notification.forgotten_users', since: 'begun_at' },
];

/** @returns the tables in the order in which they are deleted from. */
export const operatorTables = (keepMs: number): Kept[] =>
  OPERATOR_TABLES.map((table) => ({ ...table, keepMs }));
