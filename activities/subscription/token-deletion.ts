/**
 * The network phase of a token's deletion: the record outlives the token and every stop of the process, until the
 * router has answered. Owns the SQL of `ntf_tokens_to_delete` but for its INSERT (token-rows.ts).
 */
import { deletionKeyContext } from '../../api/subscription/sealed-columns.ts';
import type { BatchOrder, BatchOutcome } from '../../workflows/subscription/contract.ts';
import { inTransaction, run } from '../transactions.ts';
import { requireEpoch } from './agents.ts';
import type { SubscriptionResources } from './batches.ts';
import { unreadableItem, whileBeating } from './batches.ts';
import type { EventKind, SubscriptionEvent } from './events.ts';
import { announceEvent, errorText, writeEvent } from './events.ts';
import { classOf, isUnknownToNotificationRouter } from './router/ports.ts';
import type { RouterError, RouterResult } from './router/ports.ts';
import type { AddressRow } from './rows.ts';
import { addressOf } from './rows.ts';

export function createDeletionWork(resources: SubscriptionResources) {
  const { db, keyBox, notificationRouter, log, metrics } = resources;

  return {
    /**
     * Asks the router to forget a token. Once it has been asked, an AUTH says that an earlier request arrived. A record
     * that it refuses for good is dropped, so that it does not stand in the way of the others.
     */
    async runTokenDeletion(order: BatchOrder): Promise<BatchOutcome> {
      const outcome = { retryIds: [], unkicked: [] };
      const [id] = order.ids;
      const record = id === undefined ? undefined : await beginAttempt(order, id);
      if (id === undefined || !record) return outcome;
      const key = openKey(order.agentId, record);
      if (key instanceof Error) {
        await endAttempt(order, { failed: id }, 'ERRS', unreadableItem('', key).error);
        return outcome;
      }
      const answer = await whileBeating(() =>
        notificationRouter.deleteToken({
          address: addressOf(record),
          tokenId: record.token_id,
          privateKey: key,
        }),
      );
      if (isDone(answer, record.attempts)) {
        await endAttempt(order, { dropped: id });
        return countResult('done', outcome);
      }
      const { error } = answer as { error: RouterError };
      if (classOf(error) !== 'permanent') {
        log.warn({ agent_id: order.agentId, reason: errorText(error) }, 'token deletion is tried again');
        return countResult('retry', { ...outcome, retryIds: [id] });
      }
      await endAttempt(order, { dropped: id }, 'ERR INTERNAL', error);
      return countResult('given_up', outcome);
    },
  };

  function countResult<T>(result: 'done' | 'retry' | 'given_up', outcome: T): T {
    metrics.subscriptionWork(1, { kind: 'token-delete', result });
    return outcome;
  }

  /** @returns the record as it was before, undefined when it is gone. */
  async function beginAttempt({ agentId, epoch }: BatchOrder, id: string): Promise<DeletionRow | undefined> {
    return inTransaction(db, async (client) => {
      await requireEpoch(client, agentId, epoch);
      const [row] = await run<DeletionRow>(client, BEGIN_ATTEMPT, [agentId, id]);
      return row;
    });
  }

  function openKey(agentId: string, { private_key: sealed, token_id: tokenId }: DeletionRow): Buffer | Error {
    try {
      return keyBox.open(sealed, deletionKeyContext(agentId, tokenId));
    } catch (error) {
      return error as Error;
    }
  }

  async function endAttempt(
    { agentId, epoch }: BatchOrder,
    { dropped, failed }: { dropped?: string; failed?: string },
    kind?: EventKind,
    error?: RouterError,
  ): Promise<void> {
    const event: SubscriptionEvent = {
      agentId,
      kind: kind ?? 'ERRS',
      errors: error ? [{ connId: '', error: errorText(error) }] : [],
    };
    await inTransaction(db, async (client) => {
      await requireEpoch(client, agentId, epoch);
      if (dropped !== undefined) await run(client, DROP, [dropped]);
      if (failed !== undefined) await run(client, MARK_FAILED, [failed]);
      await writeEvent(client, event);
    });
    announceEvent(resources, event);
  }
}

function isDone(answer: RouterResult<undefined>, attemptsBefore: number): boolean {
  return answer.ok || (attemptsBefore > 0 && isUnknownToNotificationRouter(answer.error));
}

interface DeletionRow extends AddressRow {
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
    RETURNING host, port, key_hash, token_id, private_key, attempts - 1 AS attempts`,
};

const DROP = {
  name: 'drop_token_deletion',
  text: 'DELETE FROM subscriptions.ntf_tokens_to_delete WHERE id = $1::bigint',
};

const MARK_FAILED = {
  name: 'mark_token_deletion_failed',
  text: 'UPDATE subscriptions.ntf_tokens_to_delete SET del_failed = true WHERE id = $1::bigint',
};
