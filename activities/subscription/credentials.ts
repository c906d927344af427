/**
 * Work of the pool `ntf-smp`: notifier credentials on messaging routers.
 *
 * NKEY is not idempotent: each call ends the notifier of the call before. So the call and the saving of what it
 * brought are one attempt of one activity, which is not repeated: after a crash in between, the record still asks for
 * a key, and the next pick-up makes another one with fresh keys. The lost one was never used. A call that comes
 * late, when another pick-up has made credentials, ends those: what depends on them is looked at again.
 */
import type { PoolClient } from 'pg';
import type { KeyBox } from '../../api/key-box.ts';
import { notifierKeyContext, notifierSecretContext } from '../../api/subscription/sealed-columns.ts';
import type { BatchOrder, BatchOutcome, WorkerKey } from '../../workflows/subscription/contract.ts';
import { isSameServer, stepAfterKey } from '../../workflows/subscription/rules.ts';
import { inTransaction, run, saveIsolated } from '../transactions.ts';
import { isGateOpen } from './agents.ts';
import type { Answered, Attempt, Begun, SubscriptionResources } from './batches.ts';
import {
  NO_ACTIVE_TOKEN,
  UNUSABLE_KEY,
  askAbout,
  beginAttempt,
  changeOnRouters,
  countWork,
  finishBatch,
} from './batches.ts';
import type { WorkItem } from './claims.ts';
import type { SealedCredentials } from './rows.ts';
import { queueRefOf, saveCredentials } from './rows.ts';
import { deleteWorkedRecords, updateRecords } from './records.ts';
import type {
  ItemResult,
  KeyPair,
  NotifierKeyAnswer,
  NotifierKeyRequest,
  RouterError,
  RouterResult,
} from './router/ports.ts';
import { classOf } from './router/ports.ts';
import { generateAuthKeys, generateDhKeys, secretOrNothing } from './router/keys.ts';

/** The queue that a Create found is not where the record expects it any more; the next Create starts it over. */
const QUEUE_MOVED: RouterError = {
  source: 'AGENT',
  code: 'QUEUE MOVED',
  detail: 'the queue is on another router than the record',
};

type MadeKey = Answered<Omit<SealedCredentials, 'queueId'>>;

interface PendingKey {
  auth: KeyPair;
  dh: KeyPair;
  request: NotifierKeyRequest;
}

export function createCredentialWork(resources: SubscriptionResources) {
  return {
    /** Makes notifier credentials and has the notification router subscribe with them next. */
    async runKeys(order: BatchOrder): Promise<BatchOutcome> {
      const attempt = await changeOnRouters(resources, order, () => makeKeys(resources, order));
      return finishBatch(resources, order, attempt, (client, made) => saveKeys(client, order, made));
    },

    /**
     * Removes credentials, here first: should the router not answer for long, what is here is right already. Then the
     * record goes, and a deleted connection with it, also when its router refuses for good.
     */
    async runDeletes(order: BatchOrder): Promise<BatchOutcome> {
      const attempt = await changeOnRouters(resources, order, () => removeKeys(resources, order));
      return finishBatch(resources, order, attempt, async (client, removed) => {
        await deleteWorkedRecords(
          client,
          order,
          removed.map(({ connId }) => connId),
        );
        const over = [...removed, ...attempt.failed.filter(({ error }) => classOf(error) === 'permanent')];
        await run(client, REMOVE_DELETED_CONNECTIONS, [
          ...[order.agentId, over.map(({ connId }) => connId), order.claim],
        ]);
        const items = removed.map(({ item }) => statisticsOf(item));
        await countWork(client, order.agentId, 'ntfKeyDeleted', items);
        return { kicks: [] };
      });
    },
  };
}

async function makeKeys(resources: SubscriptionResources, order: BatchOrder): Promise<Attempt<MadeKey>> {
  const { keyBox, messagingRouter } = resources;
  const { agentId } = order;
  return askAbout(
    await beginKeys(resources, order),
    (item) => pendingKeyOf(keyBox, agentId, item),
    async (pending) => {
      const requests = pending.map(({ request }) => request);
      const answers = inOrder(requests, await messagingRouter.createNotifierKeys(requests));
      return answers.map((answer, index) => {
        if (!answer?.ok) return answer;
        const value = sealCredentials(keyBox, agentId, pending[index]!, answer.value);
        return value ? { ok: true, value } : { ok: false, error: UNUSABLE_KEY };
      });
    },
  );
}

