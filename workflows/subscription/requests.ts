/** What is asked of a supervisor: whether it is understood, and what of it waits. Pure. */
import { refuse } from '../long-lived.ts';
import type { Command, TrustedRouter } from './contract.ts';
import { CONNECTION_ID, MAX_CONNECTIONS, MAX_WAITING_CONNECTIONS } from './contract.ts';

/** Long enough for every name that workflow ids have room for, and for the hosts of a router with several. */
const HOST = /^[A-Za-z0-9_.:,[\]-]{1,150}$/;
const KEY_HASH = /^[A-Za-z0-9_-]{43}$/;
const REQUEST_ID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

type Unchecked<T> = Record<keyof T, unknown>;

/** Whether a signal is a valid command: a workflow cannot refuse a signal. */
export function isCommand(value: unknown): value is Command {
  if (typeof value !== 'object' || value === null) return false;
  const { kind, connIds } = value as Unchecked<Command>;
  return (kind === 'create' || kind === 'reconcile') && (connIds === undefined || areConnectionIds(connIds));
}

function areConnectionIds(value: unknown): boolean {
  return (
    Array.isArray(value) &&
    value.length >= 1 &&
    value.length <= MAX_CONNECTIONS &&
    value.every((connId) => typeof connId === 'string' && CONNECTION_ID.test(connId))
  );
}

export function checkTrust(router: TrustedRouter): void {
  const { protocol, host, port, keyHash } = objectOf<TrustedRouter>(router);
  if (protocol !== 'smp' && protocol !== 'ntf') refuse('protocol must be smp or ntf');
  if (typeof host !== 'string' || !HOST.test(host)) {
    refuse('host must be host names or addresses, with commas between them');
  }
  if (!Number.isInteger(port) || (port as number) < 1 || (port as number) > 65_535) {
    refuse('port must be a whole number from 1 to 65535');
  }
  if (typeof keyHash !== 'string' || !KEY_HASH.test(keyHash)) {
    refuse('keyHash must be the SHA-256 of a certificate, base64url');
  }
}

/** Of a row with what was sealed for the service. */
export function checkRequestId(request: { requestId: string }): void {
  const { requestId } = objectOf(request);
  if (typeof requestId !== 'string' || !REQUEST_ID.test(requestId)) {
    refuse('requestId must be the id of a request, a UUID in lower case');
  }
}

function objectOf<T>(value: T): Unchecked<T> {
  if (typeof value !== 'object' || value === null) refuse('the argument must be an object');
  return value;
}

/**
 * Queues a command. Of those for all connections only the last one of a kind counts. A command for single ones joins the
 * last one if that is of the same kind and has room.
 *
 * @returns false when too many wait. Nothing is lost by that: rows say what is wanted.
 */
export function enqueue(queue: Command[], { kind, connIds }: Command): boolean {
  if (!connIds) {
    const others = queue.filter((command) => command.connIds || command.kind !== kind);
    queue.splice(0, queue.length, ...others, { kind });
    return true;
  }
  const last = queue.at(-1);
  const joined = last?.kind === kind && last.connIds ? [...new Set([...last.connIds, ...connIds])] : [];
  if (joined.length > 0 && joined.length <= MAX_CONNECTIONS) {
    queue[queue.length - 1] = { kind, connIds: joined };
    return true;
  }
  const waiting = queue.reduce((sum, command) => sum + (command.connIds?.length ?? 0), 0);
  if (waiting + connIds.length > MAX_WAITING_CONNECTIONS) return false;
  queue.push({ kind, connIds });
  return true;
}
