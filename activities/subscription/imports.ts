/** Queues that an application has already are taken over, with their keys; see api/subscription/queue-import.ts. */
import {
  messageSecretContext,
  notifierKeyContext,
  notifierSecretContext,
  recipientKeyContext,
} from '../../api/subscription/sealed-columns.ts';
import type { PoolClient } from 'pg';
import { ZodError } from 'zod';
import { KeyBoxError } from '../../api/key-box.ts';
import type { QueueToImport } from '../../api/subscription/queue-import.ts';
import { openImport } from '../../api/subscription/queue-import.ts';
import type { ImportedConnection } from '../../workflows/subscription/contract.ts';
import { query } from '../postgres.ts';
import { inTransaction, run } from '../transactions.ts';
import { isGateOpen, loadToken } from './agents.ts';
import type { SubscriptionResources } from './batches.ts';
import { INSERT_CONNECTION, INSERT_QUEUE, saveCredentials } from './connection-rows.ts';
import type { Changed } from './connections.ts';
import { INSERT_SMP_SERVER, routerValues } from './router-rows.ts';

export function createImportWork({ db, log, keyBox }: SubscriptionResources) {
  return {
    /**
     * Makes connections of the queues in a request. Their routers are not asked: a fingerprint that differs from the one
     * that is known stays with its queue. A repetition finds what the first attempt has made.
     *
     * @returns a text when there is no such request, or it cannot be read.
     */
    async importConnections(
      agentId: string,
      requestId: string,
    ): Promise<Changed<ImportedConnection[]> | string> {
      const [request] = await query<{ sealed: Buffer }>(db, LOAD_IMPORT, [requestId, agentId]);
      if (!request) return 'there is no such import';
      let queues: QueueToImport[];
      try {
        queues = openImport(keyBox, requestId, request.sealed);
      } catch (error) {
        if (error instanceof KeyBoxError) return error.message;
        if (error instanceof ZodError) return 'the import was written by another release';
        throw error;
      }
      const result: ImportedConnection[] = [];
      for (const queue of queues)
        result.push(await inTransaction(db, (client) => save(client, agentId, queue)));
      const made = new Set(result.flatMap((one) => ('connId' in one ? [one.connId] : [])));
      const isOpen = isGateOpen(await loadToken(db, agentId));
      const wanted = queues.filter(
        ({ connId, enableNotifications = true }) => enableNotifications && made.has(connId),
      );
      log.info({ agent_id: agentId, asked: queues.length, made: made.size }, 'connections imported');
      const connIds = wanted.map(({ connId }) => connId);
      return { result, commands: isOpen && connIds.length > 0 ? [{ kind: 'create', connIds }] : [] };
    },
  };

  async function save(
    client: PoolClient,
    agentId: string,
    queue: QueueToImport,
  ): Promise<ImportedConnection> {
    const { connId, userId, server, enableNotifications = true, recipientId, senderId, notifier } = queue;
    const { host, port, keyHash } = server;
    const values = [agentId, connId, host, port, recipientId, notifier?.notifierId ?? null];
    const [known] = await run<KnownRow>(client, FIND_KNOWN, values);
    if (known?.is_same) return { connId, hasCredentials: known.has_credentials };
    if (known && known.agent_id !== agentId)
      return { error: `${connId}: agent ${known.agent_id} has the queue already` };
    if (known)
      return { error: `${connId}: the ${known.conn_id === connId ? 'connection' : 'queue'} exists already` };
    await run(client, INSERT_SMP_SERVER, routerValues(agentId, server));
    await run(client, INSERT_CONNECTION, [agentId, connId, userId, enableNotifications]);
    const [row] = await run<{ queue_id: string }>(client, INSERT_QUEUE, [
      ...[agentId, connId, host, port, keyHash, recipientId, senderId ?? null],
      seal(queue.recipientPrivateKey, recipientKeyContext(agentId, recipientId)),
      queue.dhSecret === undefined ? null : seal(queue.dhSecret, messageSecretContext(agentId, recipientId)),
    ]);
    if (notifier) {
      const { notifierId, publicKey, privateKey, dhSecret } = notifier;
      await saveCredentials(client, [
        {
          queueId: row!.queue_id,
          notifierId,
          publicKey,
          privateKey: seal(privateKey, notifierKeyContext(agentId, notifierId)),
          dhSecret: seal(dhSecret, notifierSecretContext(agentId, notifierId)),
        },
      ]);
    }
    return { connId, hasCredentials: notifier !== undefined };
  }

  function seal(plain: string, context: string): Buffer {
    return keyBox.seal(Buffer.from(plain, 'base64url'), context);
  }
}

interface KnownRow {
  agent_id: string;
  conn_id: string;
  /** It is this connection, with this queue. */
  is_same: boolean;
  has_credentials: boolean;
}

const LOAD_IMPORT = {
  name: 'load_queue_import',
  text: 'SELECT sealed FROM subscriptions.queue_imports WHERE request_id = $1 AND agent_id = $2',
};

/** The first condition is what the indexes find, the second one which queue of it. The queue of another agent counts, too. */
const FIND_KNOWN = {
  name: 'find_known_queue',
  text: `
    SELECT agent_id, connection.conn_id, queue.ntf_id IS NOT NULL AS has_credentials,
           connection.conn_id = $2 AND (queue.host, queue.port, queue.rcv_id) IS NOT DISTINCT FROM ($3, $4::int, $5)
             AND NOT connection.is_deleted AS is_same
      FROM subscriptions.connections AS connection
      LEFT JOIN subscriptions.rcv_queues AS queue USING (agent_id, conn_id)
     WHERE agent_id = $1
       AND connection.conn_id = ANY (ARRAY(
             SELECT $2
             UNION ALL
             SELECT conn_id FROM subscriptions.rcv_queues
              WHERE (agent_id, host, port, rcv_id) = ($1, $3, $4::int, $5)
             UNION ALL
             SELECT conn_id FROM subscriptions.rcv_queues
              WHERE (agent_id, host, port, ntf_id) = ($1, $3, $4::int, $6)))
       AND (connection.conn_id = $2
            OR (queue.host, queue.port) = ($3, $4::int) AND (queue.rcv_id = $5 OR queue.ntf_id = $6))
     UNION ALL
    SELECT agent_id, conn_id, false, false
      FROM subscriptions.rcv_queues
     WHERE (rcv_id, host, port) = ($5, $3, $4::int) AND agent_id <> $1
     ORDER BY is_same DESC
     LIMIT 1`,
};
