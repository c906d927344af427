/**
 * Trust in a router whose certificate was exchanged: an operator names the new fingerprint, and work that waits for this
 * router continues under it. The router is tried first, so that a mistyped fingerprint breaks nothing.
 */
import type { RouterKey } from '../../workflows/subscription/contract.ts';
import { queueOf } from '../../api/subscription/rows.ts';
import { query } from '../postgres.ts';
import { inTransaction, run } from '../transactions.ts';
import type { SubscriptionResources } from './batches.ts';
import { whileBeating } from './batches.ts';
import { kickAll } from './commands.ts';
import { errorText } from './events.ts';
import { routerValues } from './rows.ts';

/** Subscriptions that are made again together. */
const STARTED_TOGETHER = 1_000;

export function createRouterWork(resources: SubscriptionResources) {
  const { db, log, messagingRouter, notificationRouter } = resources;
  const ports = { messaging: messagingRouter, notification: notificationRouter };

  async function pinMessagingRouter(agentId: string, server: RouterKey): Promise<void> {
    const { host, port, keyHash } = server;
    const values = [agentId, host, port, keyHash, STARTED_TOGETHER];
    // First, and in parts: while the former fingerprint is pinned, they are known by it.
    await whileBeating(async () => {
      while ((await query(db, START_OVER, values)).length > 0);
    });
    await inTransaction(db, async (client) => {
      await run(client, LOCK_SMP_SERVER, [agentId, host, port]);
      await run(client, PIN_SMP_SERVER, routerValues(agentId, server));
    });
    await kickAll(resources, [{ agentId, pool: 'ntf-smp', server }]);
  }

  return {
    /**
     * Pins a router to a fingerprint, once it has answered under it: a messaging router with all queues on it, a
     * notification router with the token and the token deletions on it. One that is not known yet is a messaging
     * router: the addresses of new tokens come from the configuration. Subscriptions to a messaging router are made
     * again, because their notification router reaches it under the fingerprint that they were made with.
     *
     * @returns a text when it did not answer: everything stays as it was then.
     */
    async trustRouter(agentId: string, server: RouterKey): Promise<string | undefined> {
      const { host, port } = server;
      const known = await query<{ kind: keyof typeof ports }>(db, LIST_KINDS, [agentId, host, port]);
      let refusal = 'there is no such router';
      // A mistyped address may have made it known as a router of the other kind, too: the router says what it is.
      for (const { kind } of known.length > 0 ? known : [{ kind: 'messaging' as const }]) {
        const answer = await whileBeating(() => ports[kind].ping(server));
        if (answer.ok) {
          if (kind === 'messaging') await pinMessagingRouter(agentId, server);
          else await query(db, PIN_NTF_SERVER, routerValues(agentId, server));
          log.info({ agent_id: agentId, server: `${host}:${port}`, kind }, 'router pinned');
          return undefined;
        }
        refusal = errorText(answer.error);
      }
      return refusal;
    },
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

const LIST_KINDS = {
  name: 'list_kinds_of_router',
  text: `
    SELECT 'notification' AS kind FROM subscriptions.ntf_servers WHERE agent_id = $1 AND host = $2 AND port = $3
    UNION ALL
    SELECT 'messaging' FROM subscriptions.smp_servers WHERE agent_id = $1 AND host = $2 AND port = $3`,
};

/** No transaction saves a queue of the server or pins it again before this transaction has ended. */
const LOCK_SMP_SERVER = {
  name: 'lock_smp_server',
  text: `
    SELECT 1 FROM subscriptions.smp_servers WHERE agent_id = $1 AND host = $2 AND port = $3 FOR NO KEY UPDATE`,
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
     WHERE agent_id = $1 AND host = $2 AND port = $3`,
};
