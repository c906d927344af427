/**
 * Agents: whether one is open, and has a token for which subscriptions are kept. Owns the SQL of `subscriptions.agents`.
 */
import { tokenContext } from '../../api/subscription/sealed-columns.ts';
import { ApplicationFailure } from '@temporalio/activity';
import type { Pool, PoolClient } from 'pg';
import type { KeyBox } from '../../api/key-box.ts';
import { ENSURE_AGENT } from '../../api/subscription/rows.ts';
import { SUBSCRIPTION_CLOSED } from '../../workflows/failures.ts';
import { query } from '../postgres.ts';
import { run } from '../transactions.ts';
import type { RouterAddress, TokenRef, TokenStatus } from './router/ports.ts';
import { addressOf } from './rows.ts';
import { loadTokenRow } from './token-rows.ts';

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
 * Within a transaction that writes what a worker has done: nothing of an earlier epoch is written, and the agent is not
 * closed before the transaction has ended.
 *
 * @throws ApplicationFailure `SubscriptionClosed`, not retried.
 */
export async function requireEpoch(client: PoolClient, agentId: string, epoch: number): Promise<void> {
  const [row] = await run<AgentRow>(client, LOCK_AGENT, [agentId]);
  if (row?.isOpen && row.epoch === epoch) return;
  throw ApplicationFailure.nonRetryable(`agent ${agentId} was closed`, SUBSCRIPTION_CLOSED);
}

/** Ends the epoch and begins another one. Without effect on an agent that is open or closed already. */
export async function setAgentOpen(db: Pool, agentId: string, isOpen: boolean): Promise<AgentRow> {
  const [row] = await query<AgentRow>(db, SET_AGENT_OPEN, [agentId, isOpen]);
  return row!;
}

/** The row decides, not a memory of the process: after a restart work continues without another registration. */
export interface CurrentToken {
  address: RouterAddress;
  status: TokenStatus;
  isInstant: boolean;
  /** undefined until the router knows it. */
  tokenId: string | undefined;
  /** Sealed. */
  privateKey: Buffer;
}

/** @returns undefined when the agent has none. */
export async function loadToken(db: Pool | PoolClient, agentId: string): Promise<CurrentToken | undefined> {
  const row = await loadTokenRow(db, agentId);
  if (!row) return undefined;
  return {
    address: addressOf(row),
    status: row.status,
    isInstant: row.mode === 'INSTANT',
    tokenId: row.token_id ?? undefined,
    privateKey: row.auth_private_key,
  };
}

/** Whether subscriptions are kept at all: the token is verified and wants a push for each message. */
export function isGateOpen(token: CurrentToken | undefined): token is CurrentToken {
  return token?.status === 'ACTIVE' && token.isInstant;
}

/**
 * The token with its key, for a router.
 *
 * @returns undefined when the router does not know it yet.
 * @throws KeyBoxError when the key does not open.
 */
export function tokenRefOf(token: CurrentToken, keyBox: KeyBox, agentId: string): TokenRef | undefined {
  const { address, tokenId, privateKey } = token;
  if (tokenId === undefined) return undefined;
  return { address, tokenId, privateKey: keyBox.open(privateKey, tokenContext('auth_private_key', agentId)) };
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
