/**
 * The records of subscriptions, and the guard between the supervisor and the workers: what the supervisor has written
 * since a worker picked a record up wins over what the worker writes.
 *
 * Every write of the supervisor raises the record's generation. A pick-up notes the generation that it saw and gives
 * the record the number of its claim. A worker's write goes through whole while the generation is that one; when the
 * supervisor has written since, it brings only what has become of the record, not what is to be done next; and it does
 * nothing when another claim has the record, as after an attempt that took so long that it was given up.
 *
 * A pick-up returns ids and actions, never keys. A batch then loads what it was given, with the keys still sealed: what the
 * supervisor has written since, or another claim has taken, is left out, because a worker was woken for that.
 */
import { randomInt } from 'node:crypto';
import type { Pool, PoolClient } from 'pg';
import type { KeyBox } from '../../api/key-box.ts';
import type { RecordAction } from '../../api/subscription/rows.ts';
import { ACTION_COLUMNS, actionOf, queueOf, recipientKeyContext } from '../../api/subscription/rows.ts';
import type { ClaimOrder, ClaimResult, WorkerPool } from '../../workflows/subscription/contract.ts';
import type { ServerKey } from '../../workflows/subscription/rules.ts';
import type { Statement } from '../postgres.ts';
import { columnsOf, inTransaction, query, run } from '../postgres.ts';
import type { QueueRef, RouterAddress } from './router/ports.ts';

/** A connection, as statements name it. */
export type IdRow = { conn_id: string };

export const idsIn = (rows: readonly IdRow[]): string[] => rows.map(({ conn_id }) => conn_id);

/** What a worker has made of a record. */
export interface WorkedRecord {
  connId: string;
  notifierId: string | null;
  subscriptionId: string | null;
  status: string;
  ntfServer: ServerKey;
  action: RecordAction;
  /** Epoch ms. */
  actionMs: number;
}

/**
 * Worker: writes what has become of records.
 *
 * @returns the connections of the records that were still the worker's, whole or in part.
 */
export async function updateRecords(
  client: PoolClient,
  { agentId, claim }: { agentId: string; claim: number },
  records: readonly WorkedRecord[],
): Promise<string[]> {
  const values = records.map(({ ntfServer: { host, port }, action, ...record }) => {
    const [ntfAction, smpAction] = ACTION_COLUMNS[action];
    return { ...record, host, port, ntfAction, smpAction };
  });
  const ids = columnsOf(values, 'connId', 'notifierId', 'subscriptionId', 'status');
  const next = columnsOf(values, 'host', 'port', 'ntfAction', 'smpAction', 'actionMs');
  return idsIn(await run<IdRow>(client, UPDATE_RECORDS, [agentId, claim, ...ids, ...next]));
}

const UPDATE_RECORDS = {
  name: 'update_subscription_records',
  text: `
    UPDATE subscriptions.ntf_subscriptions AS record
       SET smp_ntf_id = worked.smp_ntf_id, ntf_sub_id = worked.ntf_sub_id, status = worked.status,
           ntf_host = CASE WHEN generation = claimed_generation THEN worked.ntf_host ELSE record.ntf_host END,
           ntf_port = CASE WHEN generation = claimed_generation THEN worked.ntf_port ELSE record.ntf_port END,
           ntf_action = CASE WHEN generation = claimed_generation THEN worked.ntf_action ELSE record.ntf_action END,
           smp_action = CASE WHEN generation = claimed_generation THEN worked.smp_action ELSE record.smp_action END,
           action_ts = CASE WHEN generation = claimed_generation THEN to_timestamp(worked.action_ms / 1000) ELSE action_ts END,
           claimed_generation = generation, updated_at = clock_timestamp()
      FROM unnest($3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::int[], $9::text[], $10::text[], $11::float8[])
           AS worked (conn_id, smp_ntf_id, ntf_sub_id, status, ntf_host, ntf_port, ntf_action, smp_action, action_ms)
     WHERE record.agent_id = $1 AND record.conn_id = worked.conn_id AND record.claim = $2
    RETURNING record.conn_id`,
};

/**
 * Worker: a change on a router may have undone what others have made of these records since. Where that was saved it is
 * checked now; where it is under way it begins again with credentials, whatever becomes of it. Returns the workers to wake.
 * $1 agent, $2 the claim that made the change, $3 connections.
 */
