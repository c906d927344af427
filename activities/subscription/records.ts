/**
 * The records of subscriptions, and the guard between the supervisor and the workers: what the supervisor has written
 * since a worker picked a record up wins over what the worker writes.
 *
 * Every write of the supervisor raises the record's generation. A pick-up notes the generation that it saw and gives
 * the record the number of its claim. A worker's write goes through whole while the generation is that one; when the
 * supervisor has written since, it brings only what has become of the record, not what is to be done next; and it does
 * nothing when another claim has the record, as after an attempt that took so long that it was given up.
 */
import type { Pool, PoolClient } from 'pg';
import type { RecordAction } from '../../api/subscription/rows.ts';
import { ACTION_COLUMNS } from '../../api/subscription/rows.ts';
import type { ServerKey } from '../../workflows/subscription/rules.ts';
import { query, run } from '../postgres.ts';
import type { IdRow } from './rows.ts';
import { idsIn } from './rows.ts';

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

/** Whose records: the claim of a worker. */
export interface Claimed {
  agentId: string;
  claim: number;
}

/**
 * Worker: writes what has become of records.
 *
 * @returns the connections of the records that were still the worker's, whole or in part.
 */
export async function updateRecords(
  client: PoolClient,
  { agentId, claim }: Claimed,
  records: readonly WorkedRecord[],
): Promise<string[]> {
  const values = records.map((record) => {
    const [ntfAction, smpAction] = ACTION_COLUMNS[record.action];
    return {
      conn_id: record.connId,
      smp_ntf_id: record.notifierId,
      ntf_sub_id: record.subscriptionId,
      status: record.status,
      ntf_host: record.ntfServer.host,
      ntf_port: record.ntfServer.port,
      ntf_action: ntfAction,
      smp_action: smpAction,
      action_ms: record.actionMs,
    };
  });
  return idsIn(await run<IdRow>(client, UPDATE_RECORDS, [agentId, claim, JSON.stringify(values)]));
}

/** Worker: gives records up. Only a reset by the supervisor brings them back. */
export async function nullActions(
  client: PoolClient,
  { agentId, claim }: Claimed,
  connIds: readonly string[],
): Promise<void> {
  await run(client, NULL_ACTIONS, [agentId, claim, connIds]);
}

/**
 * Worker: deletes records. One that the supervisor has written since stays, without ids, for what it is to become.
 */
export async function deleteWorkedRecords(
  client: PoolClient,
  { agentId, claim }: Claimed,
  connIds: readonly string[],
): Promise<void> {
  await run(client, DELETE_WORKED_RECORDS, [agentId, claim, connIds]);
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
      FROM jsonb_to_recordset($3::jsonb) AS worked
           (conn_id text, smp_ntf_id text, ntf_sub_id text, status text, ntf_host text, ntf_port int, ntf_action text,
            smp_action text, action_ms float8)
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

const NULL_ACTIONS = {
  name: 'null_subscription_actions',
  text: `
    UPDATE subscriptions.ntf_subscriptions
       SET ntf_action = NULL, smp_action = NULL, action_ts = NULL, updated_at = clock_timestamp()
     WHERE agent_id = $1 AND claim = $2 AND conn_id = ANY($3::text[]) AND generation = claimed_generation`,
};

const DELETE_WORKED_RECORDS = {
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
