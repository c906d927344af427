/**
 * The activities of the workers of each pool and of the supervisor. The supervisor's commands are one transaction a page, no
 * network, and then the workers that have something to do are woken. A command that is carried out again changes nothing more.
 */
import { AddressError, parseBinaryAddress } from '../../api/subscription/router-address.ts';
import { queueOf } from '../../api/subscription/rows.ts';
import type {
  AgentState,
  ClaimOrder,
  ClaimResult,
  CommandUnderWay,
  WorkerPool,
} from '../../workflows/subscription/contract.ts';
import { MAX_CONNECTIONS, poolWorkerWorkflowId } from '../../workflows/subscription/contract.ts';
import { unlessGone } from '../../api/stuck-workflow.ts';
import { query, inTransaction, run } from '../postgres.ts';
import type { EventKind } from './agents.ts';
import { ensureAgent, errorText, loadAgent, routerValues, setAgentOpen, writeEvent } from './agents.ts';
import type { SubscriptionResources } from './batches.ts';
import { whileBeating } from './batches.ts';
import type { SubscriptionCommands, WorkerRow } from './commands.ts';
import { kickAll, workersIn } from './commands.ts';
import { REMOVE_DELETED_CONNECTIONS, createCredentialWork } from './credentials.ts';
import { createDeletionWork, createNotificationWork } from './notifications.ts';
import { createDueWork, keepingOf } from './reconciliation.ts';
import type { IdRow } from './records.ts';
import { END_RECORDS, LOCK_RECORDS, START_WANTED, claimBatch, idsIn } from './records.ts';
import { loadToken } from './token-rows.ts';

/** Most records of one round. */
const MAX_RECORDS = 150;

export type SubscriptionActivities = ReturnType<typeof createSubscriptionActivities>;

/** What went wrong apart from single items, with the pool of the worker that died of it, if one did. */
interface ErrorReport {
  agentId: string;
  kind: Exclude<EventKind, 'ERRS'>;
  error: string;
  pool?: WorkerPool;
}

export function createSubscriptionActivities(
  resources: SubscriptionResources & { commands: SubscriptionCommands },
) {
  const { db, log, metrics, workflows, subscription: settings } = resources;
  const routers = { smp: resources.messagingRouter, ntf: resources.notificationRouter };

  return {
    ...createCredentialWork(resources),
    ...createNotificationWork(resources),
    ...createDeletionWork(resources),
    kickDue: createDueWork(resources).kickDue,

    /** Picks up what is due for a worker, and tells it how to work. */
    async claim(order: ClaimOrder): Promise<ClaimResult> {
      const agent = await loadAgent(db, order.agentId);
      const epoch = order.epoch ?? agent?.epoch;
      if (!agent?.isOpen || epoch !== agent.epoch) return { isClosed: true };
      return { ...(await claimBatch(db, order, MAX_RECORDS)), isClosed: false, epoch, pace: settings.pace };
    },

    /**
     * Ends the subscriptions that are not wanted, and makes those that are: of the connections that a command names, or of a
     * page of all.
     *
     * @returns after which connection the next page begins, if there is one.
     */
    async reconcileConnections(
      agentId: string,
      { connIds: named, after = '' }: CommandUnderWay,
      nowMs: number,
    ): Promise<string | undefined> {
      const { connIds, workers } = await inTransaction(db, async (client) => {
        const page = [agentId, after, MAX_CONNECTIONS];
        const connIds = named ?? idsIn(await run<IdRow>(client, LIST_CONNECTIONS, page));
        // The lock is a separate statement: one that waited for a worker's transaction would see the record as the worker
        // wrote it, but the queue as it was before.
        await run(client, LOCK_RECORDS, [agentId, connIds]);
        const keeping = keepingOf(await loadToken(client, agentId));
        const values = [agentId, connIds, nowMs];
        const workers = await run<WorkerRow>(client, END_RECORDS, [...values, keeping === 'ended']);
        await run(client, REMOVE_DELETED_CONNECTIONS, [agentId, connIds, null]);
        if (keeping === 'kept') workers.push(...(await run<WorkerRow>(client, START_WANTED, values)));
        return { connIds, workers };
      });
      log.info({ agent_id: agentId, connections: connIds.length }, 'subscription command carried out');
      await kickAll(resources, workersIn(agentId, workers));
      return named || connIds.length < MAX_CONNECTIONS ? undefined : connIds.at(-1);
    },

    /** Tells clients, which the relay writes to the log and counts. */
    async reportError({ agentId, kind, error, pool }: ErrorReport): Promise<void> {
      const errors = [{ connId: '', error }];
      await inTransaction(db, (client) => writeEvent(client, { agentId, kind, errors }));
      if (pool) metrics.subscriptionDeath({ pool });
    },

    /** @returns how the agent stands, made if there was none. */
    async loadAgentState(agentId: string): Promise<AgentState> {
      await ensureAgent(db, agentId);
      return (await loadAgent(db, agentId))!;
    },

    /**
     * Closes an agent: nothing is claimed any more, nothing that is under way is written, and its workers end. Or opens
     * it again; waking workers is up to the caller.
     */
    async setOpen(agentId: string, isOpen: boolean): Promise<AgentState> {
      const agent = await setAgentOpen(db, agentId, isOpen);
      const rows = isOpen ? [] : await query<WorkerRow>(db, LIST_WORKERS, [agentId]);
      const ids = workersIn(agentId, rows).map(poolWorkerWorkflowId);
      const cancelled = await Promise.all(
        ids.map((workflowId) => unlessGone(() => workflows.getHandle(workflowId).cancel())),
      );
      const workers = cancelled.filter((answer) => answer !== undefined).length;
      log.info({ agent_id: agentId, epoch: agent.epoch, workers }, isOpen ? 'agent opened' : 'agent closed');
      return agent;
    },

    /**
     * Pins a router to a fingerprint, once it has answered under it: a messaging router with all queues on it, a
     * notification router with the token and the token deletions on it. Subscriptions to a messaging router are made
     * again, because their notification router reaches it under the fingerprint that they were made with.
     *
     * @param address `smp://…` or `ntf://…`
     * @returns why not: everything stays as it was then.
     */
    trustRouter: (agentId: string, address: string): Promise<string | undefined> =>
      whileBeating(async () => {
        const { protocol, ...server } = parseBinaryAddress(address);
        const answer = await routers[protocol].ping(server);
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
      }).catch((error: unknown) => {
        if (error instanceof AddressError) return error.message;
        throw error;
      }),
  };
}

/** All that there can be, by the servers of the agent. */
const LIST_WORKERS = {
  name: 'list_subscription_workers',
  text: `
    SELECT 'ntf-smp' AS pool, host, port FROM subscriptions.smp_servers WHERE agent_id = $1
     UNION ALL
    SELECT pool, host, port
      FROM subscriptions.ntf_servers
     CROSS JOIN unnest(ARRAY['ntf-ntf', 'ntf-tkn-del']) AS pool
     WHERE agent_id = $1`,
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
