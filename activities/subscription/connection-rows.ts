/** The rows of connections and their queues: the keys of a queue, its notifier credentials, and the statements. */
import {
  notifierKeyContext,
  notifierSecretContext,
  recipientKeyContext,
} from '../../api/subscription/sealed-columns.ts';
import type { PoolClient } from 'pg';
import type { KeyBox } from '../../api/key-box.ts';
import { run } from '../transactions.ts';
import type { KeyPair, NotifierKeyAnswer, QueueRef, RouterAddress } from './router/ports.ts';
import { secretOrNothing } from './router/signing.ts';
import type { AddressRow } from './router-rows.ts';
import { addressOf } from './router-rows.ts';

/** A queue as a batch needs it. */
export interface WorkQueue {
  queueId: string;
  address: RouterAddress;
  recipientId: string;
  /** Sealed. */
  recipientPrivateKey: Buffer;
  credentials?: { notifierId: string; privateKey: Buffer };
}

/** Notifier credentials to keep, the private ones sealed. */
export interface SealedCredentials {
  queueId: string;
  publicKey: string;
  privateKey: Buffer;
  notifierId: string;
  dhSecret: Buffer;
}

export interface QueueRow extends AddressRow {
  queue_id: string;
  rcv_id: string;
  rcv_private_key: Buffer;
  ntf_id: string | null;
  ntf_private_key: Buffer | null;
}

export function workQueueOf(row: QueueRow): WorkQueue {
  return {
    queueId: row.queue_id,
    address: addressOf(row),
    recipientId: row.rcv_id,
    recipientPrivateKey: row.rcv_private_key,
    ...(row.ntf_id === null
      ? {}
      : { credentials: { notifierId: row.ntf_id, privateKey: row.ntf_private_key! } }),
  };
}

/** @throws KeyBoxError when the recipient's key does not open. */
export function queueRefOf(
  keyBox: KeyBox,
  agentId: string,
  { connId, userId }: { connId: string; userId: number },
  { address, recipientId, recipientPrivateKey }: WorkQueue,
): QueueRef {
  const key = keyBox.open(recipientPrivateKey, recipientKeyContext(agentId, recipientId));
  return { address, userId, connId, recipientId, recipientPrivateKey: key };
}

/** The keys that notifier credentials are made with. */
export interface NotifierKeys {
  auth: KeyPair;
  dh: KeyPair;
}

/** @returns undefined when no secret can be agreed with the key of the router. */
export function sealCredentials(
  keyBox: KeyBox,
  agentId: string,
  { auth, dh }: NotifierKeys,
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

export async function saveCredentials(
  client: PoolClient,
  credentials: readonly SealedCredentials[],
): Promise<void> {
  await run(client, SAVE_CREDENTIALS, [
    credentials.map(({ queueId }) => queueId),
    credentials.map(({ publicKey }) => publicKey),
    credentials.map(({ privateKey }) => privateKey),
    credentials.map(({ notifierId }) => notifierId),
    credentials.map(({ dhSecret }) => dhSecret),
  ]);
}

export async function clearCredentials(client: PoolClient, queueIds: readonly string[]): Promise<void> {
  await run(client, CLEAR_CREDENTIALS, [queueIds]);
}

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

const CLEAR_CREDENTIALS = {
  name: 'clear_notifier_credentials',
  text: `
    UPDATE subscriptions.rcv_queues
       SET ntf_public_key = NULL, ntf_private_key = NULL, ntf_id = NULL, rcv_ntf_dh_secret = NULL
     WHERE queue_id = ANY($1::bigint[])`,
};

/** Returns nothing when there is one of this id. */
export const INSERT_CONNECTION = {
  name: 'insert_connection',
  text: `
    INSERT INTO subscriptions.connections (agent_id, conn_id, user_id, enable_ntfs) VALUES ($1, $2, $3, $4)
    ON CONFLICT (agent_id, conn_id) DO NOTHING
    RETURNING 1`,
};

export const INSERT_QUEUE = {
  name: 'insert_rcv_queue',
  text: `
    INSERT INTO subscriptions.rcv_queues
           (agent_id, conn_id, host, port, server_key_hash, rcv_id, snd_id, rcv_private_key, rcv_dh_secret)
    SELECT $1, $2, $3, $4, nullif($5, key_hash), $6, $7, $8, $9
      FROM subscriptions.smp_servers
     WHERE agent_id = $1 AND host = $3 AND port = $4
    RETURNING queue_id::text`,
};

const HAS_NO_RECORD = `
        NOT EXISTS (SELECT FROM subscriptions.ntf_subscriptions AS record
                     WHERE (record.agent_id, record.conn_id) = (connection.agent_id, connection.conn_id))`;
const IS_ENABLED = 'enable_ntfs IS NOT FALSE AS is_enabled';

export const LOAD_FLAGS = {
  name: 'load_connection_flags',
  text: `
    SELECT conn_id
      FROM subscriptions.connections
     WHERE agent_id = $1 AND conn_id = ANY($2::text[]) AND NOT is_deleted`,
};

export const TOGGLE_CONNECTIONS = {
  name: 'toggle_connections',
  text: `
    UPDATE subscriptions.connections
       SET enable_ntfs = $3, updated_at = clock_timestamp()
     WHERE agent_id = $1 AND conn_id = ANY($2::text[]) AND NOT is_deleted
       AND (coalesce(enable_ntfs, true) <> $3 OR $4)
    RETURNING conn_id`,
};

export const SET_SUBSCRIBED = {
  name: 'set_connections_subscribed',
  text: `
    UPDATE subscriptions.connections
       SET is_subscribed = $3, updated_at = clock_timestamp()
     WHERE agent_id = $1 AND conn_id = ANY($2::text[]) AND NOT is_deleted
    RETURNING conn_id, ${IS_ENABLED}`,
};

/**
 * Marks connections as deleted until their subscriptions have ended. Those that are being deleted already count again: the
 * attempt that deleted them may have been cut off. A connection without a subscription goes immediately, with its queue: if
 * the queue has a notifier, that is the application's own.
 */
export const DELETE_CONNECTIONS = {
  name: 'delete_connections',
  text: `
    WITH gone AS (
      DELETE FROM subscriptions.connections AS connection
       WHERE agent_id = $1 AND conn_id = ANY($2::text[]) AND ${HAS_NO_RECORD}
      RETURNING conn_id
    ), deleted AS (
      UPDATE subscriptions.connections AS connection
         SET is_deleted = true, is_subscribed = false, updated_at = clock_timestamp()
       WHERE agent_id = $1 AND conn_id = ANY($2::text[]) AND NOT ${HAS_NO_RECORD}
      RETURNING conn_id
    )
    SELECT conn_id FROM deleted UNION ALL SELECT conn_id FROM gone`,
};

/** Removes what is left of deleted connections whose subscriptions have ended. */
export async function removeDeletedConnections(
  client: PoolClient,
  agentId: string,
  connIds: readonly string[],
): Promise<void> {
  await run(client, REMOVE_DELETED_CONNECTIONS, [agentId, connIds]);
}

const REMOVE_DELETED_CONNECTIONS = {
  name: 'remove_deleted_connections',
  text: `
    DELETE FROM subscriptions.connections AS connection
     WHERE agent_id = $1 AND conn_id = ANY($2::text[]) AND is_deleted AND ${HAS_NO_RECORD}`,
};
