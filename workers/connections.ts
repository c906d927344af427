/**
 * The connections that all kinds of work share, opened once per process and checked before anything else starts: the
 * only place that opens them. Each failure says which dependency, where it was looked for, and why it did not answer.
 */
import type { Meter } from '@opentelemetry/api';
import { Client } from '@temporalio/client';
import type { DataConverter } from '@temporalio/common';
import { NativeConnection } from '@temporalio/worker';
import { Redis } from 'ioredis';
import pg from 'pg';
import type { Logger } from 'pino';
import type { FcmTarget } from '../activities/mobile-push/fcm.ts';
import { reasonOf } from '../activities/reason.ts';
import type { RouterAddress } from '../activities/subscription/router/ports.ts';
import { SelfExplanatoryError } from '../api/errors.ts';
import { dataConverterWith } from '../api/payload-codec.ts';
import type { SymbolMetadata, SymbolTarget } from '../api/symbol-config/push.ts';
import type { Config } from '../config/load.ts';
import { redisConnection, temporalConnection } from '../config/service.ts';
import type { RedisAddress } from '../config/values.ts';
import type { Telemetry } from './telemetry.ts';

/** What must be known about the outside, from the configuration or from the embedded servers. */
export interface Endpoints {
  redis: RedisAddress;
  postgresDsn: string;
  /** Absent when the Temporal server is named by a profile of the SDK's configuration file. */
  temporalAddress?: string;
  userServiceUrl: string;
  /** Needed by the role mobile-push only. */
  fcm?: FcmTarget;
  /** Receivers of symbol configuration; empty unless the process works on it. */
  symbolTargets?: readonly SymbolTarget[];
  /** Enabled at the start when there is no symbol at all. */
  sampleSymbols?: readonly SymbolMetadata[];
  /** Base URL of the portfolio service; needed by the role account-callback only. */
  portfolioUrl?: string;
  /** Notification routers that a token may be registered on; needed by the role subscription only. */
  ntfServers?: readonly RouterAddress[];
}

/** What is open in this process, to be closed with it: last opened, first closed. */
export class OpenParts {
  readonly #log: Logger;
  readonly #parts: { what: string; close: () => unknown }[] = [];

  constructor(log: Logger) {
    this.#log = log;
  }

  add(what: string, close: () => unknown): void {
    this.#parts.push({ what, close });
  }

  /** One that fails does not keep the others open. */
  async closeAll(): Promise<void> {
    for (const { what, close } of this.#parts.splice(0).reverse()) {
      try {
        await close();
      } catch (error) {
        this.#log.error({ err: error }, `${what} did not end in good order`);
      }
    }
  }
}

/** What is there before anything is connected. */
export interface ProcessContext {
  config: Config;
  endpoints: Endpoints;
  log: Logger;
  meter: Meter;
  /** Aborted when the process begins to shut down. */
  draining: AbortSignal;
  open: OpenParts;
}

export interface Connections {
  redis: Redis;
  db: pg.Pool;
  /** Of workers; the client has it, too. */
  temporal: NativeConnection;
  client: Client;
  namespace: string;
  /** Absent when nothing is encrypted. */
  dataConverter?: DataConverter;
  /**
   * Opens a connection for blocking reads. It does not reconnect: its reader opens another one.
   *
   * @param longestSilenceMs after which it breaks; the system would take a quarter of an hour to notice.
   */
  openReader(longestSilenceMs: number): Redis;
}

/** A dependency could not be reached at start. */
export class DependencyError extends SelfExplanatoryError {
  override name = 'DependencyError';
}

/** @throws DependencyError when one of the servers does not answer; all that do not are named. */
export async function openConnections(
  context: ProcessContext,
  { clientInterceptors }: Pick<Telemetry, 'clientInterceptors'>,
): Promise<Connections> {
  const [redis, db, { temporal, namespace }] = await allReached([
    connectRedis(context),
    connectPostgres(context),
    connectTemporal(context),
  ]);
  const dataConverter = dataConverterWith(context.config.values.NOTIFICATION_PAYLOAD_KEYS);
  const encryption = dataConverter ? { dataConverter } : {};
  const client = new Client({
    connection: temporal,
    namespace,
    interceptors: { workflow: clientInterceptors },
    ...encryption,
  });
  const openReader = (longestSilenceMs: number) => openRedisReader(context, longestSilenceMs);
  return { redis, db, temporal, client, namespace, ...encryption, openReader };
}

/**
 * Waits for all, so that all dependencies that are away are named together, and nothing is opened after a failure.
 *
 * @throws DependencyError with a line for each of several failures; a single one is thrown as it is.
 */
export async function allReached<T extends readonly unknown[]>(attempts: {
  [K in keyof T]: Promise<T[K]>;
}): Promise<T> {
  const results = await Promise.allSettled(attempts);
  const failures = results.flatMap((result) =>
    result.status === 'rejected' ? [result.reason as Error] : [],
  );
  const [failure, ...others] = failures;
  if (failure === undefined) return Promise.all(attempts);
  if (others.length === 0) throw failure;
  throw new DependencyError(failures.map(({ message }) => message).join('\n'));
}

