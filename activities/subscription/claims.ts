/**
 * Picking up what is due for one server of a pool. A pick-up gives its rows a claim number and notes the generation
 * that it saw (records.ts); it returns ids and actions, never keys. A batch then loads what it was given, with the
 * keys still sealed: what the supervisor has written since, or another claim has taken, is left out, because a worker
 * was woken for that.
 */
import { randomInt } from 'node:crypto';
import type { Pool, PoolClient } from 'pg';
import type { RecordAction } from '../../api/subscription/rows.ts';
import { actionOf, columnsOf, queueOf } from '../../api/subscription/rows.ts';
import type { ClaimOrder, WorkerPool } from '../../workflows/subscription/contract.ts';
import type { ListKind, ServerKey } from '../../workflows/subscription/rules.ts';
import type { Statement } from '../postgres.ts';
import { inTransaction, run } from '../transactions.ts';
import type { QueueRow, WorkQueue } from './rows.ts';
import { workQueueOf, addressOf } from './rows.ts';
import type { SubscriptionEvent } from './events.ts';
import { writeEvent } from './events.ts';
import type { Claimed } from './records.ts';
import type { RouterAddress } from './router/ports.ts';

export interface Claim {
  claim: number;
  items: { id: string; kind: ListKind }[];
  /** When nothing is due: when the first row will be, epoch ms. */
  nextDueMs?: number;
  /** About rows that could not be read. */
  event?: SubscriptionEvent;
}

/** One record that a worker has, and the queue of its connection. */
export interface WorkItem {
  connId: string;
  userId: number;
  status: string;
  /** The connection goes with its subscription. */
  isDeleted: boolean;
  ntfServer: ServerKey;
  notifierId?: string;
  subscriptionId?: string;
  /** Of the record; absent when the row of that server was removed. */
  smpServer?: RouterAddress;
  /** Absent: the connection has none. */
  queue?: WorkQueue;
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
  const statements = RECORD_STATEMENTS[pool as RecordPool];
  const where = [agentId, server.host, server.port];
  const rows = await run<CandidateRow>(client, statements.load, [...where, limit]);
  const read = rows.map((row) => ({ ...row, kind: actionOf(row.ntf_action, row.smp_action, row.action_ms) }));
  const unreadable = read.filter(({ kind }) => kind === undefined).map(({ conn_id }) => conn_id);
  const event = await giveUpReading(client, statements.fail, agentId, unreadable);
  const due = read.flatMap(({ conn_id: id, kind, action_ms: ms }) =>
    kind === undefined || (kind === 'ntf-check' && ms! > nowMs) ? [] : [{ id, kind }],
  );
  const [next] = read.filter(({ kind }) => kind === 'ntf-check');
  const claim = nextClaim();
  if (due.length > 0) await run(client, CLAIM_RECORDS, [agentId, due.map(({ id }) => id), claim]);
  const nextDueMs =
    due.length > 0 ? undefined : (next?.action_ms ?? (await whenToLookAgain(client, statements, order)));
  return {
    claim,
    items: due,
    ...(nextDueMs === undefined ? {} : { nextDueMs }),
    ...(event ? { event } : {}),
  };
}

/**
 * A look that has brought nothing may have left rows behind a batch that could not be read.
 *
 * @returns now if there are any, epoch ms; a worker ends only when there are none.
 */
async function whenToLookAgain(
  client: PoolClient,
  { areLeft }: RecordStatements,
  { agentId, server, nowMs }: ClaimOrder,
): Promise<number | undefined> {
  const [row] = await run<{ is_any: boolean }>(client, areLeft, [agentId, server.host, server.port]);
  return row?.is_any ? nowMs : undefined;
}

/** The oldest record alone: a router is asked to forget one token at a time. */
async function claimTokenDeletion(client: PoolClient, { agentId, server }: ClaimOrder): Promise<Claim> {
  const rows = await run<{ id: string }>(client, LOAD_TOKEN_DELETION, [agentId, server.host, server.port]);
  return { claim: nextClaim(), items: rows.map(({ id }) => ({ id, kind: 'token-delete' })) };
}

