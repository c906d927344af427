/**
 * Connections to everything outside, made once per process and checked before anything else starts: the one place
 * that opens them. Each failure says which dependency, where it was looked for, and why it did not answer.
 */
import type { Meter } from '@opentelemetry/api';
import { Client } from '@temporalio/client';
import type { DataConverter } from '@temporalio/common';
import { loadClientConnectConfig } from '@temporalio/envconfig';
import { NativeConnection } from '@temporalio/worker';
import { Redis } from 'ioredis';
import pg from 'pg';
import type { Logger } from 'pino';
import type { AccountCallbackResources } from '../activities/account-callback/activities.ts';
import type { PortfolioService } from '../activities/account-callback/delivery.ts';
import { createPortfolioService } from '../activities/account-callback/delivery.ts';
import type { CallbackStreamResources } from '../activities/account-callback/stream.ts';
import type { ChannelResources } from '../activities/intent/channels.ts';
import type { IntentResources } from '../activities/intent/acceptance.ts';
import type { RetentionResources } from '../activities/retention.ts';
import type { FcmSender, FcmTarget } from '../activities/mobile-push/fcm.ts';
import { createBrake, createFcmSender } from '../activities/mobile-push/fcm.ts';
import type { RouteResources } from '../activities/intent/publication.ts';
import type { MobilePushResources } from '../activities/mobile-push/activities.ts';
import type { MobileStreamResources } from '../activities/mobile-push/stream.ts';
import { READ_BLOCK_MS } from '../activities/stream-consumer.ts';
import { defineHandOffCommands } from '../activities/intent/hand-off.ts';
import type { BridgeResources } from '../activities/intent/reader.ts';
import type { SymbolConfigResources } from '../activities/symbol-config/activities.ts';
import { rememberRecipients } from '../activities/intent/recent-recipients.ts';
import { createUserService } from '../activities/intent/user-service.ts';
import { dataConverterWith } from '../api/payload-codec.ts';
import type { SymbolMetadata, SymbolTarget } from '../api/symbol-config/push.ts';
import type { RouterAddress } from '../activities/subscription/router/ports.ts';
import type { Config, RedisAddress } from '../config/load.ts';
import { hasTemporalProfile, redisConnection } from '../config/load.ts';
import type { SubscriptionParts } from './subscription-setup.ts';
import { openSubscriptions } from './subscription-setup.ts';
import type { Metrics, Telemetry } from './telemetry.ts';
import { reasonOf } from '../activities/reason.ts';

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

export interface Resources
  extends
    IntentResources,
    RouteResources,
    ChannelResources,
    BridgeResources,
    RetentionResources,
    Omit<MobilePushResources, 'fcm'>,
    MobileStreamResources,
    SymbolConfigResources,
    Omit<AccountCallbackResources, 'portfolios'>,
    CallbackStreamResources {
  symbolTargets: readonly SymbolTarget[];
  sampleSymbols: readonly SymbolMetadata[];
  metrics: Metrics;
  /** Absent when the process does not have the role mobile-push. */
  fcm?: FcmSender;
  /** Absent when the process does not have the role account-callback. */
  portfolios?: PortfolioService;
  callbackShards: number;
  /** Absent when the process does not have the role subscription. */
  subscriptions?: SubscriptionParts;
  meter: Meter;
  connection: NativeConnection;
  client: Client;
  /** Absent when nothing is encrypted. */
  dataConverter?: DataConverter;
  namespace: string;
  intentsStream: string;
  cleanupIntervalMs: number;
  /** Closes every connection; call when no worker uses them any more. */
  close(): Promise<void>;
}

/** A dependency could not be reached at start. */
export class DependencyError extends Error {
  override name = 'DependencyError';
}

interface ConnectOptions {
  config: Config;
  endpoints: Endpoints;
  log: Logger;
  telemetry: Telemetry;
  draining: AbortSignal;
}

