/**
 * What subscriptions keep of one of the numbers under which an agent has its users. The agent's supervisor deletes the
 * connections: routers delete queues and subscriptions only for the keys of a connection, and the keys go after that.
 */
import type { Person, Personal, Place } from '../places.ts';
import { idsOf } from '../places.ts';
import type { OperatorResources } from '../resources.ts';
import { subscriptionOperations } from './subscriptions.ts';

/** Connections of one command. */
const TOGETHER = 500;

export function subscriptionsOf(
  resources: OperatorResources,
  { subscriptionUser }: Pick<Person, 'subscriptionUser'>,
): Personal {
  if (subscriptionUser === undefined) return { places: [] };
  const { db, agentId = 'default' } = resources;
  const values = [agentId, subscriptionUser];
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
        const connIds = await idsOf(
          db,
          `SELECT conn_id AS id FROM subscriptions.connections
            WHERE agent_id = $1 AND user_id = $2 AND NOT is_deleted ORDER BY conn_id LIMIT ${TOGETHER}`,
          values,
        );
        if (connIds.length === 0) return total;
        await subscriptionOperations(resources).delete(connIds);
        total += connIds.length;
      }
    },
  };
  return {
    places: [
      connections,
      {
        table: 'subscriptions.servers_stats',
        key: ['agent_id', 'user_id', 'host', 'port', 'counter'],
        // Workers count their work for connections that are still to be deleted.
        where: `agent_id = $1 AND user_id = $2
          AND NOT EXISTS (SELECT FROM subscriptions.connections WHERE agent_id = $1 AND user_id = $2)
          AND NOT EXISTS (SELECT FROM subscriptions.ntf_subscriptions WHERE agent_id = $1 AND user_id = $2)`,
        values,
        isIndexed: true,
      },
    ],
    async remains() {
      const left = (await count('connections', 'is_deleted')) + (await count('ntf_subscriptions', 'true'));
      if (left === 0) return [];
      return [
        {
          what: `${left} rows of connections and subscriptions of the agent's user ${subscriptionUser}, with their sealed keys`,
          ends: 'when their routers have deleted them (galaxy-notify subscriptions status), or after 21 days',
        },
      ];
    },
  };
}
