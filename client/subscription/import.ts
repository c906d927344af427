/**
 * Queues that an application has already, as connections of an agent. Their keys are sealed before they leave this process, and
 * their routers are not asked.
 */
import { randomBytes } from 'node:crypto';
import type { Pool } from 'pg';
import { z } from 'zod';
import type { KeyBox } from '../../api/key-box.ts';
import {
  AddressError,
  MOST_HOST_CHARACTERS,
  entityId,
  parseRouterAddress,
  rawKey,
} from '../../api/subscription/router-address.ts';
import {
  ENSURE_AGENT,
  notifierKeyContext,
  notifierSecretContext,
  recipientKeyContext,
} from '../../api/subscription/rows.ts';
import { CONNECTION_ID } from '../../workflows/subscription/contract.ts';
import { OperationFailedError, checkedBy } from '../errors.ts';
import type { OperatorResources } from '../resources.ts';

export const NO_CONNECTION_ID = 'must be 1 to 64 of A-Z a-z 0-9 _ . : = -';

const HOST = new RegExp(`^[A-Za-z0-9_.:,[\\]-]{1,${MOST_HOST_CHARACTERS}}$`);

/** The parts of an address, or an address as people have it. */
const importedServerSchema = z.preprocess(
  (server, context) => {
    if (typeof server !== 'string') return server;
    try {
      return parseRouterAddress(server, 'smp');
    } catch (error) {
      if (!(error instanceof AddressError)) throw error;
      context.addIssue(error.message);
      return z.NEVER;
    }
  },
  z.strictObject({
    host: z.string().regex(HOST, { error: 'must be a host name or address' }),
    port: z.int().min(1).max(65_535),
    /** SHA-256 of the certificate at the end of its chain. */
    keyHash: rawKey,
  }),
);

export const importedQueueSchema = z.strictObject({
  /** Default: a new one. */
  connId: z.string().regex(CONNECTION_ID, { error: NO_CONNECTION_ID }).optional(),
  userId: z.int().min(0).max(2_147_483_647),
  /** Its messaging router. */
  server: importedServerSchema,
  /** Default true. */
  enableNotifications: z.boolean().optional(),
  recipientId: entityId,
  /** Raw Ed25519. */
  recipientPrivateKey: rawKey,
  /** Notifier credentials, if it has any; the next subscription makes new ones. */
  notifier: z
    .strictObject({
      notifierId: entityId,
      /** Raw Ed25519. */
      publicKey: rawKey,
      privateKey: rawKey,
      /** Agreed with the router by X25519. */
      dhSecret: rawKey,
    })
    .optional(),
});
type ImportedQueue = z.output<typeof importedQueueSchema>;

/** A connection, or the reason why it cannot be imported. */
export type ImportedConnection =
  /** `hasCredentials`: the queue came with notifier credentials. */
  { connId: string; hasCredentials: boolean } | { error: string };

/**
 * Makes connections of queues. A fingerprint that differs from the one that is known stays with its queue.
 *
 * @param queues as `importedQueueSchema` has them.
 * @returns the connections in order; where one exists already, that instead.
 * @throws OperationFailedError without a key, or naming the fields that are wrong; nothing was imported then.
 */
export async function importQueues(
  { db, agentId, keyBox }: Pick<OperatorResources, 'db' | 'keyBox'> & { agentId: string },
  queues: readonly unknown[],
): Promise<ImportedConnection[]> {
  const checked = queues.map((queue, index) => checkedBy(importedQueueSchema, queue, `queue ${index + 1}`));
  const box = sealingBox(keyBox);
  await db.query(ENSURE_AGENT.text, [agentId]);
  const imported: ImportedConnection[] = [];
  for (const queue of checked) imported.push(await importQueue(db, box, agentId, queue));
  return imported;
}

/** @throws OperationFailedError without a key. */
export function sealingBox(keyBox: (() => KeyBox) | undefined): KeyBox {
  if (!keyBox) throw new OperationFailedError('there is no key to seal the request with');
  return keyBox();
}

