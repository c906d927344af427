/**
 * A command's connections: where the servers are, opened on first use, checked before the command relies on them,
 * closed at its end. Addresses come from the service's own variables, and from a running `npm start` for those that
 * are not set.
 */
import { Client, Connection } from '@temporalio/client';
import { loadClientConnectConfig } from '@temporalio/envconfig';
import { Redis } from 'ioredis';
import pg from 'pg';
import { keptKey } from '../api/kept-key.ts';
import type { KeyBoxKey } from '../api/key-box.ts';
import { createKeyBox } from '../api/key-box.ts';
import { dataConverterWith } from '../api/payload-codec.ts';
import type { Config, RedisAddress } from '../config/load.ts';
import { hasTemporalProfile, loadConfig, redisConnection } from '../config/load.ts';
import type { RouterKey } from '../workflows/subscription/contract.ts';
import { OperationFailedError, reasonOf } from '../client/errors.ts';
import type { Operator, OperatorResources } from '../client/operator.ts';
import { createOperator } from '../client/operator.ts';
import { bounded } from '../client/live.ts';
import type { StackEndpoints } from '../config/stack-endpoints.ts';
import { readStackEndpoints } from '../config/stack-endpoints.ts';

/** Longest statement of an operator, ms: lists are bounded, counting many rows is not quick. */
const STATEMENT_LIMIT_MS = 20_000;
/** Longest wait for a server to answer at all, ms. */
const CONNECT_LIMIT_MS = 5_000;

export type Dependency = 'redis' | 'postgres' | 'temporal';

/** A server is neither configured nor embedded. */
export class NotConfiguredError extends Error {
  override name = 'NotConfiguredError';
}

/** Where everything is. */
export interface Addresses {
  redis: RedisAddress;
  postgresDsn: string;
  /** Absent when a profile of Temporal's SDK names the server. */
  temporalAddress?: string;
  userServiceUrl?: string;
  uiUrl?: string;
  /** Of the embedded stack. */
  messagingRouters: readonly RouterKey[];
  /** Which of them come from the embedded stack. */
  embedded: string[];
}

export interface Session {
  config: Config;
  addresses: Addresses;
  resources: OperatorResources;
  operator: Operator;
  /** @throws OperationFailedError, one line for each of the servers that does not answer. */
  reach(...dependencies: Dependency[]): Promise<void>;
  close(): Promise<void>;
}

/**
 * Runs a command's work with its connections.
 *
 * @param needs servers that must answer; the others are connected to when they are used.
 * @throws ConfigError, NotConfiguredError, OperationFailedError, and what the work throws.
 */
export async function withSession<T>(
  needs: Dependency[],
  work: (session: Session) => Promise<T>,
): Promise<T> {
  const session = openSession(loadConfig());
  try {
    await session.reach(...needs);
    return await work(session);
  } finally {
    await session.close();
  }
}

/** @throws NotConfiguredError. Opens nothing yet. */
export function openSession(config: Config): Session {
  const addresses = addressesOf(config);
  const redis = redisOf(config, addresses);
  const db = databaseOf(addresses);
  const { client: temporal, namespace, where } = temporalOf(config, addresses);
  const resources: OperatorResources = {
    temporal,
    db,
    redis: redis.client,
    namespace,
    intentsStream: config.values.NOTIFICATION_INTENTS_STREAM,
    agentId: config.values.NOTIFICATION_SUBSCRIPTION_AGENT,
    ...(addresses.uiUrl === undefined ? {} : { uiUrl: addresses.uiUrl }),
  };
  // Made when it is asked for by its name, and not by a copy of the rest: it may write a key into the data directory,
  // and in production there need be none.
  Object.defineProperty(resources, 'keyBox', { get: () => createKeyBox(sealingKeysOf(config)) });
  const checks: Record<Dependency, () => Promise<void>> = {
    redis: () =>
      check(
        `Redis at ${addresses.redis.host}:${addresses.redis.port}`,
        'NOTIFICATION_REDIS_MASTER_ADDR',
        redis.ping,
      ),
    postgres: () =>
      check(`PostgreSQL at ${new URL(addresses.postgresDsn).host}`, 'NOTIFICATION_POSTGRES_PRIMARY_DSN', () =>
        db.query('SELECT 1'),
      ),
    temporal: () =>
      check(`Temporal at ${where}, namespace ${namespace}`, 'TEMPORAL_ADDRESS and TEMPORAL_NAMESPACE', () =>
        bounded(temporal, () => temporal.workflowService.describeNamespace({ namespace }), CONNECT_LIMIT_MS),
      ),
  };
  return {
    config,
    addresses,
    resources,
    operator: createOperator(resources),
    async reach(...dependencies) {
      const results = await Promise.allSettled(dependencies.map((dependency) => checks[dependency]()));
      const failures = results.filter((result) => result.status === 'rejected');
      if (failures.length === 0) return;
      throw new OperationFailedError(failures.map(({ reason }) => (reason as Error).message).join('\n'), {
        cause: failures[0]!.reason,
      });
    },
    async close() {
      redis.client.disconnect();
      await db.end().catch(() => undefined);
      // Last: a call that is retried after it would end the process with a stack trace.
      await temporal.connection.close();
    },
  };
}

async function check(what: string, variable: string, attempt: () => Promise<unknown>): Promise<void> {
  try {
    await attempt();
  } catch (error) {
    throw new OperationFailedError(`cannot reach ${what} (${variable}): ${reasonOf(error)}`, {
      cause: error,
    });
  }
}

