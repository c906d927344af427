/**
 * Rules of the schema `subscriptions` by which both the service and operators read and write its rows: which queue a connection
 * has, what a record says is to be done next, and what each sealed value is sealed for. Pure, so that programs of others can
 * import it.
 */
import { z } from 'zod';
import type { KeyBox } from '../key-box.ts';
import { deviceTokenSchema } from './router-address.ts';

/** A record says what is to be done next by a code in one of two columns: `ntf_action` or `smp_action`. */
export const ACTION_COLUMNS = {
  'ntf-create': ['N', null],
  'ntf-check': ['C', null],
  'ntf-delete': ['D', null],
  'ntf-rotate': ['R', null],
  'smp-key': [null, 'K'],
  'smp-delete': [null, 'D'],
} as const satisfies Record<string, ActionColumns>;

type ActionColumns = readonly [ntf: string | null, smp: string | null];
export type RecordAction = keyof typeof ACTION_COLUMNS;

const ACTIONS = Object.keys(ACTION_COLUMNS) as RecordAction[];

/** The action that the two columns hold; undefined without one. A constraint of the table allows nothing else. */
export function actionOf(ntfAction: string | null, smpAction: string | null): RecordAction | undefined {
  return ACTIONS.find((action) => {
    const [ntf, smp] = ACTION_COLUMNS[action];
    return ntf === ntfAction && smp === smpAction;
  });
}

/**
 * The queue of a connection, for use in a LATERAL join.
 *
 * @param of alias of a row with the columns `agent_id` and `conn_id`.
 */
export const queueOf = (of: string): string => `
  SELECT queue.queue_id::text, queue.host, queue.port, coalesce(queue.server_key_hash, server.key_hash) AS key_hash,
         queue.rcv_id, queue.rcv_private_key, queue.ntf_id, queue.ntf_private_key
    FROM subscriptions.rcv_queues AS queue
    JOIN subscriptions.smp_servers AS server USING (agent_id, host, port)
   WHERE queue.agent_id = ${of}.agent_id AND queue.conn_id = ${of}.conn_id`;

/** Makes an agent that does not exist yet. An agent that was closed stays closed. Parameter: the agent's id. */
export const ENSURE_AGENT = {
  name: 'ensure_subscription_agent',
  text: 'INSERT INTO subscriptions.agents (agent_id) VALUES ($1) ON CONFLICT DO NOTHING',
};

/** Whether subscriptions are kept at all: the token is verified and wants a push for each message. */
export function isGateOpen<Token extends { status: string; mode: string | null }>(
  token: Token | undefined,
): token is Token {
  return token?.status === 'ACTIVE' && token.mode === 'INSTANT';
}

// --- Sealed values -----------------------------------------------------------------------------------------------

// What a value is sealed for (api/key-box.ts): one that is moved to another row or column does not open.

export const recipientKeyContext = (agentId: string, recipientId: string): string =>
  `rcv_queues.rcv_private_key:${agentId}/${recipientId}`;
export const notifierKeyContext = (agentId: string, notifierId: string): string =>
  `rcv_queues.ntf_private_key:${agentId}/${notifierId}`;
export const notifierSecretContext = (agentId: string, notifierId: string): string =>
  `rcv_queues.rcv_ntf_dh_secret:${agentId}/${notifierId}`;
export const deletionKeyContext = (agentId: string, tokenId: string): string =>
  `ntf_tokens_to_delete.private_key:${agentId}/${tokenId}`;
export const tokenContext = (column: string, agentId: string): string => `ntf_tokens.${column}:${agentId}`;

export interface SealedColumn {
  table: string;
  column: string;
  /** Names a row: SQL of type text or bigint. */
  key: string;
  keyType: 'text' | 'bigint';
  /** What goes into the context besides the agent: SQL. */
  subject: string;
  contextOf: (agentId: string, subject: string) => string;
}

/** Values that stay. Those of `requests` go within minutes. */
export const SEALED_COLUMNS: readonly SealedColumn[] = [
  ...['device_token', 'auth_private_key', 'dh_private_key', 'dh_secret', 'action_code'].map(
    (column): SealedColumn => ({
      table: 'ntf_tokens',
      column,
      ...{ key: 'agent_id', keyType: 'text' },
      subject: 'agent_id',
      contextOf: (agentId) => tokenContext(column, agentId),
    }),
  ),
  {
    table: 'ntf_tokens_to_delete',
    column: 'private_key',
    ...{ key: 'id', keyType: 'bigint' },
    subject: 'token_id',
    contextOf: deletionKeyContext,
  },
  ...(
    [
      ['rcv_private_key', 'rcv_id', recipientKeyContext],
      ['ntf_private_key', 'ntf_id', notifierKeyContext],
      ['rcv_ntf_dh_secret', 'ntf_id', notifierSecretContext],
    ] as const
  ).map(([column, subject, contextOf]): SealedColumn => ({
    ...{ table: 'rcv_queues', column, key: 'queue_id', keyType: 'bigint', subject, contextOf },
  })),
];

const MOST_CODE_CHARACTERS = 8_192;

export const tokenRequestSchema = z.object({
  /** Absent: whichever device the saved token has. */
  device: deviceTokenSchema.optional(),
  /** Of a registration. */
  mode: z.enum(['PERIODIC', 'INSTANT']).optional(),
  /** From the push to the device, base64 or base64url each; routers with their own protocol pad codes to kilobytes. */
  verification: z
    .object({ nonce: z.string().min(1).max(64), code: z.string().min(1).max(MOST_CODE_CHARACTERS) })
    .optional(),
});
export type TokenRequestContent = z.output<typeof tokenRequestSchema>;

/** How a request about a token is sealed in `subscriptions.requests`, and not in a workflow: for its row alone. */
export const tokenRequests = {
  seal: (keyBox: KeyBox, requestId: string, content: TokenRequestContent): Buffer =>
    keyBox.seal(Buffer.from(JSON.stringify(content), 'utf8'), requestContext(requestId)),
  /** @throws KeyBoxError, and ZodError for a request of another release. */
  open: (keyBox: KeyBox, requestId: string, sealed: Buffer): TokenRequestContent =>
    tokenRequestSchema.parse(JSON.parse(keyBox.open(sealed, requestContext(requestId)).toString('utf8'))),
};

const requestContext = (requestId: string): string => `requests.sealed:${requestId}`;
