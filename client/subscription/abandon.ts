/** What is still to be deleted on a router, with a key that is lost for good, is given up by an operator. */
import type { Pool } from 'pg';

/** Rows of one statement: never one long lock. */
const BATCH_SIZE = 500;

export interface Abandoned {
  /** Deleted connections. The messaging routers of their queues keep the notifiers. */
  connections: number;
  /** Deleted tokens, of which their notification router is not told. */
  tokens: number;
}

/** What `abandon` would forget. */
export async function countUnreadableDeletions(db: Pool, agentId: string): Promise<Abandoned> {
  const { rows } = await db.query<Abandoned>(COUNT, [agentId]);
  return rows[0]!;
}

/**
 * Forgets deleted connections and tokens whose keys did not open when they were to be deleted on their routers.
 *
 * @returns how many of each.
 */
export async function abandon(db: Pool, agentId: string): Promise<Abandoned> {
  const abandoned: Abandoned = { connections: 0, tokens: 0 };
  for (;;) {
    const { rows } = await db.query<Abandoned>(ABANDON, [agentId, BATCH_SIZE]);
    const { connections, tokens } = rows[0]!;
    abandoned.connections += connections;
    abandoned.tokens += tokens;
    if (connections < BATCH_SIZE && tokens < BATCH_SIZE) return abandoned;
  }
}

const UNREADABLE_RECORDS = `
          FROM subscriptions.ntf_subscriptions AS record
          JOIN subscriptions.connections AS connection USING (agent_id, conn_id)
         WHERE agent_id = $1 AND is_deleted AND (ntf_failed OR smp_failed)`;

const COUNT = `
  SELECT (SELECT count(*)::int ${UNREADABLE_RECORDS}) AS connections,
         (SELECT count(*)::int FROM subscriptions.ntf_tokens_to_delete WHERE agent_id = $1 AND del_failed) AS tokens`;

/** $1 agent, $2 rows at most of each. A key that has come back meanwhile clears the mark, and the row is left alone. */
const ABANDON = `
  WITH records AS (
    DELETE FROM subscriptions.ntf_subscriptions
     WHERE agent_id = $1 AND conn_id IN (
        SELECT conn_id ${UNREADABLE_RECORDS}
         ORDER BY conn_id
         LIMIT $2
           FOR UPDATE OF record SKIP LOCKED)
    RETURNING conn_id
  ), connections AS (
    DELETE FROM subscriptions.connections
     WHERE agent_id = $1 AND is_deleted AND conn_id IN (SELECT conn_id FROM records)
    RETURNING conn_id
  ), tokens AS (
    DELETE FROM subscriptions.ntf_tokens_to_delete
     WHERE id IN (SELECT id FROM subscriptions.ntf_tokens_to_delete
                   WHERE agent_id = $1 AND del_failed
                   ORDER BY id
                   LIMIT $2
                     FOR UPDATE SKIP LOCKED)
    RETURNING id
  )
  SELECT (SELECT count(*)::int FROM connections) AS connections, (SELECT count(*)::int FROM tokens) AS tokens`;
