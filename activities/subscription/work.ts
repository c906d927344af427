/**
 * Records and queues as a batch needs them, with their keys still sealed. Loading is by claim: what the supervisor has
 * written since, or another claim has taken, is left out, because somebody was woken for it.
 */
import type { PoolClient } from 'pg';
import type { KeyBox } from '../../api/key-box.ts';
import type { RecordAction } from '../../api/subscription/rows.ts';
import { columnsOf, primaryQueueOf } from '../../api/subscription/rows.ts';
import type { ServerKey } from '../../workflows/subscription/rules.ts';
import type { QueueRef, RouterAddress } from './router/ports.ts';
import type { Claimed } from './records.ts';
import { run } from '../transactions.ts';

/** One record that a worker has, and the primary queue of its connection. */
export interface WorkItem {
  connId: string;
  userId: number;
  status: string;
  ntfServer: ServerKey;
  notifierId?: string;
  subscriptionId?: string;
  /** Of the record; absent when the row of that server was removed. */
  smpServer?: RouterAddress;
  /** Absent: the connection has none. */
  queue?: WorkQueue;
}

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

export const recipientKeyContext = (agentId: string, recipientId: string): string =>
  `rcv_queues.rcv_private_key:${agentId}/${recipientId}`;
export const notifierKeyContext = (agentId: string, notifierId: string): string =>
  `rcv_queues.ntf_private_key:${agentId}/${notifierId}`;
export const notifierSecretContext = (agentId: string, notifierId: string): string =>
  `rcv_queues.rcv_ntf_dh_secret:${agentId}/${notifierId}`;

/** What is still the worker's of these connections. */
export async function loadWork(
  client: PoolClient,
  { agentId, claim }: Claimed,
  action: RecordAction,
  connIds: readonly string[],
): Promise<WorkItem[]> {
  const [ntfAction, smpAction] = columnsOf(action);
  const rows = await run<WorkRow>(client, LOAD_WORK, [agentId, claim, connIds, ntfAction, smpAction]);
  return rows.map((row) => ({
    connId: row.conn_id,
    userId: row.user_id,
    status: row.status,
    ntfServer: { host: row.ntf_host, port: row.ntf_port },
    ...(row.smp_ntf_id === null ? {} : { notifierId: row.smp_ntf_id }),
    ...(row.ntf_sub_id === null ? {} : { subscriptionId: row.ntf_sub_id }),
    ...(row.smp_host === null
      ? {}
      : { smpServer: { host: row.smp_host, port: row.smp_port!, keyHash: row.smp_key_hash! } }),
    ...(row.queue_id === null ? {} : { queue: queueOf(row as QueueRow) }),
  }));
}

function queueOf(row: QueueRow): WorkQueue {
  return {
    queueId: row.queue_id,
    address: { host: row.host, port: row.port, keyHash: row.key_hash },
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
  { connId, userId }: Pick<WorkItem, 'connId' | 'userId'>,
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

export async function clearCredentials(client: PoolClient, queueIds: readonly string[]): Promise<void> {
  await run(client, CLEAR_CREDENTIALS, [queueIds]);
}

/** Locks the records of a batch in one order, so that batches and the supervisor do not wait for each other in a ring. */
export async function lockRecords(
  client: PoolClient,
  agentId: string,
  connIds: readonly string[],
): Promise<void> {
  await run(client, LOCK_RECORDS, [agentId, connIds]);
}

interface QueueRow {
  queue_id: string;
  host: string;
  port: number;
  key_hash: string;
  rcv_id: string;
  rcv_private_key: Buffer;
  ntf_id: string | null;
  ntf_private_key: Buffer | null;
}

type WorkRow = {
  conn_id: string;
  user_id: number;
  status: string;
  smp_host: string | null;
  smp_port: number | null;
  smp_key_hash: string | null;
  smp_ntf_id: string | null;
  ntf_host: string;
  ntf_port: number;
  ntf_sub_id: string | null;
} & (QueueRow | { [Column in keyof QueueRow]: null });

const LOAD_WORK = {
  name: 'load_subscription_work',
  text: `
    SELECT record.conn_id, record.user_id, record.status, record.smp_host, record.smp_port,
           coalesce(record.smp_server_key_hash, smp.key_hash) AS smp_key_hash, record.smp_ntf_id, record.ntf_host,
           record.ntf_port, record.ntf_sub_id, queue.*
      FROM subscriptions.ntf_subscriptions AS record
      LEFT JOIN subscriptions.smp_servers AS smp
             ON (smp.agent_id, smp.host, smp.port) = (record.agent_id, record.smp_host, record.smp_port)
      LEFT JOIN LATERAL (${primaryQueueOf('record')}) AS queue ON true
     WHERE record.agent_id = $1 AND record.claim = $2 AND record.conn_id = ANY($3::text[])
       AND record.generation = record.claimed_generation
       AND record.ntf_action IS NOT DISTINCT FROM $4 AND record.smp_action IS NOT DISTINCT FROM $5
     ORDER BY array_position($3::text[], record.conn_id)`,
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

const CLEAR_CREDENTIALS = {
  name: 'clear_notifier_credentials',
  text: `
    UPDATE subscriptions.rcv_queues
       SET ntf_public_key = NULL, ntf_private_key = NULL, ntf_id = NULL, rcv_ntf_dh_secret = NULL
     WHERE queue_id = ANY($1::bigint[])`,
};

const LOCK_RECORDS = {
  name: 'lock_subscription_records',
  text: `
    SELECT 1 FROM subscriptions.ntf_subscriptions
     WHERE agent_id = $1 AND conn_id = ANY($2::text[])
     ORDER BY conn_id
       FOR UPDATE`,
};
