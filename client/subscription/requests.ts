/** Queues that an application has already are handed over to the service. */
import { randomBytes, randomUUID } from 'node:crypto';
import type { Pool } from 'pg';
import type { KeyBox } from '../../api/key-box.ts';
import type { ImportedQueue, QueueToImport } from '../../api/subscription/requests.ts';
import { MAX_IMPORTED_QUEUES, importedQueueSchema, queueImports } from '../../api/subscription/requests.ts';
import { ENSURE_AGENT } from '../../api/subscription/rows.ts';
import type { ImportedConnection } from '../../workflows/subscription/contract.ts';
import { IMPORT_CONNECTIONS_UPDATE } from '../../workflows/subscription/contract.ts';
import { OperationFailedError } from '../errors.ts';

interface ImportResources {
  db: Pool;
  agentId: string;
  keyBox: KeyBox | undefined;
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
  { db, agentId, keyBox, update }: ImportResources,
  queues: readonly unknown[],
): Promise<ImportedConnection[]> {
  if (!keyBox) throw new OperationFailedError('there is no key to seal the request with');
  const checked = queues.map(checkImported);
  const imported: ImportedConnection[] = [];
  await db.query(ENSURE_AGENT.text, [agentId]);
  for (let from = 0; from < checked.length; from += MAX_IMPORTED_QUEUES) {
    const part: QueueToImport[] = checked
      .slice(from, from + MAX_IMPORTED_QUEUES)
      .map((queue) => ({ ...queue, connId: queue.connId ?? newConnectionId() }));
    const requestId = randomUUID();
    await db.query(INSERT_IMPORT, [requestId, agentId, queueImports.seal(keyBox, requestId, part)]);
    const made = await update<ImportedConnection[]>(IMPORT_CONNECTIONS_UPDATE, { requestId });
    imported.push(...made);
    // Without an answer the service may still need it; the sweep removes it later.
    await db.query(REMOVE_IMPORT, [requestId]);
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

const INSERT_IMPORT =
  'INSERT INTO subscriptions.queue_imports (request_id, agent_id, sealed) VALUES ($1, $2, $3)';
const REMOVE_IMPORT = 'DELETE FROM subscriptions.queue_imports WHERE request_id = $1';
