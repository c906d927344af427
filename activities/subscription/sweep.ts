/**
 * The sweep: rows are written before a worker is woken for them, and a process may end in between. So the sweep looks
 * for rows that are due and wakes their workers.
 */
import type { SweepOutcome, WorkerKey } from '../../workflows/subscription/contract.ts';
import { query } from '../postgres.ts';
import { reasonOf } from '../reason.ts';
import type { SubscriptionResources } from './batches.ts';
import type { SubscriptionCommands } from './commands.ts';
import { kickAll } from './commands.ts';
import { relayEvents } from './events.ts';
import { createReconciliation } from './reconciliation.ts';
import { createDeletionWork } from './token-deletion.ts';

/** How long events that were relayed, and requests that nobody finished, are kept, ms. */
const EVENTS_KEPT_MS = 7 * 24 * 3_600_000;
const REQUESTS_KEPT_MS = 24 * 3_600_000;

export function createSweepWork(resources: SubscriptionResources & { commands: SubscriptionCommands }) {
  const { db, log, subscription: settings } = resources;
  const { dropExpiredTokenDeletions } = createDeletionWork(resources);
  const { createMissing, endUnwanted, recoverUnreadable } = createReconciliation(resources);

  return {
    /** One sweep over all agents that are open. A part that cannot be done does not keep the others from being done. */
    async sweepSubscriptions(nowMs: number): Promise<SweepOutcome> {
      const agents = await query<{ agent_id: string }>(db, LIST_AGENTS, []);
      let recovered = 0;
      for (const { agent_id: agentId } of agents) {
        recovered += await orNothing('rows that could not be read', () => recoverUnreadable(agentId));
      }
      const due = await listDue(nowMs);
      const unkicked = await kickAll(resources, due);
      let creates = 0;
      let unwanted = 0;
      for (const { agent_id: agentId } of agents) {
        creates += await orNothing('connections without a record', () => createMissing(agentId));
        unwanted += await orNothing('records that are not wanted', () => endUnwanted(agentId));
      }
      const outcome: SweepOutcome = {
        kicks: due.length - unkicked.length,
        creates,
        unwanted,
        recovered,
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
                          AND is_deleted AND NOT del_failed)
      ) AS due
      JOIN subscriptions.agents USING (agent_id)
     WHERE is_open AND ($2::text IS NULL OR agent_id = $2)
     ORDER BY 1, 2, 3, 4`,
};

const LIST_AGENTS = {
  name: 'list_open_subscription_agents',
  text: 'SELECT agent_id FROM subscriptions.agents WHERE is_open ORDER BY agent_id',
};

const FORGET = {
  name: 'forget_subscription_leftovers',
  text: `
    WITH events AS (
      DELETE FROM subscriptions.events WHERE relayed_at < to_timestamp($1::float8 / 1000)
    ), imports AS (
      DELETE FROM subscriptions.queue_imports WHERE created_at < to_timestamp($2::float8 / 1000)
    )
    DELETE FROM subscriptions.token_requests WHERE created_at < to_timestamp($2::float8 / 1000)`,
};
