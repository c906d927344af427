/** The saved token of an agent as the workers need it, and the instant gate that it opens. */
import type { Pool, PoolClient } from 'pg';
import type { KeyBox } from '../../api/key-box.ts';
import type { RouterAddress, TokenRef, TokenStatus } from './router/ports.ts';

/** The row decides, not a memory: work goes on after a restart without anybody registering anew. */
export interface CurrentToken {
  address: RouterAddress;
  status: TokenStatus;
  isInstant: boolean;
  /** Absent until the router knows it. */
  tokenId?: string;
  /** Sealed. */
  privateKey: Buffer;
}

/** @returns undefined when the agent has none. */
export async function loadToken(db: Pool | PoolClient, agentId: string): Promise<CurrentToken | undefined> {
  const { rows } = await db.query<TokenRow>({ ...LOAD_TOKEN, values: [agentId] });
  const [row] = rows;
  if (!row) return undefined;
  return {
    address: { host: row.host, port: row.port, keyHash: row.key_hash },
    status: row.status,
    isInstant: row.mode === 'INSTANT',
    ...(row.token_id === null ? {} : { tokenId: row.token_id }),
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
  return { address, tokenId, privateKey: keyBox.open(privateKey, tokenKeyContext(agentId)) };
}

export const tokenKeyContext = (agentId: string): string => `ntf_tokens.auth_private_key:${agentId}`;

interface TokenRow {
  host: string;
  port: number;
  key_hash: string;
  token_id: string | null;
  auth_private_key: Buffer;
  status: TokenStatus;
  mode: string | null;
}

const LOAD_TOKEN = {
  name: 'load_subscription_token',
  text: `
    SELECT token.host, token.port, server.key_hash, token.token_id, token.auth_private_key, token.status, token.mode
      FROM subscriptions.ntf_tokens AS token
      JOIN subscriptions.ntf_servers AS server USING (agent_id, host, port)
     WHERE token.agent_id = $1`,
};
