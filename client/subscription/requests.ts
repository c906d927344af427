/**
 * What is handed over to the service with secrets in it: rows, sealed before they leave this process. Queues that an
 * application has already come in this way.
 */
import { randomBytes, randomUUID } from 'node:crypto';
import type { Pool } from 'pg';
import type { KeyBox } from '../../api/key-box.ts';
import type { ImportedQueue, QueueToImport, Sealing } from '../../api/subscription/requests.ts';
import { MAX_IMPORTED_QUEUES, importedQueueSchema, queueImports } from '../../api/subscription/requests.ts';
import { ENSURE_AGENT } from '../../api/subscription/rows.ts';
import type { ImportedConnection } from '../../workflows/subscription/contract.ts';
import { IMPORT_CONNECTIONS_UPDATE } from '../../workflows/subscription/contract.ts';
import { OperationFailedError } from '../errors.ts';

interface RequestResources {
  db: Pool;
  agentId: string;
  keyBox?: (() => KeyBox) | undefined;
}

/** @returns its id. @throws OperationFailedError without a key. */
export async function insertRequest<Content>(
  { db, agentId, keyBox }: RequestResources,
  kind: string,
  { seal }: Sealing<Content>,
  content: Content,
): Promise<string> {
  if (!keyBox) throw new OperationFailedError('there is no key to seal the request with');
  const requestId = randomUUID();
  await db.query(ENSURE_AGENT.text, [agentId]);
  await db.query(INSERT_REQUEST, [requestId, agentId, kind, seal(keyBox(), requestId, content)]);
  return requestId;
}

interface ImportResources extends RequestResources {
  /** Asks the supervisor. */
  update: <Result>(name: string, argument: object) => Promise<Result>;
}

/**
 * Takes over queues that an application has already. Keys are sealed before they leave this process.
 *
 * @param queues as `importedQueueSchema` has them.
 * @returns the connections in order; where one exists already, that instead.
 * @throws OperationFailedError that names the fields that are wrong; nothing was imported then.
 */
export async function importQueues(
  { update, ...resources }: ImportResources,
  queues: readonly unknown[],
): Promise<ImportedConnection[]> {
  const checked = queues.map(checkImported);
  const imported: ImportedConnection[] = [];
  for (let from = 0; from < checked.length; from += MAX_IMPORTED_QUEUES) {
    const part: QueueToImport[] = checked
      .slice(from, from + MAX_IMPORTED_QUEUES)
      .map((queue) => ({ ...queue, connId: queue.connId ?? newConnectionId() }));
    const requestId = await insertRequest(resources, 'import', queueImports, part);
    const made = await update<ImportedConnection[]>(IMPORT_CONNECTIONS_UPDATE, { requestId });
    imported.push(...made);
    // Without an answer the service may still need it; the sweep removes it later.
    await resources.db.query(REMOVE_REQUEST, [requestId]);
  }
  return imported;
}

const CONNECTION_ID_BYTES = 12;

/** One that does not look like an option where it is typed. */
function newConnectionId(): string {
  for (;;) {
    const connId = randomBytes(CONNECTION_ID_BYTES).toString('base64url');
    if (/^[A-Za-z0-9]/.test(connId)) return connId;
  }
}

/** @throws OperationFailedError that names fields only: their values are secrets. */
function checkImported(queue: unknown, index: number): ImportedQueue {
  const checked = importedQueueSchema.safeParse(queue);
  if (checked.success) return checked.data;
  const problems = checked.error.issues.map(
    ({ path, message }) => `queue ${index + 1}: ${[...path, message].join(': ')}`,
  );
  throw new OperationFailedError(problems.join('\n'));
}

const INSERT_REQUEST =
  'INSERT INTO subscriptions.requests (request_id, agent_id, kind, sealed) VALUES ($1, $2, $3, $4)';
const REMOVE_REQUEST = 'DELETE FROM subscriptions.requests WHERE request_id = $1';
