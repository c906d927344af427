/**
 * The activities of notification subscriptions: those of the workers of each pool and of the supervisor.
 */
import type {
  AgentState,
  ClaimOrder,
  ClaimResult,
  WorkerPool,
  WorkerKey,
} from '../../workflows/subscription/contract.ts';
import { WORKER_POOLS, poolWorkerWorkflowId } from '../../workflows/subscription/contract.ts';
import { unlessGone } from '../../api/stuck-workflow.ts';
import { query, inTransaction } from '../postgres.ts';
import type { EventKind } from './agents.ts';
import { ensureAgent, loadAgent, setAgentOpen, writeEvent } from './agents.ts';
import type { SubscriptionResources } from './batches.ts';
import type { SubscriptionCommands } from './commands.ts';
import { createCredentialWork } from './credentials.ts';
import { createDeletionWork, createNotificationWork } from './notifications.ts';
import { createDueWork } from './reconciliation.ts';
import { claimBatch } from './records.ts';
import { createCommandWork, createRouterWork } from './supervisor.ts';

/** Most records of one round. */
const MAX_RECORDS = 150;

export type SubscriptionActivities = ReturnType<typeof createSubscriptionActivities>;

/** What went wrong apart from single items. */
export interface ErrorReport {
  agentId: string;
  kind: Exclude<EventKind, 'ERRS'>;
  error: string;
  /** Of the worker that died, if it was one. */
  pool?: WorkerPool;
}

export function createSubscriptionActivities(
  resources: SubscriptionResources & { commands: SubscriptionCommands },
) {
  const { db, log, metrics, workflows, subscription: settings } = resources;

  return {
    ...createCredentialWork(resources),
    ...createNotificationWork(resources),
    ...createDeletionWork(resources),
    ...createCommandWork(resources),
    kickDue: createDueWork(resources).kickDue,
    ...createRouterWork(resources),

    /** Picks up what is due for a worker, and tells it how to work. */
    async claim(order: ClaimOrder): Promise<ClaimResult> {
      const agent = await loadAgent(db, order.agentId);
      const epoch = order.epoch ?? agent?.epoch;
      if (!agent?.isOpen || epoch !== agent.epoch) return { isClosed: true };
      return { ...(await claimBatch(db, order, MAX_RECORDS)), isClosed: false, epoch, pace: settings.pace };
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
      const keys = isOpen ? [] : await listWorkers(agentId);
      const cancelled = await Promise.all(
        keys.map((key) => unlessGone(() => workflows.getHandle(poolWorkerWorkflowId(key)).cancel())),
      );
      const workers = cancelled.filter((answer) => answer !== undefined).length;
      log.info({ agent_id: agentId, epoch: agent.epoch, workers }, isOpen ? 'agent opened' : 'agent closed');
      return agent;
    },
  };

  /** All that there can be, by the servers of the agent. */
  async function listWorkers(agentId: string): Promise<WorkerKey[]> {
    const rows = await query<{ kind: string; host: string; port: number }>(db, LIST_SERVERS, [agentId]);
    return rows.flatMap(({ kind, host, port }) =>
      WORKER_POOLS.filter((pool) => (kind === 'smp') === (pool === 'ntf-smp')).map((pool) => ({
        agentId,
        pool,
        server: { host, port },
      })),
    );
  }
}

const LIST_SERVERS = {
  name: 'list_subscription_servers',
  text: `
    SELECT 'smp' AS kind, host, port FROM subscriptions.smp_servers WHERE agent_id = $1
    UNION
    SELECT 'ntf', host, port FROM subscriptions.ntf_servers WHERE agent_id = $1
     ORDER BY 1, 2, 3`,
};
