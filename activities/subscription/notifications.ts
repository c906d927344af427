/**
 * Work on notification routers. Of the pool `ntf-ntf`, subscriptions: always on the router of the current token, and with the
 * token as it is at each attempt, so that a token that was removed meanwhile gets no subscription. Of the pool `ntf-tkn-del`,
 * the deletion of tokens.
 */
import { deletionKeyContext, isGateOpen, notifierKeyContext } from '../../api/subscription/rows.ts';
import type { BatchOrder, BatchResult, WorkerKey } from '../../workflows/subscription/contract.ts';
import { isSameServer, stepAfterCheck } from '../../workflows/subscription/rules.ts';
import type { Statement } from '../postgres.ts';
import { run } from '../postgres.ts';
import type { EventKind } from './agents.ts';
import { errorText, inEpoch, writeEvent } from './agents.ts';
import type { Answered, RecordWork, SubscriptionResources } from './batches.ts';
import { NO_ACTIVE_TOKEN, unreadableItem, whileBeating, workOn } from './batches.ts';
import type { WorkerRow } from './commands.ts';
import { workersIn } from './commands.ts';
import type { WorkItem } from './records.ts';
import { DELETE_WORKED_RECORDS, START_WANTED, updateRecords } from './records.ts';
import { isRetried, isUnknownToNotificationRouter } from './router/ports.ts';
import type { NewSubscriptionRequest, RouterAddress, RouterError, RouterResult } from './router/ports.ts';
import type { TokenRow } from './token-rows.ts';

const NO_CREDENTIALS: RouterError = {
  source: 'AGENT',
  code: 'NO_CREDENTIALS',
  detail: 'the queue has no notifier credentials',
};
const NO_SUBSCRIPTION: RouterError = {
  source: 'AGENT',
  code: 'NO_SUBSCRIPTION_ID',
  detail: 'there is no subscription to check',
};