/** @throws DependencyError when one of the dependencies does not answer; all that do not are named. */
export async function connectResources(options: ConnectOptions): Promise<Resources> {
  const { config, endpoints, log, telemetry, draining } = options;
  const { values } = config;
  const opened: (() => Promise<unknown>)[] = [];
  const close = async () => {
    await Promise.allSettled(opened.map((closeOne) => closeOne()));
  };

  const [redis, db, temporal, fcm] = await allOrClose(close, [
    connectRedis(config, endpoints, log, opened),
    connectPostgres(config, endpoints, log, opened),
    connectTemporal(config, endpoints, opened),
    openFcm(config, endpoints, opened),
  ]);
  const dataConverter = dataConverterWith(values.NOTIFICATION_PAYLOAD_KEYS);
  const client = new Client({
    ...temporal,
    interceptors: { workflow: telemetry.clientInterceptors },
    ...(dataConverter ? { dataConverter } : {}),
  });
  const portfolios = openPortfolios(config, endpoints, opened);
  const subscriptions = openSubscriptions(config, endpoints.ntfServers ?? [], opened);

  return {
    ...temporal,
    ...(dataConverter ? { dataConverter } : {}),
    client,
    redis,
    db,
    log,
    metrics: telemetry.metrics,
    meter: telemetry.meter,
    draining,
    workflows: client.workflow,
    openStreamReader: () => openStreamReader(config, endpoints, log),
    openJobReader: () =>
      openStreamReader(config, endpoints, log, {
        socketTimeout: READ_BLOCK_MS + values.NOTIFICATION_REDIS_OPERATION_TIMEOUT,
      }),
    ...(fcm === undefined ? {} : { fcm }),
    ...(portfolios === undefined ? {} : { portfolios }),
    userService: rememberRecipients(
      createUserService({
        baseUrl: endpoints.userServiceUrl,
        timeoutMs: values.NOTIFICATION_USER_SERVICE_TIMEOUT,
        log,
      }),
      values.NOTIFICATION_USER_SERVICE_REUSE,
    ),
    ...(subscriptions === undefined ? {} : { subscriptions }),
    intentsStream: values.NOTIFICATION_INTENTS_STREAM,
    cleanupIntervalMs: values.NOTIFICATION_CLEANUP_INTERVAL,
    intent: {
      budgets: {
        push: values.NOTIFICATION_PUSH_RETRY_MAX_ATTEMPTS,
        email: values.NOTIFICATION_EMAIL_RETRY_MAX_ATTEMPTS,
      },
      idempotencyTtlMs: values.NOTIFICATION_IDEMPOTENCY_TTL,
      adminEmails: config.adminEmails,
    },
    route: {
      gatewayStream: values.NOTIFICATION_GATEWAY_CLIENT_EVENTS_STREAM,
      gatewayMaxLen: values.NOTIFICATION_GATEWAY_CLIENT_EVENTS_STREAM_MAX_LEN,
      mailStream: values.NOTIFICATION_MAIL_DELIVERY_COMMANDS_STREAM,
      backoffMinMs: values.NOTIFICATION_ROUTE_BACKOFF_MIN,
      backoffMaxMs: values.NOTIFICATION_ROUTE_BACKOFF_MAX,
      leaseTtlMs: values.NOTIFICATION_ROUTE_LEASE_TTL,
    },
    bridge: {
      blockMs: values.NOTIFICATION_INTENTS_READ_BLOCK_TIMEOUT,
      graceMs: values.NOTIFICATION_REDIS_OPERATION_TIMEOUT,
      dispatch: values.NOTIFICATION_ROUTE_DISPATCH,
    },
    retention: {
      recordRetentionMs: values.NOTIFICATION_RECORD_RETENTION,
      malformedIntentRetentionMs: values.NOTIFICATION_MALFORMED_INTENT_RETENTION,
    },
    mobile: {
      sendAttempts: values.NOTIFICATION_MOBILE_SEND_ATTEMPTS,
      sendIntervalMs: values.NOTIFICATION_MOBILE_SEND_INTERVAL,
    },
    mobileStream: {
      stream: values.NOTIFICATION_MOBILE_STREAM,
      group: values.NOTIFICATION_MOBILE_GROUP,
      minIdleMs: values.NOTIFICATION_MOBILE_AUTOCLAIM_MIN_IDLE,
      maxDeliveries: values.NOTIFICATION_MOBILE_MAX_DELIVERY_COUNT,
    },
    symbols: {
      pushTimeoutMs: values.NOTIFICATION_SYMBOL_PUSH_TIMEOUT,
      retryLadderMs: values.NOTIFICATION_SYMBOL_RETRY_LADDER,
      reconciliationMs: values.NOTIFICATION_SYMBOL_RECONCILIATION_INTERVAL,
    },
    symbolTargets: endpoints.symbolTargets ?? [],
    sampleSymbols: endpoints.sampleSymbols ?? [],
    callbackShards: values.NOTIFICATION_CALLBACK_SHARDS,
    callbacks: {
      retryLadderMs: values.NOTIFICATION_CALLBACK_RETRY_LADDER,
      priceGraceMs: values.NOTIFICATION_CALLBACK_PRICE_GRACE,
      snapshotRetentionMs: values.NOTIFICATION_CALLBACK_SNAPSHOT_RETENTION,
      recordRetentionMs: values.NOTIFICATION_RECORD_RETENTION,
    },
    callbackStream: {
      stream: values.NOTIFICATION_CALLBACK_STREAM,
      group: values.NOTIFICATION_CALLBACK_GROUP,
      maxAgeMs: values.NOTIFICATION_CALLBACK_SNAPSHOT_RETENTION,
    },
    close,
  };
}

