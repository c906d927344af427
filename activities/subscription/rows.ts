/** The rows of routers, and of queues with their keys and notifier credentials. */
import type { PoolClient } from 'pg';
import type { RouterKey } from '../../workflows/subscription/contract.ts';
import { run } from '../transactions.ts';
import type { QueueRef, RouterAddress } from './router/ports.ts';
import { recipientKeyContext } from '../../api/subscription/sealed-columns.ts';
import type { KeyBox } from '../../api/key-box.ts';

/** A router, as rows have it. */
export interface AddressRow {
  host: string;
  port: number;
  key_hash: string;
}

export function addressOf({ host, port, key_hash: keyHash }: AddressRow): RouterAddress {
  return { host, port, keyHash };
}

/** The parameters of statements about a router. */
export const routerValues = (agentId: string, { host, port, keyHash }: RouterKey): unknown[] => [
  ...[agentId, host, port, keyHash],
];

/** Keeps a notification router as it is configured. */
export const UPSERT_NTF_SERVER = {
  name: 'upsert_ntf_server',
  text: `
    INSERT INTO subscriptions.ntf_servers AS known (agent_id, host, port, key_hash)
    VALUES ($1, $2, $3, $4)
    ON CONFLICT (agent_id, host, port) DO UPDATE
       SET key_hash = excluded.key_hash, updated_at = clock_timestamp()
     WHERE known.key_hash <> excluded.key_hash`,
};

/** A queue as a batch needs it. */
export interface WorkQueue {
  queueId: string;
  address: RouterAddress;
  recipientId: string;
  /** Sealed. */
  recipientPrivateKey: Buffer;
  credentials: { notifierId: string; privateKey: Buffer } | undefined;
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
    credentials:
      row.ntf_id === null ? undefined : { notifierId: row.ntf_id, privateKey: row.ntf_private_key! },
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
