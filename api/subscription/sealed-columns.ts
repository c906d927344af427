/**
 * The columns that hold sealed values (api/key-box.ts), and what each value is sealed for: one that is moved to another
 * row or column does not open.
 */

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