/** Waits for all, so that every dependency that is away is named at once and nothing that is open is forgotten. */
async function allOrClose<T extends unknown[]>(
  close: () => Promise<void>,
  attempts: { [K in keyof T]: Promise<T[K]> },
): Promise<T> {
  const results = await Promise.allSettled(attempts);
  const failures = results.filter((result) => result.status === 'rejected');
  if (failures.length === 0)
    return results.map((result) => (result as PromiseFulfilledResult<unknown>).value) as T;
  await close();
  throw new DependencyError(failures.map(({ reason }) => (reason as Error).message).join('\n'));
}

function redisOptions(config: Config, { redis }: Endpoints) {
  const { values } = config;
  return {
    ...redisConnection(config, redis),
    db: values.NOTIFICATION_REDIS_DB,
    connectTimeout: values.NOTIFICATION_REDIS_OPERATION_TIMEOUT,
    lazyConnect: true,
    // Commands fail at once while Redis is away: a publication that waits in a queue would be sent after its attempt
    // was counted as failed.
    enableOfflineQueue: false,
    maxRetriesPerRequest: 0,
  };
}

async function connectRedis(
  config: Config,
  endpoints: Endpoints,
  log: Logger,
  opened: (() => Promise<unknown>)[],
): Promise<Redis> {
  const redis = new Redis({
    ...redisOptions(config, endpoints),
    commandTimeout: config.values.NOTIFICATION_REDIS_OPERATION_TIMEOUT,
    // A connection that has gone dead without a word is replaced; the system would take a quarter of an hour to notice.
    socketTimeout: config.values.NOTIFICATION_REDIS_OPERATION_TIMEOUT,
    retryStrategy: (attempt) => Math.min(50 * attempt, 1_000),
  });
  opened.push(async () => redis.disconnect());
  // What connect() rejects with says only that the connection is closed; the reason comes as an event before it.
  let lastError: Error | undefined;
  redis.on('error', (error: Error) => {
    lastError = error;
    log.warn({ reason: reasonOf(error) }, 'Redis connection failed');
  });
  defineHandOffCommands(redis);
  const { host, port } = endpoints.redis;
  await check(`Redis at ${host}:${port}`, 'NOTIFICATION_REDIS_MASTER_ADDR', async () => {
    await redis.connect().catch((error: unknown) => {
      throw lastError ?? error;
    });
    await redis.ping();
  });
  return redis;
}

