/**
 * Work of the pool `ntf-smp`: notifier credentials on messaging routers.
 *
 * NKEY is not idempotent: each call ends the notifier of the call before. So the call and the saving of what it
 * brought are one attempt of one activity, which is not repeated: after a crash in between, the record still asks for
 * a key, and the next pick-up makes another one with fresh keys. Nobody has used the one that was lost. A call that comes
 * late, when another pick-up has made credentials, ends those: what depends on them is looked at again.
 */
import type { PoolClient } from 'pg';
import type { KeyBox } from '../../api/key-box.ts';
import { notifierKeyContext, notifierSecretContext } from '../../api/subscription/sealed-columns.ts';
import type { BatchOrder, BatchOutcome, WorkerKey } from '../../workflows/subscription/contract.ts';
import { isSameServer, stepAfterKey } from '../../workflows/subscription/rules.ts';
import { inTransaction, run, saveIsolated } from '../transactions.ts';
import { isGateOpen } from './agents.ts';
import type { Attempt, FailedItem, SubscriptionResources } from './batches.ts';
import {
  NO_ACTIVE_TOKEN,
  NO_ANSWER,
  NO_QUEUE,
  UNUSABLE_KEY,
  beginAttempt,
  changeOnRouters,
  countWork,
  finishBatch,
  unreadableItem,
} from './batches.ts';
import type { WorkItem } from './claims.ts';
import { removeDeletedConnections } from './connections.ts';
import type { SealedCredentials, WorkQueue } from './rows.ts';
import { queueRefOf, saveCredentials } from './rows.ts';
import { deleteWorkedRecords, updateRecords } from './records.ts';
import type {
  KeyPair,
  NotifierKeyAnswer,
  NotifierKeyRequest,
  QueueRef,
  RouterError,
} from './router/ports.ts';
import { generateAuthKeys, generateDhKeys, secretOrNothing } from './router/keys.ts';

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
  auth: KeyPair;
  dh: KeyPair;
  item: WithQueue;
  request: NotifierKeyRequest;
}

type WithQueue = WorkItem & { queue: WorkQueue };

export function createCredentialWork(resources: SubscriptionResources) {
  return {
    /** Makes notifier credentials and has the notification router subscribe with them next. */
    async runKeys(order: BatchOrder): Promise<BatchOutcome> {
      const attempt = await changeOnRouters(resources, order, () => makeKeys(resources, order));
      return finishBatch(resources, order, attempt, (client, made) => saveKeys(client, order, made));
    },

    /**
     * Removes credentials, here first: should the router not answer for long, what is here is right already. Then the
     * record goes.
     */
    async runDeletes(order: BatchOrder): Promise<BatchOutcome> {
      const attempt = await changeOnRouters(resources, order, () => removeKeys(resources, order));
      return finishBatch(resources, order, attempt, async (client, removed) => {
        const connIds = removed.map(({ connId }) => connId);
        await deleteWorkedRecords(client, order, connIds);
        await removeDeletedConnections(client, order.agentId, connIds);
        await countWork(client, order.agentId, 'ntfKeyDeleted', removed.map(statisticsOf));
        return { kicks: [] };
      });
    },
  };
}

async function makeKeys(resources: SubscriptionResources, order: BatchOrder): Promise<Attempt<MadeKey>> {
  const { keyBox, messagingRouter } = resources;
  const { agentId } = order;
  const { items, failed } = await beginKeys(resources, order);
  const result: Attempt<MadeKey> = { done: [], failed, unreadable: [] };
  const pending = new Map<NotifierKeyRequest, PendingKey>();
  for (const item of items) {
    try {
      const key = pendingKeyOf(keyBox, agentId, item);
      pending.set(key.request, key);
    } catch (error) {
      result.unreadable.push(unreadableItem(item.connId, error));
    }
  }
  if (pending.size === 0) return result;
  for (const { item: request, result: answer } of await messagingRouter.createNotifierKeys([
    ...pending.keys(),
  ])) {
    const key = pending.get(request);
    if (!key) continue;
    pending.delete(request);
    const { item, auth, dh } = key;
    const sealed = answer.ok ? sealCredentials(keyBox, agentId, { auth, dh }, answer.value) : undefined;
    if (sealed) {
      const credentials = { ...sealed, queueId: item.queue.queueId };
      result.done.push({ connId: item.connId, item, credentials });
    } else result.failed.push({ connId: item.connId, error: answer.ok ? UNUSABLE_KEY : answer.error });
  }
  for (const { item } of pending.values()) result.failed.push({ connId: item.connId, error: NO_ANSWER });
  return result;
}

/** Loads the items that a key can be made for, and counts an attempt at each; the others have failed for good. */
function beginKeys(
  { db }: SubscriptionResources,
  order: BatchOrder,
): Promise<{ items: WithQueue[]; failed: FailedItem[] }> {
  return inTransaction(db, async (client) => {
    const { items, failed } = await beginAttempt(client, order, 'smp-key', (item, token) =>
      isGateOpen(token) ? obstacleOf(item) : NO_ACTIVE_TOKEN,
    );
    await countWork(client, order.agentId, 'ntfKeyAttempts', items.map(statisticsOf));
    return { items: items as WithQueue[], failed };
  });
}

