/** What must hold between rows and routers when nothing is left to do, whatever died on the way to it. */
import { eventually } from '../harness.ts';
import type { SubscriptionAgent } from './agent.ts';

interface Connection {
  conn_id: string;
  /** Notifications are wanted, and its agent has an active token with instant ones. */
  is_notified: boolean;
  token_id: string | null;
  /** Of its queue. */
  rcv_id: string | null;
  /** Of its record. */
  ntf_sub_id: string | null;
}

/** What a notification router says of a subscription that is there. */
const LIVE = ['NEW', 'PENDING', 'ACTIVE', 'INACTIVE', 'SERVICE'];

/**
 * Waits until rows and routers say the same, and nothing is left without an owner: a connection has one queue, and with
 * notifications one notifier, one subscription and one record; without them none of these.
 The queues of deleted connections stay with their application.
 */
export const agreement = (agent: SubscriptionAgent, limitMs = 180_000) =>
  eventually(
    'records and routers to agree',
    async () => {
      const connections = await agent.rows<Connection>(`
        SELECT connection.conn_id, connection.is_deleted, token.token_id,
               enable_ntfs IS NOT FALSE AND token.status IS NOT DISTINCT FROM 'ACTIVE'
                 AND token.mode IS NOT DISTINCT FROM 'INSTANT' AS is_notified,
               rcv_id, ntf_id, num_nonnulls(ntf_private_key, ntf_public_key, rcv_ntf_dh_secret) > 0 AS has_secrets,
               record.status, record.ntf_action, record.smp_action, record.smp_ntf_id, record.ntf_sub_id
          FROM subscriptions.connections AS connection
          LEFT JOIN subscriptions.rcv_queues AS queue USING (agent_id, conn_id)
          LEFT JOIN subscriptions.ntf_subscriptions AS record USING (agent_id, conn_id)
          LEFT JOIN subscriptions.ntf_tokens AS token USING (agent_id)
         ORDER BY conn_id`);
      const queues = new Map(
        agent.routers.smp.flatMap((router) => router.queues()).map((queue) => [queue.recipientId, queue]),
      );
      const live = agent.routers.ntf
        .flatMap((router) => router.subscriptions())
        .filter(({ status }) => LIVE.includes(status));

      for (const row of connections) {
        expect(row).toMatchObject({ is_deleted: false });
        const notifierId = queues.get(row.rcv_id!)?.notifier?.notifierId ?? null;
        if (row.is_notified) {
          expect(row).toMatchObject({
            status: expect.stringMatching(/^CREATED /),
            ntf_action: 'C',
            smp_action: null,
            has_secrets: true,
            ntf_id: notifierId,
            smp_ntf_id: notifierId,
          });
          const subscription = live.find(({ subscriptionId }) => subscriptionId === row.ntf_sub_id);
          expect(subscription).toMatchObject({ notifierId, tokenId: row.token_id, status: 'ACTIVE' });
        } else {
          expect({ ...row, notifierId }).toMatchObject({
            status: null,
            ntf_id: null,
            has_secrets: false,
            notifierId: null,
          });
        }
      }
      const idsOf = (rows: Connection[]) => new Set(rows.map(({ conn_id }) => conn_id));
      // One queue and one record each.
      expect(idsOf(connections).size).toBe(connections.length);
      const notified = connections.filter(({ is_notified }) => is_notified);
      expect(live).toHaveLength(notified.length);
      const records = await agent.records();
      expect(records.filter(({ conn_id }) => !idsOf(notified).has(conn_id))).toEqual([]);

      const known = new Set(connections.map(({ rcv_id }) => rcv_id));
      const unused = [...queues.values()].filter(({ recipientId }) => !known.has(recipientId));
      expect(unused.filter(({ notifier }) => notifier)).toEqual([]);
      return connections;
    },
    limitMs,
  );
