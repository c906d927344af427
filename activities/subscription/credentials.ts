/**
 * Work of the pool `ntf-smp`: notifier credentials on messaging routers.
 *
 * NKEY is not idempotent: each call ends the notifier of the call before. So the call and the saving of what it brought
 * are one attempt of one activity, which is not repeated: after a crash in between, the record still asks for a key, and
 * the next pick-up makes another one with fresh keys. Nobody has used the one that was lost.
 */
import type { PoolClient } from 'pg';
import type { BatchOrder, BatchOutcome, WorkerKey } from '../../workflows/subscription/contract.ts';
import { isSameServer } from '../../workflows/subscription/rules.ts';
import { inTransaction, saveIsolated } from '../transactions.ts';
import { isGateOpen, loadToken, requireEpoch } from './agents.ts';
import type { Attempt, SubscriptionResources } from './batches.ts';
import {
  NO_ACTIVE_TOKEN,
  NO_ANSWER,
  NO_QUEUE,
  UNUSABLE_KEY,
  count,
  secretOrNothing,
  settle,
  unreadableItem,
  whileBeating,
} from './batches.ts';
import type { WorkItem } from './claims.ts';
import { loadWork } from './claims.ts';
import type { SealedCredentials, WorkQueue } from './connection-rows.ts';
import {
  clearCredentials,
  notifierKeyContext,
  notifierSecretContext,
  queueRefOf,
  saveCredentials,
} from './connection-rows.ts';
import { deleteWorkedRecords, updateRecords } from './records.ts';
import type { NotifierKeyAnswer, NotifierKeyRequest, QueueRef, RouterError } from './router/ports.ts';
import { generateAuthKeys, generateDhKeys } from './router/signing.ts';

/** The queue that a Create found is not where the record expects it any more; the next Create starts it over. */
const QUEUE_MOVED: RouterError = {
  source: 'AGENT',
  code: 'QUEUE MOVED',
  detail: 'the queue is on another router than the record',
};

interface MadeKey {
  connId: string;
  item: WorkItem;
  credentials: SealedCredentials;
}

interface PendingKey {
  item: WorkItem;
  queue: WorkQueue;
  request: NotifierKeyRequest;
  authPrivateKey: Buffer;
  dhPrivateKey: Buffer;
}

type WithQueue = WorkItem & { queue: WorkQueue };

