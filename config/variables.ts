/**
 * The table of environment variables: one row each with its meaning, default and check. Names and defaults are the
 * seed's ("Configuration"); those it leaves open are ours.
 */
import { z } from 'zod';
import type { AdminNotificationType } from '../api/intent/catalog.ts';
import { ADMIN_NOTIFICATION_TYPES } from '../api/intent/catalog.ts';
import { DISPATCH_MODES } from '../workflows/intent/contract.ts';
import {
  duration,
  durations,
  emailList,
  flag,
  hostAndPort,
  httpUrl,
  httpsUrl,
  integer,
  list,
  pemFile,
  port,
  postgresDsn,
  redisAddress,
  routerAddresses,
  sealingKeys,
  streamName,
} from './values.ts';

/** The kinds of work; each is a row of workers/roles.ts. */
export const ROLE_NAMES = [
  'intent',
  'mobile-push',
  'symbol-config',
  'account-callback',
  'subscription',
] as const;
export type RoleName = (typeof ROLE_NAMES)[number];

export interface Variable<Schema extends z.ZodType = z.ZodType> {
  schema: Schema;
  meaning: string;
  /** As it would be written in the environment. */
  default?: string;
  /** Must be set in production; elsewhere an embedded server stands in. */
  requiredInProduction?: true;
  /** Never printed. */
  secret?: true;
}

type Options = Omit<Variable, 'schema' | 'meaning'>;

function variable<Schema extends z.ZodType, const O extends Options = object>(
  schema: Schema,
  meaning: string,
  options?: O,
): Variable<Schema> & O {
  return { schema, meaning, ...(options as O) };
}

/** `geo.review_recommended` -> `NOTIFICATION_ADMIN_EMAILS_GEO_REVIEW_RECOMMENDED` */
export const adminEmailsVariable = (type: AdminNotificationType): string =>
  `NOTIFICATION_ADMIN_EMAILS_${type.replace(/\./g, '_').toUpperCase()}`;

