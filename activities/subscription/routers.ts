/**
 * Trust in a router whose certificate was exchanged: an operator names the new fingerprint, and work that waits for this
 * router continues under it. The router is tried first, so that a mistyped fingerprint breaks nothing.
 */
import type { TrustedRouter } from '../../workflows/subscription/contract.ts';
import { queueOf } from '../../api/subscription/rows.ts';
import { query } from '../postgres.ts';
import type { SubscriptionResources } from './batches.ts';
import { whileBeating } from './batches.ts';
import { kickAll } from './commands.ts';
import { errorText } from './events.ts';
import { routerValues } from './rows.ts';

/** Subscriptions that are made again together. */
const STARTED_TOGETHER = 1_000;

export function createRouterWork(resources: SubscriptionResources) {
  const { db, log, messagingRouter, notificationRouter } = resources;
  const ports = { smp: messagingRouter, ntf: notificationRouter };

  return {
    /**
     * Pins a router to a fingerprint, once it has answered under it: a messaging router with all queues on it, a
     * notification router with the token and the token deletions on it. Subscriptions to a messaging router are made
     * again, because their notification router reaches it under the fingerprint that they were made with.
     *
     * @returns why not: everything stays as it was then.
     */
    trustRouter: (agentId: string, { protocol, ...server }: TrustedRouter): Promise<string | undefined> =>
      whileBeating(async () => {
        const answer = await ports[protocol].ping(server);
        if (!answer.ok) return `the router did not answer under this fingerprint: ${errorText(answer.error)}`;
        const values = routerValues(agentId, server);
        if (protocol === 'ntf') {
          const pinned = await query(db, PIN_NTF_SERVER, values);
          if (pinned.length === 0)
            return 'the agent has no notification router with exactly these hosts and port';
        } else {
          // First, and in parts: while the former fingerprint is pinned, they are known by it.
          while ((await query(db, START_OVER, [...values, STARTED_TOGETHER])).length > 0);
          await query(db, PIN_SMP_SERVER, values);
          await kickAll(resources, [{ agentId, pool: 'ntf-smp', server }]);
        }
        log.info({ agent_id: agentId, server: `${server.host}:${server.port}`, protocol }, 'router pinned');
        return undefined;
      }),
  };
}

/**
 * What is being made already is subscribed under the new fingerprint. Rows are locked in the same order everywhere.
 */
const START_OVER = {
  name: 'start_subscriptions_of_router_over',
  text: `
    WITH stale AS (
      SELECT record.conn_id
        FROM subscriptions.ntf_subscriptions AS record
       CROSS JOIN LATERAL (${queueOf('record')}) AS queue
       WHERE record.agent_id = $1 AND record.smp_host = $2 AND record.smp_port = $3 AND record.ntf_action = 'C'
         AND record.ntf_sub_id IS NOT NULL
         AND queue.key_hash <> $4
       ORDER BY record.conn_id
       LIMIT $5
         FOR UPDATE OF record
    )
    UPDATE subscriptions.ntf_subscriptions AS record
       SET smp_ntf_id = NULL, ntf_sub_id = NULL, status = 'NEW', ntf_action = NULL, smp_action = 'K',
           action_ts = clock_timestamp(), generation = generation + 1, ntf_failed = false, smp_failed = false,
           updated_at = clock_timestamp()
      FROM stale
     WHERE record.agent_id = $1 AND record.conn_id = stale.conn_id
    RETURNING 1`,
};

const PIN_SMP_SERVER = {
  name: 'pin_smp_server',
  text: `
    WITH queues AS (
      UPDATE subscriptions.rcv_queues SET server_key_hash = NULL
       WHERE agent_id = $1 AND host = $2 AND port = $3 AND server_key_hash IS NOT NULL
    )
    INSERT INTO subscriptions.smp_servers (agent_id, host, port, key_hash)
    VALUES ($1, $2, $3, $4)
    ON CONFLICT (agent_id, host, port) DO UPDATE
       SET key_hash = excluded.key_hash, updated_at = clock_timestamp()`,
};

/** Deletions keep the fingerprint that they were written with: their token is gone. */
const PIN_NTF_SERVER = {
  name: 'pin_ntf_server',
  text: `
    WITH deletions AS (
      UPDATE subscriptions.ntf_tokens_to_delete SET key_hash = $4 WHERE agent_id = $1 AND host = $2 AND port = $3
    )
    UPDATE subscriptions.ntf_servers SET key_hash = $4, updated_at = clock_timestamp()
     WHERE agent_id = $1 AND host = $2 AND port = $3
    RETURNING 1`,
};
