/**
 * Commands to supervisors from outside their workflow: signal-with-start, so that none is lost while a supervisor does
 * not run. Safe to repeat.
 */
import type { WorkflowClient } from '@temporalio/client';
import type { Pool } from 'pg';
import type { Logger } from 'pino';
import type { Command, CommandKind, FlushRequest } from '../../workflows/subscription/contract.ts';
import {
  COMMAND_SIGNAL,
  FLUSH_AND_SMP_DELETE_SIGNAL,
  MAX_CONNECTIONS,
  SUBSCRIPTION_TASK_QUEUE,
  SUPERVISOR_WORKFLOW,
  supervisorWorkflowId,
} from '../../workflows/subscription/contract.ts';
import type { ServerKey } from '../../workflows/subscription/rules.ts';
import { isGateOpen, loadToken } from './gate.ts';
import { kick } from './kicks.ts';

export interface CommandResources {
  db: Pool;
  workflows: WorkflowClient;
  log: Logger;
}

export type SubscriptionCommands = ReturnType<typeof createSubscriptionCommands>;

export function createSubscriptionCommands(resources: CommandResources) {
  const { db, workflows, log } = resources;

  return {
    /**
     * Has something done about connections. Create and smp-delete pass the instant gate (seed "sendNtfSubCommand"):
     * without an active token with instant notifications they are dropped.
     *
     * @returns whether they passed.
     */
    async send(agentId: string, kind: CommandKind, connIds: readonly string[]): Promise<boolean> {
      if (kind !== 'delete-sub' && !isGateOpen(await loadToken(db, agentId))) {
        log.debug({ agent_id: agentId, kind, connections: connIds.length }, 'subscription command not sent');
        return false;
      }
      await sendPages(agentId, kind, connIds);
      return true;
    },

    /** As `send`, without looking at the gate: for what follows from a state that was under it. */
    sendAnyway: sendPages,

    /** Subscribes all connections that want it. The caller knows that the gate is open. */
    createAll: (agentId: string): Promise<void> => signal(agentId, COMMAND_SIGNAL, { kind: 'create' }),

    /** Forgets what waits, but no deletion, and ends the subscriptions of all connections. */
    flushAndSmpDeleteAll: (agentId: string): Promise<void> =>
      signal(agentId, FLUSH_AND_SMP_DELETE_SIGNAL, {}),

    /** Has the deletion records of a notification router worked off. */
    kickTokenDeletion: (agentId: string, server: ServerKey): Promise<void> =>
      kick(resources, { agentId, pool: 'ntf-tkn-del', server }),
  };

  async function sendPages(agentId: string, kind: CommandKind, connIds: readonly string[]): Promise<void> {
    for (let start = 0; start < connIds.length; start += MAX_CONNECTIONS) {
      await signal(agentId, COMMAND_SIGNAL, {
        kind,
        connIds: connIds.slice(start, start + MAX_CONNECTIONS),
      });
    }
  }

  async function signal(agentId: string, name: string, argument: Command | FlushRequest): Promise<void> {
    await workflows.signalWithStart(SUPERVISOR_WORKFLOW, {
      workflowId: supervisorWorkflowId(agentId),
      taskQueue: SUBSCRIPTION_TASK_QUEUE,
      args: [agentId],
      signal: name,
      signalArgs: [argument],
      staticSummary: `subscriptions of ${agentId}`,
    });
  }
}
