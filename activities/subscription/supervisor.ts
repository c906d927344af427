/**
 * What a supervisor does about its commands: one transaction each, no network, and then the workers that have
 * something to do are woken. A command that is carried out again changes nothing more. And the trust in a router whose
 * certificate was exchanged.
 */
import type { PoolClient } from 'pg';
import { queueOf } from '../../api/subscription/rows.ts';
import type { Command, TrustedRouter } from '../../workflows/subscription/contract.ts';
import { MAX_CONNECTIONS } from '../../workflows/subscription/contract.ts';
import { inTransaction, query, run } from '../postgres.ts';
import { errorText, routerValues } from './agents.ts';
import type { SubscriptionResources } from './batches.ts';
import { whileBeating } from './batches.ts';
import type { WorkerRow } from './commands.ts';
import { kickAll, workersIn } from './commands.ts';
import { REMOVE_DELETED_CONNECTIONS } from './credentials.ts';
import { keepingOf } from './reconciliation.ts';
import type { IdRow } from './records.ts';
import { LOCK_RECORDS, idsIn } from './records.ts';
import { loadToken } from './token-rows.ts';

export interface CommandOrder extends Command {
  agentId: string;
  /** Epoch ms, the workflow's. */
  nowMs: number;
  /** Of a command for all connections: those after this one. */
  after?: string;
}

export interface CommandEnd {
  /** Of a command for all connections: the last one that this was about. */
  next?: string;
}

export function createCommandWork(resources: SubscriptionResources) {
  const { db, log, metrics } = resources;

  return {
    /** Carries out a command, or a page of one that is for all connections. */
    async applyCommand({
      agentId,
      kind,
      connIds: named,
      nowMs,
      after = '',
    }: CommandOrder): Promise<CommandEnd> {
      const { connIds, workers } = await inTransaction(db, async (client) => {
        const values = [agentId, after, MAX_CONNECTIONS];
        const connIds = named ?? idsIn(await run<IdRow>(client, LIST_CONNECTIONS, values));
        // The lock is a separate statement: one that waited for a worker's transaction would see the record as the worker
        // wrote it, but the queue as it was before.
        await run(client, LOCK_RECORDS, [agentId, connIds]);
        const workers = await APPLY[kind](client, agentId, connIds, nowMs);
        return { connIds, workers };
      });
      metrics.subscriptionCommand({ kind });
      log.info({ agent_id: agentId, kind, connections: connIds.length }, 'subscription command carried out');
      await kickAll(resources, workersIn(agentId, workers));
      const next = named || connIds.length < MAX_CONNECTIONS ? undefined : connIds.at(-1);
      return next === undefined ? {} : { next };
    },
  };
}

/** @returns the workers to wake. */
type Apply = (
  client: PoolClient,
  agentId: string,
  connIds: readonly string[],
  nowMs: number,
) => Promise<WorkerRow[]>;

const APPLY: Record<Command['kind'], Apply> = {
  create: (client, ...values) => run(client, START_WANTED, values),

  async reconcile(client, agentId, ...values) {
    const keeping = keepingOf(await loadToken(client, agentId));
    const ended = await run<WorkerRow>(client, END_RECORDS, [agentId, ...values, keeping === 'ended']);
    await run(client, REMOVE_DELETED_CONNECTIONS, [agentId, values[0], null]);
    const started =
      keeping === 'kept' ? await run<WorkerRow>(client, START_WANTED, [agentId, ...values]) : [];
    return [...ended, ...started];
  },
};

const AT_NOW = `to_timestamp($3::float8 / 1000)`;

/**
 * What a Create does about connections that want notifications: a record that is missing is made, one that does not agree with its
 * queue or that no worker continues is started over, and for every other one its worker is woken.
 *
 * A queue on another router is a mismatch also while neither side has an id: a worker that is woken for the router of the
 * queue would never find the record. Another fingerprint is no mismatch. Without a token there is no router to subscribe on; the
 * token's own Create will come. $1 agent, $2 connections, $3 now, epoch ms.
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
const END_RECORDS = {
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

/** The connections of a command that names none. */
const LIST_CONNECTIONS = {
  name: 'list_agent_connections',
  text: `
    SELECT conn_id
      FROM subscriptions.connections
     WHERE agent_id = $1 AND conn_id > $2
     ORDER BY conn_id
     LIMIT $3`,
};

