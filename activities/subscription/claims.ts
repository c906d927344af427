/**
 * Picking up what is due for one server of a pool. A pick-up gives its rows a claim number and notes the generation
 * that it saw (records.ts); it returns ids and actions, never keys. A batch then loads what it was given, with the
 * keys still sealed: what the supervisor has written since, or another claim has taken, is left out, because a worker
 * was woken for that.
 */
import { randomInt } from 'node:crypto';
import type { Pool, PoolClient } from 'pg';
import { actionOf, queueOf } from '../../api/subscription/rows.ts';
import type { ClaimOrder, WorkerPool } from '../../workflows/subscription/contract.ts';
import type { ListKind, ServerKey } from '../../workflows/subscription/rules.ts';
import type { Statement } from '../postgres.ts';
import { inTransaction, run } from '../postgres.ts';
import type { KeyBox } from '../../api/key-box.ts';
import { recipientKeyContext } from '../../api/subscription/sealed-columns.ts';
import type { QueueRef, RouterAddress } from './router/ports.ts';

export interface Claim {
  claim: number;
  items: { id: string; kind: ListKind }[];
  /** When nothing is due: when the first row will be, epoch ms. */
  nextDueMs?: number;
}

/** One record that a worker has, and the queue of its connection. */
export interface WorkItem {
  connId: string;
  userId: number;
  /** The connection goes with its subscription. */
  isDeleted: boolean;
  ntfServer: ServerKey;
  notifierId: string | null;
  subscriptionId: string | null;
  /** Of the record. */
  smpServer: ServerKey;
  /** Of the queue, as all that follows. */
  queueId: string;
  address: RouterAddress;
  recipientId: string;
  /** Sealed. */
  recipientKey: Buffer;
  /** Both or none: the queue has notifier credentials. The key is sealed. */
  queueNotifierId: string | null;
  notifierKey: Buffer | null;
}

/**
 * Picks up to `limit` rows that are due, the longest due first.
 *
 * @throws ApplicationFailure `PostgresUnavailable`.
 */
export function claimBatch(db: Pool, order: ClaimOrder, limit: number): Promise<Claim> {
  return inTransaction(db, (client) => {
    if (order.pool === 'ntf-tkn-del') return claimTokenDeletion(client, order);
    return claimRecords(client, order, limit);
  });
}

async function claimRecords(client: PoolClient, order: ClaimOrder, limit: number): Promise<Claim> {
  const { agentId, pool, server, nowMs } = order;
  const where = [agentId, server.host, server.port];
  const rows = await run<CandidateRow>(client, LOAD_DUE[pool as RecordPool], [...where, limit]);
  const items = rows.flatMap(({ conn_id: id, ntf_action: ntf, smp_action: smp, action_ms: ms }) => {
    const kind = actionOf(ntf, smp)!;
    return kind === 'ntf-check' && ms > nowMs ? [] : [{ id, kind }];
  });
  const claim = nextClaim();
  if (items.length > 0) await run(client, CLAIM_RECORDS, [agentId, items.map(({ id }) => id), claim]);
  const [next] = rows;
  return { claim, items, ...(items.length > 0 || !next ? {} : { nextDueMs: next.action_ms }) };
}

/** The oldest record alone: a router is asked to forget one token at a time. */
async function claimTokenDeletion(client: PoolClient, { agentId, server }: ClaimOrder): Promise<Claim> {
  const rows = await run<{ id: string }>(client, LOAD_TOKEN_DELETION, [agentId, server.host, server.port]);
  return { claim: nextClaim(), items: rows.map(({ id }) => ({ id, kind: 'token-delete' })) };
}

/** The largest range that `randomInt` takes. */
const CLAIMS = 2 ** 48 - 1;

/**
 * @returns a number that no other pick-up has: drawn at random, since a PostgreSQL that was put back would count the
 * numbers of pick-ups that it has forgotten once more.
 */
const nextClaim = (): number => randomInt(1, CLAIMS);

/** @throws KeyBoxError when the recipient's key does not open. */
export function queueRefOf(
  keyBox: KeyBox,
  agentId: string,
  { connId, userId, address, recipientId, recipientKey }: WorkItem,
): QueueRef {
  const key = keyBox.open(recipientKey, recipientKeyContext(agentId, recipientId));
  return { address, userId, connId, recipientId, recipientPrivateKey: key };
}

/**
 * Locks the records of a batch in one order, so that batches and the supervisor do not wait for each other in a
 * circle.
 */
