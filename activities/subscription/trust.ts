/**
 * Routers whose certificate was exchanged: an operator names the new fingerprint, and everything that waits for such a
 * router goes on under it. The router is tried first, so that a mistyped fingerprint breaks nothing.
 */
import { randomBytes } from 'node:crypto';
import type { RouterKey } from '../../workflows/subscription/contract.ts';
import { query } from '../postgres.ts';
import { inTransaction } from '../transactions.ts';
import type { SubscriptionResources } from './batches.ts';
import { NO_ANSWER, whileBeating } from './batches.ts';
import { kickAll } from './commands.ts';
import { errorText } from './events.ts';
import type { QueueRef, RouterError, RouterResult } from './router/ports.ts';
import { generateAuthKeys } from './router/signing.ts';
import * as routers from './router-rows.ts';

type RouterKind = 'messaging' | 'notification';

const RECIPIENT_ID_BYTES = 24;
const STARTED_TOGETHER = 1_000;

export function createTrustWork(resources: SubscriptionResources) {
  const { db, log, messagingRouter, notificationRouter } = resources;

  /** Whether a router can be talked to. Of a messaging router any answer of its own will do, as that there is no such queue. */
  const probes: Record<RouterKind, (address: RouterKey) => Promise<RouterResult<undefined>>> = {
    notification: (address) => notificationRouter.ping(address),
    async messaging(address) {
      const queue: QueueRef = {
        address,
        userId: 0,
        connId: '',
        recipientId: randomBytes(RECIPIENT_ID_BYTES).toString('base64url'),
        recipientPrivateKey: generateAuthKeys().privateKey,
      };
      const [answer] = await messagingRouter.deleteNotifierKeys([queue]);
      const result = answer?.result ?? { ok: false, error: NO_ANSWER };
      return !result.ok && result.error.source === 'SMP' ? { ok: true, value: undefined } : result;
    },
  };

  async function pinMessagingRouter(agentId: string, server: RouterKey): Promise<void> {
    const { host, port, keyHash } = server;
    const values = [agentId, host, port, keyHash, STARTED_TOGETHER];
    // First, and in parts: while the former fingerprint is pinned, they are known by it.
    await whileBeating(async () => {
      while ((await query(db, START_OVER, values)).length > 0);
    });
    await inTransaction(db, (client) => routers.pinMessagingRouter(client, agentId, server));
    await kickAll(resources, [{ agentId, pool: 'ntf-smp', server }]);
  }

  return {
    /**
     * Pins a router to a fingerprint, once it has answered under it: a messaging router with all queues on it, a
     * notification router with the token and the token deletions on it. One that is not known yet is a messaging
     * router: the addresses of new tokens come from the configuration. Subscriptions to a messaging router are made
     * anew, because their notification router reaches it under the fingerprint that they were made with.
     *
     * @returns a text when it did not answer: everything stays as it was then.
     */
    async trustRouter(agentId: string, server: RouterKey): Promise<string | undefined> {
      const { host, port } = server;
      const known = await query<{ kind: RouterKind }>(db, LIST_KINDS, [agentId, host, port]);
      let error: RouterError = NO_ANSWER;
      // A mistyped address may have made it known as a router of the other kind, too: the router says what it is.
      for (const { kind } of known.length > 0 ? known : [{ kind: 'messaging' as const }]) {
        const answer = await whileBeating(() => probes[kind](server));
        if (answer.ok) {
          if (kind === 'messaging') await pinMessagingRouter(agentId, server);
          else await routers.pinNotificationRouter(db, agentId, server);
          log.info({ agent_id: agentId, server: `${host}:${port}`, kind }, 'router pinned');
          return undefined;
        }
        ({ error } = answer);
      }
      return errorText(error);
    },
  };
}

/**
 * What is being made already is subscribed under the new fingerprint. Rows are locked in the order in which everybody
 * does.
 */
const START_OVER = {
  name: 'start_subscriptions_of_router_over',
  text: `
    WITH stale AS (
      SELECT record.conn_id
        FROM subscriptions.ntf_subscriptions AS record
        JOIN subscriptions.smp_servers AS server
             ON (server.agent_id, server.host, server.port) = (record.agent_id, record.smp_host, record.smp_port)
       WHERE record.agent_id = $1 AND record.smp_host = $2 AND record.smp_port = $3 AND record.ntf_action = 'C'
         AND record.ntf_sub_id IS NOT NULL
         AND coalesce(record.smp_server_key_hash, server.key_hash) <> $4
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
