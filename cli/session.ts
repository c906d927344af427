/**
 * The connections of a command: opened by their first use, checked before the command relies on them, closed at its end.
 * Addresses come from the variables of the service; what is not set is asked of a running `npm start`.
 */
import type { Redis } from 'ioredis';
import type { Pool } from 'pg';
import { given } from '../api/given.ts';
import { allOf, within } from '../api/within.ts';
import { SelfExplanatoryError } from '../api/errors.ts';
import type { ConnectedOperator } from '../client/connect.ts';
import { connectOperator, openDatabase, openRedis } from '../client/connect.ts';
import { OperationFailedError, causeOf } from '../client/errors.ts';
import type { OperatorResources } from '../client/resources.ts';
import { bounded } from '../client/temporal.ts';
import type { Config } from '../config/load.ts';
import { loadOperatorConfig } from '../config/load.ts';
import type { OperatorAddresses, StackEndpoints } from '../config/operator.ts';
import { operatorServers, readStackEndpoints, redisServer } from '../config/operator.ts';
import { nameOfPlace, reasonsOf, redisPlaceOf, variableOf } from '../config/redis.ts';
import { hasTemporalProfile, temporalConnection } from '../config/service.ts';
import type { RedisPlace } from '../config/variables.ts';
import { shell } from './invocation.ts';

export type Dependency = 'redis' | 'postgres' | 'temporal';

/** The clients of all servers give up earlier. */
const LONGEST_REACH_MS = 60_000;

/** A server is neither configured nor embedded. */
export class NotConfiguredError extends SelfExplanatoryError {
  override name = 'NotConfiguredError';
}

export interface Session extends ConnectedOperator {
  config: Config;
  addresses: OperatorAddresses;
  /** @throws OperationFailedError, one line for each of the servers that does not answer. */
  reach(...dependencies: Dependency[]): Promise<void>;
}

/**
 * Runs a command's work with its connections.
 *
 * @param needs servers that must answer; the others are connected to when they are used.
 * @param limitMs for the answer of a server. @throws ConfigError, NotConfiguredError, OperationFailedError, and what the work throws.
 */
export async function withSession<T>(
  needs: Dependency[],
  work: (session: Session) => Promise<T>,
  limitMs?: number,
): Promise<T> {
  const session = openSession(loadOperatorConfig(shell().env), limitMs);
  try {
    await session.reach(...needs);
    return await work(session);
  } finally {
    await session.close();
  }
}

/**
 * Runs a command's work with a connection to Redis, which must answer. The other servers need no configuration.
 *
 * @param work also gets what links into the Web UI need, when its address is configured.
 * @throws ConfigError, NotConfiguredError, OperationFailedError, and what the work throws.
 */
export async function withRedis<T>(
  work: (redis: Redis, config: Config, webUi: Pick<OperatorResources, 'uiUrl' | 'namespace'>) => Promise<T>,
): Promise<T> {
  const config = loadOperatorConfig(shell().env);
  const { uiUrl, ...places } = placesIn(config);
  const redis = await reachedRedis(config, places, NEVER_AGAIN);
  const namespace = uiUrl === undefined ? 'default' : temporalConnection(config, undefined).namespace;
  return work(redis, config, { namespace, ...given({ uiUrl }) }).finally(() => redis.disconnect());
}

/** @throws NotConfiguredError, OperationFailedError. */
async function reachedRedis(
  config: Config,
  { redis: place, lackOf }: Pick<ReturnType<typeof placesIn>, 'redis' | 'lackOf'>,
  options: Partial<Parameters<typeof openRedis>[0]>,
): Promise<Redis> {
  if (place === undefined) throw lackOf('NOTIFICATION_REDIS_MASTER_ADDR');
  const redis = openRedis({ ...redisServer(config, place), ...options });
  return redisCheck(redis, place)().then(
    () => redis,
    (error: unknown) => {
      redis.disconnect();
      throw error;
    },
  );
}

/** What commands about a producer's outbox have. */
interface OutboxSession {
  db: Pool;
  config: Config;
  /** The Redis of the service, which must answer now and may be away later. The caller ends the connection. */
  openRedis(): Promise<Redis>;
}

/**
 * Runs a command's work with a connection to the database of a producer, which must answer.
 *
 * @throws ConfigError, NotConfiguredError, OperationFailedError, and what the work throws.
 */
export async function withOutboxDatabase<T>(work: (session: OutboxSession) => Promise<T>): Promise<T> {
  const config = loadOperatorConfig(shell().env);
  const places = placesIn(config);
  const { outboxDsn: dsn, lackOf } = places;
  const variable = 'NOTIFICATION_OUTBOX_POSTGRES_DSN';
  if (dsn === undefined) throw lackOf(variable);
  const db = openDatabase(dsn, 'galaxy-notify outbox');
  try {
    await checkDatabase(db, dsn, variable);
    return await work({
      db,
      config,
      openRedis: () =>
        reachedRedis(config, places, {
          // While no sentinel answers, it goes on asking.
          sentinelRetryStrategy: (attempt: number) => Math.min(50 * attempt, 1_000),
          // One that was made a replica is left for what its address leads to now.
          reconnectOnError: ({ message }) => /^(READONLY|MASTERDOWN|LOADING)/.test(message),
        }),
    });
  } finally {
    await db.end().catch(() => undefined);
  }
}