export async function lockRecords(
  client: PoolClient,
  agentId: string,
  connIds: readonly string[],
): Promise<void> {
  await run(client, LOCK_RECORDS, [agentId, connIds]);
}

/** The pools whose work are records of subscriptions. */
export type RecordPool = Exclude<WorkerPool, 'ntf-tkn-del'>;

interface CandidateRow {
  conn_id: string;
  ntf_action: string | null;
  smp_action: string | null;
  action_ms: number;
}

/**
 * The records that are due come first, so a batch without a due record tells when the first will be. On a messaging
 * router every record counts as due, at any time.
 */
const loadDue = (side: 'ntf' | 'smp'): Statement => ({
  name: `load_due_${side}_subscriptions`,
  text: `
    SELECT conn_id, ntf_action, smp_action,
           round(extract(epoch FROM action_ts) * 1000)::float8 AS action_ms
      FROM subscriptions.ntf_subscriptions
     WHERE agent_id = $1 AND ${side}_host = $2 AND ${side}_port = $3 AND ${side}_action IS NOT NULL
       AND NOT ${side}_failed
     ORDER BY action_ts, conn_id
     LIMIT $4
       FOR UPDATE`,
});

const failRecords = (side: 'ntf' | 'smp'): Statement => ({
  name: `fail_${side}_subscriptions`,
  text: `
    UPDATE subscriptions.ntf_subscriptions
       SET ${side}_failed = true, updated_at = clock_timestamp()
     WHERE agent_id = $1 AND conn_id = ANY($2::text[])`,
});

const LOAD_DUE: Record<RecordPool, Statement> = { 'ntf-ntf': loadDue('ntf'), 'ntf-smp': loadDue('smp') };

/** Marks records that no key opens. */
export const FAIL_RECORDS: Record<RecordPool, Statement> = {
  'ntf-ntf': failRecords('ntf'),
  'ntf-smp': failRecords('smp'),
};

const CLAIM_RECORDS = {
  name: 'claim_subscription_records',
  text: `
    UPDATE subscriptions.ntf_subscriptions
       SET claim = $3, claimed_generation = generation
     WHERE agent_id = $1 AND conn_id = ANY($2::text[])`,
};

const LOAD_TOKEN_DELETION = {
  name: 'load_due_token_deletion',
  text: `
    SELECT id::text
      FROM subscriptions.ntf_tokens_to_delete AS deletion
     WHERE agent_id = $1 AND host = $2 AND port = $3 AND NOT del_failed
     ORDER BY deletion.id
     LIMIT 1`,
};

const hostAndPort = (host: string, port: string) => `json_build_object('host', ${host}, 'port', ${port})`;

/** What is still the worker's of connections. $1 agent, $2 claim, $3 connections, $4 and $5 the columns of the action. */
export const LOAD_WORK = {
  name: 'load_subscription_work',
  text: `
    SELECT record.conn_id AS "connId", record.user_id AS "userId", connection.is_deleted AS "isDeleted",
           ${hostAndPort('record.ntf_host', 'record.ntf_port')} AS "ntfServer",
           record.smp_ntf_id AS "notifierId", record.ntf_sub_id AS "subscriptionId",
           ${hostAndPort('record.smp_host', 'record.smp_port')} AS "smpServer", queue.queue_id AS "queueId",
           json_build_object('host', queue.host, 'port', queue.port, 'keyHash', queue.key_hash) AS address,
           queue.rcv_id AS "recipientId", queue.rcv_private_key AS "recipientKey",
           queue.ntf_id AS "queueNotifierId", queue.ntf_private_key AS "notifierKey"
      FROM subscriptions.ntf_subscriptions AS record
      JOIN subscriptions.connections AS connection USING (agent_id, conn_id)
     CROSS JOIN LATERAL (${queueOf('record')}) AS queue
     WHERE record.agent_id = $1 AND record.claim = $2 AND record.conn_id = ANY($3::text[])
       AND record.generation = record.claimed_generation
       AND record.ntf_action IS NOT DISTINCT FROM $4 AND record.smp_action IS NOT DISTINCT FROM $5
     ORDER BY array_position($3::text[], record.conn_id)`,
};

const LOCK_RECORDS = {
  name: 'lock_subscription_records',
  text: `
    SELECT 1 FROM subscriptions.ntf_subscriptions
     WHERE agent_id = $1 AND conn_id = ANY($2::text[])
     ORDER BY conn_id
       FOR UPDATE`,
};
