/** Counters of work by user and server (seed "Stats counting groups by userId"). Owns the SQL of `servers_stats`. */
import type { Pool, PoolClient } from 'pg';
import type { ServerKey } from '../../workflows/subscription/rules.ts';
import { query } from '../postgres.ts';
import { run } from '../transactions.ts';

/** The first six are of notification routers, the others of messaging routers. Attempts count every retry. */
export type Counter =
  | 'ntfCreateAttempts'
  | 'ntfCreated'
  | 'ntfCheckAttempts'
  | 'ntfChecked'
  | 'ntfDelAttempts'
  | 'ntfDeleted'
  | 'ntfKeyAttempts'
  | 'ntfKey'
  | 'ntfKeyDeleteAttempts'
  | 'ntfKeyDeleted';

/** Adds the items of a batch, each to its user. */
export async function count(
  client: PoolClient,
  agentId: string,
  counter: Counter,
  items: readonly { userId: number; server: ServerKey }[],
): Promise<void> {
  if (items.length === 0) return;
  const values = items.map(({ userId, server }) => ({
    user_id: userId,
    host: server.host,
    port: server.port,
  }));
  await run(client, ADD, [agentId, counter, JSON.stringify(values)]);
}

/** Sets all counters of an agent back. @returns how many there were. */
export async function reset(db: Pool, agentId: string): Promise<number> {
  const removed = await query(db, RESET, [agentId]);
  return removed.length;
}

const RESET = {
  name: 'reset_subscription_statistics',
  text: 'DELETE FROM subscriptions.servers_stats WHERE agent_id = $1 RETURNING 1',
};

const ADD = {
  name: 'add_subscription_statistics',
  text: `
    INSERT INTO subscriptions.servers_stats AS stats (agent_id, user_id, host, port, counter, value)
    SELECT $1, user_id, host, port, $2, count(*)
      FROM jsonb_to_recordset($3::jsonb) AS item (user_id int, host text, port int)
     GROUP BY user_id, host, port
     ORDER BY user_id, host, port
    ON CONFLICT (agent_id, user_id, host, port, counter) DO UPDATE
       SET value = stats.value + excluded.value, updated_at = clock_timestamp()`,
};
