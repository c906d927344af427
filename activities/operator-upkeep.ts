/**
 * The end of what operators have asked for: operations with their items, who did what, and requests to forget somebody.
 * Any role may be the only one that runs, so each process sees to it.
 */
import type { Pool } from 'pg';
import type { Logger } from 'pino';
import type { Statement } from './postgres.ts';
import { query } from './postgres.ts';
import { deletionOf } from './retention.ts';
import { watchEvery } from './watch.ts';

/** Rows of one statement, of which a look makes one for each table: never one long lock, and no long look either. */
const BATCH_SIZE = 1_000;

/**
 * Looks every `everyMs`, and deletes some of what is older than `ageMs`. With a look a minute that is up to 1.4 million
 * rows a day for each process and table.
 *
 * @returns `stop` resolves when the last look is over.
 */
export function startOperatorUpkeep(
  db: Pool,
  log: Logger,
  { everyMs, ageMs }: { everyMs: number; ageMs: number },
): { stop(): Promise<void> } {
  return watchEvery(everyMs, look, (reason) =>
    log.warn({ reason }, 'what operators asked for long ago is not deleted'),
  );

  async function look(): Promise<void> {
    for (const statement of DELETIONS) {
      const [row] = await query<{ deleted: number }>(db, statement, [ageMs, BATCH_SIZE]);
      if (row!.deleted > 0)
        log.info({ deleted: row!.deleted, statement: statement.name }, 'expired rows deleted');
    }
  }
}

/** Before the operations that they are of, since there may be a million of one. $1 age in ms, $2 rows at most. */
const DELETE_ITEMS: Statement = {
  name: 'delete_expired_operation_items',
  text: `
    WITH expired AS (
      SELECT item.operation_id, item.position
        FROM (SELECT operation_id
                FROM notification.operations
               WHERE created_at < now() - $1::bigint * interval '1 millisecond'
               ORDER BY created_at
               LIMIT 100) AS operation
       CROSS JOIN LATERAL (
             SELECT operation_id, position
               FROM notification.operation_items
              WHERE operation_items.operation_id = operation.operation_id
              LIMIT $2
                FOR UPDATE SKIP LOCKED) AS item
       LIMIT $2
    ), deleted AS (
      DELETE FROM notification.operation_items AS old USING expired
       WHERE old.operation_id = expired.operation_id AND old.position = expired.position
      RETURNING 1
    )
    SELECT count(*)::int AS deleted FROM deleted`,
};

const DELETE_OPERATIONS = deletionOf({
  name: 'delete_expired_operations',
  table: 'notification.operations',
  key: 'operation_id',
  since: 'created_at',
  condition:
    '(SELECT true FROM notification.operation_items AS item WHERE item.operation_id = operations.operation_id LIMIT 1) IS NULL',
});

const DELETE_ACTIONS = deletionOf({
  name: 'delete_expired_operator_actions',
  table: 'notification.operator_actions',
  key: 'action_id',
  since: 'acted_at',
});

const DELETE_FORGOTTEN = deletionOf({
  name: 'delete_expired_requests_to_forget',
  table: 'notification.forgotten_users',
  key: 'request_id',
  since: 'begun_at',
});

const DELETIONS = [DELETE_ITEMS, DELETE_OPERATIONS, DELETE_ACTIONS, DELETE_FORGOTTEN];
