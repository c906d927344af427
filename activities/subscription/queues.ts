/**
 * Work of the pool `smp-que-del`: queues of deleted connections are deleted on their router, which tells the notifier, so
 * that the subscriptions there end with them. Of an imported queue only the notifier is deleted: the application keeps it.
 */
import type { BatchOrder, BatchOutcome } from '../../workflows/subscription/contract.ts';
import { query } from '../postgres.ts';
import { inTransaction, run } from '../transactions.ts';
import { requireEpoch } from './agents.ts';
import type { SubscriptionResources } from './batches.ts';
import { unreadableItem, whileBeating } from './batches.ts';
import { queueRefOf } from './connection-rows.ts';
import type { SubscriptionEvent } from './events.ts';
import { announceEvent, errorText, relayEventsIfPossible, writeEvent } from './events.ts';
import { classOf } from './router/errors.ts';
import type { QueueRef, RouterError } from './router/ports.ts';
import type { AddressRow } from './router-rows.ts';
import { addressOf } from './router-rows.ts';

export function createQueueWork(resources: SubscriptionResources) {
  const { db, log, keyBox, metrics, messagingRouter } = resources;

  return {
    /**
     * Deletes queues, or notifiers of imported ones, on their router. What cannot be reached is tried again; what a router refuses for good is
     * forgotten and reported, unless it only says that there is no such queue. A queue whose key does not open is reported
     * once and stays: its router still has it, and the sweep looks whether the key has come back.
     */
    async runQueueDeletions(order: BatchOrder): Promise<BatchOutcome> {
      const { agentId, epoch, server, kind } = order;
      const rows = await query<DeletedQueueRow>(db, LOAD_DELETED_QUEUES, [agentId, order.ids]);
      const errors: SubscriptionEvent['errors'] = [];
      const gone: string[] = [];
      const unreadable: string[] = [];
      const retryIds: string[] = [];
      const queueIds = new Map<QueueRef, string>();
      const [own, imported]: [QueueRef[], QueueRef[]] = [[], []];
      for (const row of rows) {
        try {
          const ref = refOf(agentId, row);
          queueIds.set(ref, row.queue_id);
          (row.is_imported ? imported : own).push(ref);
        } catch (error) {
          // Its router still has it: the key that opens it may come back.
          unreadable.push(row.queue_id);
          errors.push({ connId: row.conn_id, error: errorText(unreadableItem(row.conn_id, error).error) });
        }
      }
      const results = await whileBeating(() =>
        Promise.all([messagingRouter.deleteQueues(own), messagingRouter.deleteNotifierKeys(imported)]),
      );
      for (const { item, result } of results.flat()) {
        const queueId = queueIds.get(item)!;
        if (result.ok || isUnknown(result.error)) gone.push(queueId);
        else if (classOf(result.error) !== 'permanent') retryIds.push(queueId);
        else {
          errors.push({ connId: item.connId, error: errorText(result.error) });
          gone.push(queueId);
        }
      }
      const event: SubscriptionEvent = { agentId, kind: 'ERRS', errors };
      await inTransaction(db, async (client) => {
        await requireEpoch(client, agentId, epoch);
        await run(client, REMOVE_QUEUES, [agentId, gone]);
        if (unreadable.length > 0) await run(client, MARK_UNREADABLE, [unreadable]);
        await writeEvent(client, event);
      });
      // What could not be read is reported, too, and is not gone.
      const done = gone.length - (errors.length - unreadable.length);
      const counts = { done, retry: retryIds.length, given_up: errors.length };
      for (const result of ['done', 'retry', 'given_up'] as const) {
        metrics.subscriptionWork(counts[result], { kind, result });
      }
      log[retryIds.length > 0 ? 'warn' : 'info'](
        { agent_id: agentId, server: `${server.host}:${server.port}`, ...counts },
        'deleted queues worked on',
      );
      announceEvent(resources, event);
      if (errors.length > 0) await relayEventsIfPossible(resources);
      return { retryIds, unkicked: [] };
    },
  };

  function refOf(agentId: string, row: DeletedQueueRow): QueueRef {
    return queueRefOf(
      keyBox,
      agentId,
      { connId: row.conn_id, userId: row.user_id },
      {
        queueId: row.queue_id,
        address: addressOf(row),
        recipientId: row.rcv_id,
        recipientPrivateKey: row.rcv_private_key,
      },
    );
  }
}

/** The router does not know the queue: an earlier request arrived. */
function isUnknown({ source, code }: RouterError): boolean {
  return source === 'SMP' && code === 'AUTH';
}

interface DeletedQueueRow extends AddressRow {
  queue_id: string;
  conn_id: string;
  user_id: number;
  rcv_id: string;
  rcv_private_key: Buffer;
  is_imported: boolean;
}

const LOAD_DELETED_QUEUES = {
  name: 'load_deleted_rcv_queues',
  text: `
    SELECT queue.queue_id::text, queue.conn_id, connection.user_id, queue.host, queue.port,
           coalesce(queue.server_key_hash, server.key_hash) AS key_hash, queue.rcv_id,
           queue.rcv_private_key, queue.is_imported
      FROM subscriptions.rcv_queues AS queue
      JOIN subscriptions.smp_servers AS server USING (agent_id, host, port)
      JOIN subscriptions.connections AS connection USING (agent_id, conn_id)
     WHERE queue.agent_id = $1 AND queue.is_deleted AND queue.queue_id = ANY($2::bigint[])
     ORDER BY queue.queue_id`,
};

const MARK_UNREADABLE = {
  name: 'mark_unreadable_rcv_queues',
  text: 'UPDATE subscriptions.rcv_queues SET del_failed = true WHERE queue_id = ANY($1::bigint[])',
};

/**
 * Connections that were deleted go with their last queue. Of two batches that have one of the last two each, either sees
 * the queue of the other: what they leave is among the first that are looked at besides.
 */
const REMOVE_QUEUES = {
  name: 'remove_rcv_queues',
  text: `
    WITH removed AS (
      DELETE FROM subscriptions.rcv_queues WHERE queue_id = ANY($2::bigint[])
      RETURNING conn_id
    ), looked_at AS (
      SELECT conn_id FROM removed
       UNION
      (SELECT conn_id FROM subscriptions.connections
        WHERE agent_id = $1 AND is_deleted
        ORDER BY conn_id
        LIMIT 100)
    )
    DELETE FROM subscriptions.connections AS connection
     USING looked_at
     WHERE agent_id = $1 AND connection.conn_id = looked_at.conn_id AND is_deleted
       AND NOT EXISTS (SELECT FROM subscriptions.rcv_queues AS queue
                        WHERE queue.agent_id = $1 AND queue.conn_id = connection.conn_id
                          AND queue.queue_id <> ALL($2::bigint[]))`,
};
