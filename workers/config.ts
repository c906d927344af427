/**
 * The whole configuration: one row per environment variable with its meaning, default and check. The only place
 * that reads the environment. Names and defaults are the seed's ("Configuration"); those it leaves open are ours.
 */
import { z } from 'zod';
import type { AdminNotificationType } from '../api/catalog.ts';
import { ADMIN_NOTIFICATION_TYPES } from '../api/catalog.ts';
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
  port,
  postgresDsn,
  streamName,
} from './config-values.ts';

/** The kinds of work; each is a row of workers/roles.ts. */
export const ROLE_NAMES = ['intent', 'mobile-push', 'symbol-config'] as const;
export type RoleName = (typeof ROLE_NAMES)[number];

interface Variable<Schema extends z.ZodType = z.ZodType> {
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
const adminEmailsVariable = (type: AdminNotificationType): string =>
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
    hostAndPort,
    'Redis master, host:port. Redis 7 or later, or Valkey.',
    {
      requiredInProduction: true,
    },
  ),
  NOTIFICATION_REDIS_PASSWORD: variable(z.string(), 'Password of Redis.', {
    requiredInProduction: true,
    secret: true,
  }),
  NOTIFICATION_REDIS_REPLICA_ADDRS: variable(
    list.pipe(z.array(hostAndPort)),
    'Redis replicas, comma-separated; checked at start, reads stay on the primary.',
    {
      default: '',
    },
  ),
  NOTIFICATION_REDIS_DB: variable(integer(0, 65_535), 'Redis database number.', { default: '0' }),
  NOTIFICATION_REDIS_OPERATION_TIMEOUT: variable(duration, 'Time-out of one Redis command.', {
    default: '2s',
  }),

  NOTIFICATION_POSTGRES_PRIMARY_DSN: variable(
    postgresDsn,
    'PostgreSQL primary, postgres://user:password@host/db.',
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
  TEMPORAL_CLI_PATH: variable(z.string().min(1), 'The `temporal` program to run as embedded server.'),
} satisfies Record<string, Variable>;

/** One list of administrators per notification type that reaches them. */
export const ADMIN_EMAIL_VARIABLES = Object.fromEntries(
  ADMIN_NOTIFICATION_TYPES.map((type) => [
    adminEmailsVariable(type),
    variable(emailList, `Administrators who get ${type}, comma-separated.`, { default: '' }),
  ]),
);

/** A user or password before the host: not for a log, wherever somebody put it. */
const CREDENTIALS_IN_URL = /:\/\/[^/]*@/;

/** Variables of earlier releases; setting one is an error that names its successor. */
const DEPRECATED: Record<string, string> = {
  NOTIFICATION_REDIS_ADDR: 'set NOTIFICATION_REDIS_MASTER_ADDR instead',
  NOTIFICATION_REDIS_USERNAME: 'Redis is reached with NOTIFICATION_REDIS_PASSWORD alone',
  NOTIFICATION_REDIS_TLS_ENABLED: 'TLS is not switched by a variable of its own any more',
};

type Variables = typeof VARIABLES;
type ValueOf<V extends Variable> =
  z.output<V['schema']> | (V extends { default: string } ? never : undefined);
/** Values by variable name; those without a default may be undefined. */
type Values = { [Name in keyof Variables]: ValueOf<Variables[Name]> };

/** Everything the process is told from outside. Durations are milliseconds. */
export interface Config {
  production: boolean;
  /** What this process works on. */
  roles: readonly RoleName[];
  values: { [Name in keyof Values]: Values[Name] };
  adminEmails: Record<AdminNotificationType, string[]>;
  /** The TEMPORAL_* variables, for the SDK's own profile loader (TLS, API key, profiles). */
  temporalEnv: Record<string, string>;
}

/** The environment is wrong; `problems` has one line for every variable at fault. */
export class ConfigError extends Error {
  override name = 'ConfigError';
  readonly problems: readonly string[];

  constructor(problems: readonly string[]) {
    super(`the configuration is wrong:\n${problems.map((problem) => `  ${problem}`).join('\n')}`);
    this.problems = problems;
  }
}

/**
 * Reads and checks the environment. An empty value counts as not set.
 *
 * @param defaults take the place of the table's defaults, by variable name.
 * @throws ConfigError naming every wrong, missing or deprecated variable at once.
 */