/** @throws DependencyError that names the dependency, the variable to look at, and the reason. */
export async function reach<T>(what: string, variable: string, attempt: () => T | Promise<T>): Promise<T> {
  try {
    return await attempt();
  } catch (error) {
    throw new DependencyError(`cannot reach ${what} (${variable}): ${reasonOf(error)}`, { cause: error });
  }
}

/** An address that only some roles need. @throws Error for {@link reach} to explain. */
export function required<T>(address: T | undefined): T {
  if (address === undefined) throw new Error('it is neither configured nor embedded');
  return address;
}

function redisOptions({ config, endpoints }: ProcessContext) {
  const { values } = config;
  return {
    ...redisConnection(config, endpoints.redis),
    db: values.NOTIFICATION_REDIS_DB,
    connectTimeout: values.NOTIFICATION_REDIS_OPERATION_TIMEOUT,
    lazyConnect: true,
    // Commands fail immediately while Redis is away: a publication that waits in a queue would be sent after its
    // attempt was counted as failed.
    enableOfflineQueue: false,
    maxRetriesPerRequest: 0,
  };
}

async function connectRedis(context: ProcessContext): Promise<Redis> {
  const { config, endpoints, log, open } = context;
  const redis = new Redis({
    ...redisOptions(context),
    commandTimeout: config.values.NOTIFICATION_REDIS_OPERATION_TIMEOUT,
    // A connection that has gone dead without a word is replaced; the system would take a quarter of an hour to notice.
    socketTimeout: config.values.NOTIFICATION_REDIS_OPERATION_TIMEOUT,
    retryStrategy: (attempt) => Math.min(50 * attempt, 1_000),
    // The address may lead to another server by now. What was asked fails, and its caller asks again.
    reconnectOnError: isOfLostRole,
  });
  open.add('Redis', () => redis.disconnect());
  // What connect() rejects with says only that the connection is closed; the reason comes as an event before it.
  let lastError: Error | undefined;
  redis.on('error', (error: Error) => {
    lastError = error;
    log.warn({ reason: reasonOf(error) }, 'Redis connection failed');
  });
  const { host, port } = endpoints.redis;
  return reach(`Redis at ${host}:${port}`, 'NOTIFICATION_REDIS_MASTER_ADDR', async () => {
    await redis.connect().catch((error: unknown) => {
      throw lastError ?? error;
    });
    await redis.ping();
    return redis;
  });
}

/**
 * Whether an answer says that this server is not the master any more, or not a usable one: after a switchover that cut no
 * connection, it would go on answering so for ever.
 */
const isOfLostRole = ({ message }: Error): boolean => /^(READONLY|MASTERDOWN|LOADING)\b/.test(message);

function openRedisReader(context: ProcessContext, longestSilenceMs: number): Redis {
  const reader = new Redis({
    ...redisOptions(context),
    socketTimeout: longestSilenceMs,
    enableOfflineQueue: true,
    retryStrategy: () => null,
  });
  reader.on('error', (error: Error) =>
    context.log.warn({ reason: reasonOf(error) }, 'stream reader lost Redis'),
  );
  return reader;
}

async function connectPostgres({ config, endpoints, log, open }: ProcessContext): Promise<pg.Pool> {
  const { values } = config;
  const timeout = values.NOTIFICATION_POSTGRES_OPERATION_TIMEOUT;
  const db = new pg.Pool({
    connectionString: endpoints.postgresDsn,
    application_name: 'galaxy-notify',
    max: values.NOTIFICATION_POSTGRES_MAX_OPEN_CONNS,
    min: values.NOTIFICATION_POSTGRES_MAX_IDLE_CONNS,
    maxLifetimeSeconds: Math.ceil(values.NOTIFICATION_POSTGRES_CONN_MAX_LIFETIME / 1_000),
    connectionTimeoutMillis: timeout,
    statement_timeout: timeout,
    // The server cancels a slow statement itself; this one is for a server that does not answer at all.
    query_timeout: timeout + 1_000,
    options: '-c timezone=UTC',
  });
  open.add('PostgreSQL', () => db.end());
  // Without a listener, an idle connection that breaks would end the process.
  db.on('error', (error) => {
    // The pool has ended a little before its last connections are closed.
    if (!db.ending) log.warn({ reason: reasonOf(error) }, 'PostgreSQL connection failed');
  });
  const { host } = new URL(endpoints.postgresDsn);
  return reach(`PostgreSQL at ${host}`, 'NOTIFICATION_POSTGRES_PRIMARY_DSN', async () => {
    await db.query('SELECT 1');
    return db;
  });
}

async function connectTemporal({ config, endpoints, open }: ProcessContext) {
  const { connectionOptions, namespace } = temporalConnection(config, endpoints.temporalAddress);
  const where = `Temporal at ${connectionOptions.address ?? 'localhost:7233'}, namespace ${namespace}`;
  return reach(where, 'TEMPORAL_ADDRESS and TEMPORAL_NAMESPACE', async () => {
    const temporal = await NativeConnection.connect(connectionOptions);
    open.add('Temporal', () => temporal.close());
    await temporal.workflowService.describeNamespace({ namespace });
    return { temporal, namespace };
  });
}
