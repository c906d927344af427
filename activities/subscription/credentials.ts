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
import { isGateOpen, notifierKeyContext, notifierSecretContext } from '../../api/subscription/rows.ts';
import type { BatchOrder, BatchResult, WorkerKey } from '../../workflows/subscription/contract.ts';
import { isSameServer } from '../../workflows/subscription/rules.ts';
import { columnsOf, inSavepoint, run, saveIsolated } from '../postgres.ts';
import type { Answered, SubscriptionResources } from './batches.ts';
import { NO_ACTIVE_TOKEN, UNUSABLE_KEY, workOn } from './batches.ts';
import { DELETE_WORKED_RECORDS, queueRefOf, updateRecords } from './records.ts';
import type {
  NotifierKeyAnswer,
  NotifierKeyRequest,
  QueueRef,
  RouterError,
  RouterResult,
} from './router/ports.ts';
import { isRetried } from './router/ports.ts';
import { generateAuthKeys, generateDhKeys, secretOrNothing } from './router/keys.ts';

/** The queue is not where the record expects it any more; the next command about its connection starts it over. */
const QUEUE_MOVED: RouterError = {
  source: 'AGENT',
  code: 'QUEUE MOVED',
  detail: 'the queue is on another router than the record',
};

/** Notifier credentials, the private ones sealed. */
interface MadeKey {
  publicKey: string;
  privateKey: Buffer;
  notifierId: string;
  dhSecret: Buffer;
}

export function createCredentialWork(resources: SubscriptionResources) {
  const { keyBox, messagingRouter } = resources;
  return {
    /** Makes notifier credentials and has the notification router subscribe with them next. */
    runKeys: (order: BatchOrder): Promise<BatchResult> =>
      workOn<NotifierKeyRequest, MadeKey>(resources, order, {
        action: 'smp-key',
        counters: ['ntfKeyAttempts', 'ntfKey'],
        undoesOthers: true,
        obstacleOf({ address, smpServer }, token) {
          if (!isGateOpen(token)) return NO_ACTIVE_TOKEN;
          return isSameServer(address, smpServer) ? undefined : QUEUE_MOVED;
        },
        requestOf: (item) => ({
          queue: queueRefOf(keyBox, order.agentId, item),
          auth: generateAuthKeys(),
          dh: generateDhKeys(),
        }),
        async ask(pending) {
          const answers = await messagingRouter.createNotifierKeys(pending);
          return answers.map((answer, index) =>
            answer.ok ? sealCredentials(keyBox, order.agentId, pending[index]!, answer.value) : answer,
          );
        },
        save: (client, { done }) => saveKeys(client, order, done),
      }),

    /**
     * Removes credentials, here first: should the router not answer for long, what is here is right already. Then the
     * record goes, and a deleted connection with it, also when its router refuses for good.
     */
    runDeletes: (order: BatchOrder): Promise<BatchResult> =>
      workOn<{ queue: QueueRef; isDeleted: boolean }, undefined>(resources, order, {
        action: 'smp-delete',
        counters: ['ntfKeyDeleteAttempts', 'ntfKeyDeleted'],
        undoesOthers: true,
        prepare: (client, items) => run(client, CLEAR_CREDENTIALS, [items.map(({ queueId }) => queueId)]),
        requestOf: (item) => ({
          queue: queueRefOf(keyBox, order.agentId, item),
          isDeleted: item.isDeleted,
        }),
        async ask(asked) {
          const answers = await messagingRouter.deleteNotifierKeys(asked.map(({ queue }) => queue));
          // An application deletes its queue first, and the connection then: nothing is left of the notifier.
          return answers.map((answer, index): RouterResult<undefined> =>
            !answer.ok && asked[index]!.isDeleted && isUnknownQueue(answer.error)
              ? { ok: true, value: undefined }
              : answer,
          );
        },
        async save(client, { done, failed }) {
          const removed = done.map(({ item }) => item.connId);
          await run(client, DELETE_WORKED_RECORDS, [order.agentId, order.claim, removed]);
          const refused = failed.flatMap(({ connId, error }) => (isRetried(error) ? [] : [connId]));
          const over = [...removed, ...refused];
          await run(client, REMOVE_DELETED_CONNECTIONS, [order.agentId, over, order.claim]);
          return {};
        },
      }),
  };
}

