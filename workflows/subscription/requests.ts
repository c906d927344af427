/** Checks of what is sent to the supervisor, before anything changes. */
import { refuse } from '../long-lived.ts';
import type {
  Command,
  ConnectionList,
  ConnectionsSubscribed,
  FlushRequest,
  ImportConnections,
  RouterChange,
  RouterKey,
  ToggleConnections,
  TrustRouter,
} from './contract.ts';
import { MAX_CONNECTIONS } from './contract.ts';

/** Ids of connections: 12 bytes as base64url, or the ids that other programs have given to theirs. */
const CONNECTION_ID = /^[A-Za-z0-9_.:=-]{1,64}$/;
/** Long enough for every name that workflow ids have room for, and for the hosts of a router with several. */
const HOST = /^[A-Za-z0-9_.:,[\]-]{1,150}$/;
const AGENT_ID = /^[A-Za-z0-9_.-]{1,64}$/;
const KEY_HASH = /^[A-Za-z0-9_-]{43}$/;
const REQUEST_ID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

type Unchecked<T> = Record<keyof T, unknown>;

/** Whether a signal, which nobody can refuse, can be followed. */
export function isCommand(value: unknown): value is Command {
  if (typeof value !== 'object' || value === null) return false;
  const { kind, connIds } = value as Unchecked<Command>;
  if (kind === 'reconcile') return areConnectionIds(connIds);
  return (kind === 'create' || kind === 'smp-delete') && (connIds === undefined || areConnectionIds(connIds));
}

export function isFlushRequest(value: unknown): value is FlushRequest {
  if (typeof value !== 'object' || value === null) return false;
  const { connIds } = value as Unchecked<FlushRequest>;
  return connIds === undefined || areConnectionIds(connIds);
}

export function checkList(request: ConnectionList): void {
  const { connIds } = objectOf<ConnectionList>(request);
  if (!areConnectionIds(connIds)) refuse(`connIds must be a list of 1 to ${MAX_CONNECTIONS} connection ids`);
}

export function checkToggle(request: ToggleConnections): void {
  checkList(request);
  if (typeof request.enable !== 'boolean') refuse('enable must be true or false');
}

export function checkSubscribed(request: ConnectionsSubscribed): void {
  checkList(request);
  if (typeof request.isSubscribed !== 'boolean') refuse('isSubscribed must be true or false');
}

export function checkChange(agentId: string, change: RouterChange): void {
  if (typeof agentId !== 'string' || !AGENT_ID.test(agentId)) {
    refuse('the first argument must be the id of an agent');
  }
  const { trust, look } = objectOf(change) as Record<'trust' | 'look', unknown>;
  if ((trust === undefined) === (look === undefined)) {
    refuse('the second argument must have either trust or look');
  }
  if (look === undefined) checkServer(objectOf<TrustRouter>(trust as TrustRouter).server);
}

export function checkImport(request: ImportConnections): void {
  const { requestId } = objectOf<ImportConnections>(request);
  if (typeof requestId !== 'string' || !REQUEST_ID.test(requestId)) {
    refuse('requestId must be the id of an import, a UUID in lower case');
  }
}

function checkServer(value: unknown): void {
  const { host, port, keyHash } = objectOf<RouterKey>(value as RouterKey);
  if (typeof host !== 'string' || !HOST.test(host)) {
    refuse('server.host must be host names or addresses, with commas between them');
  }
  if (!Number.isInteger(port) || (port as number) < 1 || (port as number) > 65_535) {
    refuse('server.port must be a whole number from 1 to 65535');
  }
  if (typeof keyHash !== 'string' || !KEY_HASH.test(keyHash)) {
    refuse('server.keyHash must be the SHA-256 of a certificate, base64url');
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
