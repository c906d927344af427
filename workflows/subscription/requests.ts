/** What is asked of a supervisor: whether it is understood, and what of it waits. Pure. */
import { refuse } from '../long-lived.ts';
import type { Command } from './contract.ts';
import { CONNECTION_ID, MAX_CONNECTIONS, MAX_WAITING_CONNECTIONS } from './contract.ts';

const REQUEST_ID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

/** Whether the argument of a signal names connections: a workflow cannot refuse a signal. */
export function areConnectionIds(value: unknown): value is string[] {
  return (
    Array.isArray(value) &&
    value.length >= 1 &&
    value.length <= MAX_CONNECTIONS &&
    value.every((connId) => typeof connId === 'string' && CONNECTION_ID.test(connId))
  );
}

/** Of a row with what was sealed for the service. */
export function checkRequestId(request: { requestId: string } | undefined): void {
  const requestId: unknown = request?.requestId;
  if (typeof requestId !== 'string' || !REQUEST_ID.test(requestId)) {
    refuse('requestId must be the id of a request, a UUID in lower case');
  }
}

/**
 * Has connections wait, in the last command if that has room. All of them, by default or because too many are named, take
 * the place of everything that waits: a command follows the rows as they are when it is carried out.
 */
export function enqueue(queue: Command[], connIds?: string[]): void {
  const waiting = queue.reduce((sum, command) => sum + (command.connIds?.length ?? 0), 0);
  if (!connIds || waiting + connIds.length > MAX_WAITING_CONNECTIONS) {
    queue.splice(0, queue.length, {});
    return;
  }
  const last = queue.at(-1);
  const joined = last?.connIds ? [...new Set([...last.connIds, ...connIds])] : [];
  if (joined.length > 0 && joined.length <= MAX_CONNECTIONS) queue[queue.length - 1] = { connIds: joined };
  else queue.push({ connIds });
}
