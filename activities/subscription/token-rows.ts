/**
 * The row of an agent's token, and the requests of clients about it. Owns the SQL that writes `ntf_tokens` and
 * `requests`. The row decides, not a memory of the process: after a restart work continues without another
 * registration.
 */
import type { Pool, PoolClient } from 'pg';
import type { KeyBox } from '../../api/key-box.ts';
import { openIfPossible } from '../../api/key-box.ts';
import type { TokenRequestContent } from '../../api/subscription/rows.ts';
import { deletionKeyContext, tokenContext, tokenRequests } from '../../api/subscription/rows.ts';
import type { ServerKey } from '../../workflows/subscription/rules.ts';
import type { TokenMode } from '../../workflows/subscription/contract.ts';
import { query, run } from '../postgres.ts';
import type {
  DeviceToken,
  KeyPair,
  PushProvider,
  RouterAddress,
  TokenRef,
  TokenStatus,
} from './router/ports.ts';
import { UPSERT_NTF_SERVER, routerValues } from './agents.ts';

/** What is to be done about a token next, and what has to be known for it. */
export type TokenAction = { kind: 'REGISTER' | 'CHECK' | 'DELETE' } | { kind: 'VERIFY'; code: Buffer };

/** A token with its secrets, which must not leave the process. */
export interface SavedToken {
  device: DeviceToken;
  address: RouterAddress;
  /** undefined until the router knows it. */
  tokenId: string | undefined;
  auth: KeyPair;
  dh: KeyPair;
  /** Agreed with the router. */
  dhSecret: Buffer | undefined;
  status: TokenStatus;
  action: TokenAction | undefined;
  mode: TokenMode;
}

export interface LoadedRequest extends TokenRequestContent {
  /** It has had its effect. */
  isDone: boolean;
}

/** @throws KeyBoxError when a column does not open. */
export async function loadSavedToken(
  db: Pool,
  keyBox: KeyBox,
  agentId: string,
): Promise<SavedToken | undefined> {
  const row = await loadToken(db, agentId);
  if (!row) return undefined;
  const open = (column: string, sealed: Buffer): Buffer => keyBox.open(sealed, tokenContext(column, agentId));
  const { provider, address, status, mode, tokenId, dhSecret } = row;
  return {
    ...{ address, status, mode: mode ?? 'PERIODIC', tokenId: tokenId ?? undefined },
    device: { provider, token: open('device_token', row.deviceToken).toString('utf8') },
    auth: {
      publicKey: Buffer.from(row.authPublicKey, 'base64url'),
      privateKey: open('auth_private_key', row.authPrivateKey),
    },
    dh: {
      publicKey: Buffer.from(row.dhPublicKey, 'base64url'),
      privateKey: open('dh_private_key', row.dhPrivateKey),
    },
    dhSecret: dhSecret === null ? undefined : open('dh_secret', dhSecret),
    action: actionOf(row, open),
  };
}

function actionOf(
  { action, actionCode }: TokenRow,
  open: (column: string, sealed: Buffer) => Buffer,
): TokenAction | undefined {
  if (action === null) return undefined;
  if (action !== 'VERIFY') return { kind: action };
  // One without its code cannot be carried out; the token is registered again instead.
  return actionCode === null ? undefined : { kind: 'VERIFY', code: open('action_code', actionCode) };
}

export type NewToken = Pick<SavedToken, 'device' | 'address' | 'auth' | 'dh' | 'mode'>;

/** Keeps a token that no router knows yet. Without effect when the agent has one. */
export async function insertToken(
  client: PoolClient,
  keyBox: KeyBox,
  agentId: string,
  { device, address, auth, dh, mode }: NewToken,
): Promise<void> {
  const seal = (column: string, plain: Buffer): Buffer => keyBox.seal(plain, tokenContext(column, agentId));
  await run(client, UPSERT_NTF_SERVER, routerValues(agentId, address));
  await run(client, INSERT_TOKEN, [
    agentId,
    device.provider,
    seal('device_token', Buffer.from(device.token, 'utf8')),
    address.host,
    address.port,
    auth.publicKey.toString('base64url'),
    seal('auth_private_key', auth.privateKey),
    dh.publicKey.toString('base64url'),
    seal('dh_private_key', dh.privateKey),
    mode,
  ]);
}