// --- Trust in routers --------------------------------------------------------------------------------------------

/** Subscriptions that are made again together. */
const STARTED_TOGETHER = 1_000;

export function createRouterWork(resources: SubscriptionResources) {
  const { db, log, messagingRouter, notificationRouter } = resources;
  const ports = { smp: messagingRouter, ntf: notificationRouter };

  return {
    /**
     * Pins a router to a fingerprint, once it has answered under it: a messaging router with all queues on it, a
     * notification router with the token and the token deletions on it. Subscriptions to a messaging router are made
     * again, because their notification router reaches it under the fingerprint that they were made with.
     *
     * @returns why not: everything stays as it was then.
     */
    trustRouter: (agentId: string, { protocol, ...server }: TrustedRouter): Promise<string | undefined> =>
      whileBeating(async () => {
        const answer = await ports[protocol].ping(server);
        if (!answer.ok) return `the router did not answer under this fingerprint: ${errorText(answer.error)}`;
        const values = routerValues(agentId, server);
        if (protocol === 'ntf') {
          const pinned = await query(db, PIN_NTF_SERVER, values);
          if (pinned.length === 0)
            return 'the agent has no notification router with exactly these hosts and port';
        } else {
          // First, and in parts: while the former fingerprint is pinned, they are known by it.
          while ((await query(db, START_OVER, [...values, STARTED_TOGETHER])).length > 0);
          await query(db, PIN_SMP_SERVER, values);
          await kickAll(resources, [{ agentId, pool: 'ntf-smp', server }]);
        }
        log.info({ agent_id: agentId, server: `${server.host}:${server.port}`, protocol }, 'router pinned');
        return undefined;
      }),
  };
}

/**
 * What is being made already is subscribed under the new fingerprint. Rows are locked in the same order everywhere.
 */
const START_OVER = {
  name: 'start_subscriptions_of_router_over',
  text: `
    WITH stale AS (
      SELECT record.conn_id
        FROM subscriptions.ntf_subscriptions AS record
       CROSS JOIN LATERAL (${queueOf('record')}) AS queue
       WHERE record.agent_id = $1 AND record.smp_host = $2 AND record.smp_port = $3 AND record.ntf_action = 'C'
         AND record.ntf_sub_id IS NOT NULL
         AND queue.key_hash <> $4
       ORDER BY record.conn_id
       LIMIT $5
         FOR UPDATE OF record
    )
    UPDATE subscriptions.ntf_subscriptions AS record
       SET smp_ntf_id = NULL, ntf_sub_id = NULL, status = 'NEW', ntf_action = NULL, smp_action = 'K',
           action_ts = clock_timestamp(), generation = generation + 1, ntf_failed = false, smp_failed = false,
           updated_at = clock_timestamp()
      FROM stale
     WHERE record.agent_id = $1 AND record.conn_id = stale.conn_id
    RETURNING 1`,
};

const PIN_SMP_SERVER = {
  name: 'pin_smp_server',
  text: `
    WITH queues AS (
      UPDATE subscriptions.rcv_queues SET server_key_hash = NULL
       WHERE agent_id = $1 AND host = $2 AND port = $3 AND server_key_hash IS NOT NULL
    )
    INSERT INTO subscriptions.smp_servers (agent_id, host, port, key_hash)
    VALUES ($1, $2, $3, $4)
    ON CONFLICT (agent_id, host, port) DO UPDATE
       SET key_hash = excluded.key_hash, updated_at = clock_timestamp()`,
};

/** Deletions keep the fingerprint that they were written with: their token is gone. */
const PIN_NTF_SERVER = {
  name: 'pin_ntf_server',
  text: `
    WITH deletions AS (
      UPDATE subscriptions.ntf_tokens_to_delete SET key_hash = $4 WHERE agent_id = $1 AND host = $2 AND port = $3
    )
    UPDATE subscriptions.ntf_servers SET key_hash = $4, updated_at = clock_timestamp()
     WHERE agent_id = $1 AND host = $2 AND port = $3
    RETURNING 1`,
};
