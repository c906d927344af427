/**
 * Connections and their queues, as operators change and import them. Each change is one transaction, and returns the commands that
 * follow from it, which the supervisor queues. Creates and smp-deletes follow only when the instant gate is open.
 */
import { Context } from '@temporalio/activity';
import type {
  Command,
  DeletedConnections,
  ToggleConnections,
  ToggledConnections,
  ImportedConnection,
} from '../../workflows/subscription/contract.ts';
import { inTransaction, run } from '../postgres.ts';
import type { SubscriptionResources } from './batches.ts';
import { lockRecords } from './claims.ts';
import type { IdRow } from './rows.ts';
import { idsIn, routerValues, saveCredentials } from './rows.ts';
import {
  notifierKeyContext,
  notifierSecretContext,
  recipientKeyContext,
} from '../../api/subscription/sealed-columns.ts';
import type { PoolClient } from 'pg';
import { ZodError } from 'zod';
import { KeyBoxError } from '../../api/key-box.ts';
import type { QueueToImport } from '../../api/subscription/requests.ts';
import { queueImports } from '../../api/subscription/requests.ts';
import { isGateOpen, loadRequest, loadToken } from './token-rows.ts';

/** The result of a change, and the commands that follow from it. */
export interface Changed<Result> {
  result: Result;
  commands: Command[];
}

