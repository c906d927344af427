/** Agents: whether one is open. Owns the SQL of `subscriptions.agents`. */
import { ApplicationFailure } from '@temporalio/activity';
import type { Pool, PoolClient } from 'pg';
import { ENSURE_AGENT } from '../../api/subscription/rows.ts';
import { SUBSCRIPTION_CLOSED } from '../../workflows/failures.ts';
import { query, inTransaction, run } from '../postgres.ts';

export interface AgentRow {
  epoch: number;
  isOpen: boolean;
}

/** Makes the agent if it does not exist yet. An agent that was closed stays closed. */
export async function ensureAgent(db: Pool, agentId: string): Promise<void> {
  await query(db, ENSURE_AGENT, [agentId]);
}

/** @returns undefined for an agent that does not exist. */
export async function loadAgent(db: Pool, agentId: string): Promise<AgentRow | undefined> {
  const [row] = await query<AgentRow>(db, LOAD_AGENT, [agentId]);
  return row;
}

/**
 * A transaction that writes what a worker has done: nothing of an earlier epoch is written, and the agent is not closed
 * before the transaction has ended.
 *
 * @throws ApplicationFailure `SubscriptionClosed`, not retried.
 */
export const inEpoch = <T>(
  db: Pool,
  { agentId, epoch }: { agentId: string; epoch: number },
  body: (client: PoolClient) => Promise<T>,
): Promise<T> =>
  inTransaction(db, async (client) => {
    const [row] = await run<AgentRow>(client, LOCK_AGENT, [agentId]);
    if (row?.isOpen && row.epoch === epoch) return body(client);
    throw ApplicationFailure.nonRetryable(`agent ${agentId} was closed`, SUBSCRIPTION_CLOSED);
  });

/** Ends the epoch and begins another one. Without effect on an agent that is open or closed already. */
export async function setAgentOpen(db: Pool, agentId: string, isOpen: boolean): Promise<AgentRow> {
  const [row] = await query<AgentRow>(db, SET_AGENT_OPEN, [agentId, isOpen]);
  return row!;
}

const COLUMNS = 'epoch, is_open AS "isOpen"';

const LOAD_AGENT = {
  name: 'load_subscription_agent',
  text: `SELECT ${COLUMNS} FROM subscriptions.agents WHERE agent_id = $1`,
};

const LOCK_AGENT = {
  name: 'lock_subscription_agent',
  text: `SELECT ${COLUMNS} FROM subscriptions.agents WHERE agent_id = $1 FOR SHARE`,
};

const SET_AGENT_OPEN = {
  name: 'set_subscription_agent_open',
  text: `
    UPDATE subscriptions.agents
       SET is_open = $2, epoch = epoch + (is_open <> $2)::int
     WHERE agent_id = $1
    RETURNING ${COLUMNS}`,
};
