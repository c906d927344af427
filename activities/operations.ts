/**
 * The steps of what operators do to many. Their client has chosen the items, as rows; each step deals with some of them
 * and says so. A process may die between any two lines: a step that is made again deals once more with those that were
 * not marked, which has no effect on what has been dealt with already. Each kind of work sees to that for its own.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { Context } from '@temporalio/activity';
import pLimit from 'p-limit';
import type { Pool } from 'pg';
import type {
  OperationCounts,
  OperationKind,
  OperationOrder,
  OperationState,
} from '../workflows/operation-contract.ts';
import { operationStart, orderIdOf } from '../workflows/operation-contract.ts';
import { withHeartbeats } from './attempt.ts';
import type { Statement } from './postgres.ts';
import { query } from './postgres.ts';
import type { LongLivedWorkflow } from './workflows.ts';

/** Of a step, ms: its end needs a slot of a worker, which takes seconds behind a backlog. */
const STEP_MS = 5_000;
/** A step that is cancelled may end by itself for so long, ms: an operator wants to know how far it came. */
const ENDING_MS = 500;
/** Items that are dealt with before they are marked. */
export const CHUNK = 50;
/** Items that are dealt with at the same time. */
const PARALLEL_ITEMS = 25;

export interface OperationItem {
  operation_id: string;
  position: number;
  requested_by: string;
}

/** How one kind of operation is worked off. */
export interface OperationWork {
  /** The next items; of operationItems. */
  list: Statement;
  /**
   * Deals with an item, as the list returns it. Doing so again must have no further effect.
   *
   * @returns whether there was something to do. @throws what keeps it from dealing with it.
   */
  deal(item: OperationItem): Promise<boolean>;
}

export interface OperationStep {
  counts: OperationCounts;
  isLeft: boolean;
  /** It is paused, as its row says. */
  pausedBy?: string;
}

export type OperationActivities = ReturnType<typeof createOperationActivities>;

/** @param works the kinds that this worker knows. */
export function createOperationActivities(db: Pool, works: Partial<Record<OperationKind, OperationWork>>) {
  const inTurn = pLimit(PARALLEL_ITEMS);
  return {
    /**
     * Deals with the next items, for some seconds, at a rate. A pause ends it before its next items, as the row says it.
     *
     * @param rate items a second.
     * @throws what a kind throws, and Error for a kind that a later release knows.
     */
    async doPage(operationId: string, kind: OperationKind, rate: number): Promise<OperationStep> {
      const work = works[kind];
      if (work === undefined) throw new Error(`this release knows no operation ${kind}`);
      /** As far as it is, once that is known. */
      let reached: OperationCounts | undefined;
      // A hanging item does not keep a step that was cancelled.
      const givenUp = Context.current().cancelled.catch(async (error: unknown) => {
        await sleep(ENDING_MS, undefined, { ref: false });
        throw error;
      });
      return withHeartbeats(
        () => Promise.race([dealWithPage(operationId, work, rate, (counts) => (reached = counts)), givenUp]),
        () => reached,
      );
    },

    /** @param pausedBy the operator who paused it; null when it continues. */
    async notePause(operationId: string, pausedBy: string | null): Promise<void> {
      await query(db, NOTE_PAUSE, [operationId, pausedBy]);
    },

    async endOperation(operationId: string, outcome: OperationState['status']): Promise<void> {
      await query(db, END_OPERATION, [operationId, outcome]);
    },
  };

  /** Items that are under way when it is given up are dealt with all the same, and once more by the next step. */
  async function dealWithPage(
    operationId: string,
    work: OperationWork,
    rate: number,
    report: (counts: OperationCounts) => void,
  ): Promise<OperationStep> {
    const { cancellationSignal } = Context.current();
    const size = Math.min(CHUNK, rate);
    const beganAt = performance.now();
    const tookMs = () => performance.now() - beganAt;
    for (let dealt = 0; ; dealt += size) {
      const waitMs = (dealt * 1_000) / rate - tookMs();
      if (waitMs > 0) await sleep(waitMs, undefined, { signal: cancellationSignal }).catch(() => undefined);
      const { paused_by: pausedBy, ...counts } = await readRow(operationId);
      report(counts);
      if (pausedBy !== null) return { counts, isLeft: true, pausedBy };
      if (tookMs() > STEP_MS || cancellationSignal.aborted) return { counts, isLeft: true };
      const items = await query<OperationItem>(db, work.list, [operationId, size]);
      const wereOrdered = await inTurn.map(items, (item) => work.deal(item));
      const positions = items.map(({ position }) => position);
      const [row] = await query<OperationCounts>(db, MARK_ITEMS, [operationId, positions, wereOrdered]);
      report(row ?? counts);
      if (items.length < size) return { counts: row ?? counts, isLeft: false };
    }
  }

  /** Retention may have removed it. */
  async function readRow(operationId: string): Promise<OperationRow> {
    const [row] = await query<OperationRow>(db, READ_OPERATION, [operationId]);
    return row ?? { paused_by: null, total: 0, done: 0, ordered: 0 };
  }
}