/** By its key a token is told from the one that the agent has after it. */
type KeyOfToken = Pick<SavedToken, 'auth'>;
const keyOf = ({ auth }: KeyOfToken): string => auth.publicKey.toString('base64url');

/** What has become of a token. A status replaces the action with it. */
export type TokenChange = Partial<
  Pick<SavedToken, 'device' | 'tokenId' | 'dhSecret' | 'status' | 'action' | 'mode'>
>;

/** Without effect when another token has taken the place of this one. */
export async function saveToken(
  db: Pool,
  keyBox: KeyBox,
  agentId: string,
  token: KeyOfToken,
  { device, tokenId, dhSecret, status, action, mode }: TokenChange,
): Promise<void> {
  const seal = (column: string, plain: Buffer | undefined): Buffer | null =>
    plain ? keyBox.seal(plain, tokenContext(column, agentId)) : null;
  await query(db, SAVE_TOKEN, [
    ...[agentId, keyOf(token), device?.provider ?? null],
    seal('device_token', device && Buffer.from(device.token, 'utf8')),
    ...[tokenId ?? null, seal('dh_secret', dhSecret), status ?? null, action?.kind ?? null],
    seal('action_code', action?.kind === 'VERIFY' ? action.code : undefined),
    mode ?? null,
  ]);
}

/**
 * Removes the token.
 *
 * @param token only this one; default: whichever there is.
 * @param keyBox given: the router is to forget the token too, if it knows it; what that takes is kept in a record.
 * @returns undefined when there was none; `server`: where the router is that is to forget it.
 */
export async function removeToken(
  client: PoolClient,
  agentId: string,
  token: KeyOfToken | undefined,
  keyBox?: KeyBox,
): Promise<{ server?: ServerKey } | undefined> {
  const [row] = await run<RemovedToken>(client, REMOVE_TOKEN, [agentId, token ? keyOf(token) : null]);
  if (!row) return undefined;
  if (row.token_id === null || !keyBox) return {};
  const privateKey = openIfPossible(keyBox, row.auth_private_key, tokenContext('auth_private_key', agentId));
  // Without its key the router cannot be asked to forget it, and that must not keep it here forever.
  if (!privateKey) return {};
  await run(client, INSERT_DELETION, [
    ...routerValues(agentId, row),
    row.token_id,
    keyBox.seal(privateKey, deletionKeyContext(agentId, row.token_id)),
  ]);
  return { server: { host: row.host, port: row.port } };
}

/** @returns undefined when there is no such request of this agent and kind. */
export async function loadTokenRequest(
  db: Pool,
  keyBox: KeyBox,
  agentId: string,
  kind: string,
  requestId: string,
): Promise<LoadedRequest | undefined> {
  const [row] = await query<RequestRow>(db, LOAD_REQUEST, [requestId, agentId, kind]);
  return row && { ...tokenRequests.open(keyBox, requestId, row.sealed), isDone: row.is_done };
}

/** With the effect, so that a repetition knows that it is one. @returns false when another attempt has had the effect. */
export async function markRequestDone(client: PoolClient, requestId: string): Promise<boolean> {
  return (await run(client, MARK_REQUEST_DONE, [requestId])).length > 0;
}

export async function removeTokenRequest(db: Pool, requestId: string): Promise<void> {
  await query(db, REMOVE_REQUEST, [requestId]);
}

/** With its secrets sealed. */
export interface TokenRow {
  provider: PushProvider;
  deviceToken: Buffer;
  address: RouterAddress;
  /** null until the router knows it. */
  tokenId: string | null;
  authPublicKey: string;
  authPrivateKey: Buffer;
  dhPublicKey: string;
  dhPrivateKey: Buffer;
  dhSecret: Buffer | null;
  status: TokenStatus;
  action: TokenAction['kind'] | null;
  actionCode: Buffer | null;
  mode: TokenMode | null;
}

