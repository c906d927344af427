/**
 * Changes of connections that wait for routers. Each is a workflow of its own, however long its router takes: the
 * supervisor hears of it when it has come about, as a command.
 */
import { ActivityFailure, ApplicationFailure, proxyActivities } from '@temporalio/workflow';
import type { SubscriptionActivities } from '../../activities/subscription/activities.ts';
import type { Changed, ConnectionOrder } from '../../activities/subscription/connections.ts';
import { SUBSCRIPTION_REFUSED } from '../failures.ts';
import { DATABASE, SUBSCRIPTION_BATCH } from '../policies.ts';
import type {
  ConnectionChange,
  CreateConnections,
  CreatedConnection,
  RouterStates,
  TrustRouter,
} from './contract.ts';
import { checkChange } from './requests.ts';

const database = proxyActivities<SubscriptionActivities>(DATABASE);
const routers = proxyActivities<SubscriptionActivities>(SUBSCRIPTION_BATCH);

const CONNECTION_ID_LENGTH = 16;
const ALPHANUMERIC = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789';
const BASE64URL = `${ALPHANUMERIC}-_`;

/** @throws ApplicationFailure what was asked for is wrong, or cannot be done as things are. */
export async function subscriptionChange(
  agentId: string,
  change: ConnectionChange,
): Promise<CreatedConnection[] | RouterStates | void> {
  checkChange(agentId, change);
  if ('trust' in change) return trustRouter(agentId, change.trust);
  if ('look' in change) return routers.lookAtRouters(agentId);
  const { result, commands } = await createConnections(agentId, change.create);
  for (const { connIds = [] } of commands) await database.sendCreate(agentId, connIds);
  return result;
}

/** @returns the connections in order, and the commands that follow. */
export async function createConnections(
  agentId: string,
  { connections }: CreateConnections,
): Promise<Changed<CreatedConnection[]>> {
  const orders: ConnectionOrder[] = connections.map((connection) => ({
    ...connection,
    connId: newConnectionId(),
  }));
  return orRefused(() => routers.createConnections(agentId, orders));
}

/** @throws ApplicationFailure the router did not answer under the fingerprint; everything stays as it was. */
async function trustRouter(agentId: string, { server }: TrustRouter): Promise<void> {
  const refusal = await routers.trustRouter(agentId, server);
  if (typeof refusal === 'string') fail(`the router did not answer under this fingerprint: ${refusal}`);
}

/** What an activity refuses is told in its own words. */
async function orRefused<Result>(work: () => Promise<Result>): Promise<Result> {
  try {
    return await work();
  } catch (error) {
    const cause = error instanceof ActivityFailure ? error.cause : undefined;
    if (cause instanceof ApplicationFailure && cause.type === SUBSCRIPTION_REFUSED) fail(cause.message);
    throw error;
  }
}

/** Ends an update or a change, but not the supervisor. */
export function fail(message: string): never {
  throw ApplicationFailure.nonRetryable(message, SUBSCRIPTION_REFUSED);
}

/**
 * 12 bytes as base64url; no secret, so the workflow's own random numbers do. The first character keeps it from looking
 * like an option where it is typed.
 */
function newConnectionId(): string {
  return Array.from({ length: CONNECTION_ID_LENGTH }, (_, index) => {
    const characters = index === 0 ? ALPHANUMERIC : BASE64URL;
    return characters[Math.floor(Math.random() * characters.length)];
  }).join('');
}