export function createNotificationWork(resources: SubscriptionResources) {
  const { keyBox, notificationRouter, subscription } = resources;

  /** Ends subscriptions of old records, one at a time. The value of an item: the router has deleted a subscription. */
  const legacyWork = (action: 'ntf-delete' | 'ntf-rotate'): Omit<RecordWork<WorkItem, boolean>, 'save'> => ({
    action,
    counters: ['ntfDelAttempts', 'ntfDeleted'],
    isAsked: ({ subscriptionId }, token) => token !== undefined && subscriptionId !== null,
    requestOf: (item) => item,
    async ask(items, token) {
      const answers: RouterResult<boolean>[] = [];
      for (const { subscriptionId } of items) {
        const answer =
          token && subscriptionId !== null
            ? await notificationRouter.deleteSubscription(token, subscriptionId)
            : undefined;
        // Unless its router is to be asked again, it counts as ended: one that the router does not know is ended, too.
        if (answer?.ok === false && isRetried(answer.error)) answers.push(answer);
        else answers.push({ ok: true, value: answer?.ok === true });
      }
      return answers;
    },
  });

  return {
    /** Subscribes with the notifier credentials of the queues. */
    runCreates: (order: BatchOrder): Promise<BatchResult> =>
      workOn<NewSubscriptionRequest, string>(resources, order, {
        action: 'ntf-create',
        counters: ['ntfCreateAttempts', 'ntfCreated'],
        obstacleOf({ queueNotifierId }, token) {
          if (!isRegistered(token)) return NO_ACTIVE_TOKEN;
          return queueNotifierId === null ? NO_CREDENTIALS : undefined;
        },
        requestOf({ address: messagingRouter, queueNotifierId, notifierKey }) {
          const notifierId = queueNotifierId!;
          const notifierPrivateKey = keyBox.open(notifierKey!, notifierKeyContext(order.agentId, notifierId));
          return { messagingRouter, notifierId, notifierPrivateKey };
        },
        ask: (requests, token) => notificationRouter.createSubscriptions(token!, requests),
        async save(client, { done, token }) {
          const actionMs = order.nowMs + subscription.firstCheckMs;
          const step = { status: 'CREATED NEW', action: 'ntf-check', actionMs } as const;
          const records = done.map(({ item, value }) => ({
            ...item,
            subscriptionId: value,
            ntfServer: token!.address,
            ...step,
          }));
          await updateRecords(client, order, records);
          // The worker of the router that has the subscription from now on must hear of the check.
          const moved = done.filter(({ item }) => !isSameServer(item.ntfServer, token!.address));
          const { agentId } = order;
          const kicks = moved.map((): WorkerKey => ({ agentId, pool: 'ntf-ntf', server: token!.address }));
          return { kicks };
        },
      }),

    /** Asks how subscriptions stand. A subscription that is not alive is made again, from the key on. */
    runChecks: (order: BatchOrder): Promise<BatchResult> =>
      workOn<string, string | undefined>(resources, order, {
        action: 'ntf-check',
        counters: ['ntfCheckAttempts', 'ntfChecked'],
        obstacleOf({ subscriptionId }, token) {
          if (!isRegistered(token)) return NO_ACTIVE_TOKEN;
          return subscriptionId === null ? NO_SUBSCRIPTION : undefined;
        },
        requestOf: ({ subscriptionId }) => subscriptionId!,
        async ask(ids, token) {
          const answers = await notificationRouter.checkSubscriptions(token!, ids);
          return answers.map((answer): RouterResult<string | undefined> =>
            !answer.ok && isUnknownToNotificationRouter(answer.error)
              ? { ok: true, value: undefined }
              : answer,
          );
        },
        async save(client, { done, token }) {
          const steps = done.map(({ item, value }) => {
            const { isKept, ...step } = stepAfterCheck(value, order.nowMs, subscription.checkIntervalMs);
            const afresh = { notifierId: null, subscriptionId: null, ntfServer: token!.address };
            return { item, isKept, record: { ...item, ...(isKept ? {} : afresh), ...step } };
          });
          const records = steps.map(({ record }) => record);
          await updateRecords(client, order, records);
          const lost = steps.filter(({ isKept }) => !isKept);
          return {
            kicks: lost.map(({ item }) => smpKick(order, item)),
            counted: done.filter(({ value }) => value !== undefined),
          };
        },
      }),

    /** Old records: ends a subscription, then its credentials. */
    runLegacyDeletes: (order: BatchOrder): Promise<BatchResult> =>
      workOn<WorkItem, boolean>(resources, order, {
        ...legacyWork('ntf-delete'),
        async save(client, { done }) {
          const step = { status: 'OFF', action: 'smp-delete', actionMs: order.nowMs } as const;
          const records = done.map(({ item }) => ({ ...item, subscriptionId: null, ...step }));
          await updateRecords(client, order, records);
          return { kicks: done.map(({ item }) => smpKick(order, item)), counted: deletedOf(done) };
        },
      }),

    /** Old records: ends a subscription and its record, and makes another one with that. */
    runLegacyRotations: (order: BatchOrder): Promise<BatchResult> =>
      workOn<WorkItem, boolean>(resources, order, {
        ...legacyWork('ntf-rotate'),
        async save(client, { done }) {
          const connIds = done.map(({ item }) => item.connId);
          await run(client, DELETE_WORKED_RECORDS, [order.agentId, order.claim, connIds]);
          const started = await run<WorkerRow>(client, START_WANTED, [order.agentId, connIds, order.nowMs]);
          return { kicks: workersIn(order.agentId, started), counted: deletedOf(done) };
        },
      }),
  };
}

/** Whether the router of the token knows it, so that it can be asked. */
const isRegistered = (token: TokenRow | undefined): boolean => isGateOpen(token) && token.tokenId !== null;

const deletedOf = (ended: readonly Answered<boolean>[]) => ended.filter(({ value }) => value);

const smpKick = ({ agentId }: BatchOrder, { smpServer: server }: WorkItem): WorkerKey => ({
  agentId,
  pool: 'ntf-smp',
  server,
});

// --- Deletion of tokens ------------------------------------------------------------------------------------------

/** The network phase of a token's deletion: its record outlives the token and every stop of the process, until the router has answered. */
export function createDeletionWork({ db, keyBox, notificationRouter, log, metrics }: SubscriptionResources) {
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