async function saveKeys(
  client: PoolClient,
  { agentId, claim, nowMs }: BatchOrder,
  made: Answered<MadeKey>[],
) {
  const kept: Answered<MadeKey>[] = [];
  const refused = await saveIsolated(made, async (some) => {
    const step = { status: 'KEY', action: 'ntf-create', actionMs: nowMs } as const;
    const records = some.map(({ item, value: { notifierId } }) => ({
      ...{ ...item, notifierId, subscriptionId: null },
      ...step,
    }));
    await inSavepoint(client, async () => {
      // A record that another claim has by now gets its credentials from that one.
      const ours = new Set(await updateRecords(client, { agentId, claim }, records));
      const mine = some.filter(({ item }) => ours.has(item.connId));
      const credentials = mine.map(({ item, value }) => ({ ...value, queueId: item.queueId }));
      const columns = columnsOf(credentials, 'queueId', 'publicKey', 'privateKey', 'notifierId', 'dhSecret');
      await run(client, SAVE_CREDENTIALS, columns);
      kept.push(...mine);
    });
  });
  return {
    kicks: kept.map<WorkerKey>(({ item }) => ({ agentId, pool: 'ntf-ntf', server: item.ntfServer })),
    counted: kept,
    refused: refused.map(({ item: { item }, reason }) => ({
      connId: item.connId,
      error: { source: 'STORE' as const, code: 'INTERNAL', detail: reason },
    })),
  };
}

const isUnknownQueue = ({ source, code }: RouterError): boolean => source === 'SMP' && code === 'AUTH';

function sealCredentials(
  keyBox: KeyBox,
  agentId: string,
  { auth, dh }: NotifierKeyRequest,
  { notifierId, routerDhPublicKey }: NotifierKeyAnswer,
): RouterResult<MadeKey> {
  const secret = secretOrNothing(routerDhPublicKey, dh.privateKey);
  if (!secret) return { ok: false, error: UNUSABLE_KEY };
  return {
    ok: true,
    value: {
      publicKey: auth.publicKey.toString('base64url'),
      privateKey: keyBox.seal(auth.privateKey, notifierKeyContext(agentId, notifierId)),
      notifierId,
      dhSecret: keyBox.seal(secret, notifierSecretContext(agentId, notifierId)),
    },
  };
}

/** Of connections whose subscriptions have ended, and of those that cannot be ended: $3 the claim of these, if any. */
export const REMOVE_DELETED_CONNECTIONS = {
  name: 'remove_deleted_connections',
  text: `
    DELETE FROM subscriptions.connections AS connection
     WHERE agent_id = $1 AND conn_id = ANY($2::text[]) AND is_deleted
       AND NOT EXISTS (SELECT FROM subscriptions.ntf_subscriptions AS record
                        WHERE (record.agent_id, record.conn_id) = (connection.agent_id, connection.conn_id)
                          AND (claim IS DISTINCT FROM $3 OR generation <> claimed_generation))`,
};

const CLEAR_CREDENTIALS = {
  name: 'clear_notifier_credentials',
  text: `
    UPDATE subscriptions.rcv_queues
       SET ntf_public_key = NULL, ntf_private_key = NULL, ntf_id = NULL, rcv_ntf_dh_secret = NULL
     WHERE queue_id = ANY($1::bigint[])`,
};

const SAVE_CREDENTIALS = {
  name: 'save_notifier_credentials',
  text: `
    UPDATE subscriptions.rcv_queues AS queue
       SET ntf_public_key = made.ntf_public_key, ntf_private_key = made.ntf_private_key, ntf_id = made.ntf_id,
           rcv_ntf_dh_secret = made.rcv_ntf_dh_secret
      FROM unnest($1::bigint[], $2::text[], $3::bytea[], $4::text[], $5::bytea[])
           AS made (queue_id, ntf_public_key, ntf_private_key, ntf_id, rcv_ntf_dh_secret)
     WHERE queue.queue_id = made.queue_id`,
};
