/**
 * The network phase of a token's deletion: the record outlives the token and every stop of the process, until the
 * router has answered. Owns the SQL of `ntf_tokens_to_delete` but for its INSERT (token-rows.ts).
 */
import { deletionKeyContext } from '../../api/subscription/sealed-columns.ts';
import type { BatchOrder, BatchResult } from '../../workflows/subscription/contract.ts';
import type { Statement } from '../postgres.ts';
import { run } from '../postgres.ts';
import { inEpoch } from './agents.ts';
import type { SubscriptionResources } from './batches.ts';
import { unreadableItem, whileBeating } from './batches.ts';
import type { EventKind } from './events.ts';
import { announceEvent, errorText, writeEvent } from './events.ts';
import { isRetried, isUnknownToNotificationRouter } from './router/ports.ts';
import type { RouterAddress, RouterError } from './router/ports.ts';

export function createDeletionWork(resources: SubscriptionResources) {
  const { db, keyBox, notificationRouter, log, metrics } = resources;

  return {
    /**
     * Asks the router to forget a token. Once it has been asked, an AUTH says that an earlier request arrived. A record
     * that it refuses for good is dropped, so that it does not stand in the way of the others.
     */
    async runTokenDeletion(order: BatchOrder): Promise<BatchResult> {
      const { agentId, ids } = order;
      const [id] = ids;
      const [record] = await inEpoch(db, order, (client) =>
        run<DeletionRow>(client, BEGIN_ATTEMPT, [agentId, id ?? null]),
      );
      if (id === undefined || !record) return { retryIds: [] };
      const { token_id: tokenId, private_key: sealed, attempts, ...address } = record;
      let privateKey: Buffer;
      try {
        privateKey = keyBox.open(sealed, deletionKeyContext(agentId, tokenId));
      } catch (error) {
        await endDeletion(MARK_FAILED, 'ERRS', unreadableItem('', error).error);
        return { retryIds: [] };
      }
      const answer = await whileBeating(() =>
        notificationRouter.deleteToken({ address, tokenId, privateKey }),
      );
      if (!answer.ok && isRetried(answer.error)) {
        log.warn({ agent_id: agentId, reason: errorText(answer.error) }, 'token deletion is tried again');
        metrics.subscriptionWork(1, { kind: 'token-delete', result: 'retry' });
        return { retryIds: [id] };
      }
      const isDone = answer.ok || (attempts > 0 && isUnknownToNotificationRouter(answer.error));
      await endDeletion(DROP, 'ERR INTERNAL', isDone ? undefined : answer.error);
      metrics.subscriptionWork(1, { kind: 'token-delete', result: isDone ? 'done' : 'given_up' });
      return { retryIds: [] };

      async function endDeletion(statement: Statement, kind: EventKind, error?: RouterError): Promise<void> {
        const errors = error ? [{ connId: '', error: errorText(error) }] : [];
        await inEpoch(db, order, async (client) => {
          await run(client, statement, [id]);
          await writeEvent(client, { agentId, kind, errors });
        });
        announceEvent(resources, { agentId, kind, errors });
      }
    },
  };
}

interface DeletionRow extends RouterAddress {
  token_id: string;
  private_key: Buffer;
  /** Before this one. */
  attempts: number;
}

const BEGIN_ATTEMPT = {
  name: 'begin_token_deletion_attempt',
  text: `
    UPDATE subscriptions.ntf_tokens_to_delete AS deletion
       SET attempts = attempts + 1
     WHERE agent_id = $1 AND id = $2::bigint
    RETURNING host, port, key_hash AS "keyHash", token_id, private_key, attempts - 1 AS attempts`,
};

const DROP = {
  name: 'drop_token_deletion',
  text: 'DELETE FROM subscriptions.ntf_tokens_to_delete WHERE id = $1::bigint',
};

const MARK_FAILED = {
  name: 'mark_token_deletion_failed',
  text: 'UPDATE subscriptions.ntf_tokens_to_delete SET del_failed = true WHERE id = $1::bigint',
};