/** @returns undefined when the agent has none. */
export async function loadToken(db: Pool | PoolClient, agentId: string): Promise<TokenRow | undefined> {
  const [row] = await query<TokenRow>(db, LOAD_TOKEN, [agentId]);
  return row;
}

/**
 * The token with its key, for a router.
 *
 * @returns undefined when the router does not know it yet.
 * @throws KeyBoxError when the key does not open.
 */
export function tokenRefOf(
  { address, tokenId, authPrivateKey }: TokenRow,
  keyBox: KeyBox,
  agentId: string,
): TokenRef | undefined {
  if (tokenId === null) return undefined;
  const privateKey = keyBox.open(authPrivateKey, tokenContext('auth_private_key', agentId));
  return { address, tokenId, privateKey };
}

const LOAD_TOKEN = {
  name: 'load_subscription_token',
  text: `
    SELECT provider, device_token AS "deviceToken", token_id AS "tokenId", auth_public_key AS "authPublicKey",
           auth_private_key AS "authPrivateKey", dh_public_key AS "dhPublicKey", dh_private_key AS "dhPrivateKey",
           dh_secret AS "dhSecret", status, action, action_code AS "actionCode", mode,
           json_build_object('host', host, 'port', port, 'keyHash', key_hash) AS address
      FROM subscriptions.ntf_tokens
      JOIN subscriptions.ntf_servers USING (agent_id, host, port)
     WHERE agent_id = $1`,
};

const INSERT_TOKEN = {
  name: 'insert_token',
  text: `
    INSERT INTO subscriptions.ntf_tokens
           (agent_id, provider, device_token, host, port, auth_public_key, auth_private_key, dh_public_key,
            dh_private_key, status, action, mode)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, 'NEW', 'REGISTER', $10)
    ON CONFLICT (agent_id) DO NOTHING`,
};

const SAVE_TOKEN = {
  name: 'save_token',
  text: `
    UPDATE subscriptions.ntf_tokens
       SET provider = coalesce($3, provider), device_token = coalesce($4, device_token),
           token_id = coalesce($5, token_id), dh_secret = coalesce($6, dh_secret), status = coalesce($7, status),
           action = CASE WHEN $7::text IS NULL THEN action ELSE $8 END,
           action_code = CASE WHEN $7::text IS NULL THEN action_code ELSE $9::bytea END,
           mode = coalesce($10, mode), updated_at = clock_timestamp()
     WHERE agent_id = $1 AND auth_public_key = $2`,
};

interface RemovedToken extends RouterAddress {
  token_id: string | null;
  auth_private_key: Buffer;
}

const REMOVE_TOKEN = {
  name: 'remove_token',
  text: `
    DELETE FROM subscriptions.ntf_tokens AS token
     USING subscriptions.ntf_servers AS server
     WHERE token.agent_id = $1 AND token.auth_public_key = coalesce($2, token.auth_public_key)
       AND (server.agent_id, server.host, server.port) = (token.agent_id, token.host, token.port)
    RETURNING token.host, token.port, server.key_hash AS "keyHash", token.token_id, token.auth_private_key`,
};

const INSERT_DELETION = {
  name: 'insert_token_deletion',
  text: `
    INSERT INTO subscriptions.ntf_tokens_to_delete (agent_id, host, port, key_hash, token_id, private_key)
    VALUES ($1, $2, $3, $4, $5, $6)`,
};

interface RequestRow {
  sealed: Buffer;
  is_done: boolean;
}

const LOAD_REQUEST = {
  name: 'load_subscription_request',
  text: `
    SELECT sealed, is_done
      FROM subscriptions.requests
     WHERE request_id = $1 AND agent_id = $2 AND kind = $3`,
};

const MARK_REQUEST_DONE = {
  name: 'mark_token_request_done',
  text: 'UPDATE subscriptions.requests SET is_done = true WHERE request_id = $1 AND NOT is_done RETURNING 1',
};

const REMOVE_REQUEST = {
  name: 'remove_token_request',
  text: 'DELETE FROM subscriptions.requests WHERE request_id = $1',
};
