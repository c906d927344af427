/**
 * Routers whose certificate was exchanged: an operator names the new fingerprint, and everything that waits for such a
 * router goes on under it. The router is tried first, so that a mistyped fingerprint breaks nothing.
 */
import { randomBytes } from 'node:crypto';
import type { RouterKey } from '../../workflows/subscription/contract.ts';
import { query } from '../postgres.ts';
import { inTransaction, run } from '../transactions.ts';
import type { SubscriptionResources } from './batches.ts';
import { NO_ANSWER, whileBeating } from './batches.ts';
import { pinServer } from './connection-rows.ts';
import { errorText } from './events.ts';
import type { QueueRef, RouterError, RouterResult } from './router/ports.ts';
import { generateAuthKeys } from './router/signing.ts';

type RouterKind = 'messaging' | 'notification';

const RECIPIENT_ID_BYTES = 24;

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
      const [answer] = await messagingRouter.deleteQueues([queue]);
      const result = answer?.result ?? { ok: false, error: NO_ANSWER };
      return !result.ok && result.error.source === 'SMP' ? { ok: true, value: undefined } : result;
    },
  };

  return {
    /**
     * Pins a router to a fingerprint, once it has answered under that: a messaging router with all queues on it, a
     * notification router with the token and the token deletions on it. One that is not known yet is a messaging
     * router: the addresses of new tokens come from the configuration.
     *
     * @returns a text when it did not answer: everything stays as it was then.
     */
    async trustRouter(agentId: string, server: RouterKey): Promise<string | undefined> {
      const { host, port, keyHash } = server;
      const known = await query<{ kind: RouterKind }>(db, LIST_KINDS, [agentId, host, port]);
      let error: RouterError = NO_ANSWER;
      // A mistyped address may have made it known as a router of the other kind, too: the router says what it is.
      for (const { kind } of known.length > 0 ? known : [{ kind: 'messaging' as const }]) {
        const answer = await whileBeating(() => probes[kind](server));
        if (answer.ok) {
          await inTransaction(db, async (client) => {
            if (kind === 'messaging') await pinServer(client, [agentId, host, port, keyHash]);
            else await run(client, PIN_NTF_SERVER, [agentId, host, port, keyHash]);
          });
          log.info({ agent_id: agentId, server: `${host}:${port}`, kind }, 'router pinned');
          return undefined;
        }
        ({ error } = answer);
      }
      return errorText(error);
    },
  };
}

const LIST_KINDS = {
  name: 'list_kinds_of_router',
  text: `
    SELECT 'notification' AS kind FROM subscriptions.ntf_servers WHERE agent_id = $1 AND host = $2 AND port = $3
    UNION ALL
    SELECT 'messaging' FROM subscriptions.smp_servers WHERE agent_id = $1 AND host = $2 AND port = $3`,
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