/**
 * @returns the workflows of operations of these kinds that were begun within a day and have not ended, the oldest first:
 * Temporal may have forgotten one, and a command may have died before it could start it. Each continues as its row says.
 * @throws ApplicationFailure of PostgreSQL.
 */
export async function listOpenOperations(
  db: Pool,
  kinds: readonly OperationKind[],
): Promise<LongLivedWorkflow[]> {
  return (await query<OperationOrder>(db, LIST_OPEN, [kinds, MOST_OPEN])).map(operationStart);
}

/** For statements: orderIdOf its operation, of an `item`. */
export const ORDER_OF_ITEM = `'${orderIdOf('')}' || item.operation_id`;

/**
 * @param columns what else a kind wants to know of `item`, `operation` and what it joins.
 * @returns the text of a statement for the next items that were not dealt with, of an operation that has not ended. $1 operation,
 * $2 items at most.
 */
export const operationItems = (columns: string, joins: string): string => `
    SELECT item.operation_id, position, operation.requested_by, ${columns}
      FROM notification.operations AS operation
      JOIN LATERAL (
           SELECT *
             FROM notification.operation_items
            WHERE operation_id = $1 AND was_ordered IS NULL
            ORDER BY position
            LIMIT $2) AS item ON true
      ${joins}
     WHERE operation.operation_id = $1 AND ended_at IS NULL
     ORDER BY position`;

/** $1 operation, $2 positions, $3 of each whether there was something to do. Counts what was not marked before. */
const MARK_ITEMS = {
  name: 'mark_operation_items',
  text: `
    WITH marked AS (
      UPDATE notification.operation_items AS item
         SET was_ordered = dealt.was_ordered
        FROM unnest($2::int[], $3::boolean[]) AS dealt (position, was_ordered)
       WHERE item.operation_id = $1 AND item.position = dealt.position AND item.was_ordered IS NULL
      RETURNING item.was_ordered
    )
    UPDATE notification.operations
       SET done = done + (SELECT count(*) FROM marked),
           ordered = ordered + (SELECT count(*) FROM marked WHERE was_ordered)
     WHERE operation_id = $1
    RETURNING total, done, ordered`,
};

interface OperationRow extends OperationCounts {
  paused_by: string | null;
}

const READ_OPERATION = {
  name: 'read_operation',
  text: 'SELECT total, done, ordered, paused_by FROM notification.operations WHERE operation_id = $1',
};

const NOTE_PAUSE = {
  name: 'note_operation_pause',
  text: 'UPDATE notification.operations SET paused_by = $2 WHERE operation_id = $1',
};

/** Of one look. */
const MOST_OPEN = 100;

/**
 * Temporal keeps a workflow that has ended for a day at least: one that it does not know within that time was not
 * terminated. $1 kinds, $2 rows at most.
 */
const LIST_OPEN = {
  name: 'list_open_operations',
  text: `
    SELECT operation_id AS "operationId", kind, rate, requested_by AS "requestedBy", filter, reason
      FROM notification.operations
     WHERE ended_at IS NULL AND kind = ANY($1::text[]) AND created_at > now() - interval '1 day'
     ORDER BY created_at
     LIMIT $2`,
};

const END_OPERATION = {
  name: 'end_operation',
  text: `
    UPDATE notification.operations
       SET ended_at = clock_timestamp(), outcome = $2
     WHERE operation_id = $1 AND ended_at IS NULL`,
};
