/**
 * Queues that are not used any more, of deleted connections or after a rotation, are deleted on their routers. The
 * router tells the notifier, so the subscriptions there end with them.
 */
import { query } from '../postgres.ts';
import { inTransaction, run } from '../transactions.ts';
import type { SubscriptionResources } from './batches.ts';
import { unreadableItem, whileBeating } from './batches.ts';
import { queueRefOf } from './connection-rows.ts';
import type { SubscriptionEvent } from './events.ts';
import { announceEvent, errorText, writeEvent } from './events.ts';
import { classOf } from './router/errors.ts';
import type { QueueRef, RouterResult } from './router/ports.ts';

const QUEUES_AT_ONCE = 150;

export function createQueueWork(resources: SubscriptionResources) {
  const { db, log, keyBox, messagingRouter } = resources;

  return {
    /**
     * Deletes queues on their routers. What cannot be reached is left for the next sweep, as is a queue whose key does
     * not open, which is reported once; what a router refuses for good is forgotten and reported, unless it only says
     * that there is no such queue.
     *
     * @returns how many are gone.
     */
    async removeQueues(agentId: string): Promise<number> {
      let removed = 0;
      for (let after = '0'; ;) {
        const rows = await query<DeletedQueueRow>(db, LOAD_DELETED_QUEUES, [agentId, after, QUEUES_AT_ONCE]);
        const last = rows.at(-1);
        if (!last) break;
        after = last.queue_id;
        removed += await removePage(agentId, rows);
        if (rows.length < QUEUES_AT_ONCE) break;
      }
      if (removed > 0) log.info({ agent_id: agentId, queues: removed }, 'queues removed');
      return removed;
    },
  };

  async function removePage(agentId: string, rows: readonly DeletedQueueRow[]): Promise<number> {
    const errors: SubscriptionEvent['errors'] = [];
    const unreadable: string[] = [];
    const gone: string[] = [];
    const queueIds = new Map<QueueRef, string>();
    for (const row of rows) {
      try {
        queueIds.set(refOf(agentId, row), row.queue_id);
      } catch (error) {
        // Its router still has it: the key that opens it may come back.
        if (row.del_failed) continue;
        unreadable.push(row.queue_id);
        errors.push({ connId: row.conn_id, error: errorText(unreadableItem(row.conn_id, error).error) });
      }
    }
    const results = await whileBeating(() => messagingRouter.deleteQueues([...queueIds.keys()]));
    for (const { item, result } of results) {
      if (!isGone(result)) {
        const { error } = result as { error: Parameters<typeof classOf>[0] };
        if (classOf(error) !== 'permanent') continue;
        errors.push({ connId: item.connId, error: errorText(error) });
      }
      gone.push(queueIds.get(item)!);
    }
    const event: SubscriptionEvent = { agentId, kind: 'ERRS', errors };
    await inTransaction(db, async (client) => {
      await run(client, REMOVE_QUEUES, [agentId, gone]);
      if (unreadable.length > 0) await run(client, MARK_UNREADABLE, [unreadable]);
      await writeEvent(client, event);
    });
    announceEvent(resources, event);
    return gone.length;
  }

  function refOf(agentId: string, row: DeletedQueueRow): QueueRef {
    return queueRefOf(
      keyBox,
      agentId,
      { connId: row.conn_id, userId: row.user_id },
      {
        queueId: row.queue_id,
        address: { host: row.host, port: row.port, keyHash: row.key_hash },
        recipientId: row.rcv_id,
        recipientPrivateKey: row.rcv_private_key,
      },
    );
  }
}

function isGone(result: RouterResult<undefined>): boolean {
  return result.ok || (result.error.source === 'SMP' && result.error.code === 'AUTH');
}

interface DeletedQueueRow {
  queue_id: string;
  conn_id: string;
  user_id: number;
  host: string;
  port: number;
  key_hash: string;
  rcv_id: string;
  rcv_private_key: Buffer;
  del_failed: boolean;
}

const LOAD_DELETED_QUEUES = {
  name: 'load_deleted_rcv_queues',
  text: `
    SELECT queue.queue_id::text, queue.conn_id, connection.user_id, queue.host, queue.port,
           coalesce(queue.server_key_hash, server.key_hash) AS key_hash, queue.rcv_id, queue.rcv_private_key,
           queue.del_failed
      FROM subscriptions.rcv_queues AS queue
      JOIN subscriptions.smp_servers AS server USING (agent_id, host, port)
      JOIN subscriptions.connections AS connection USING (agent_id, conn_id)
     WHERE queue.agent_id = $1 AND queue.is_deleted AND queue.queue_id > $2::bigint
     ORDER BY queue.queue_id
     LIMIT $3`,
};

const MARK_UNREADABLE = {
  name: 'mark_unreadable_rcv_queues',
  text: 'UPDATE subscriptions.rcv_queues SET del_failed = true WHERE queue_id = ANY($1::bigint[])',
};

/** Connections that were deleted go with their last queue. */
const REMOVE_QUEUES = {
  name: 'remove_rcv_queues',
  text: `
    WITH removed AS (
      DELETE FROM subscriptions.rcv_queues WHERE queue_id = ANY($2::bigint[])
      RETURNING queue_id
    )
    DELETE FROM subscriptions.connections AS connection
     WHERE agent_id = $1 AND is_deleted
       AND NOT EXISTS (SELECT FROM subscriptions.rcv_queues AS queue
                        WHERE queue.agent_id = $1 AND queue.conn_id = connection.conn_id
                          AND queue.queue_id <> ALL($2::bigint[]))`,
};
