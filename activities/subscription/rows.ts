/** The rows of routers, and of queues with their keys and notifier credentials. */
import type { PoolClient } from 'pg';
import type { RouterKey } from '../../workflows/subscription/contract.ts';
import { columnsOf, run } from '../postgres.ts';
import type { KeyBox } from '../../api/key-box.ts';
import { KeyBoxError } from '../../api/key-box.ts';

/** A connection, as statements name it. */
export type IdRow = { conn_id: string };

export const idsIn = (rows: readonly IdRow[]): string[] => rows.map(({ conn_id }) => conn_id);

/** The parameters of statements about a router. */
export const routerValues = (agentId: string, { host, port, keyHash }: RouterKey): unknown[] => [
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

/** Notifier credentials to keep, the private ones sealed. */
export interface SealedCredentials {
  queueId: string;
  publicKey: string;
  privateKey: Buffer;
  notifierId: string;
  dhSecret: Buffer;
}

/** @returns undefined when it does not open. */
export function openIfPossible(keyBox: KeyBox, sealed: Buffer, context: string): Buffer | undefined {
  try {
    return keyBox.open(sealed, context);
  } catch (error) {
    if (error instanceof KeyBoxError) return undefined;
    throw error;
  }
}

export async function saveCredentials(
  client: PoolClient,
  credentials: readonly SealedCredentials[],
): Promise<void> {
  const columns = columnsOf(credentials, 'queueId', 'publicKey', 'privateKey', 'notifierId', 'dhSecret');
  await run(client, SAVE_CREDENTIALS, columns);
}

const SAVE_CREDENTIALS = {
  name: 'save_notifier_credentials',
  text: `
    UPDATE subscriptions.rcv_queues AS queue
       SET ntf_public_key = made.ntf_public_key, ntf_private_key = made.ntf_private_key, ntf_id = made.ntf_id,
           rcv_ntf_dh_secret = made.rcv_ntf_dh_secret
      FROM unnest($1::bigint[], $2::text[], $3::bytea[], $4::text[], $5::bytea[])
           AS made (queue_id, ntf_public_key, ntf_private_key, ntf_id, rcv_ntf_dh_secret)
     WHERE queue.queue_id = made.queue_id`,
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