/** Every variable, in the order of `.env.example`. */
export const VARIABLES = {
  NODE_ENV: variable(
    z.string(),
    'production: nothing is embedded, and a missing required variable stops the start.',
    {
      default: 'development',
    },
  ),

  NOTIFICATION_ROLES: variable(
    list.pipe(z.array(z.enum(ROLE_NAMES, `must name roles: ${ROLE_NAMES.join(', ')}`))),
    'What this process works on, comma-separated. Empty: intent in production, everything elsewhere.',
    { default: '' },
  ),

  NOTIFICATION_WORKER_DEPLOYMENT: variable(
    z.string().regex(/^[\w-]{1,200}$/, 'must be letters, digits, hyphens and underscores'),
    'Name of the worker deployment, for versioned rollouts; with the version below.',
  ),
  NOTIFICATION_WORKER_BUILD_ID: variable(
    z.string().regex(/^[\w.-]{1,200}$/, 'must be letters, digits, dots, hyphens and underscores'),
    'Version of this process in that deployment; work reaches it once Temporal is told that it is current.',
  ),

  NOTIFICATION_SHUTDOWN_TIMEOUT: variable(duration, 'Longest graceful shutdown.', { default: '15s' }),
  NOTIFICATION_LOG_LEVEL: variable(
    z.enum(['trace', 'debug', 'info', 'warn', 'error', 'fatal']),
    'Least severe level that is logged: trace, debug, info, warn, error or fatal.',
    { default: 'info' },
  ),

  NOTIFICATION_INTERNAL_HTTP_ADDR: variable(
    hostAndPort,
    'Address of the probes. Without a host: every interface in production, the loopback elsewhere.',
    { default: ':8092' },
  ),
  NOTIFICATION_INTERNAL_HTTP_READ_HEADER_TIMEOUT: variable(duration, 'Longest wait for request headers.', {
    default: '2s',
  }),
  NOTIFICATION_INTERNAL_HTTP_READ_TIMEOUT: variable(duration, 'Longest wait for a whole request.', {
    default: '10s',
  }),
  NOTIFICATION_INTERNAL_HTTP_IDLE_TIMEOUT: variable(duration, 'How long an idle connection is kept.', {
    default: '1m',
  }),

  NOTIFICATION_REDIS_MASTER_ADDR: variable(
    redisAddress,
    'Redis master, host:port, or rediss://host:port for TLS. Redis 7 or later, or Valkey.',
    {
      requiredInProduction: true,
    },
  ),
  NOTIFICATION_REDIS_PASSWORD: variable(z.string(), 'Password of Redis.', {
    requiredInProduction: true,
    secret: true,
  }),
  NOTIFICATION_REDIS_REPLICA_ADDRS: variable(
    list.pipe(z.array(redisAddress)),
    'Redis replicas, comma-separated; checked at start, reads stay on the primary.',
    {
      default: '',
    },
  ),
  NOTIFICATION_REDIS_CA_FILE: variable(
    pemFile,
    'Authority that signed the certificate of Redis, PEM; without one, those that Node trusts.',
  ),
  NOTIFICATION_REDIS_CERT_FILE: variable(pemFile, 'Certificate to show to Redis, PEM, with its key below.'),
  NOTIFICATION_REDIS_KEY_FILE: variable(pemFile, 'Private key of that certificate, PEM.'),
  NOTIFICATION_REDIS_DB: variable(integer(0, 65_535), 'Redis database number.', { default: '0' }),
  NOTIFICATION_REDIS_OPERATION_TIMEOUT: variable(duration, 'Time-out of one Redis command.', {
    default: '2s',
  }),

  NOTIFICATION_POSTGRES_PRIMARY_DSN: variable(
    postgresDsn,
    'PostgreSQL primary, postgres://user:password@host/db; with ?sslmode=verify-full&sslrootcert=FILE for TLS.',
    {
      requiredInProduction: true,
      secret: true,
    },
  ),
  NOTIFICATION_POSTGRES_REPLICA_DSNS: variable(
    list.pipe(z.array(postgresDsn)),
    'PostgreSQL replicas, comma-separated; checked at start, reads stay on the primary.',
    { default: '', secret: true },
  ),
  NOTIFICATION_POSTGRES_OPERATION_TIMEOUT: variable(duration, 'Time-out of one statement.', {
    default: '5s',
  }),
  NOTIFICATION_POSTGRES_MAX_OPEN_CONNS: variable(integer(1, 10_000), 'Most connections of this process.', {
    default: '25',
  }),
  NOTIFICATION_POSTGRES_MAX_IDLE_CONNS: variable(
    integer(0, 10_000),
    'Connections kept open while idle; further ones are closed after 10 s without use.',
    { default: '5' },
  ),
  NOTIFICATION_POSTGRES_CONN_MAX_LIFETIME: variable(duration, 'Age at which a connection is replaced.', {
    default: '30m',
  }),

  NOTIFICATION_INTENTS_STREAM: variable(streamName, 'Stream that producers append intents to.', {
    default: 'notification:intents',
  }),
  NOTIFICATION_INTENTS_READ_BLOCK_TIMEOUT: variable(duration, 'Longest blocking read of that stream.', {
    default: '2s',
  }),
  NOTIFICATION_GATEWAY_CLIENT_EVENTS_STREAM: variable(streamName, 'Stream of push events for Gateway.', {
    default: 'gateway:client-events',
  }),
  NOTIFICATION_GATEWAY_CLIENT_EVENTS_STREAM_MAX_LEN: variable(
    integer(1, 1_000_000_000),
    'Approximate length to which that stream is trimmed.',
    { default: '1024' },
  ),
  NOTIFICATION_MAIL_DELIVERY_COMMANDS_STREAM: variable(
    streamName,
    'Stream of e-mail commands for Mail Service.',
    {
      default: 'mail:delivery_commands',
    },
  ),

  NOTIFICATION_PUSH_RETRY_MAX_ATTEMPTS: variable(integer(1, 1_000), 'Attempts of a push route in total.', {
    default: '3',
  }),
  NOTIFICATION_EMAIL_RETRY_MAX_ATTEMPTS: variable(
    integer(1, 1_000),
    'Attempts of an e-mail route in total.',
    {
      default: '7',
    },
  ),
  NOTIFICATION_ROUTE_BACKOFF_MIN: variable(
    duration,
    'Delay after the first failed attempt; it doubles from there.',
    {
      default: '1s',
    },
  ),
  NOTIFICATION_ROUTE_BACKOFF_MAX: variable(duration, 'Longest delay between two attempts.', {
    default: '5m',
  }),
  NOTIFICATION_ROUTE_LEASE_TTL: variable(duration, "How long a route's lease outlives a worker that died.", {
    default: '5s',
  }),
  NOTIFICATION_ROUTE_DISPATCH: variable(
    z.enum(DISPATCH_MODES, `must be one of ${DISPATCH_MODES.join(', ')}`),
    'child: each route is a workflow from the beginning; on_failure: once its first attempt did not publish it.',
    { default: 'child' },
  ),
  NOTIFICATION_IDEMPOTENCY_TTL: variable(duration, 'How long at least an idempotency key stays reserved.', {
    default: '168h',
  }),

  NOTIFICATION_RECORD_RETENTION: variable(
    duration,
    'Age at which records, routes and dead letters are deleted.',
    {
      default: '720h',
    },
  ),
  NOTIFICATION_MALFORMED_INTENT_RETENTION: variable(duration, 'Age at which malformed intents are deleted.', {
    default: '2160h',
  }),
  NOTIFICATION_CLEANUP_INTERVAL: variable(duration, 'Time between two retention runs.', { default: '1h' }),

  NOTIFICATION_USER_SERVICE_BASE_URL: variable(httpUrl, 'Base URL of the User Service.', {
    requiredInProduction: true,
  }),
  NOTIFICATION_USER_SERVICE_TIMEOUT: variable(duration, 'Time-out of one lookup.', { default: '1s' }),
  NOTIFICATION_USER_SERVICE_REUSE: variable(
    duration,
    'How long a user who was found is not looked up again.',
    { default: '1s' },
  ),

  NOTIFICATION_MOBILE_STREAM: variable(streamName, 'Stream that producers append mobile push jobs to.', {
    default: 'stream.notifications.jobs',
  }),
  NOTIFICATION_MOBILE_GROUP: variable(streamName, 'Consumer group of all processes on that stream.', {
    default: 'notifications',
  }),
  NOTIFICATION_MOBILE_AUTOCLAIM_MIN_IDLE: variable(
    duration,
    'Age at which an entry that was not acknowledged is delivered again; also how often to look for those.',
    { default: '30s' },
  ),
  NOTIFICATION_MOBILE_MAX_DELIVERY_COUNT: variable(
    integer(1, 1_000),
    'Deliveries after which an entry that nobody acknowledged is given up.',
    { default: '5' },
  ),
  NOTIFICATION_MOBILE_SEND_ATTEMPTS: variable(
    integer(1, 1_000),
    'Attempts of a push to one device in total.',
    { default: '5' },
  ),
  NOTIFICATION_MOBILE_SEND_INTERVAL: variable(
    duration,
    'Time between two of them, unless FCM asks for another.',
    { default: '30s' },
  ),
  GOOGLE_APPLICATION_CREDENTIALS: variable(
    z.string().min(1),
    'JSON file of the service account that sends through FCM; required in production by the role mobile-push.',
  ),
  NOTIFICATION_FCM_MAX_SOCKETS: variable(integer(1, 10_000), 'Most connections to FCM of this process.', {
    default: '50',
  }),
  NOTIFICATION_FCM_BRAKE: variable(
    duration,
    'Shortest pause of all sends after FCM said that its quota is spent.',
    {
      default: '1m',
    },
  ),
  NOTIFICATION_FCM_ENDPOINT: variable(httpsUrl, 'A server that stands in for FCM, outside production.'),
  NOTIFICATION_FCM_CA_FILE: variable(
    z.string().min(1),
    'PEM file of the authority that signed its certificate, outside production.',
  ),

  NOTIFICATION_SYMBOL_TARGETS_FILE: variable(
    z.string().min(1),
    'JSON file of the targets of symbol configuration. Required in production by the role symbol-config.',
  ),
  NOTIFICATION_SYMBOL_PUSH_TIMEOUT: variable(duration, 'Time-out of one push to a target.', {
    default: '5s',
  }),
  NOTIFICATION_SYMBOL_RETRY_LADDER: variable(
    durations,
    'Delays after one, two and more rounds of pushes in a row that somebody did not acknowledge; the last one repeats.',
    { default: '30s,1m,2m,5m,15m' },
  ),
  NOTIFICATION_SYMBOL_RECONCILIATION_INTERVAL: variable(
    duration,
    'Time between two pushes to all targets while nothing changes and the crawler is off.',
    { default: '15m' },
  ),

  NOTIFICATION_PORTFOLIO_BASE_URL: variable(
    httpUrl,
    'Base URL of the portfolio service. Required in production by the role account-callback.',
  ),
  NOTIFICATION_CALLBACK_SHARDS: variable(
    integer(1, 1_000),
    'Shards that users are spread over, each with a workflow of its own. The same for all processes.',
    { default: '4' },
  ),
  NOTIFICATION_CALLBACK_TIMEOUT: variable(duration, 'Time-out of one callback.', { default: '5s' }),
  NOTIFICATION_CALLBACK_MAX_PARALLEL: variable(
    integer(1, 10_000),
    'Callbacks of this process that are on their way concurrently.',
    { default: '500' },
  ),
  NOTIFICATION_CALLBACK_RETRY_LADDER: variable(
    durations,
    'Delays after each failed attempt of a callback; after as many retries it is dropped.',
    { default: '1m,5m,15m,1h,2h' },
  ),
  NOTIFICATION_CALLBACK_PRICE_GRACE: variable(
    duration,
    'How long an hour that is over waits for prices of symbols that have none after it.',
    { default: '2m' },
  ),
  NOTIFICATION_CALLBACK_SNAPSHOT_RETENTION: variable(
    duration,
    'Age at which hourly snapshots, prices and positions that are not needed any more are deleted.',
    { default: '72h' },
  ),
  NOTIFICATION_CALLBACK_STREAM: variable(streamName, 'Stream that prices and positions come from.', {
    default: 'stream.account.inputs',
  }),
  NOTIFICATION_CALLBACK_GROUP: variable(streamName, 'Consumer group of all processes on that stream.', {
    default: 'notifications',
  }),
  NOTIFICATION_SUBSCRIPTION_AGENT: variable(
    z.string().regex(/^[A-Za-z0-9_.-]{1,64}$/, 'must be 1 to 64 of A-Z a-z 0-9 _ . -'),
    'The agent whose subscriptions are kept from the start on.',
    { default: 'default' },
  ),
  NOTIFICATION_SUBSCRIPTION_KEYS: variable(
    sealingKeys,
    'Keys that seal secrets at rest, id:base64 of 32 bytes, comma-separated; the first one seals. Required in production by the role subscription; elsewhere one is kept in the data directory.',
    { secret: true },
  ),
  NOTIFICATION_SUBSCRIPTION_NTF_SERVERS: variable(
    routerAddresses,
    'Notification routers, host:port#fingerprint, comma-separated. Required in production by the role subscription.',
  ),
  NOTIFICATION_SUBSCRIPTION_BATCH_SIZE: variable(
    integer(1, 1_000),
    'Most subscriptions that are worked on together.',
    { default: '150' },
  ),
  NOTIFICATION_SUBSCRIPTION_FIRST_CHECK: variable(
    duration,
    'Time from the creation of a subscription to its first check.',
    { default: '24h' },
  ),
  NOTIFICATION_SUBSCRIPTION_CHECK_INTERVAL: variable(duration, 'Time between two checks after that.', {
    default: '72h',
  }),
  NOTIFICATION_SUBSCRIPTION_RETRY_FIRST: variable(duration, 'First delay of work that failed for now.', {
    default: '2s',
  }),
  NOTIFICATION_SUBSCRIPTION_RETRY_CONSTANT_FOR: variable(
    duration,
    'How long that delay is kept; from there each one is half as long again.',
    { default: '10s' },
  ),
  NOTIFICATION_SUBSCRIPTION_RETRY_MAX: variable(duration, 'Longest delay.', { default: '180s' }),
  NOTIFICATION_SUBSCRIPTION_COMMAND_TIMEOUT: variable(duration, "Time-out of a router's answer.", {
    default: '30s',
  }),
  NOTIFICATION_SUBSCRIPTION_CONNECT_TIMEOUT: variable(duration, 'Time-out of connecting to a router.', {
    default: '45s',
  }),
  NOTIFICATION_SUBSCRIPTION_NETWORK_WAIT: variable(
    duration,
    'How long an agent that says it is offline is waited for before an attempt.',
    { default: '30m' },
  ),
  NOTIFICATION_SUBSCRIPTION_TOKEN_DELETION_KEEP: variable(
    duration,
    'Age at which the deletion of a token that never succeeds is given up.',
    { default: '504h' },
  ),
  NOTIFICATION_SUBSCRIPTION_SWEEP_INTERVAL: variable(
    duration.pipe(z.number().min(1_000, 'must be at least 1s')),
    'Time between two sweeps for work that nobody was woken for.',
    { default: '5m' },
  ),
  NOTIFICATION_SUBSCRIPTION_EVENTS_STREAM: variable(
    streamName,
    'Stream of events about errors, for clients.',
    {
      default: 'notification:subscription-events',
    },
  ),

  NOTIFICATION_OTEL_STDOUT_TRACES_ENABLED: variable(flag, 'Print spans to standard output.', {
    default: 'false',
  }),
  NOTIFICATION_OTEL_STDOUT_METRICS_ENABLED: variable(flag, 'Print metrics to standard output.', {
    default: 'false',
  }),
  OTEL_SERVICE_NAME: variable(z.string(), 'Service name in traces and metrics.', {
    default: 'galaxy-notify',
  }),
  OTEL_EXPORTER_OTLP_ENDPOINT: variable(
    httpUrl,
    'OTLP collector (HTTP) for traces and metrics. Its headers, certificates and time-outs are standard OTEL_* variables.',
  ),
  OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: variable(
    httpUrl,
    'Whole URL for traces, instead of /v1/traces of that collector.',
  ),
  OTEL_EXPORTER_OTLP_METRICS_ENDPOINT: variable(
    httpUrl,
    'Whole URL for metrics, instead of /v1/metrics of that collector.',
  ),
  OTEL_METRIC_EXPORT_INTERVAL: variable(
    integer(100, 86_400_000),
    'Time between two exports of metrics, in milliseconds.',
    { default: '60000' },
  ),

  TEMPORAL_ADDRESS: variable(
    z.string().min(1),
    'Temporal frontend, host:port. TEMPORAL_* profiles apply as well.',
    {
      requiredInProduction: true,
    },
  ),
  TEMPORAL_NAMESPACE: variable(z.string().min(1), 'Temporal namespace.', { default: 'default' }),
  NOTIFICATION_TEMPORAL_UI_URL: variable(httpUrl, 'Address of the Web UI, for links in logs and reports.'),
  NOTIFICATION_PAYLOAD_KEYS: variable(
    sealingKeys,
    'Keys that encrypt what Temporal keeps, id:base64 of 32 bytes each; the first encrypts, all decrypt. Empty: in plain.',
    { default: '', secret: true },
  ),
  NOTIFICATION_CODEC_HTTP_ADDR: variable(
    hostAndPort,
    'Address of the codec server, which decrypts for the Web UI. Not set: there is none.',
  ),
  NOTIFICATION_CODEC_TOKEN: variable(
    z.string().min(16, 'must have 16 characters or more'),
    'What callers of the codec server must present, as bearer token or password.',
    { secret: true },
  ),

  NOTIFICATION_DATA_DIR: variable(z.string().min(1), 'Where embedded servers keep their data.', {
    default: '.data',
  }),
  NOTIFICATION_DEV_REDIS_PORT: variable(port, 'Port of the embedded Redis; 0 takes a free one.', {
    default: '6379',
  }),
  NOTIFICATION_DEV_POSTGRES_PORT: variable(port, 'Port of the embedded PostgreSQL.', { default: '5432' }),
  NOTIFICATION_DEV_TEMPORAL_PORT: variable(port, 'Port of the embedded Temporal.', { default: '7233' }),
  NOTIFICATION_DEV_TEMPORAL_UI_PORT: variable(port, "Port of the embedded Temporal's Web UI.", {
    default: '8233',
  }),
  NOTIFICATION_DEV_USER_SERVICE_PORT: variable(port, 'Port of the stand-in User Service.', {
    default: '8093',
  }),
  NOTIFICATION_DEV_FCM_PORT: variable(port, 'Port of the stand-in FCM.', { default: '8094' }),
  NOTIFICATION_DEV_SYMBOL_TARGETS_PORT: variable(port, 'Port of the stand-in symbol targets.', {
    default: '8095',
  }),
  NOTIFICATION_DEV_PORTFOLIO_PORT: variable(port, 'Port of the stand-in portfolio service.', {
    default: '8096',
  }),
  NOTIFICATION_DEV_ROUTERS_PORT: variable(
    integer(0, 65_532),
    'First of four ports of the stand-in routers: two for messaging, one for notifications, one for pushes; 0 takes free ones.',
    { default: '8101' },
  ),
  TEMPORAL_CLI_PATH: variable(z.string().min(1), 'The `temporal` program to run as embedded server.'),
} satisfies Record<string, Variable>;

/** One list of administrators per notification type that reaches them. */
export const ADMIN_EMAIL_VARIABLES = Object.fromEntries(
  ADMIN_NOTIFICATION_TYPES.map((type) => [
    adminEmailsVariable(type),
    variable(emailList, `Administrators who get ${type}, comma-separated.`, { default: '' }),
  ]),
);

/** Variables of earlier releases; setting one is an error that names its successor. */
export const DEPRECATED: Record<string, string> = {
  NOTIFICATION_REDIS_ADDR: 'set NOTIFICATION_REDIS_MASTER_ADDR instead',
  NOTIFICATION_REDIS_USERNAME: 'Redis is reached with NOTIFICATION_REDIS_PASSWORD alone',
  NOTIFICATION_REDIS_TLS_ENABLED: 'write rediss://host:port in NOTIFICATION_REDIS_MASTER_ADDR instead',
};
