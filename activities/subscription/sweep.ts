/**
 * The sweep: rows are written before a worker is woken for them, and a process may end in between. So the sweep looks
 * for rows that are due and wakes their workers.
 */
import type { SweepOutcome, WorkerKey } from '../../workflows/subscription/contract.ts';
import { withHeartbeats } from '../heartbeat.ts';
import { query } from '../postgres.ts';
import { reasonOf } from '../reason.ts';
import type { SubscriptionResources } from './batches.ts';
import type { SubscriptionCommands } from './commands.ts';
import { kickAll, replaceStuck } from './commands.ts';
import { createReconciliation } from './reconciliation.ts';

/** Agents that are looked at together. */
const AGENTS_AT_ONCE = 100;

export function createSweepWork(resources: SubscriptionResources & { commands: SubscriptionCommands }) {
  const { db, log, subscription: settings } = resources;
  const { createMissing, endUnwanted, recoverUnreadable } = createReconciliation(resources);

  return {
    /** One sweep over all agents that are open. A part that cannot be done does not keep the others from being done. */
    sweepSubscriptions: (nowMs: number): Promise<SweepOutcome> =>
      withHeartbeats(async () => {
        const outcome: SweepOutcome = await sweepAgents(nowMs);
        log.info({ ...outcome }, 'subscriptions swept');
        return outcome;
      }),

    /** Wakes a worker for everything of an agent that is due. @returns how many were woken. */
    kickDue: async (agentId: string, nowMs: number): Promise<number> => wake(await dueOf([agentId], nowMs)),
  };

  async function sweepAgents(nowMs: number) {
    const swept = { kicks: 0, replaced: 0, creates: 0, unwanted: 0, recovered: 0 };
    for (let after = ''; ;) {
      const page = await query<{ agent_id: string }>(db, LIST_AGENTS, [after, AGENTS_AT_ONCE]);
      const agentIds = page.map(({ agent_id }) => agent_id);
      for (const agentId of agentIds) {
        swept.recovered += await orNothing('rows that could not be read', () => recoverUnreadable(agentId));
      }
      const due = await dueOf(agentIds, nowMs);
      swept.replaced += await orNothing('workers that are stuck', () => replaceStuck(resources, due));
      swept.kicks += await wake(due);
      for (const agentId of agentIds) {
        swept.creates += await orNothing('connections without a record', () => createMissing(agentId));
        swept.unwanted += await orNothing('records that are not wanted', () => endUnwanted(agentId));
      }
      if (agentIds.length < AGENTS_AT_ONCE) return swept;
      after = agentIds.at(-1)!;
    }
  }

  /** Includes records that are due before the next sweep but one: their workers then wait for the exact time. */
  async function dueOf(agentIds: readonly string[], nowMs: number): Promise<WorkerKey[]> {
    const rows = await query<DueRow>(db, LIST_DUE, [nowMs + 2 * settings.sweepIntervalMs, agentIds]);
    return rows.map(({ agent_id: agentId, pool, host, port }) => ({ agentId, pool, server: { host, port } }));
  }

  async function wake(due: readonly WorkerKey[]): Promise<number> {
    return due.length - (await kickAll(resources, due)).length;
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

/** @param server SQL: host and port of the one before. */
const tokenServerAfter = (server: string): string => `
        SELECT host, port
          FROM subscriptions.ntf_tokens_to_delete AS deletion
         WHERE deletion.agent_id = agent.agent_id AND (deletion.host, deletion.port) > ${server} AND NOT del_failed
         ORDER BY deletion.host, deletion.port
         LIMIT 1`;

const firstOnNtf = (condition: string): string => `
         SELECT FROM subscriptions.ntf_subscriptions AS record
          WHERE (record.agent_id, record.ntf_host, record.ntf_port) = (server.agent_id, server.host, server.port)
            AND ntf_action IS NOT NULL AND NOT ntf_failed AND ${condition}
          ORDER BY action_ts
          LIMIT 1`;

/**
 * One look into an index for each server, and none at its rows. What is no check is due when it is written; rows
 * without a time are those that nobody can read, for their worker to find. $1 due until, epoch ms, $2 agents.
 */
const LIST_DUE = {
  name: 'list_due_subscription_servers',
  text: `
    WITH RECURSIVE agent AS MATERIALIZED (
      SELECT agent_id FROM subscriptions.agents WHERE agent_id = ANY ($2::text[]) AND is_open
    ), token_server AS (
      SELECT agent_id, host, port FROM agent CROSS JOIN LATERAL (${tokenServerAfter("('', 0)")}) AS first
      UNION ALL
      SELECT agent_id, next.host, next.port
        FROM token_server AS agent
       CROSS JOIN LATERAL (${tokenServerAfter('(agent.host, agent.port)')}) AS next
    )
    SELECT agent_id, 'ntf-smp' AS pool, host, port
      FROM agent
      JOIN subscriptions.smp_servers AS server USING (agent_id)
     CROSS JOIN LATERAL (
       SELECT FROM subscriptions.ntf_subscriptions AS record
        WHERE (record.agent_id, smp_host, smp_port) = (server.agent_id, server.host, server.port)
          AND smp_action IS NOT NULL AND NOT smp_failed AND action_ts IS NOT NULL
        ORDER BY action_ts
        LIMIT 1
     ) AS due
     UNION ALL
    SELECT agent_id, 'ntf-ntf', host, port
      FROM agent
      JOIN subscriptions.ntf_servers AS server USING (agent_id)
     CROSS JOIN LATERAL (
       (${firstOnNtf('action_ts <= to_timestamp($1::float8 / 1000)')})
       UNION ALL
       (${firstOnNtf('action_ts IS NULL')})
       LIMIT 1
     ) AS due
     UNION ALL
    SELECT agent_id, 'ntf-tkn-del', host, port FROM token_server
     ORDER BY 1, 2, 3, 4`,
};

/** $1 the last agent of the page before, $2 agents at most. */
const LIST_AGENTS = {
  name: 'list_open_subscription_agents',
  text: 'SELECT agent_id FROM subscriptions.agents WHERE is_open AND agent_id > $1 ORDER BY agent_id LIMIT $2',
};