/** Marks records without a valid action, so that they do not stand in the way of the others. */
async function giveUpReading(
  client: PoolClient,
  statement: Statement,
  agentId: string,
  connIds: readonly string[],
): Promise<SubscriptionEvent | undefined> {
  if (connIds.length === 0) return undefined;
  await run(client, statement, [agentId, connIds]);
  const errors = connIds.map(() => ({ connId: '', error: 'STORE INTERNAL: a record has no valid action' }));
  const event: SubscriptionEvent = { agentId, kind: 'ERRS', errors };
  await writeEvent(client, event);
  return event;
}

/** The largest range that `randomInt` takes. */
const CLAIMS = 2 ** 48 - 1;

/**
 * @returns a number that no other pick-up has: drawn at random, since a PostgreSQL that was put back would count the
 * numbers of pick-ups that it has forgotten once more.
 */
const nextClaim = (): number => randomInt(1, CLAIMS);

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
    isDeleted: row.is_deleted,
    ntfServer: { host: row.ntf_host, port: row.ntf_port },
    ...(row.smp_ntf_id === null ? {} : { notifierId: row.smp_ntf_id }),
    ...(row.ntf_sub_id === null ? {} : { subscriptionId: row.ntf_sub_id }),
    ...(row.smp_host === null
      ? {}
      : {
          smpServer: addressOf({
            ...{ host: row.smp_host, port: row.smp_port!, key_hash: row.smp_key_hash! },
          }),
        }),
    ...(row.queue_id === null ? {} : { queue: workQueueOf(row as QueueRow) }),
  }));
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
  action_ms: number | null;
}

const toDo = (side: 'ntf' | 'smp', condition: string): string => `
      FROM subscriptions.ntf_subscriptions
     WHERE agent_id = $1 AND ${side}_host = $2 AND ${side}_port = $3 AND ${side}_action IS NOT NULL
       AND NOT ${side}_failed ${condition}`;
const TO_DO = { ntf: toDo('ntf', ''), smp: toDo('smp', 'AND action_ts IS NOT NULL') };

/**
 * The records that are due come first, so a batch without a due record tells when the first will be. On a messaging
 * router every record counts as due, at any time.
 */
const loadDue = (side: 'ntf' | 'smp'): Statement => ({
  name: `load_due_${side}_subscriptions`,
  text: `
    SELECT conn_id, ntf_action, smp_action,
           round(extract(epoch FROM action_ts) * 1000)::float8 AS action_ms
     ${TO_DO[side]}
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

const areLeft = (side: 'ntf' | 'smp'): Statement => ({
  name: `are_${side}_subscriptions_left`,
  text: `
    SELECT count(*) > 0 AS is_any
      FROM (SELECT ${TO_DO[side]}
     ORDER BY action_ts, conn_id
     LIMIT 1) AS first`,
});

interface RecordStatements {
  load: Statement;
  fail: Statement;
  areLeft: Statement;
}

const statementsOf = (side: 'ntf' | 'smp'): RecordStatements => ({
  load: loadDue(side),
  fail: failRecords(side),
  areLeft: areLeft(side),
});

const RECORD_STATEMENTS: Record<RecordPool, RecordStatements> = {
  'ntf-ntf': statementsOf('ntf'),
  'ntf-smp': statementsOf('smp'),
};

/** Marks records that no key opens. */
export const FAIL_RECORDS: Record<RecordPool, Statement> = {
  'ntf-ntf': RECORD_STATEMENTS['ntf-ntf'].fail,
  'ntf-smp': RECORD_STATEMENTS['ntf-smp'].fail,
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
  is_deleted: boolean;
} & (QueueRow | { [Column in keyof QueueRow]: null });

const LOAD_WORK = {
  name: 'load_subscription_work',
  text: `
    SELECT record.conn_id, record.user_id, record.status, record.smp_host, record.smp_port,
           coalesce(record.smp_server_key_hash, smp.key_hash) AS smp_key_hash,
           record.smp_ntf_id, record.ntf_host, record.ntf_port, record.ntf_sub_id,
           coalesce(connection.is_deleted, false) AS is_deleted, queue.*
      FROM subscriptions.ntf_subscriptions AS record
      LEFT JOIN subscriptions.smp_servers AS smp
             ON (smp.agent_id, smp.host, smp.port) = (record.agent_id, record.smp_host, record.smp_port)
      LEFT JOIN subscriptions.connections AS connection
             ON (connection.agent_id, connection.conn_id) = (record.agent_id, record.conn_id)
      LEFT JOIN LATERAL (${queueOf('record')}) AS queue ON true
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