export const DOUBT_RECORDS = {
  name: 'doubt_subscription_records',
  text: `
    WITH doubted AS (
      UPDATE subscriptions.ntf_subscriptions
         SET ntf_action = CASE WHEN ntf_action = 'C' THEN 'C' END,
             smp_action = CASE WHEN ntf_action = 'C' THEN NULL ELSE 'K' END,
             action_ts = clock_timestamp(), generation = generation + 1, updated_at = clock_timestamp()
       WHERE agent_id = $1 AND claim <> $2 AND conn_id = ANY($3::text[])
         AND (ntf_action IN ('C', 'N') OR smp_action = 'K')
      RETURNING ntf_action, ntf_host, ntf_port, smp_host, smp_port
    )
    SELECT DISTINCT CASE WHEN ntf_action = 'C' THEN 'ntf-ntf' ELSE 'ntf-smp' END AS pool,
           CASE WHEN ntf_action = 'C' THEN ntf_host ELSE smp_host END AS host,
           CASE WHEN ntf_action = 'C' THEN ntf_port ELSE smp_port END AS port
      FROM doubted`,
};

/** Worker: gives records up. Only a reset by the supervisor brings them back. $1 agent, $2 claim, $3 connections. */
export const NULL_ACTIONS = {
  name: 'null_subscription_actions',
  text: `
    UPDATE subscriptions.ntf_subscriptions
       SET ntf_action = NULL, smp_action = NULL, action_ts = NULL, updated_at = clock_timestamp()
     WHERE agent_id = $1 AND claim = $2 AND conn_id = ANY($3::text[]) AND generation = claimed_generation`,
};

/**
 * Worker: deletes records. One that the supervisor has written since stays, without ids, for what it is to become. $1 agent,
 * $2 claim, $3 connections.
 */
export const DELETE_WORKED_RECORDS = {
  name: 'delete_worked_subscription_records',
  text: `
    WITH kept AS (
      UPDATE subscriptions.ntf_subscriptions
         SET smp_ntf_id = NULL, ntf_sub_id = NULL, status = 'DELETED', claimed_generation = generation,
             updated_at = clock_timestamp()
       WHERE agent_id = $1 AND claim = $2 AND conn_id = ANY($3::text[]) AND generation <> claimed_generation
    )
    DELETE FROM subscriptions.ntf_subscriptions
     WHERE agent_id = $1 AND claim = $2 AND conn_id = ANY($3::text[]) AND generation = claimed_generation`,
};

const PAGE_SIZE = 1_000;

/**
 * Makes the checks of subscriptions due. A worker that has asked a router before does not put the check off again.
 *
 * @param agentId whose; default: of all agents.
 * @returns how many.
 */
export async function makeChecksDue(db: Pool, agentId?: string): Promise<number> {
  let made = 0;
  for (let after = [agentId ?? '', '']; ;) {
    const [page] = await query<Page>(db, MAKE_CHECKS_DUE, [...after, agentId ?? null, PAGE_SIZE]);
    made += page!.made;
    if (page!.last === null || (agentId !== undefined && page!.last[0] !== agentId)) return made;
    after = page!.last;
  }
}

interface Page {
  made: number;
  /** Agent and connection; null: there were none. */
  last: [string, string] | null;
}

/**
 * A subscription that is being created is created again. $1 and $2 agent and connection of the last row of the page before,
 * $3 the only agent if not null, $4 rows at most.
 */
const MAKE_CHECKS_DUE = {
  name: 'make_subscription_checks_due',
  text: `
    WITH page AS MATERIALIZED (
      SELECT agent_id, conn_id
        FROM subscriptions.ntf_subscriptions
       WHERE (agent_id, conn_id) > ($1, $2)
       ORDER BY agent_id, conn_id
       LIMIT $4
    ), made AS (
      UPDATE subscriptions.ntf_subscriptions AS record
         SET action_ts = clock_timestamp(), generation = generation + 1
        FROM page
       WHERE (record.agent_id, record.conn_id) = (page.agent_id, page.conn_id)
         AND page.agent_id = coalesce($3, page.agent_id)
         AND record.ntf_action IN ('N', 'C')
      RETURNING 1
    )
    SELECT (SELECT count(*)::int FROM made) AS made,
           (SELECT ARRAY[agent_id, conn_id] FROM page ORDER BY agent_id DESC, conn_id DESC LIMIT 1) AS last`,
};

// --- Commands ----------------------------------------------------------------------------------------------------

const AT_NOW = `to_timestamp($3::float8 / 1000)`;

