/** An agent: whether it is open, its routers, and what its clients are told. */
import { ApplicationFailure } from '@temporalio/activity';
import type { Pool, PoolClient } from 'pg';
import { ENSURE_AGENT } from '../../api/subscription/rows.ts';
import { SUBSCRIPTION_CLOSED } from '../../workflows/failures.ts';
import type { AgentState } from '../../workflows/subscription/contract.ts';
import { query, inTransaction, run } from '../postgres.ts';
import { oneLine } from '../reason.ts';
import { relayedTable } from '../relay.ts';
import type { RouterAddress, RouterError } from './router/ports.ts';

/** Makes the agent if it does not exist yet. An agent that was closed stays closed. */
export async function ensureAgent(db: Pool, agentId: string): Promise<void> {
  await query(db, ENSURE_AGENT, [agentId]);
}

/** @returns undefined for an agent that does not exist. */
export async function loadAgent(db: Pool, agentId: string): Promise<AgentState | undefined> {
  const [row] = await query<AgentState>(db, LOAD_AGENT, [agentId]);
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
    const [row] = await run<AgentState>(client, LOCK_AGENT, [agentId]);
    if (row?.isOpen && row.epoch === epoch) return body(client);
    throw ApplicationFailure.nonRetryable(`agent ${agentId} was closed`, SUBSCRIPTION_CLOSED);
  });

/** Ends the epoch and begins another one. Without effect on an agent that is open or closed already. */
export async function setAgentOpen(db: Pool, agentId: string, isOpen: boolean): Promise<AgentState> {
  const [row] = await query<AgentState>(db, SET_AGENT_OPEN, [agentId, isOpen]);
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

// --- Routers -----------------------------------------------------------------------------------------------------

/** The parameters of statements about a router. */
export const routerValues = (agentId: string, { host, port, keyHash }: RouterAddress): unknown[] => [
  ...[agentId, host, port, keyHash],
];

/** Keeps a notification router as it is configured. */
export const UPSERT_NTF_SERVER = {
  name: 'upsert_ntf_server',
  text: `
    INSERT INTO subscriptions.ntf_servers AS known (agent_id, host, port, key_hash)
    VALUES ($1, $2, $3, $4)
    ON CONFLICT (agent_id, host, port) DO UPDATE
       SET key_hash = excluded.key_hash, updated_at = clock_timestamp()
     WHERE known.key_hash <> excluded.key_hash`,
};

/**
 * Servers with something to do, of the agents in the CTE `agent`: agent, pool, host, port. One look into an index for each.
 *
 * @param when conditions besides: `smp` and `ntf` of a record, `deletion` of a token deletion.
 */
export const serversWithWork = ({ smp = 'true', ntf = 'true', deletion = 'true' }): string => `
    SELECT agent_id, 'ntf-smp' AS pool, host, port
      FROM agent
      JOIN subscriptions.smp_servers AS server USING (agent_id)
     CROSS JOIN LATERAL (
       SELECT FROM subscriptions.ntf_subscriptions AS record
        WHERE (record.agent_id, smp_host, smp_port) = (server.agent_id, server.host, server.port)
          AND smp_action IS NOT NULL AND NOT smp_failed AND ${smp}
        ORDER BY action_ts
        LIMIT 1
     ) AS due
     UNION ALL
    SELECT agent_id, 'ntf-ntf', host, port
      FROM agent
      JOIN subscriptions.ntf_servers AS server USING (agent_id)
     CROSS JOIN LATERAL (
       SELECT FROM subscriptions.ntf_subscriptions AS record
        WHERE (record.agent_id, record.ntf_host, record.ntf_port) = (server.agent_id, server.host, server.port)
          AND ntf_action IS NOT NULL AND NOT ntf_failed AND ${ntf}
        ORDER BY action_ts
        LIMIT 1
     ) AS due
     UNION ALL
    SELECT agent_id, 'ntf-tkn-del', host, port
      FROM agent
      JOIN subscriptions.ntf_servers AS server USING (agent_id)
     CROSS JOIN LATERAL (
       SELECT FROM subscriptions.ntf_tokens_to_delete AS deletion
        WHERE (deletion.agent_id, deletion.host, deletion.port) = (server.agent_id, server.host, server.port)
          AND NOT del_failed AND ${deletion}
        ORDER BY deletion.id
        LIMIT 1
     ) AS due`;

// --- Events ------------------------------------------------------------------------------------------------------

// What clients are told: rows of an outbox, written together with what they are about, and relayed to a Redis stream after
// that. An event whose relay was cut off comes again, with the same `event_id`.

/**
 * `ERRS` is about items of a batch; the other two are about a worker or the supervisor. After ERR CRITICAL, starting the worker
 * again may help.
 */
export type EventKind = 'ERRS' | 'ERR INTERNAL' | 'ERR CRITICAL';

export interface SubscriptionEvent {
  agentId: string;
  kind: EventKind;
  /** The connection id is empty where the error is about none. */
  errors: { connId: string; error: string }[];
}

/** Approximate length to which the stream is trimmed: a client that was away for longer misses events. */
export const EVENTS_STREAM_MAX_LEN = 10_000;

/** A router may write an error of any length. */
const MAX_ERROR_LENGTH = 300;

/** An error as events, logs and results show it: `NTF AUTH`, or with what is known beyond that. */
export function errorText({ source, code, detail }: RouterError): string {
  const text = detail === undefined ? `${source} ${code}` : `${source} ${code}: ${detail}`;
  return oneLine(text).slice(0, MAX_ERROR_LENGTH);
}

export async function writeEvent(
  client: PoolClient,
  { agentId, kind, errors }: SubscriptionEvent,
): Promise<void> {
  if (errors.length > 0) await run(client, INSERT_EVENT, [agentId, kind, JSON.stringify(errors)]);
}

const INSERT_EVENT = {
  name: 'insert_subscription_event',
  text: `
    INSERT INTO subscriptions.events (agent_id, kind, errors, offers_restart)
    VALUES ($1, $2::text, $3::jsonb, $2 = 'ERR CRITICAL')`,
};

/** The outbox of events. */
export const EVENTS = relayedTable<EventRow>({
  name: 'subscription_events',
  table: 'subscriptions.events',
  key: 'event_id',
  columns: 'agent_id, kind, errors, offers_restart, created_at',
  size: '1',
  lock: 4207716001,
  entriesOf: (event) => [
    [
      ...['event_id', event.id],
      ...['agent_id', event.agent_id],
      ...['kind', event.kind],
      ...['errors_json', JSON.stringify(event.errors)],
      ...['offers_restart', String(event.offers_restart)],
      ...['occurred_at_ms', event.created_at.getTime()],
    ],
  ],
});

export interface EventRow {
  agent_id: string;
  kind: EventKind;
  errors: SubscriptionEvent['errors'];
  offers_restart: boolean;
  created_at: Date;
}