/** A command that fails says so immediately; an operator repeats it. */
const NEVER_AGAIN = { retryStrategy: () => null };

/** @returns the check that Redis answers. Listens from now on, so call it before the client is used. */
function redisCheck(redis: Redis, place: RedisPlace, limitMs?: number): () => Promise<void> {
  const reason = reasonsOf(redis);
  const ping = () =>
    redis.ping().catch((error: unknown) => {
      throw reason() ?? error;
    });
  return () => check(nameOfPlace(place), variableOf(place), ping, limitMs);
}

const checkDatabase = (db: Pool, dsn: string, variable: string, limitMs?: number): Promise<void> =>
  check(`PostgreSQL at ${new URL(dsn).host}`, variable, () => db.query('SELECT 1'), limitMs);

/** @param limitMs for the answer of a server. @throws NotConfiguredError. Opens nothing yet. */
export function openSession(config: Config, limitMs?: number): Session {
  const addresses = addressesOf(config);
  const servers = operatorServers(config, addresses);
  const { operator, resources, close } = connectOperator({
    ...servers,
    redis: { ...servers.redis, ...NEVER_AGAIN },
  });
  const { temporal, db, redis, namespace } = resources;
  const checks: Record<Dependency, () => Promise<void>> = {
    redis: redisCheck(redis, addresses.redis, limitMs),
    postgres: () => checkDatabase(db, addresses.postgresDsn, 'NOTIFICATION_POSTGRES_PRIMARY_DSN', limitMs),
    temporal: () =>
      check(
        `Temporal at ${servers.temporal.address ?? 'localhost:7233'}, namespace ${namespace}`,
        'TEMPORAL_ADDRESS and TEMPORAL_NAMESPACE',
        () => bounded(temporal, () => temporal.workflowService.describeNamespace({ namespace })),
        limitMs,
      ),
  };
  return {
    ...{ config, addresses, resources, operator, close },
    async reach(...dependencies) {
      await allOf(
        dependencies.map((dependency) => checks[dependency]()),
        OperationFailedError,
      );
    },
  };
}

/** @throws OperationFailedError naming what cannot be reached, or refuses a password, and the variable that says so. */
export async function check(
  what: string,
  variable: string,
  attempt: () => Promise<unknown>,
  limitMs = LONGEST_REACH_MS,
): Promise<void> {
  try {
    await within(limitMs, attempt());
  } catch (error) {
    const cause = causeOf(error);
    const isRefused = /^(WRONGPASS|NOAUTH)|^password authentication failed/.test(cause);
    // The address is right then.
    const named = what.startsWith('PostgreSQL') ? variable : 'NOTIFICATION_REDIS_PASSWORD';
    throw new OperationFailedError(
      isRefused
        ? `${what} refused the password (${named}): ${cause}`
        : `cannot reach ${what} (${variable}): ${cause}`,
      { cause: error },
    );
  }
}

/** Where servers are, as the variables or a running `npm start` say. */
function placesIn({ values, production, temporalEnv }: Config) {
  const stack = production ? undefined : readStackEndpoints(values.NOTIFICATION_DATA_DIR);
  const found: Partial<StackEndpoints> = stack ?? {};
  const [host, port] = found.redisAddr?.split(':') ?? [];
  const isTemporalNamed = values.TEMPORAL_ADDRESS !== undefined || hasTemporalProfile(temporalEnv);
  return {
    isTemporalNamed,
    redis: redisPlaceOf(values) ?? (host === undefined ? undefined : { host, port: Number(port) }),
    postgresDsn: values.NOTIFICATION_POSTGRES_PRIMARY_DSN ?? found.postgresDsn,
    outboxDsn: values.NOTIFICATION_OUTBOX_POSTGRES_DSN ?? found.postgresDsn,
    temporalAddress: values.TEMPORAL_ADDRESS ?? (isTemporalNamed ? undefined : found.temporalAddress),
    userServiceUrl: values.NOTIFICATION_USER_SERVICE_BASE_URL ?? found.userServiceUrl,
    uiUrl: values.NOTIFICATION_TEMPORAL_UI_URL ?? found.uiUrl,
    /** @returns the error that says what to set or to start. */
    lackOf(...missing: string[]): NotConfiguredError {
      const where = values.NOTIFICATION_DATA_DIR;
      const why = stack
        ? `the npm start in ${where} does not run them either`
        : `no npm start is running in ${where}`;
      return new NotConfiguredError(
        `not set: ${missing.join(', ')}; and ${why}. Set them as for the service, or run npm start`,
      );
    },
  };
}

/** @throws NotConfiguredError that says what to set or to start. */
function addressesOf(config: Config): OperatorAddresses {
  const places = placesIn(config);
  const { redis, postgresDsn, temporalAddress, userServiceUrl, uiUrl } = places;
  const missing = Object.entries({
    NOTIFICATION_REDIS_MASTER_ADDR: redis,
    NOTIFICATION_POSTGRES_PRIMARY_DSN: postgresDsn,
    TEMPORAL_ADDRESS: temporalAddress ?? (places.isTemporalNamed || undefined),
  }).flatMap(([variable, place]) => (place === undefined ? [variable] : []));
  if (!redis || postgresDsn === undefined || missing.length > 0) throw places.lackOf(...missing);
  return { redis, postgresDsn, ...given({ temporalAddress, userServiceUrl, uiUrl }) };
}