async function importQueue(
  db: Pool,
  keyBox: KeyBox,
  agentId: string,
  queue: ImportedQueue,
): Promise<ImportedConnection> {
  const { connId = newConnectionId(), userId, server, recipientId, notifier } = queue;
  const { host, port, keyHash } = server;
  const values = [agentId, connId, host, port, recipientId, notifier?.notifierId ?? null];
  const [known] = (await db.query<KnownRow>(FIND_KNOWN, values)).rows;
  if (known?.is_same) return { connId, hasCredentials: known.has_credentials };
  if (known && known.agent_id !== agentId)
    return { error: `${connId}: agent ${known.agent_id} has the queue already` };
  if (known?.is_deleted) return { error: `${connId}: the connection is still being deleted` };
  if (known)
    return { error: `${connId}: the ${known.conn_id === connId ? 'connection' : 'queue'} exists already` };

  const seal = (plain: string, context: string): Buffer =>
    keyBox.seal(Buffer.from(plain, 'base64url'), context);
  const credentials = notifier && [
    notifier.publicKey,
    seal(notifier.privateKey, notifierKeyContext(agentId, notifier.notifierId)),
    seal(notifier.dhSecret, notifierSecretContext(agentId, notifier.notifierId)),
  ];
  await db.query(INSERT_SMP_SERVER, [agentId, host, port, keyHash]);
  try {
    await db.query(INSERT_QUEUE, [
      ...values,
      ...[userId, queue.enableNotifications ?? true, keyHash],
      seal(queue.recipientPrivateKey, recipientKeyContext(agentId, recipientId)),
      ...(credentials ?? [null, null, null]),
    ]);
  } catch (error) {
    // Another import was quicker.
    if ((error as { code?: string }).code !== UNIQUE_VIOLATION) throw error;
    return importQueue(db, keyBox, agentId, { ...queue, connId });
  }
  return { connId, hasCredentials: notifier !== undefined };
}

const UNIQUE_VIOLATION = '23505';
const CONNECTION_ID_BYTES = 12;

/** One that does not look like an option where it is typed. */
function newConnectionId(): string {
  for (;;) {
    const connId = randomBytes(CONNECTION_ID_BYTES).toString('base64url');
    if (/^[A-Za-z0-9]/.test(connId)) return connId;
  }
}

interface KnownRow {
  agent_id: string;
  conn_id: string;
  /** It is this connection, with this queue. */
  is_same: boolean;
  has_credentials: boolean;
  is_deleted: boolean;
}

/** Of the same id, or with the same queue, of whichever agent, or with the same notifier. */
const FIND_KNOWN = `
  SELECT agent_id, conn_id, ntf_id IS NOT NULL AS has_credentials, is_deleted,
         (agent_id, conn_id, host, port, rcv_id) = ($1, $2, $3, $4::int, $5) AND NOT is_deleted AS is_same
    FROM subscriptions.rcv_queues
    JOIN subscriptions.connections USING (agent_id, conn_id)
   WHERE (agent_id, conn_id) = ($1, $2)
      OR (rcv_id, host, port) = ($5, $3, $4::int)
      OR (agent_id, host, port, ntf_id) = ($1, $3, $4::int, $6)
   ORDER BY is_same DESC
   LIMIT 1`;

/** Keeps a messaging router that is new. One that is known stays pinned as it is, whatever the queue says. */
const INSERT_SMP_SERVER = `
  INSERT INTO subscriptions.smp_servers (agent_id, host, port, key_hash)
  VALUES ($1, $2, $3, $4)
  ON CONFLICT (agent_id, host, port) DO NOTHING`;

/** $1 agent, $2 connection, $3 and $4 host and port, $5 and $6 ids of recipient and notifier, $9 fingerprint. */
const INSERT_QUEUE = `
  WITH made AS (
    INSERT INTO subscriptions.connections (agent_id, conn_id, user_id, enable_ntfs) VALUES ($1, $2, $7, $8)
  )
  INSERT INTO subscriptions.rcv_queues
         (agent_id, conn_id, host, port, rcv_id, ntf_id, server_key_hash, rcv_private_key, ntf_public_key,
          ntf_private_key, rcv_ntf_dh_secret)
  SELECT $1, $2, host, port, $5, $6, nullif($9, key_hash), $10, $11, $12, $13
    FROM subscriptions.smp_servers
   WHERE agent_id = $1 AND host = $3 AND port = $4`;
