/** What a push to an agent's device says, for whoever holds the agent's rows: the device itself cannot read it. */
import type { Pool } from 'pg';
import type { KeyBox } from '../../api/key-box.ts';
import { messageMetaSchema, pushedMessageSchema } from '../../api/subscription/router-wire.ts';
import { query } from '../postgres.ts';
import { unbox } from './router/signing.ts';
import { notifierSecretContext } from './work.ts';
import { loadSavedToken } from './token-rows.ts';

/** A message that has arrived for a connection. */
export interface ArrivedMessage {
  connId: string;
  messageId: string;
  /** When the messaging router got it, epoch ms. */
  at: number;
}

/**
 * Reads a push about messages, which names the newest one of each of at most six queues.
 *
 * @param push as it came to the device.
 * @returns those of known queues, newest first; undefined when the push is not for the agent's present token.
 * @throws KeyBoxError when a secret of the agent does not open.
 */
export async function readPush(
  { db, keyBox }: { db: Pool; keyBox: KeyBox },
  agentId: string,
  { nonce, message: content }: { nonce: string; message: string },
): Promise<ArrivedMessage[] | undefined> {
  const token = await loadSavedToken(db, keyBox, agentId);
  const list = token?.dhSecret && unbox({ nonce, content }, token.dhSecret, 'message-list');
  const messages = pushedMessageSchema.array().safeParse(parseJson(list));
  if (!messages.success) return undefined;
  const rows = await query<QueueSecretRow>(db, LOAD_QUEUE_SECRETS, [
    agentId,
    messages.data.map(({ notifierId }) => notifierId),
  ]);
  return messages.data.flatMap(({ host, port, notifierId, meta }) => {
    const row = rows.find((one) => one.ntf_id === notifierId && one.host === host && one.port === port);
    if (!row) return [];
    const context = notifierSecretContext(agentId, notifierId);
    const plain = unbox(meta, keyBox.open(row.rcv_ntf_dh_secret, context), 'message-meta');
    const parsed = messageMetaSchema.safeParse(parseJson(plain));
    return parsed.success ? [{ connId: row.conn_id, ...parsed.data }] : [];
  });
}

function parseJson(bytes: Buffer | undefined): unknown {
  try {
    return bytes && JSON.parse(bytes.toString('utf8'));
  } catch {
    return undefined;
  }
}

interface QueueSecretRow {
  conn_id: string;
  host: string;
  port: number;
  ntf_id: string;
  rcv_ntf_dh_secret: Buffer;
}

const LOAD_QUEUE_SECRETS = {
  name: 'load_queue_secrets',
  text: `
    SELECT conn_id, host, port, ntf_id, rcv_ntf_dh_secret
      FROM subscriptions.rcv_queues
     WHERE agent_id = $1 AND ntf_id = ANY ($2::text[])`,
};
