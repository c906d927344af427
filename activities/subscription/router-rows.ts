/** The rows of routers: which fingerprint one is pinned to. */
import type { Pool, PoolClient } from 'pg';
import type { RouterKey } from '../../workflows/subscription/contract.ts';
import type { ServerKey } from '../../workflows/subscription/rules.ts';
import { query } from '../postgres.ts';
import { run } from '../transactions.ts';
import type { RouterAddress } from './router/ports.ts';

/** A router, as rows have it. */
export interface AddressRow {
  host: string;
  port: number;
  key_hash: string;
}

export function addressOf({ host, port, key_hash: keyHash }: AddressRow): RouterAddress {
  return { host, port, keyHash };
}

const keyOf = (agentId: string, { host, port }: ServerKey): unknown[] => [agentId, host, port];

/** The parameters of {@link INSERT_SMP_SERVER}. */
export const routerValues = (agentId: string, server: RouterKey): unknown[] => [
  ...keyOf(agentId, server),
  server.keyHash,
];

/** Keeps a messaging router that is new. One that is known stays pinned as it is, whatever the request says. */
export const INSERT_SMP_SERVER = {
  name: 'insert_smp_server',
  text: `
    INSERT INTO subscriptions.smp_servers (agent_id, host, port, key_hash)
    VALUES ($1, $2, $3, $4)
    ON CONFLICT (agent_id, host, port) DO NOTHING`,
};

/** Pins a messaging router and all its queues to one fingerprint. */
export async function pinMessagingRouter(
  client: PoolClient,
  agentId: string,
  server: RouterKey,
): Promise<void> {
  await run(client, LOCK_SMP_SERVER, keyOf(agentId, server));
  await run(client, PIN_SMP_SERVER, routerValues(agentId, server));
}

/** Pins a notification router with the token and the token deletions on it. */
export async function pinNotificationRouter(db: Pool, agentId: string, server: RouterKey): Promise<void> {
  await query(db, PIN_NTF_SERVER, routerValues(agentId, server));
}

/** Keeps a notification router as it is configured. */
export async function saveNotificationRouter(
  client: PoolClient,
  agentId: string,
  server: RouterKey,
): Promise<void> {
  await run(client, UPSERT_NTF_SERVER, routerValues(agentId, server));
}

/** Nobody saves a queue of the server, and nobody pins it anew, before the transaction has ended. */
const LOCK_SMP_SERVER = {
  name: 'lock_smp_server',
  text: `
    SELECT 1 FROM subscriptions.smp_servers WHERE agent_id = $1 AND host = $2 AND port = $3 FOR NO KEY UPDATE`,
};

const PIN_SMP_SERVER = {
  name: 'pin_smp_server',
  text: `
    WITH queues AS (
      UPDATE subscriptions.rcv_queues SET server_key_hash = NULL
       WHERE agent_id = $1 AND host = $2 AND port = $3 AND server_key_hash IS NOT NULL
    ), records AS (
      UPDATE subscriptions.ntf_subscriptions SET smp_server_key_hash = NULL
       WHERE agent_id = $1 AND smp_host = $2 AND smp_port = $3 AND smp_server_key_hash IS NOT NULL
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
     WHERE agent_id = $1 AND host = $2 AND port = $3`,
};

const UPSERT_NTF_SERVER = {
  name: 'upsert_ntf_server',
  text: `
    INSERT INTO subscriptions.ntf_servers AS known (agent_id, host, port, key_hash)
    VALUES ($1, $2, $3, $4)
    ON CONFLICT (agent_id, host, port) DO UPDATE
       SET key_hash = excluded.key_hash, updated_at = clock_timestamp()
     WHERE known.key_hash <> excluded.key_hash`,
};
