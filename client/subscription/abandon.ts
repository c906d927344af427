/** What is still to be deleted on a router, with a key that is lost for good, is given up by an operator. */
import type { Pool } from 'pg';

/** Rows of one statement: never one long lock. */
const BATCH_SIZE = 500;

export interface Abandoned {
  /** Deleted queues. Their routers keep them until they are unused for too long there. */
  queues: number;
  /** Deleted tokens, of which their notification router is not told. */
  tokens: number;
}

/** What `abandon` would forget. */
export async function countUnreadableDeletions(db: Pool, agentId: string): Promise<Abandoned> {
  const { rows } = await db.query<Abandoned>(COUNT, [agentId]);
  return rows[0]!;
}

/**
 * Forgets deleted queues and tokens whose keys did not open when they were to be deleted on their routers. Deleted
 * connections go with their last queue.
 *
 * @returns how many of each.
 */
export async function abandon(db: Pool, agentId: string): Promise<Abandoned> {
  const abandoned: Abandoned = { queues: 0, tokens: 0 };
  for (;;) {
    const { rows } = await db.query<Abandoned>(ABANDON, [agentId, BATCH_SIZE]);
    const { queues, tokens } = rows[0]!;
    abandoned.queues += queues;
    abandoned.tokens += tokens;
    if (queues < BATCH_SIZE && tokens < BATCH_SIZE) return abandoned;
  }
}

const COUNT = `
  SELECT (SELECT count(*)::int FROM subscriptions.rcv_queues WHERE agent_id = $1 AND is_deleted AND del_failed) AS queues,
         (SELECT count(*)::int FROM subscriptions.ntf_tokens_to_delete WHERE agent_id = $1 AND del_failed) AS tokens`;

/** $1 agent, $2 rows at most of each. A key that has come back meanwhile clears the mark, and the row is left alone. */
const ABANDON = `
  WITH queues AS (
    DELETE FROM subscriptions.rcv_queues
     WHERE queue_id IN (SELECT queue_id FROM subscriptions.rcv_queues
                         WHERE agent_id = $1 AND is_deleted AND del_failed
                         ORDER BY queue_id
                         LIMIT $2
                           FOR UPDATE SKIP LOCKED)
    RETURNING queue_id, conn_id
  ), tokens AS (
    DELETE FROM subscriptions.ntf_tokens_to_delete
     WHERE id IN (SELECT id FROM subscriptions.ntf_tokens_to_delete
                   WHERE agent_id = $1 AND del_failed
                   ORDER BY id
                   LIMIT $2
                     FOR UPDATE SKIP LOCKED)
    RETURNING id
  ), connections AS (
    DELETE FROM subscriptions.connections AS connection
     WHERE agent_id = $1 AND is_deleted AND conn_id IN (SELECT conn_id FROM queues)
       AND NOT EXISTS (SELECT FROM subscriptions.rcv_queues AS queue
                        WHERE queue.agent_id = $1 AND queue.conn_id = connection.conn_id
                          AND queue.queue_id NOT IN (SELECT queue_id FROM queues))
  )
  SELECT (SELECT count(*)::int FROM queues) AS queues, (SELECT count(*)::int FROM tokens) AS tokens`;
