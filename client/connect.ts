/**
 * Opens what the operator client needs.
 *
 * ```ts
 * const { operator, close } = connectOperator({
 *   postgresDsn: 'postgres://notify:secret@db.internal/notify',
 *   redis: { host: 'redis.internal', port: 6379 },
 *   temporal: { address: 'temporal.internal:7233' },
 *   namespace: 'notify',
 * });
 * const { items } = await operator.deadLetters.list({ channel: 'email' });
 * await close();
 * ```
 */
import type { ConnectionOptions } from '@temporalio/client';
import { Client, Connection } from '@temporalio/client';
import type { RedisOptions } from 'ioredis';
import { Redis } from 'ioredis';
import pg from 'pg';
import { given } from '../api/given.ts';
import type { KeyBoxKey } from '../api/key-box.ts';
import { createKeyBox } from '../api/key-box.ts';
import type { PlainPolicy } from '../api/payload-codec.ts';
import { dataConverterWith } from '../api/payload-codec.ts';
import { sessionOptions } from '../api/postgres-session.ts';
import { DEFAULT_INTENTS_STREAM } from './constructors.ts';
import { GALAXY } from './generated/galaxy.ts';
import type { Operator } from './operator.ts';
import { createOperator } from './operator.ts';
import type { OperatorResources } from './resources.ts';

/** Longest wait for a server to answer at all, ms. */
const CONNECT_LIMIT_MS = 5_000;
/** Longest statement, ms: lists are bounded, counting many rows is not quick. */
const STATEMENT_LIMIT_MS = 20_000;

/**
 * Calls that Temporal does not take are made again by the channel. The interceptor of the SDK waits outside of the channel: after
 * `close` its next attempt throws in a timer, which ends the process of the user.
 */
export const CHANNEL_RETRIES = {
  interceptors: [],
  channelArgs: {
    'grpc.service_config': JSON.stringify({
      methodConfig: [
        {
          name: [{}],
          retryPolicy: {
            ...{ maxAttempts: 5, initialBackoff: '0.2s', backoffMultiplier: 2, maxBackoff: '2s' },
            retryableStatusCodes: ['UNAVAILABLE', 'RESOURCE_EXHAUSTED', 'ABORTED', 'UNKNOWN'],
          },
        },
      ],
    }),
  },
} satisfies ConnectionOptions;

/** Replies keep the form that the operator reads. */
type RedisAccess = Omit<RedisOptions, 'replyMapping'>;

/** What has a default: `default` as namespace, `notification:intents`, the types of Galaxy. */
type Settings = Omit<OperatorResources, 'temporal' | 'db' | 'redis' | 'keyBox'>;

/** Where the servers are, and the settings of the service that an operator must share. */
export interface OperatorServers extends Partial<Settings> {
  /** The database of the service: `postgres://user:password@host:port/database`, with `?pgbouncer=true` through PgBouncer. */
  postgresDsn: string;
  /** Address, database and credentials of Redis, as ioredis takes them. */
  redis: RedisAccess;
  /** Address and credentials of Temporal; default: `localhost:7233`. */
  temporal?: ConnectionOptions;
  /** The keys of NOTIFICATION_PAYLOAD_KEYS. Without them what the service has encrypted cannot be shown. */
  payloadKeys?: readonly KeyBoxKey[];
  /** NOTIFICATION_PAYLOAD_PLAIN; default `refuse`. */
  payloadPlain?: PlainPolicy;
  /** The keys of NOTIFICATION_SUBSCRIPTION_KEYS, asked for by the first operation that seals something for a token. */
  subscriptionKeys?: () => readonly KeyBoxKey[];
}

export interface ConnectedOperator {
  operator: Operator;
  /** The connections, for what the operator has no function for. */
  resources: OperatorResources;
  /** Ends the connections. Operations under way fail. */
  close(): Promise<void>;
}

/**
 * Connects an operator. Every connection is opened by its first use, so that an operation needs only the servers that it
 * asks. A server that does not answer fails an operation after 5 s, a statement that does not end after 20 s.
 */
export function connectOperator(servers: OperatorServers): ConnectedOperator {
  const { postgresDsn, redis, temporal, payloadKeys = [], payloadPlain, subscriptionKeys, ...rest } = servers;
  const settings = {
    ...{ namespace: 'default', intentsStream: DEFAULT_INTENTS_STREAM, catalog: GALAXY },
    ...given(rest),
  };
  const connection = Connection.lazy({
    connectTimeout: CONNECT_LIMIT_MS,
    ...CHANNEL_RETRIES,
    ...temporal,
    channelArgs: { ...CHANNEL_RETRIES.channelArgs, ...temporal?.channelArgs },
  });
  const dataConverter = dataConverterWith(payloadKeys, payloadPlain);
  const client = { connection, namespace: settings.namespace, ...given({ dataConverter }) };
  const resources: OperatorResources = {
    ...settings,
    temporal: new Client(client),
    db: openDatabase(postgresDsn),
    redis: openRedis(redis),
    ...given({ keyBox: subscriptionKeys && (() => createKeyBox(subscriptionKeys())) }),
  };
  return {
    operator: createOperator(resources),
    resources,
    async close() {
      resources.redis.disconnect();
      await resources.db.end().catch(() => undefined);
      await connection.close();
    },
  };
}

/** Connections to a database, opened by their use. A server that does not answer fails a statement after 5 s. */
export function openDatabase(connectionString: string, application_name = 'galaxy-notify operator'): pg.Pool {
  const db = new pg.Pool({
    connectionString,
    application_name,
    max: 8,
    connectionTimeoutMillis: CONNECT_LIMIT_MS,
    ...sessionOptions(connectionString, STATEMENT_LIMIT_MS),
  });
  // Without a listener, an idle connection that breaks would end the process.
  db.on('error', () => undefined);
  return db;
}

/** A client that is connected by its first use; a server that does not answer fails a command after 5 s. */
export function openRedis(options: RedisAccess): Redis {
  const redis = new Redis({
    lazyConnect: true,
    connectTimeout: CONNECT_LIMIT_MS,
    commandTimeout: CONNECT_LIMIT_MS,
    maxRetriesPerRequest: 0,
    ...options,
  });
  // Without a listener, a broken connection would be reported; the command that needs the connection fails by itself.
  redis.on('error', () => undefined);
  return redis;
}
