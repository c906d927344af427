/** What is asked of a supervisor: whether it is understood, and what of it waits, in a list that does not grow by what it holds already. Pure. */
import { refuse } from '../long-lived.ts';
import type {
  Command,
  CommandKind,
  ConnectionList,
  RetryConnections,
  ToggleConnections,
  TrustedRouter,
} from './contract.ts';
import { MAX_CONNECTIONS, MAX_WAITING_COMMANDS, MAX_WAITING_CONNECTIONS } from './contract.ts';

/** Ids of connections: 12 bytes as base64url, or the ids that other programs have given to theirs. */
const CONNECTION_ID = /^[A-Za-z0-9_.:=-]{1,64}$/;
/** Long enough for every name that workflow ids have room for, and for the hosts of a router with several. */
const HOST = /^[A-Za-z0-9_.:,[\]-]{1,150}$/;
const KEY_HASH = /^[A-Za-z0-9_-]{43}$/;
const REQUEST_ID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

type Unchecked<T> = Record<keyof T, unknown>;

/** Whether a signal is a valid command: a workflow cannot refuse a signal. */
export function isCommand(value: unknown): value is Command {
  if (typeof value !== 'object' || value === null) return false;
  const { kind, connIds } = value as Unchecked<Command>;
  const isKnown = kind === 'create' || kind === 'smp-delete' || kind === 'reconcile';
  return isKnown && (connIds === undefined || areConnectionIds(connIds));
}

export function checkList(request: ConnectionList): void {
  const { connIds } = objectOf<ConnectionList>(request);
  if (!areConnectionIds(connIds)) refuse(`connIds must be a list of 1 to ${MAX_CONNECTIONS} connection ids`);
}

export function checkRetry(request: RetryConnections): void {
  if (objectOf<RetryConnections>(request).connIds !== undefined) checkList(request as ConnectionList);
}

export function checkToggle(request: ToggleConnections): void {
  checkList(request);
  if (typeof request.enable !== 'boolean') refuse('enable must be true or false');
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

function areConnectionIds(value: unknown): boolean {
  return (
    Array.isArray(value) &&
    value.length >= 1 &&
    value.length <= MAX_CONNECTIONS &&
    value.every((connId) => typeof connId === 'string' && CONNECTION_ID.test(connId))
  );
}

function objectOf<T>(value: T): Unchecked<T> {
  if (typeof value !== 'object' || value === null) refuse('the argument must be an object');
  return value;
}

/** Whether nothing more is to be asked for before some commands were carried out. A run hands all of them to the next. */
export function isFull(queue: readonly Command[]): boolean {
  if (queue.length >= MAX_WAITING_COMMANDS) return true;
  return queue.reduce((sum, { connIds = [] }) => sum + connIds.length, 0) >= MAX_WAITING_CONNECTIONS;
}

/**
 * Queues a command. What waits already is not queued again: a connection is left out whose last command that waits is
 * of the same kind. What is left joins the last command if it is of the same kind and has room.
 */
export function enqueue(queue: Command[], { kind, connIds }: Command): void {
  if (!connIds) {
    if (!isWaitingForAll(queue, kind)) queue.push({ kind });
    return;
  }
  const wanted = notWaiting(queue, kind, connIds);
  if (wanted.length === 0) return;
  const last = queue.at(-1);
  const joined = last?.kind === kind && last.connIds ? [...last.connIds, ...wanted] : [];
  if (joined.length > 0 && joined.length <= MAX_CONNECTIONS)
    queue[queue.length - 1] = { kind, connIds: joined };
  else queue.push({ kind, connIds: wanted });
}

/**
 * What a flush leaves of the commands that wait: all but Creates, and the end of all, which follows it. That one is about
 * connections that are switched on; those whose subscriptions are ended by name may be switched off.
 */
export function afterFlush(queue: readonly Command[]): Command[] {
  return queue.filter(({ kind, connIds }) => kind !== 'create' && (connIds || kind === 'reconcile'));
}

function isWaitingForAll(queue: readonly Command[], kind: CommandKind): boolean {
  const last = queue.findLast(
    (command) =>
      (command.kind === 'reconcile') === (kind === 'reconcile') &&
      (!command.connIds || command.kind !== kind),
  );
  return last?.kind === kind;
}

function notWaiting(queue: readonly Command[], kind: CommandKind, connIds: readonly string[]): string[] {
  const waiting = new Set<string>();
  const open = new Set(connIds);
  for (const command of queue.toReversed()) {
    if (!command.connIds) {
      // A Create for all leaves alone what is switched off, which is what an smp-delete by name is about.
      if (command.kind === 'smp-delete' && kind === 'create') break;
      continue;
    }
    for (const connId of command.connIds) {
      if (open.delete(connId) && command.kind === kind) waiting.add(connId);
    }
  }
  return [...new Set(connIds)].filter((connId) => !waiting.has(connId));
}