export function createSmpWork(resources: SubscriptionResources) {
  const { db, keyBox, messagingRouter } = resources;

  return {
    /** Makes notifier credentials and has the notification router subscribe with them next. */
    async runKeys(order: BatchOrder): Promise<BatchOutcome> {
      const attempt = await whileBeating(() => makeKeys(order));
      return settle(resources, order, attempt, (client, made) => saveKeys(client, order, made));
    },

    /**
     * Removes credentials, here first: should the router not answer for long, what is here is right already. Then the
     * record goes.
     */
    async runDeletes(order: BatchOrder): Promise<BatchOutcome> {
      const attempt = await whileBeating(() => removeKeys(order));
      return settle(resources, order, attempt, async (client, removed) => {
        const { agentId, claim } = order;
        await deleteWorkedRecords(
          client,
          { agentId, claim },
          removed.map(({ connId }) => connId),
        );
        await count(client, agentId, 'ntfKeyDeleted', removed.map(statisticsOf));
        return { kicks: [] };
      });
    },
  };

  async function makeKeys(order: BatchOrder): Promise<Attempt<MadeKey>> {
    const { agentId } = order;
    const result: Attempt<MadeKey> = { done: [], failed: [], unreadable: [] };
    const pending = await inTransaction(db, async (client) => {
      await requireEpoch(client, agentId, order.epoch);
      const items = await loadWork(client, order, 'smp-key', order.ids);
      if (!isGateOpen(await loadToken(client, agentId))) {
        result.failed = items.map(({ connId }) => ({ connId, error: NO_ACTIVE_TOKEN }));
        return [];
      }
      result.failed = items.flatMap(({ connId, queue, smpServer }) => {
        if (!queue) return [{ connId, error: NO_QUEUE }];
        const isThere = smpServer !== undefined && isSameServer(queue.address, smpServer);
        return isThere ? [] : [{ connId, error: QUEUE_MOVED }];
      });
      const failed = new Set(result.failed.map(({ connId }) => connId));
      const ready = items.filter((item): item is WithQueue => !failed.has(item.connId));
      await count(client, agentId, 'ntfKeyAttempts', ready.map(statisticsOf));
      return ready;
    });
    const requests = new Map<NotifierKeyRequest, PendingKey>();
    for (const item of pending) {
      try {
        const key = pendingKey(agentId, item);
        requests.set(key.request, key);
      } catch (error) {
        result.unreadable.push(unreadableItem(item.connId, error));
      }
    }
    if (requests.size === 0) return result;
    const answers = await messagingRouter.createNotifierKeys([...requests.keys()]);
    for (const { item: request, result: answer } of answers) {
      const key = requests.get(request);
      if (!key) continue;
      requests.delete(request);
      const { connId } = key.item;
      const credentials = answer.ok ? seal(agentId, key, answer.value) : undefined;
      if (credentials) result.done.push({ connId, item: key.item, credentials });
      else result.failed.push({ connId, error: answer.ok ? UNUSABLE_KEY : answer.error });
    }
    for (const { item } of requests.values()) result.failed.push({ connId: item.connId, error: NO_ANSWER });
    return result;
  }

  function pendingKey(agentId: string, item: WithQueue): PendingKey {
    const queue = queueRefOf(keyBox, agentId, item, item.queue);
    const auth = generateAuthKeys();
    const dh = generateDhKeys();
    return {
      item,
      queue: item.queue,
      request: { queue, notifierPublicKey: auth.publicKey, recipientDhPublicKey: dh.publicKey },
      authPrivateKey: auth.privateKey,
      dhPrivateKey: dh.privateKey,
    };
  }

  /** @returns undefined when no secret can be agreed with the key of the router. */
  function seal(agentId: string, key: PendingKey, answer: NotifierKeyAnswer): SealedCredentials | undefined {
    const { notifierId, routerDhPublicKey } = answer;
    const secret = secretOrNothing(routerDhPublicKey, key.dhPrivateKey);
    if (!secret) return undefined;
    return {
      queueId: key.queue.queueId,
      publicKey: key.request.notifierPublicKey.toString('base64url'),
      privateKey: keyBox.seal(key.authPrivateKey, notifierKeyContext(agentId, notifierId)),
      notifierId,
      dhSecret: keyBox.seal(secret, notifierSecretContext(agentId, notifierId)),
    };
  }

  async function saveKeys(client: PoolClient, order: BatchOrder, made: readonly MadeKey[]) {
    const { agentId, claim, nowMs } = order;
    const kept: MadeKey[] = [];
    const refused = await saveIsolated(client, made, async (some) => {
      // Credentials of a record that somebody else has by now are that one's to make.
      const ours = new Set(
        await updateRecords(
          client,
          { agentId, claim },
          some.map(({ connId, item, credentials }) => ({
            connId,
            notifierId: credentials.notifierId,
            subscriptionId: undefined,
            status: 'KEY',
            ntfServer: item.ntfServer,
            action: 'ntf-create' as const,
            actionMs: nowMs,
          })),
        ),
      );
      const mine = some.filter(({ connId }) => ours.has(connId));
      await saveCredentials(
        client,
        mine.map(({ credentials }) => credentials),
      );
      kept.push(...mine);
    });
    await count(
      client,
      agentId,
      'ntfKey',
      kept.map(({ item }) => statisticsOf(item)),
    );
    const kicks = kept.map<WorkerKey>(({ item }) => ({ agentId, pool: 'ntf-ntf', server: item.ntfServer }));
    return {
      kicks,
      refused: refused.map(({ item: { connId }, reason }) => ({
        connId,
        error: { source: 'STORE' as const, code: 'INTERNAL', detail: reason },
      })),
    };
  }

  async function removeKeys(order: BatchOrder): Promise<Attempt<WithQueue>> {
    const { agentId } = order;
    const result: Attempt<WithQueue> = { done: [], failed: [], unreadable: [] };
    const ready = await inTransaction(db, async (client) => {
      await requireEpoch(client, agentId, order.epoch);
      const items = await loadWork(client, order, 'smp-delete', order.ids);
      const withQueue = items.filter((item): item is WithQueue => item.queue !== undefined);
      result.failed = items
        .filter(({ queue }) => queue === undefined)
        .map(({ connId }) => ({ connId, error: NO_QUEUE }));
      await clearCredentials(
        client,
        withQueue.map(({ queue }) => queue.queueId),
      );
      await count(client, agentId, 'ntfKeyDeleteAttempts', withQueue.map(statisticsOf));
      return withQueue;
    });
    const refs = new Map<QueueRef, WithQueue>();
    for (const item of ready) {
      try {
        refs.set(queueRefOf(keyBox, agentId, item, item.queue), item);
      } catch (error) {
        result.unreadable.push(unreadableItem(item.connId, error));
      }
    }
    if (refs.size === 0) return result;
    for (const { item: ref, result: answer } of await messagingRouter.deleteNotifierKeys([...refs.keys()])) {
      const item = refs.get(ref);
      if (!item) continue;
      refs.delete(ref);
      if (answer.ok) result.done.push(item);
      else result.failed.push({ connId: item.connId, error: answer.error });
    }
    for (const { connId } of refs.values()) result.failed.push({ connId, error: NO_ANSWER });
    return result;
  }
}

const statisticsOf = ({ userId, queue }: WorkItem) => ({ userId, server: queue!.address });