/** @throws NotConfiguredError that says what to set or to start. */
export function addressesOf({ values, temporalEnv, production }: Config): Addresses {
  const stack = production ? { state: 'none' as const } : readStackEndpoints(values.NOTIFICATION_DATA_DIR);
  const found: Partial<StackEndpoints> = stack.state === 'running' ? stack.endpoints : {};
  const hasProfile = hasTemporalProfile(temporalEnv);

  const redis = values.NOTIFICATION_REDIS_MASTER_ADDR ?? hostAndPortOf(found.redisAddr);
  const postgresDsn = values.NOTIFICATION_POSTGRES_PRIMARY_DSN ?? found.postgresDsn;
  const temporalAddress = values.TEMPORAL_ADDRESS ?? (hasProfile ? undefined : found.temporalAddress);
  const missing = [
    ...(redis ? [] : ['NOTIFICATION_REDIS_MASTER_ADDR']),
    ...(postgresDsn === undefined ? ['NOTIFICATION_POSTGRES_PRIMARY_DSN'] : []),
    ...(temporalAddress === undefined && !hasProfile ? ['TEMPORAL_ADDRESS'] : []),
  ];
  if (!redis || postgresDsn === undefined || missing.length > 0) {
    const where = values.NOTIFICATION_DATA_DIR;
    const why = {
      none: `no npm start is running in ${where}`,
      dead: `the npm start that used ${where} is not running any more`,
      running: `the npm start in ${where} does not run them either`,
    }[stack.state];
    throw new NotConfiguredError(
      `not set: ${missing.join(', ')}; and ${why}. Set them as for the service, or run npm start`,
    );
  }

  const userServiceUrl = values.NOTIFICATION_USER_SERVICE_BASE_URL ?? found.userServiceUrl;
  const uiUrl = values.NOTIFICATION_TEMPORAL_UI_URL ?? found.uiUrl;
  return {
    redis,
    postgresDsn,
    ...(temporalAddress === undefined ? {} : { temporalAddress }),
    ...(userServiceUrl === undefined ? {} : { userServiceUrl }),
    ...(uiUrl === undefined ? {} : { uiUrl }),
    messagingRouters: found.messagingRouters ?? [],
    embedded: [
      ...(values.NOTIFICATION_REDIS_MASTER_ADDR ? [] : ['Redis']),
      ...(values.NOTIFICATION_POSTGRES_PRIMARY_DSN === undefined ? ['PostgreSQL'] : []),
      ...(values.TEMPORAL_ADDRESS === undefined && !hasProfile ? ['Temporal'] : []),
      ...(values.NOTIFICATION_USER_SERVICE_BASE_URL === undefined && userServiceUrl !== undefined
        ? ['User Service']
        : []),
    ],
  };
}

/** As the service finds them. */
function sealingKeysOf({ values, production }: Config): readonly KeyBoxKey[] {
  return values.NOTIFICATION_SUBSCRIPTION_KEYS ?? (production ? [] : [keptKey(values.NOTIFICATION_DATA_DIR)]);
}

function hostAndPortOf(address: string | undefined): { host: string; port: number } | undefined {
  const [host, port] = address?.split(':') ?? [];
  return host === undefined ? undefined : { host, port: Number(port) };
}

function redisOf(config: Config, { redis }: Addresses) {
  const client = new Redis({
    ...redisConnection(config, redis),
    db: config.values.NOTIFICATION_REDIS_DB,
    lazyConnect: true,
    connectTimeout: CONNECT_LIMIT_MS,
    commandTimeout: CONNECT_LIMIT_MS,
    maxRetriesPerRequest: 0,
    // A command that fails says so at once; an operator repeats it.
    retryStrategy: () => null,
  });
  // What a command rejects with says only that the connection is closed; the reason comes as an event before it.
  let lastError: Error | undefined;
  client.on('error', (error: Error) => (lastError = error));
  return {
    client,
    async ping(): Promise<void> {
      await client.ping().catch((error: unknown) => {
        throw lastError ?? error;
      });
    },
  };
}

function databaseOf({ postgresDsn }: Addresses): pg.Pool {
  const db = new pg.Pool({
    connectionString: postgresDsn,
    application_name: 'galaxy-notify cli',
    max: 8,
    connectionTimeoutMillis: CONNECT_LIMIT_MS,
    statement_timeout: STATEMENT_LIMIT_MS,
    query_timeout: STATEMENT_LIMIT_MS + 1_000,
    options: '-c timezone=UTC',
  });
  // Without a listener, an idle connection that breaks would end the process.
  db.on('error', () => undefined);
  return db;
}

function temporalOf({ temporalEnv, values }: Config, { temporalAddress }: Addresses) {
  const { connectionOptions, namespace = 'default' } = loadClientConnectConfig({
    overrideEnvVars: { ...temporalEnv, ...(temporalAddress ? { TEMPORAL_ADDRESS: temporalAddress } : {}) },
    // A profile of the user's own must not reach a server that it was not written for.
    disableFile: !hasTemporalProfile(temporalEnv),
  });
  const connection = Connection.lazy({ ...connectionOptions, connectTimeout: CONNECT_LIMIT_MS });
  const dataConverter = dataConverterWith(values.NOTIFICATION_PAYLOAD_KEYS);
  const client = new Client({ connection, namespace, ...(dataConverter ? { dataConverter } : {}) });
  return { client, namespace, where: connectionOptions.address ?? 'localhost:7233' };
}