function obstacleOf({ queue, smpServer }: WorkItem): RouterError | undefined {
  if (!queue) return NO_QUEUE;
  return smpServer && isSameServer(queue.address, smpServer) ? undefined : QUEUE_MOVED;
}

/** @throws KeyBoxError when the recipient's key does not open. */
function pendingKeyOf(keyBox: KeyBox, agentId: string, item: WithQueue): PendingKey {
  const queue = queueRefOf(keyBox, agentId, item, item.queue);
  const auth = generateAuthKeys();
  const dh = generateDhKeys();
  const request = { queue, notifierPublicKey: auth.publicKey, recipientDhPublicKey: dh.publicKey };
  return { item, request, auth, dh };
}

async function saveKeys(client: PoolClient, order: BatchOrder, made: readonly MadeKey[]) {
  const { agentId, nowMs } = order;
  const kept: MadeKey[] = [];
  const refused = await saveIsolated(client, made, async (some) => {
    const records = some.map(({ connId, item, credentials }) => ({
      connId,
      notifierId: credentials.notifierId,
      subscriptionId: undefined,
      ntfServer: item.ntfServer,
      ...stepAfterKey(nowMs),
    }));
    // A record that another claim has by now gets its credentials from that one.
    const ours = new Set(await updateRecords(client, order, records));
    const mine = some.filter(({ connId }) => ours.has(connId));
    await saveCredentials(
      client,
      mine.map(({ credentials }) => credentials),
    );
    kept.push(...mine);
  });
  await countWork(
    client,
    agentId,
    'ntfKey',
    kept.map(({ item }) => statisticsOf(item)),
  );
  return {
    kicks: kept.map<WorkerKey>(({ item }) => ({ agentId, pool: 'ntf-ntf', server: item.ntfServer })),
    refused: refused.map(({ item: { connId }, reason }) => ({
      connId,
      error: { source: 'STORE' as const, code: 'INTERNAL', detail: reason },
    })),
  };
}

async function removeKeys(resources: SubscriptionResources, order: BatchOrder): Promise<Attempt<WithQueue>> {
  const { keyBox, messagingRouter } = resources;
  const { items, failed } = await beginRemoval(resources, order);
  const result: Attempt<WithQueue> = { done: [], failed, unreadable: [] };
  const refs = new Map<QueueRef, WithQueue>();
  for (const item of items) {
    try {
      refs.set(queueRefOf(keyBox, order.agentId, item, item.queue), item);
    } catch (error) {
      result.unreadable.push(unreadableItem(item.connId, error));
    }
  }
  if (refs.size === 0) return result;
  for (const { item: ref, result: answer } of await messagingRouter.deleteNotifierKeys([...refs.keys()])) {
    const item = refs.get(ref);
    if (!item) continue;
    refs.delete(ref);
    // An application deletes its queue first, and the connection then: nothing is left of the notifier.
    if (answer.ok || (item.isDeleted && isUnknownQueue(answer.error))) result.done.push(item);
    else result.failed.push({ connId: item.connId, error: answer.error });
  }
  for (const { connId } of refs.values()) result.failed.push({ connId, error: NO_ANSWER });
  return result;
}

const isUnknownQueue = ({ source, code }: RouterError): boolean => source === 'SMP' && code === 'AUTH';

/** Removes credentials here. */
function beginRemoval(
  { db }: SubscriptionResources,
  order: BatchOrder,
): Promise<{ items: WithQueue[]; failed: FailedItem[] }> {
  return inTransaction(db, async (client) => {
    const begun = await beginAttempt(client, order, 'smp-delete', ({ queue }) =>
      queue ? undefined : NO_QUEUE,
    );
    const items = begun.items as WithQueue[];
    await run(client, CLEAR_CREDENTIALS, [items.map(({ queue }) => queue.queueId)]);
    await countWork(client, order.agentId, 'ntfKeyDeleteAttempts', items.map(statisticsOf));
    return { items, failed: begun.failed };
  });
}

const statisticsOf = ({ userId, queue }: WorkItem) => ({ userId, server: queue!.address });

/** @returns undefined when no secret can be agreed with the key of the router. */
function sealCredentials(
  keyBox: KeyBox,
  agentId: string,
  { auth, dh }: Pick<PendingKey, 'auth' | 'dh'>,
  { notifierId, routerDhPublicKey }: NotifierKeyAnswer,
): Omit<SealedCredentials, 'queueId'> | undefined {
  const secret = secretOrNothing(routerDhPublicKey, dh.privateKey);
  if (!secret) return undefined;
  return {
    publicKey: auth.publicKey.toString('base64url'),
    privateKey: keyBox.seal(auth.privateKey, notifierKeyContext(agentId, notifierId)),
    notifierId,
    dhSecret: keyBox.seal(secret, notifierSecretContext(agentId, notifierId)),
  };
}

const CLEAR_CREDENTIALS = {
  name: 'clear_notifier_credentials',
  text: `
    UPDATE subscriptions.rcv_queues
       SET ntf_public_key = NULL, ntf_private_key = NULL, ntf_id = NULL, rcv_ntf_dh_secret = NULL
     WHERE queue_id = ANY($1::bigint[])`,
};