export function loadConfig(
  env: Record<string, string | undefined> = process.env,
  defaults: Record<string, string> = {},
): Config {
  const problems: string[] = [];
  const production = env['NODE_ENV'] === 'production';

  const read = (name: string, { schema, ...rest }: Variable): unknown => {
    const text = env[name] || (defaults[name] ?? rest.default);
    if (text === undefined) {
      if (
        production &&
        rest.requiredInProduction &&
        !(name === 'TEMPORAL_ADDRESS' && hasTemporalProfile(env))
      ) {
        problems.push(`${name} is required in production: ${rest.meaning}`);
      }
      return undefined;
    }
    const result = schema.safeParse(text);
    if (result.success) return result.data;
    const shown =
      rest.secret || CREDENTIALS_IN_URL.test(text) ? 'a value that is not shown' : JSON.stringify(text);
    problems.push(`${name} ${result.error.issues.map(({ message }) => message).join('; ')} (got ${shown})`);
    return undefined;
  };
  const readAll = (variables: Record<string, Variable>) =>
    Object.fromEntries(Object.entries(variables).map(([name, row]) => [name, read(name, row)]));

  const values = readAll(VARIABLES) as unknown as Config['values'];
  const emails = readAll(ADMIN_EMAIL_VARIABLES);
  for (const [name, advice] of Object.entries(DEPRECATED)) {
    if (env[name] !== undefined) problems.push(`${name} is no longer supported: ${advice}`);
  }
  problems.push(...contradictions(values));
  const roles = rolesOf(values, production);
  if (production) problems.push(...productionProblems(values, roles));
  if (problems.length > 0) throw new ConfigError(problems);

  const adminEmails = Object.fromEntries(
    ADMIN_NOTIFICATION_TYPES.map((type) => [type, emails[adminEmailsVariable(type)]]),
  ) as Config['adminEmails'];
  return {
    production,
    roles,
    values,
    adminEmails,
    temporalEnv: temporalEnvOf(env),
  };
}

function rolesOf(
  { NOTIFICATION_ROLES: named = [] }: Partial<Config['values']>,
  production: boolean,
): readonly RoleName[] {
  if (named.length > 0) return [...new Set(named)];
  return production ? ['intent'] : ROLE_NAMES;
}

/** What a role needs in production, and what must not be there. */
function productionProblems(values: Config['values'], roles: readonly RoleName[]): string[] {
  const problems: string[] = [];
  if (roles.includes('mobile-push') && values.GOOGLE_APPLICATION_CREDENTIALS === undefined) {
    problems.push(
      `GOOGLE_APPLICATION_CREDENTIALS is required in production by the role mobile-push: ${VARIABLES.GOOGLE_APPLICATION_CREDENTIALS.meaning}`,
    );
  }
  if (roles.includes('symbol-config') && values.NOTIFICATION_SYMBOL_TARGETS_FILE === undefined) {
    const { meaning } = VARIABLES.NOTIFICATION_SYMBOL_TARGETS_FILE;
    problems.push(`NOTIFICATION_SYMBOL_TARGETS_FILE is required in production: ${meaning}`);
  }
  for (const name of ['NOTIFICATION_FCM_ENDPOINT', 'NOTIFICATION_FCM_CA_FILE'] as const) {
    if (values[name] === undefined) continue;
    problems.push(`${name} is refused in production: pushes would go to a server that is not FCM`);
  }
  return problems;
}

/** Whether the Temporal server is named by a profile of the SDK's configuration file. */
export function hasTemporalProfile(env: Record<string, string | undefined>): boolean {
  return Boolean(env['TEMPORAL_PROFILE'] || env['TEMPORAL_CONFIG_FILE']);
}

function temporalEnvOf(env: Record<string, string | undefined>): Record<string, string> {
  return Object.fromEntries(
    Object.entries(env).flatMap(([name, value]) =>
      name.startsWith('TEMPORAL_') && value ? [[name, value]] : [],
    ),
  );
}

/** Values that are fine alone and wrong together. */
function contradictions(values: Config['values']): string[] {
  const mustNotExceed: [smaller: keyof Values, larger: keyof Values, why: string][] = [
    [
      'NOTIFICATION_INTERNAL_HTTP_READ_HEADER_TIMEOUT',
      'NOTIFICATION_INTERNAL_HTTP_READ_TIMEOUT',
      'the headers are part of the request',
    ],
    ['NOTIFICATION_ROUTE_BACKOFF_MIN', 'NOTIFICATION_ROUTE_BACKOFF_MAX', 'it is the lower end of the ladder'],
    [
      'NOTIFICATION_REDIS_OPERATION_TIMEOUT',
      'NOTIFICATION_ROUTE_LEASE_TTL',
      'a lease must outlive the publication that it covers',
    ],
    [
      'NOTIFICATION_POSTGRES_MAX_IDLE_CONNS',
      'NOTIFICATION_POSTGRES_MAX_OPEN_CONNS',
      'idle connections are part of the open ones',
    ],
  ];
  return mustNotExceed.flatMap(([smaller, larger, why]) => {
    const [low, high] = [values[smaller], values[larger]];
    if (typeof low !== 'number' || typeof high !== 'number' || low <= high) return [];
    return [`${smaller} must not exceed ${larger}: ${why}`];
  });
}
