/**
 * Work of the pool `ntf-ntf`: subscriptions on notification routers. Always on the router of the current token, and with
 * the token as it is at each attempt: a token that was removed meanwhile gets no subscription.
 */
import type { PoolClient } from 'pg';
import type { BatchOrder, BatchOutcome, WorkerKey } from '../../workflows/subscription/contract.ts';
import { isSameServer, isStillSubscribed } from '../../workflows/subscription/rules.ts';
import { inTransaction } from '../transactions.ts';
import { isGateOpen, loadToken, requireEpoch, tokenRefOf } from './agents.ts';
import type { Attempt, Counter, SubscriptionResources } from './batches.ts';
import {
  NO_ACTIVE_TOKEN,
  NO_ANSWER,
  NO_QUEUE,
  count,
  settle,
  unreadableItem,
  whileBeating,
} from './batches.ts';
import type { WorkItem } from './claims.ts';
import { loadWork } from './claims.ts';
import { notifierKeyContext } from './connection-rows.ts';
import { deleteWorkedRecords, updateRecords } from './records.ts';
import { isRetried, isUnknownToNotificationRouter } from './router/errors.ts';
import type { RouterError, RouterResult, TokenRef } from './router/ports.ts';

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

interface Created {
  connId: string;
  item: WorkItem;
  subscriptionId: string;
}

interface Checked {
  connId: string;
  item: WorkItem;
  /** Absent: the router does not know it. */
  status?: string;
}

export interface RotatedOut {
  /** Records that are gone; their connections are to be created again. */
  createIds: string[];
}