export function createConnectionWork({ db, log, keyBox }: SubscriptionResources) {
  return {
    /** Switches notifications of connections. One that is so already is left alone. */
    async toggleConnections(
      agentId: string,
      { connIds, enable }: ToggleConnections,
    ): Promise<Changed<ToggledConnections>> {
      // What an attempt that was cut off has changed counts as changed: its commands were lost with it.
      const isRepeated = mayBeRepeated();
      const { rows, isOpen } = await inTransaction(db, async (client) => ({
        isOpen: isGateOpen(await loadToken(client, agentId)),
        rows: await run<IdRow & { is_changed: boolean }>(client, TOGGLE_CONNECTIONS, [
          ...[agentId, connIds, enable, isRepeated],
        ]),
      }));
      const changed = idsIn(rows.filter(({ is_changed }) => is_changed));
      return {
        result: { changed: changed.length, unknown: without(connIds, idsIn(rows)) },
        commands: isOpen ? commandOf(enable ? 'create' : 'smp-delete', changed) : [],
      };
    },

    /**
     * Deletes connections, and has their subscriptions ended, whatever the gate says. The application keeps the queues: of
     * them, only the notifiers go (credentials.ts).
     */
    async deleteConnections(agentId: string, connIds: string[]): Promise<Changed<DeletedConnections>> {
      // What an attempt that was cut off has deleted, a sweep may have removed since, but not its record.
      const isRepeated = mayBeRepeated();
      const deleted = await inTransaction(db, async (client) => {
        // A worker that ends a subscription sees that its connection is to go, or has ended it before.
        await lockRecords(client, agentId, connIds);
        return idsIn(await run<IdRow>(client, DELETE_CONNECTIONS, [agentId, connIds]));
      });
      log.info({ agent_id: agentId, deleted: deleted.length }, 'connections deleted');
      return {
        result: { deleted: deleted.length, unknown: without(connIds, deleted) },
        commands: commandOf('reconcile', isRepeated ? connIds : deleted),
      };
    },

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
      const request = await loadRequest(db, agentId, 'import', requestId);
      if (!request) return 'there is no such import';
      let queues: QueueToImport[];
      try {
        queues = queueImports.open(keyBox, requestId, request.sealed);
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
      const ids = wanted.map(({ connId }) => connId);
      return { result, commands: isOpen ? commandOf('create', ids) : [] };
    },
  };

  async function save(
    client: PoolClient,
    agentId: string,
    queue: QueueToImport,
  ): Promise<ImportedConnection> {
    const { connId, userId, server, enableNotifications = true, recipientId, notifier } = queue;
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
      ...[agentId, connId, host, port, keyHash, recipientId],
      seal(queue.recipientPrivateKey, recipientKeyContext(agentId, recipientId)),
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

/** Of an attempt of a workflow task that was lost nothing is known, so each local one counts as a repetition. */
function mayBeRepeated(): boolean {
  const { attempt, isLocal } = Context.current().info;
  return attempt > 1 || isLocal;
}

function without(all: readonly string[], known: readonly string[]): string[] {
  const found = new Set(known);
  return all.filter((connId) => !found.has(connId));
}

const commandOf = (kind: Command['kind'], connIds: string[]): Command[] =>
  connIds.length === 0 ? [] : [{ kind, connIds }];

interface KnownRow {
  agent_id: string;
  conn_id: string;
  /** It is this connection, with this queue. */
  is_same: boolean;
  has_credentials: boolean;
}

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

/** Keeps a messaging router that is new. One that is known stays pinned as it is, whatever the request says. */
const INSERT_SMP_SERVER = {
  name: 'insert_smp_server',
  text: `
    INSERT INTO subscriptions.smp_servers (agent_id, host, port, key_hash)
    VALUES ($1, $2, $3, $4)
    ON CONFLICT (agent_id, host, port) DO NOTHING`,
};

const INSERT_CONNECTION = {
  name: 'insert_connection',
  text: `
    INSERT INTO subscriptions.connections (agent_id, conn_id, user_id, enable_ntfs) VALUES ($1, $2, $3, $4)
    ON CONFLICT (agent_id, conn_id) DO NOTHING`,
};

const INSERT_QUEUE = {
  name: 'insert_rcv_queue',
  text: `
    INSERT INTO subscriptions.rcv_queues
           (agent_id, conn_id, host, port, server_key_hash, rcv_id, rcv_private_key)
    SELECT $1, $2, $3, $4, nullif($5, key_hash), $6, $7
      FROM subscriptions.smp_servers
     WHERE agent_id = $1 AND host = $3 AND port = $4
    RETURNING queue_id::text`,
};

const HAS_NO_RECORD = `
        NOT EXISTS (SELECT FROM subscriptions.ntf_subscriptions AS record
                     WHERE (record.agent_id, record.conn_id) = (connection.agent_id, connection.conn_id))`;

/** All that there are, and whether they have changed. */
const TOGGLE_CONNECTIONS = {
  name: 'toggle_connections',
  text: `
    WITH changed AS (
      UPDATE subscriptions.connections
         SET enable_ntfs = $3, updated_at = clock_timestamp()
       WHERE agent_id = $1 AND conn_id = ANY($2::text[]) AND NOT is_deleted
         AND (coalesce(enable_ntfs, true) <> $3 OR $4)
      RETURNING conn_id
    )
    SELECT conn_id, conn_id IN (SELECT conn_id FROM changed) AS is_changed
      FROM subscriptions.connections
     WHERE agent_id = $1 AND conn_id = ANY($2::text[]) AND NOT is_deleted`,
};

/**
 * Marks connections as deleted until their subscriptions have ended. Those that are being deleted already count again: the
 * attempt that deleted them may have been cut off. A connection without a subscription goes immediately, with its queue: if
 * the queue has a notifier, that is the application's own.
 */
const DELETE_CONNECTIONS = {
  name: 'delete_connections',
  text: `
    WITH gone AS (
      DELETE FROM subscriptions.connections AS connection
       WHERE agent_id = $1 AND conn_id = ANY($2::text[]) AND ${HAS_NO_RECORD}
      RETURNING conn_id
    ), deleted AS (
      UPDATE subscriptions.connections AS connection
         SET is_deleted = true, updated_at = clock_timestamp()
       WHERE agent_id = $1 AND conn_id = ANY($2::text[]) AND NOT ${HAS_NO_RECORD}
      RETURNING conn_id
    )
    SELECT conn_id FROM deleted UNION ALL SELECT conn_id FROM gone`,
};
