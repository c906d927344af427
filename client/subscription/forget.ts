/**
 * What subscriptions keep of one of the numbers under which an agent has its users. Connections are deleted by the agent's
 * supervisor, since only their keys let routers delete queues and subscriptions; the keys go when these have.
 */
import type { Pool } from 'pg';
import type { PartOfForgetting, Place } from '../forget-places.ts';
import { rowsOf } from '../forget-places.ts';

/** Connections that are deleted by one command. */
const TOGETHER = 500;

export interface SubscriptionsToForget {
  db: Pool;
  agentId: string;
  /** The number of the user within the agent. */
  number: number;
  /** Has the supervisor delete connections. */
  deleteConnections(connIds: readonly string[]): Promise<unknown>;
}

export function subscriptionsOf(to: SubscriptionsToForget): PartOfForgetting {
  const { db, agentId, number, deleteConnections } = to;
  const values = [agentId, number];
  const count = async (table: string, condition: string): Promise<number> => {
    const { rows } = await db.query<{ count: number }>(
      `SELECT count(*)::int AS count FROM subscriptions.${table} WHERE agent_id = $1 AND user_id = $2 AND ${condition}`,
      values,
    );
    return rows[0]!.count;
  };
  const connections: Place = {
    what: 'subscriptions.connections',
    count: () => count('connections', 'NOT is_deleted'),
    async forget() {
      for (let total = 0; ;) {
        const { rows } = await db.query<{ conn_id: string }>(
          `SELECT conn_id FROM subscriptions.connections
            WHERE agent_id = $1 AND user_id = $2 AND NOT is_deleted ORDER BY conn_id LIMIT ${TOGETHER}`,
          values,
        );
        if (rows.length === 0) return total;
        await deleteConnections(rows.map(({ conn_id }) => conn_id));
        total += rows.length;
      }
    },
  };
  return {
    underWay: () => Promise.resolve([]),
    places: [
      connections,
      rowsOf(db, {
        table: 'subscriptions.servers_stats',
        key: ['agent_id', 'user_id', 'host', 'port', 'counter'],
        // Workers count what they do for connections that are still to be deleted.
        where: `agent_id = $1 AND user_id = $2
          AND NOT EXISTS (SELECT FROM subscriptions.connections WHERE agent_id = $1 AND user_id = $2)
          AND NOT EXISTS (SELECT FROM subscriptions.ntf_subscriptions WHERE agent_id = $1 AND user_id = $2)`,
        values,
      }),
    ],
    async remains() {
      const left = (await count('connections', 'is_deleted')) + (await count('ntf_subscriptions', 'true'));
      if (left === 0) return [];
      return [
        {
          what: `${left} rows of connections and subscriptions of the agent's user ${number}, with their sealed keys`,
          ends: 'when their routers have deleted them (galaxy-notify subscriptions status)',
        },
      ];
    },
  };
}