export function createNtfWork(resources: SubscriptionResources) {
  const { db, keyBox, notificationRouter, subscription: settings } = resources;

  return {
    /** Subscribes with the notifier credentials of the queues. */
    async runCreates(order: BatchOrder): Promise<BatchOutcome> {
      const { agentId, claim, nowMs } = order;
      const { attempt, token } = await whileBeating(() => createAll(order));
      return settle(resources, order, attempt, async (client, created) => {
        await updateRecords(
          client,
          { agentId, claim },
          created.map(({ connId, item, subscriptionId }) => ({
            connId,
            notifierId: item.notifierId,
            subscriptionId,
            status: 'CREATED NEW',
            ntfServer: token?.address ?? item.ntfServer,
            action: 'ntf-check' as const,
            actionMs: nowMs + settings.firstCheckMs,
          })),
        );
        await countOn(client, order, token, 'ntfCreated', created.map(itemOf));
        // Whoever has that router from now on must hear of the check.
        const moved = created.filter(({ item }) => token && !isSameServer(item.ntfServer, token.address));
        return { kicks: moved.map(() => ({ agentId, pool: 'ntf-ntf' as const, server: token!.address })) };
      });
    },

    /** Asks how subscriptions stand; those that are not alive are made anew, from the key on. */
    async runChecks(order: BatchOrder): Promise<BatchOutcome> {
      const { agentId, claim, nowMs } = order;
      const { attempt, token } = await whileBeating(() => checkAll(order));
      return settle(resources, order, attempt, async (client, checked) => {
        const lost = checked.filter(({ status }) => status === undefined || !isStillSubscribed(status));
        const kept = checked.filter((one) => !lost.includes(one));
        await updateRecords(client, { agentId, claim }, [
          ...kept.map(({ connId, item, status }) => ({
            connId,
            notifierId: item.notifierId,
            subscriptionId: item.subscriptionId,
            status: `CREATED ${status}`,
            ntfServer: item.ntfServer,
            action: 'ntf-check' as const,
            actionMs: nowMs + settings.checkIntervalMs,
          })),
          ...lost.map(({ connId, item }) => ({
            connId,
            notifierId: undefined,
            subscriptionId: undefined,
            status: 'NEW',
            ntfServer: token?.address ?? item.ntfServer,
            action: 'smp-key' as const,
            actionMs: nowMs,
          })),
        ]);
        const answered = checked.filter(({ status }) => status !== undefined);
        await countOn(client, order, token, 'ntfChecked', answered.map(itemOf));
        return { kicks: lost.flatMap(({ item }) => smpKicks(agentId, item)) };
      });
    },

    /** Records of earlier releases: ends a subscription, then its credentials. One at a time. */
    async runLegacyDeletes(order: BatchOrder): Promise<BatchOutcome> {
      const { agentId, claim, nowMs } = order;
      const { attempt, token } = await whileBeating(() => endEach(order, 'ntf-delete'));
      return settle(resources, order, attempt, async (client, ended) => {
        await updateRecords(
          client,
          { agentId, claim },
          ended.map(({ connId, item }) => ({
            connId,
            notifierId: item.notifierId,
            subscriptionId: undefined,
            status: 'OFF',
            ntfServer: item.ntfServer,
            action: 'smp-delete' as const,
            actionMs: nowMs,
          })),
        );
        await countEnded(client, order, token, ended);
        return { kicks: ended.flatMap(({ item }) => smpKicks(agentId, item)) };
      });
    },

    /** Records of earlier releases: ends a subscription and its record, for a Create to follow. One at a time. */
    async runLegacyRotations(order: BatchOrder): Promise<BatchOutcome & RotatedOut> {
      const { agentId, claim } = order;
      const { attempt, token } = await whileBeating(() => endEach(order, 'ntf-rotate'));
      const createIds = attempt.done.map(({ connId }) => connId);
      const outcome = await settle(resources, order, attempt, async (client, ended) => {
        await deleteWorkedRecords(client, { agentId, claim }, createIds);
        await countEnded(client, order, token, ended);
        return { kicks: [] };
      });
      return { ...outcome, createIds };
    },
  };

  async function createAll(order: BatchOrder) {
    const { agentId } = order;
    const attempt: Attempt<Created> = { done: [], failed: [], unreadable: [] };
    const { items, token } = await begin(order, 'ntf-create', 'ntfCreateAttempts', attempt, ({ queue }) =>
      !queue ? NO_QUEUE : queue.credentials ? undefined : NO_CREDENTIALS,
    );
    if (!token) return { attempt, token };
    const ready = items.flatMap((item) => {
      const { connId, smpServer, queue } = item;
      const { notifierId, privateKey } = queue!.credentials!;
      try {
        const key = keyBox.open(privateKey, notifierKeyContext(agentId, notifierId));
        const messagingRouter = smpServer ?? queue!.address;
        return [{ item, request: { messagingRouter, notifierId, notifierPrivateKey: key } }];
      } catch (error) {
        attempt.unreadable.push(unreadableItem(connId, error));
        return [];
      }
    });
    if (ready.length === 0) return { attempt, token };
    const answers = await notificationRouter.createSubscriptions(
      token,
      ready.map(({ request }) => request),
    );
    ready.forEach(({ item }, index) => {
      const answer = answers[index] ?? missing();
      if (answer.ok) attempt.done.push({ connId: item.connId, item, subscriptionId: answer.value });
      else attempt.failed.push({ connId: item.connId, error: answer.error });
    });
    return { attempt, token };
  }

  async function checkAll(order: BatchOrder) {
    const attempt: Attempt<Checked> = { done: [], failed: [], unreadable: [] };
    const { items, token } = await begin(
      order,
      'ntf-check',
      'ntfCheckAttempts',
      attempt,
      ({ subscriptionId }) => (subscriptionId === undefined ? NO_SUBSCRIPTION : undefined),
    );
    if (!token || items.length === 0) return { attempt, token };
    const answers = await notificationRouter.checkSubscriptions(
      token,
      items.map(({ subscriptionId }) => subscriptionId!),
    );
    items.forEach((item, index) => {
      const { connId } = item;
      const answer = answers[index] ?? missing();
      if (answer.ok) attempt.done.push({ connId, item, status: answer.value });
      else if (isUnknownToNotificationRouter(answer.error)) attempt.done.push({ connId, item });
      else attempt.failed.push({ connId, error: answer.error });
    });
    return { attempt, token };
  }

  /** Loads what is to be done, with the token for it, and counts the attempts; the rest has failed for good. */
  async function begin(
    order: BatchOrder,
    action: 'ntf-create' | 'ntf-check',
    counter: Counter,
    attempt: Attempt<unknown>,
    obstacleOf: (item: WorkItem) => RouterError | undefined,
  ): Promise<{ items: WorkItem[]; token: TokenRef | undefined }> {
    const { agentId, epoch, ids } = order;
    return inTransaction(db, async (client) => {
      await requireEpoch(client, agentId, epoch);
      const items = await loadWork(client, order, action, ids);
      const saved = await loadToken(client, agentId);
      const token = isGateOpen(saved) ? tokenRefOf(saved, keyBox, agentId) : undefined;
      attempt.failed = items.flatMap((item) => {
        const error = token ? obstacleOf(item) : NO_ACTIVE_TOKEN;
        return error ? [{ connId: item.connId, error }] : [];
      });
      const failed = new Set(attempt.failed.map(({ connId }) => connId));
      const ready = items.filter(({ connId }) => !failed.has(connId));
      await countOn(client, order, token, counter, ready);
      return { items: ready, token };
    });
  }

  /** Whatever the router says but that it cannot be reached: what it does not know any more is ended as well. */
  async function endEach(order: BatchOrder, action: 'ntf-delete' | 'ntf-rotate') {
    const { agentId, epoch, ids } = order;
    const attempt: Attempt<{ connId: string; item: WorkItem; isDeleted: boolean }> = {
      done: [],
      failed: [],
      unreadable: [],
    };
    const { items, token } = await inTransaction(db, async (client) => {
      await requireEpoch(client, agentId, epoch);
      const items = await loadWork(client, order, action, ids);
      const saved = await loadToken(client, agentId);
      const token = saved && tokenRefOf(saved, keyBox, agentId);
      const asked = token ? items.filter(({ subscriptionId }) => subscriptionId !== undefined) : [];
      await countOn(client, order, token, 'ntfDelAttempts', asked);
      return { items, token };
    });
    for (const item of items) {
      const { connId, subscriptionId } = item;
      const answer =
        token && subscriptionId !== undefined
          ? await notificationRouter.deleteSubscription(token, subscriptionId)
          : undefined;
      if (answer && !answer.ok && isRetried(answer.error))
        attempt.failed.push({ connId, error: answer.error });
      else attempt.done.push({ connId, item, isDeleted: answer?.ok === true });
    }
    return { attempt, token };
  }

  async function countEnded(
    client: PoolClient,
    order: BatchOrder,
    token: TokenRef | undefined,
    ended: readonly { item: WorkItem; isDeleted: boolean }[],
  ): Promise<void> {
    const deleted = ended.filter(({ isDeleted }) => isDeleted);
    await countOn(client, order, token, 'ntfDeleted', deleted.map(itemOf));
  }
}

/** Work on a notification router counts for the router of the token. */
async function countOn(
  client: PoolClient,
  { agentId, server }: BatchOrder,
  token: TokenRef | undefined,
  counter: Counter,
  items: readonly WorkItem[],
): Promise<void> {
  const where = token?.address ?? server;
  await count(
    client,
    agentId,
    counter,
    items.map(({ userId }) => ({ userId, server: where })),
  );
}

const itemOf = ({ item }: { item: WorkItem }): WorkItem => item;

const missing = (): RouterResult<never> => ({ ok: false, error: NO_ANSWER });

function smpKicks(agentId: string, { smpServer }: WorkItem): WorkerKey[] {
  return smpServer ? [{ agentId, pool: 'ntf-smp', server: smpServer }] : [];
}
