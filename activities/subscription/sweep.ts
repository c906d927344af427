/**
 * The sweep: rows are written before a worker is woken for them, and a process may end in between. So the sweep looks
 * for rows that are due and wakes their workers.
 */
import type { SweepOutcome, WorkerKey } from '../../workflows/subscription/contract.ts';
import { MAX_CONNECTIONS } from '../../workflows/subscription/contract.ts';
import { query } from '../postgres.ts';
import { reasonOf } from '../reason.ts';
import { isGateOpen, loadToken } from './agents.ts';
import type { SubscriptionResources } from './batches.ts';
import type { SubscriptionCommands } from './commands.ts';
import { kickAll } from './commands.ts';
import { relayEvents } from './events.ts';
import { createDeletionWork } from './token-deletion.ts';

/** How long events that were relayed, and requests that nobody finished, are kept, ms. */
const EVENTS_KEPT_MS = 7 * 24 * 3_600_000;
const REQUESTS_KEPT_MS = 24 * 3_600_000;

export function createSweepWork(resources: SubscriptionResources & { commands: SubscriptionCommands }) {
  const { db, log, commands, subscription: settings } = resources;
  const { dropExpiredTokenDeletions } = createDeletionWork(resources);

  return {
    /** One sweep over all agents that are open. A part that cannot be done does not keep the others from being done. */
    async sweepSubscriptions(nowMs: number): Promise<SweepOutcome> {
      const due = await listDue(nowMs);
      const unkicked = await kickAll(resources, due);
      const agents = await query<{ agent_id: string }>(db, LIST_AGENTS, []);
      let creates = 0;
      for (const { agent_id: agentId } of agents) {
        creates += await orNothing('connections without a record', () => createMissing(agentId));
      }
      const outcome: SweepOutcome = {
        kicks: due.length - unkicked.length,
        creates,
        expiredTokenDeletions: await dropExpiredTokenDeletions(nowMs),
        relayedEvents: await orNothing('events', () => relayEvents(resources)),
      };
      await query(db, FORGET, [nowMs - EVENTS_KEPT_MS, nowMs - REQUESTS_KEPT_MS]);
      log.info({ ...outcome }, 'subscriptions swept');
      return outcome;
    },

    /** Wakes a worker for everything of an agent that is due. @returns how many were woken. */
    async kickDue(agentId: string, nowMs: number): Promise<number> {
      const due = await listDue(nowMs, agentId);
      const unkicked = await kickAll(resources, due);
      return due.length - unkicked.length;
    },
  };

  /** Includes records that are due before the next sweep but one: their workers then wait for the exact time. */
  async function listDue(nowMs: number, ofAgent: string | null = null): Promise<WorkerKey[]> {
    const rows = await query<DueRow>(db, LIST_DUE, [nowMs + 2 * settings.sweepIntervalMs, ofAgent]);
    return rows.map(({ agent_id: agentId, pool, host, port }) => ({ agentId, pool, server: { host, port } }));
  }

  /** A connection that wants notifications and has no record lost its Create somewhere. */
  async function createMissing(agentId: string): Promise<number> {
    if (!isGateOpen(await loadToken(db, agentId))) return 0;
    const rows = await query<{ conn_id: string }>(db, LIST_MISSING, [agentId, MAX_CONNECTIONS]);
    const connIds = rows.map(({ conn_id }) => conn_id);
    // Too many to name: the command looks at all connections, and costs little for those with a subscription.
    if (connIds.length === MAX_CONNECTIONS) await commands.createAll(agentId);
    else if (connIds.length > 0) await commands.send(agentId, 'create', connIds);
    return connIds.length;
  }

  async function orNothing(what: string, work: () => Promise<number>): Promise<number> {
    try {
      return await work();
    } catch (error) {
      log.warn({ what, reason: reasonOf(error) }, 'part of a subscription sweep left for the next one');
      return 0;
    }
  }
}

interface DueRow {
  agent_id: string;
  pool: WorkerKey['pool'];
  host: string;
  port: number;
}

/**
 * One look into an index for each server, and none at its rows. What is no check is due when it is written; rows
 * without a time are those that nobody can read, for their worker to find.
 */
const LIST_DUE = {
  name: 'list_due_subscription_servers',
  text: `
    SELECT agent_id, pool, host, port
      FROM (
        SELECT agent_id, 'ntf-smp' AS pool, host, port
          FROM subscriptions.smp_servers AS server
         WHERE EXISTS (SELECT FROM subscriptions.ntf_subscriptions
                        WHERE (agent_id, smp_host, smp_port) = (server.agent_id, server.host, server.port)
                          AND smp_action IS NOT NULL AND NOT smp_failed AND action_ts IS NOT NULL)
        UNION
        SELECT agent_id, 'ntf-ntf', host, port
          FROM subscriptions.ntf_servers AS server
         WHERE EXISTS (SELECT FROM subscriptions.ntf_subscriptions
                        WHERE (agent_id, ntf_host, ntf_port) = (server.agent_id, server.host, server.port)
                          AND ntf_action IS NOT NULL AND NOT ntf_failed
                          AND action_ts <= to_timestamp($1::float8 / 1000))
            OR EXISTS (SELECT FROM subscriptions.ntf_subscriptions
                        WHERE (agent_id, ntf_host, ntf_port) = (server.agent_id, server.host, server.port)
                          AND ntf_action IS NOT NULL AND NOT ntf_failed AND action_ts IS NULL)
        UNION
        SELECT agent_id, 'ntf-tkn-del', host, port
          FROM subscriptions.ntf_tokens_to_delete
         WHERE NOT del_failed
        UNION
        SELECT agent_id, 'smp-que-del', host, port
          FROM subscriptions.smp_servers AS server
         WHERE EXISTS (SELECT FROM subscriptions.rcv_queues AS queue
                        WHERE (queue.agent_id, queue.host, queue.port) = (server.agent_id, server.host, server.port)
                          AND is_deleted)
      ) AS due
      JOIN subscriptions.agents USING (agent_id)
     WHERE is_open AND ($2::text IS NULL OR agent_id = $2)
     ORDER BY 1, 2, 3, 4`,
};

const LIST_AGENTS = {
  name: 'list_open_subscription_agents',
  text: 'SELECT agent_id FROM subscriptions.agents WHERE is_open ORDER BY agent_id',
};

const LIST_MISSING = {
  name: 'list_connections_without_subscription',
  text: `
    SELECT conn_id
      FROM subscriptions.connections AS connection
     WHERE agent_id = $1 AND is_subscribed AND NOT is_deleted AND enable_ntfs IS NOT FALSE
       AND NOT EXISTS (SELECT FROM subscriptions.ntf_subscriptions AS record
                        WHERE record.agent_id = $1 AND record.conn_id = connection.conn_id)
       AND EXISTS (SELECT FROM subscriptions.rcv_queues AS queue
                    WHERE queue.agent_id = $1 AND queue.conn_id = connection.conn_id AND NOT queue.is_deleted)
     ORDER BY conn_id
     LIMIT $2`,
};

const FORGET = {
  name: 'forget_subscription_leftovers',
  text: `
    WITH events AS (
      DELETE FROM subscriptions.events WHERE relayed_at < to_timestamp($1::float8 / 1000)
    )
    DELETE FROM subscriptions.token_requests WHERE created_at < to_timestamp($2::float8 / 1000)`,
};