/** The answers of a router, which may come in another order than the requests. */
function inOrder<Item, Value>(
  items: readonly Item[],
  results: readonly ItemResult<Item, Value>[],
): (RouterResult<Value> | undefined)[] {
  const byItem = new Map(results.map(({ item, result }) => [item, result]));
  return items.map((item) => byItem.get(item));
}

/** Loads the items that a key can be made for, and counts an attempt at each; the others have failed for good. */
function beginKeys({ db }: SubscriptionResources, order: BatchOrder): Promise<Begun> {
  return inTransaction(db, async (client) => {
    const begun = await beginAttempt(client, order, 'smp-key', (item, token) =>
      isGateOpen(token) ? obstacleOf(item) : NO_ACTIVE_TOKEN,
    );
    await countWork(client, order.agentId, 'ntfKeyAttempts', begun.items.map(statisticsOf));
    return begun;
  });
}

function obstacleOf({ queue, smpServer }: WorkItem): RouterError | undefined {
  return isSameServer(queue.address, smpServer) ? undefined : QUEUE_MOVED;
}

/** @throws KeyBoxError when the recipient's key does not open. */
function pendingKeyOf(keyBox: KeyBox, agentId: string, item: WorkItem): PendingKey {
  const queue = queueRefOf(keyBox, agentId, item, item.queue);
  const auth = generateAuthKeys();
  const dh = generateDhKeys();
  const request = { queue, notifierPublicKey: auth.publicKey, recipientDhPublicKey: dh.publicKey };
  return { request, auth, dh };
}

async function saveKeys(client: PoolClient, order: BatchOrder, made: readonly MadeKey[]) {
  const { agentId, nowMs } = order;
  const kept: MadeKey[] = [];
  const refused = await saveIsolated(client, made, async (some) => {
    const records = some.map(({ connId, item, value }) => ({
      connId,
      notifierId: value.notifierId,
      subscriptionId: undefined,
      ntfServer: item.ntfServer,
      ...stepAfterKey(nowMs),
    }));
    // A record that another claim has by now gets its credentials from that one.
    const ours = new Set(await updateRecords(client, order, records));
    const mine = some.filter(({ connId }) => ours.has(connId));
    await saveCredentials(
      client,
      mine.map(({ item, value }) => ({ ...value, queueId: item.queue.queueId })),
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

async function removeKeys(
  resources: SubscriptionResources,
  order: BatchOrder,
): Promise<Attempt<Answered<undefined>>> {
  const { keyBox, messagingRouter } = resources;
  return askAbout(
    await beginRemoval(resources, order),
    (item) => queueRefOf(keyBox, order.agentId, item, item.queue),
    async (refs, items) => {
      const answers = inOrder(refs, await messagingRouter.deleteNotifierKeys(refs));
      // An application deletes its queue first, and the connection then: nothing is left of the notifier.
      return answers.map((answer, index) =>
        answer?.ok === false && items[index]!.isDeleted && isUnknownQueue(answer.error)
          ? { ok: true, value: undefined }
          : answer,
      );
    },
  );
}

const isUnknownQueue = ({ source, code }: RouterError): boolean => source === 'SMP' && code === 'AUTH';

/** Removes credentials here. */
function beginRemoval({ db }: SubscriptionResources, order: BatchOrder): Promise<Begun> {
  return inTransaction(db, async (client) => {
    const begun = await beginAttempt(client, order, 'smp-delete', () => undefined);
    await run(client, CLEAR_CREDENTIALS, [begun.items.map(({ queue }) => queue.queueId)]);
    await countWork(client, order.agentId, 'ntfKeyDeleteAttempts', begun.items.map(statisticsOf));
    return begun;
  });
}

const statisticsOf = ({ userId, queue }: WorkItem) => ({ userId, server: queue.address });

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

/** Of connections whose subscriptions have ended, and of those that cannot be ended: $3 the claim of these. */
const REMOVE_DELETED_CONNECTIONS = {
  name: 'remove_deleted_connections',
  text: `
    DELETE FROM subscriptions.connections AS connection
     WHERE agent_id = $1 AND conn_id = ANY($2::text[]) AND is_deleted
       AND NOT EXISTS (SELECT FROM subscriptions.ntf_subscriptions AS record
                        WHERE (record.agent_id, record.conn_id) = (connection.agent_id, connection.conn_id)
                          AND (claim <> $3 OR generation <> claimed_generation))`,
};

const CLEAR_CREDENTIALS = {
  name: 'clear_notifier_credentials',
  text: `
    UPDATE subscriptions.rcv_queues
       SET ntf_public_key = NULL, ntf_private_key = NULL, ntf_id = NULL, rcv_ntf_dh_secret = NULL
     WHERE queue_id = ANY($1::bigint[])`,
};