/**
 * What becomes of connections that want notifications: a record that is missing is made, one that does not agree with its
 * queue or that no worker continues is started over, and for every other one its worker is woken.
 *
 * A queue on another router is a mismatch also while neither side has an id: a worker that is woken for the router of the
 * queue would never find the record. Another fingerprint is no mismatch. $1 agent, $2 connections, $3 now, epoch ms.
 */
export const START_WANTED = {
  name: 'start_wanted_subscriptions',
  text: `
    WITH found AS MATERIALIZED (
      SELECT connection.conn_id, connection.user_id, queue.host, queue.port, record.ntf_host, record.ntf_port, record.smp_action,
             (queue.host, queue.port, queue.ntf_id) IS NOT DISTINCT FROM (record.smp_host, record.smp_port, record.smp_ntf_id)
               AND (record.smp_action = 'K' OR record.ntf_action IN ('N', 'C'))
               AND NOT record.ntf_failed AND NOT record.smp_failed AS goes_on
        FROM subscriptions.connections AS connection
       CROSS JOIN LATERAL (${queueOf('connection')}) AS queue
        LEFT JOIN subscriptions.ntf_subscriptions AS record USING (agent_id, conn_id)
       WHERE connection.agent_id = $1 AND connection.conn_id = ANY($2::text[])
         AND NOT connection.is_deleted AND connection.enable_ntfs IS NOT FALSE
    ), started AS (
      INSERT INTO subscriptions.ntf_subscriptions AS record
             (agent_id, conn_id, user_id, smp_host, smp_port, ntf_host, ntf_port, status, smp_action, action_ts)
      SELECT $1, found.conn_id, found.user_id, found.host, found.port, token.host, token.port, 'NEW', 'K', ${AT_NOW}
        FROM found
        JOIN subscriptions.ntf_tokens AS token ON token.agent_id = $1
       WHERE goes_on IS NOT TRUE
       ORDER BY found.conn_id
      ON CONFLICT (agent_id, conn_id) DO UPDATE
         SET smp_host = excluded.smp_host, smp_port = excluded.smp_port, smp_ntf_id = NULL,
             ntf_host = excluded.ntf_host, ntf_port = excluded.ntf_port, ntf_sub_id = NULL,
             status = excluded.status, ntf_action = NULL, smp_action = excluded.smp_action, action_ts = excluded.action_ts,
             generation = record.generation + 1, ntf_failed = false, smp_failed = false, updated_at = clock_timestamp()
      RETURNING smp_host AS host, smp_port AS port
    )
    SELECT 'ntf-smp' AS pool, host, port FROM started
     UNION
    SELECT 'ntf-smp', host, port FROM found WHERE goes_on AND smp_action = 'K'
     UNION
    SELECT 'ntf-ntf', ntf_host, ntf_port FROM found WHERE goes_on AND smp_action IS NULL
     ORDER BY 1, 2, 3`,
};

/** Has subscriptions ended of connections that are deleted or switched off. $1 agent, $2 connections, $3 now, epoch ms, $4 of all. */
export const END_RECORDS = {
  name: 'end_subscription_records',
  text: `
    UPDATE subscriptions.ntf_subscriptions AS record
       SET ntf_action = NULL, smp_action = 'D', action_ts = ${AT_NOW}, generation = generation + 1,
           ntf_failed = false, smp_failed = false, updated_at = clock_timestamp()
      FROM subscriptions.connections AS connection
     WHERE record.agent_id = $1 AND record.conn_id = ANY($2::text[])
       AND (connection.agent_id, connection.conn_id) = (record.agent_id, record.conn_id)
       AND (is_deleted OR enable_ntfs IS FALSE OR $4)
    RETURNING 'ntf-smp' AS pool, smp_host AS host, smp_port AS port`,
};

// --- Pick-ups ----------------------------------------------------------------------------------------------------

/** Ids and actions of what was picked up; when nothing is due, when the first row will be. */
type Claim = Pick<Extract<ClaimResult, { isClosed: false }>, 'claim' | 'items' | 'nextDueMs'>;

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

/** Locks records in one order, so that batches and the supervisor do not wait for each other in a circle. */
export const LOCK_RECORDS = {
  name: 'lock_subscription_records',
  text: `
    SELECT 1 FROM subscriptions.ntf_subscriptions
     WHERE agent_id = $1 AND conn_id = ANY($2::text[])
     ORDER BY conn_id
       FOR UPDATE`,
};