/** A connection for blocking reads. It does not reconnect: the reader starts anew instead. */
function openStreamReader(
  config: Config,
  endpoints: Endpoints,
  log: Logger,
  options: { socketTimeout?: number } = {},
): Redis {
  const reader = new Redis({
    ...redisOptions(config, endpoints),
    ...options,
    enableOfflineQueue: true,
    retryStrategy: () => null,
  });
  reader.on('error', (error: Error) => log.warn({ reason: reasonOf(error) }, 'stream reader lost Redis'));
  return reader;
}

async function connectPostgres(
  { values }: Config,
  { postgresDsn }: Endpoints,
  log: Logger,
  opened: (() => Promise<unknown>)[],
): Promise<pg.Pool> {
  const timeout = values.NOTIFICATION_POSTGRES_OPERATION_TIMEOUT;
  const db = new pg.Pool({
    connectionString: postgresDsn,
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
  opened.push(() => db.end());
  // Without a listener, an idle connection that breaks would end the process.
  db.on('error', (error) => log.warn({ reason: reasonOf(error) }, 'PostgreSQL connection failed'));
  const { host } = new URL(postgresDsn);
  await check(`PostgreSQL at ${host}`, 'NOTIFICATION_POSTGRES_PRIMARY_DSN', () => db.query('SELECT 1'));
  return db;
}

async function connectTemporal(
  { temporalEnv }: Config,
  { temporalAddress }: Endpoints,
  opened: (() => Promise<unknown>)[],
): Promise<{ connection: NativeConnection; namespace: string }> {
  const { connectionOptions, namespace = 'default' } = loadClientConnectConfig({
    overrideEnvVars: { ...temporalEnv, ...(temporalAddress ? { TEMPORAL_ADDRESS: temporalAddress } : {}) },
    // A profile of the user's own must not reach a server that it was not written for.
    disableFile: !hasTemporalProfile(temporalEnv),
  });
  const where = `Temporal at ${connectionOptions.address ?? 'localhost:7233'}, namespace ${namespace}`;
  return check(where, 'TEMPORAL_ADDRESS and TEMPORAL_NAMESPACE', async () => {
    const connection = await NativeConnection.connect(connectionOptions);
    opened.push(() => connection.close());
    await connection.workflowService.describeNamespace({ namespace });
    return { connection, namespace };
  });
}

/** Nothing is asked of FCM yet: its credentials can be checked, its answers depend on the device. */
async function openFcm(
  { roles, values }: Config,
  { fcm: target }: Endpoints,
  opened: (() => Promise<unknown>)[],
): Promise<FcmSender | undefined> {
  if (!roles.includes('mobile-push')) return undefined;
  return check('FCM', 'GOOGLE_APPLICATION_CREDENTIALS or NOTIFICATION_FCM_ENDPOINT', async () => {
    if (target === undefined) throw new Error('it is neither configured nor embedded');
    const brake = createBrake({ minMs: values.NOTIFICATION_FCM_BRAKE });
    const sender = createFcmSender({ target, maxSockets: values.NOTIFICATION_FCM_MAX_SOCKETS, brake });
    opened.push(() => sender.close());
    return sender;
  });
}

/** Nothing is asked of it yet: callbacks that it does not take are tried again. */
function openPortfolios(
  { roles, values }: Config,
  { portfolioUrl }: Endpoints,
  opened: (() => Promise<unknown>)[],
): PortfolioService | undefined {
  if (!roles.includes('account-callback') || portfolioUrl === undefined) return undefined;
  const portfolios = createPortfolioService({
    baseUrl: portfolioUrl,
    timeoutMs: values.NOTIFICATION_CALLBACK_TIMEOUT,
    maxParallel: values.NOTIFICATION_CALLBACK_MAX_PARALLEL,
  });
  opened.push(() => portfolios.close());
  return portfolios;
}

async function check<T>(what: string, variable: string, attempt: () => Promise<T>): Promise<T> {
  try {
    return await attempt();
  } catch (error) {
    throw new DependencyError(`cannot reach ${what} (${variable}): ${reasonOf(error)}`, { cause: error });
  }
}
