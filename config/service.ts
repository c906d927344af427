/** Configuration that all kinds of work share: the process, its servers, where it is watched. */
import type { ConnectionOptions } from 'node:tls';
import { loadClientConnectConfig } from '@temporalio/envconfig';
import pg from 'pg';
import { z } from 'zod';
import { PLAIN_POLICIES } from '../api/payload-codec.ts';
import { HTTP_VARIABLES } from './caller.ts';
import { REDIS_VARIABLES, redisGaps, redisProblems } from './redis.ts';
import {
  duration,
  exceeding,
  flag,
  hostAndPort,
  httpUrl,
  integer,
  list,
  postgresDsn,
  readBy,
  sealingKeys,
} from './variables.ts';
import type { ValuesOf } from './variables.ts';
import type { Wire } from './wire.ts';
import {
  CONNECTIONS,
  isLoopback,
  linesThat,
  plainUrlGaps,
  sealingKeyWires,
  weaknessOfSecret,
} from './wire.ts';

/** OpenTelemetry's list of exporters, with one entry: further exporters of the same signal are variables of our own. */
const otelExporter = z.enum(
  ['otlp', 'none'],
  'must be otlp or none; for standard output set NOTIFICATION_OTEL_STDOUT_TRACES_ENABLED or …_METRICS_ENABLED',
);

/** `name=value`, comma-separated and percent-encoded, as the standard of OpenTelemetry has it. */
const otelHeaders = readBy((text): Record<string, string> | undefined => {
  try {
    return Object.fromEntries(
      text.split(',').map((pair) => {
        const [, name, value] = /^\s*([\w!#$%&'*+.^`|~-]+)\s*=\s*(.*?)\s*$/.exec(pair)!;
        return [name!.toLowerCase(), decodeURIComponent(value!)];
      }),
    );
  } catch {
    return undefined;
  }
}, 'must be name=value, comma-separated, with values percent-encoded');

export const SERVICE_VARIABLES = {
  NOTIFICATION_INSECURE: list
    .pipe(z.array(z.enum(CONNECTIONS, `must be of ${CONNECTIONS.join(', ')}`)))
    .prefault('')
    .describe(
      `Connections that may be open in production, in plain text or unproven, comma-separated: ${CONNECTIONS.join(', ')}.`,
    ),
  NOTIFICATION_WORKER_BUILD_ID: z
    .string()
    .regex(/^[\w.-]{1,200}$/, 'must be letters, digits, dots, hyphens and underscores')
    .describe(
      'Version of this process in the worker deployment galaxy-notify, for versioned rollouts; work reaches it once Temporal is told that it is current.',
    ),

  NOTIFICATION_SHUTDOWN_TIMEOUT: duration.prefault('15s').describe('Longest graceful shutdown.'),
  NOTIFICATION_LOG_LEVEL: z
    .enum(['trace', 'debug', 'info', 'warn', 'error', 'fatal'])
    .prefault('info')
    .describe('Least severe level that is logged: trace, debug, info, warn, error or fatal.'),

  NOTIFICATION_INTERNAL_HTTP_ADDR: hostAndPort
    .prefault(':8092')
    .describe(
      'Address of the probes. Without a host: every interface in production, the loopback elsewhere.',
    ),
  NOTIFICATION_INTERNAL_HTTP_READ_HEADER_TIMEOUT: duration
    .prefault('2s')
    .describe('Longest wait for request headers.'),
  NOTIFICATION_INTERNAL_HTTP_READ_TIMEOUT: duration
    .prefault('10s')
    .describe('Longest wait for a whole request.'),
  NOTIFICATION_INTERNAL_HTTP_IDLE_TIMEOUT: duration
    .prefault('1m')
    .describe('How long an idle connection is kept.'),

  ...REDIS_VARIABLES,
  ...HTTP_VARIABLES,

  NOTIFICATION_POSTGRES_PRIMARY_DSN: postgresDsn
    .describe(
      'PostgreSQL primary, postgres://user:password@host/db; with ?sslmode=verify-full&sslrootcert=FILE for TLS, and with pgbouncer=true through PgBouncer in transaction mode.',
    )
    .meta({ requiredInProduction: true, secret: true }),
  NOTIFICATION_POSTGRES_OWNER_DSN: postgresDsn
    .describe(
      'The same database as the owner of its tables, not through a pooler, for galaxy-notify setup alone: it migrates, and grants what it must to the role of the primary DSN. Without it the service migrates with its own role.',
    )
    .meta({ secret: true }),
  NOTIFICATION_POSTGRES_REPLICA_DSNS: list
    .pipe(z.array(postgresDsn))
    .prefault('')
    .describe('PostgreSQL replicas, comma-separated; reserved, reads stay on the primary.')
    .meta({ secret: true }),
  NOTIFICATION_POSTGRES_OPERATION_TIMEOUT: duration.prefault('5s').describe('Time-out of one statement.'),
  NOTIFICATION_POSTGRES_MAX_OPEN_CONNS: integer(1, 10_000)
    .prefault('25')
    .describe('Most connections of this process.'),
  NOTIFICATION_POSTGRES_MAX_IDLE_CONNS: integer(0, 10_000)
    .prefault('5')
    .describe('Connections kept open while idle; further ones are closed after five minutes without use.'),
  NOTIFICATION_POSTGRES_CONN_MAX_LIFETIME: duration
    .prefault('30m')
    .describe('Age at which a connection is replaced.'),

  NOTIFICATION_RECORD_RETENTION: duration
    .prefault('720h')
    .describe('Age at which records, routes and dead letters are deleted.'),
  NOTIFICATION_MALFORMED_INTENT_RETENTION: duration
    .prefault('2160h')
    .describe('Age at which malformed intents are deleted.'),
  NOTIFICATION_RECONCILIATION_INTERVAL: duration
    .prefault('1m')
    .describe(
      'How often work is looked for whose workflow or schedule is gone. Every five of these, subscriptions are swept; every fifteen, symbols are pushed to all targets while nothing changes.',
    ),
  NOTIFICATION_CLEANUP_INTERVAL: duration.prefault('1h').describe('Time between two retention runs.'),

  NOTIFICATION_OTEL_STDOUT_TRACES_ENABLED: flag.prefault('false').describe('Print spans to standard output.'),
  NOTIFICATION_OTEL_STDOUT_METRICS_ENABLED: flag
    .prefault('false')
    .describe('Print metrics to standard output.'),
  OTEL_EXPORTER_OTLP_ENDPOINT: httpUrl.describe('OTLP collector (HTTP) for traces and metrics.'),
  OTEL_METRIC_EXPORT_INTERVAL: integer(100, 86_400_000)
    .prefault('60000')
    .describe('Time between two exports of metrics, in milliseconds.'),
  OTEL_TRACES_EXPORTER: otelExporter
    .prefault('otlp')
    .describe('otlp, or none: no traces go to the collector.'),
  OTEL_METRICS_EXPORTER: otelExporter
    .prefault('otlp')
    .describe("otlp, or none: no metrics go to the collector, those of Temporal's SDK neither."),
  OTEL_EXPORTER_OTLP_HEADERS: otelHeaders
    .describe('Headers of every export: name=value, comma-separated.')
    .meta({ secret: true }),

  TEMPORAL_ADDRESS: z
    .string()
    .min(1)
    .describe('Temporal frontend, host:port. TEMPORAL_* profiles apply as well.')
    .meta({ requiredInProduction: true }),
  TEMPORAL_NAMESPACE: z.string().min(1).prefault('default').describe('Temporal namespace.'),
  NOTIFICATION_TEMPORAL_UI_URL: httpUrl.describe('Address of the Web UI, for links in logs and reports.'),
  NOTIFICATION_PAYLOAD_KEYS: sealingKeys
    .prefault('')
    .describe(
      'Keys that encrypt what Temporal keeps, id:base64 of 32 bytes each; the first encrypts, all decrypt. Empty: in plain.',
    )
    .meta({ secret: true }),
  NOTIFICATION_PAYLOAD_PLAIN: z
    .enum(PLAIN_POLICIES)
    .prefault('refuse')
    .describe(
      'refuse; or accept: payloads in plain are taken although there are keys, while an installation that has worked without them changes.',
    ),
  NOTIFICATION_CODEC_HTTP_ADDR: hostAndPort.describe(
    'Address of the codec server, a separate process, which decrypts for the Web UI.',
  ),
  NOTIFICATION_CODEC_JWKS_URL: httpUrl.describe(
    'Public keys (JWKS) of who signs the access tokens of the Web UI; they say who reads at the codec server.',
  ),
  NOTIFICATION_CODEC_ISSUER: z.string().min(1).describe('The issuer (iss) of those access tokens.'),
  NOTIFICATION_CODEC_AUDIENCE: z.string().min(1).describe('The audience (aud) of those access tokens.'),
  NOTIFICATION_CODEC_PERMISSIONS_CLAIM: z
    .string()
    .min(1)
    .prefault('permissions')
    .describe('The claim of those access tokens that lists what may be read, as namespace:role.'),

  NOTIFICATION_DATA_DIR: z
    .string()
    .min(1)
    .prefault('.data')
    .describe('Where embedded servers keep their data.'),
  NOTIFICATION_DEV_BASE_PORT: integer(0, 65_524).describe(
    'First of 12 ports in a row for embedded servers and stand-ins, default: their usual ones; 0 takes free ones.',
  ),
  TEMPORAL_CLI_PATH: z.string().min(1).describe('The `temporal` program to run as embedded server.'),
};

export type ServiceValues = ValuesOf<typeof SERVICE_VARIABLES>;

/** Variables of the seeds that others replace; setting one is an error that names its successor. */
export const DEPRECATED: Record<string, string> = {
  NOTIFICATION_REDIS_ADDR: 'set NOTIFICATION_REDIS_MASTER_ADDR instead',
  NOTIFICATION_REDIS_USERNAME: 'set NOTIFICATION_REDIS_USER for a user of an ACL',
  NOTIFICATION_REDIS_TLS_ENABLED: 'write rediss://host:port in NOTIFICATION_REDIS_MASTER_ADDR instead',
  NOTIFICATION_RECORD_TTL: 'set NOTIFICATION_RECORD_RETENTION instead',
  NOTIFICATION_DEAD_LETTER_TTL: 'NOTIFICATION_RECORD_RETENTION is for dead letters, too',
  AUTOCLAIM_MIN_IDLE_MS: 'set NOTIFICATION_MOBILE_AUTOCLAIM_MIN_IDLE instead, with a unit such as 30s',
  MAX_DELIVERY_COUNT: 'set NOTIFICATION_MOBILE_MAX_DELIVERY_COUNT instead',
};

/** Standard variables that may only say what is so: the service speaks OTLP by one protocol, logs go to
 * standard output, and exports are switched off by OTEL_TRACES_EXPORTER and OTEL_METRICS_EXPORTER. */
export const OTEL_FIXED: ReadonlyMap<string, string> = new Map([
  ['OTEL_EXPORTER_OTLP_PROTOCOL', 'http/json'],
  ['OTEL_EXPORTER_OTLP_TRACES_PROTOCOL', 'http/json'],
  ['OTEL_EXPORTER_OTLP_METRICS_PROTOCOL', 'http/json'],
  ['OTEL_LOGS_EXPORTER', 'none'],
  ['OTEL_SDK_DISABLED', 'false'],
]);

/** Values that are fine alone and wrong together; one line each. */
export function serviceContradictions(values: ServiceValues): string[] {
  return [
    ...exceeding(values, [
      [
        'NOTIFICATION_INTERNAL_HTTP_READ_HEADER_TIMEOUT',
        'NOTIFICATION_INTERNAL_HTTP_READ_TIMEOUT',
        'the headers are part of the request',
      ],
      [
        'NOTIFICATION_POSTGRES_MAX_IDLE_CONNS',
        'NOTIFICATION_POSTGRES_MAX_OPEN_CONNS',
        'idle connections are part of the open ones',
      ],
    ]),
    ...codecProblems(values),
    ...redisProblems(values),
    ...linesThat([
      (values.NOTIFICATION_HTTP_CERT_FILE === undefined) !==
        (values.NOTIFICATION_HTTP_KEY_FILE === undefined),
      'NOTIFICATION_HTTP_CERT_FILE and NOTIFICATION_HTTP_KEY_FILE belong together: set both',
    ]),
  ];
}

/** A codec server without a key has nothing to do, and one without a token would read to everybody. */
function codecProblems(values: ServiceValues): string[] {
  const isSet = (name: keyof ServiceValues) => values[name] !== undefined;
  const isServer = isSet('NOTIFICATION_CODEC_HTTP_ADDR');
  const ofTokens = [isSet('NOTIFICATION_CODEC_ISSUER'), isSet('NOTIFICATION_CODEC_AUDIENCE')];
  const hasKeys = isSet('NOTIFICATION_CODEC_JWKS_URL');
  return linesThat(
    [
      ofTokens.includes(!hasKeys),
      'NOTIFICATION_CODEC_JWKS_URL belongs together with NOTIFICATION_CODEC_ISSUER and NOTIFICATION_CODEC_AUDIENCE: set all or none',
    ],
    [
      isServer && values.NOTIFICATION_PAYLOAD_KEYS?.length === 0,
      'NOTIFICATION_PAYLOAD_KEYS is required by NOTIFICATION_CODEC_HTTP_ADDR',
    ],
    [isServer && !hasKeys, 'NOTIFICATION_CODEC_JWKS_URL is required by NOTIFICATION_CODEC_HTTP_ADDR'],
  );
}

/** The connections that every process has. @param temporalEnv as in the whole configuration. */
export function serviceWires(values: ServiceValues, temporalEnv: Record<string, string>): Wire[] {
  const { NOTIFICATION_CODEC_HTTP_ADDR: codec, OTEL_EXPORTER_OTLP_ENDPOINT: collector } = values;
  const dsns = ['PRIMARY_DSN', 'OWNER_DSN', 'REPLICA_DSNS'] as const;
  const postgres = dsns.flatMap((name) => {
    const variable = `NOTIFICATION_POSTGRES_${name}` as const;
    return postgresGaps(variable, [values[variable] ?? []].flat());
  });
  return [
    { name: 'Redis', connection: 'redis', gaps: redisGaps(values) },
    { name: 'PostgreSQL', connection: 'postgres', gaps: postgres },
    { name: 'Temporal', connection: 'temporal', gaps: temporalGaps(temporalEnv) },
    ...(codec
      ? [{ name: 'codec server', connection: 'codec', gaps: codecGaps(values, codec.host) } as const]
      : []),
    ...(collector === undefined
      ? []
      : [{ name: 'OTLP collector', connection: 'otel', gaps: collectorGaps(values, collector) } as const]),
    ...sealingKeyWires('keys of payloads', 'NOTIFICATION_PAYLOAD_KEYS', values.NOTIFICATION_PAYLOAD_KEYS),
  ];
}

/** What TLS is made of comes from the client itself: there are many ways to write it. */
function postgresGaps(variable: string, dsns: readonly string[]): string[] {
  const gaps = dsns.flatMap((dsn) => {
    const { hostname, password, searchParams } = new URL(dsn);
    const host = searchParams.get('host') ?? hostname;
    // A socket of the machine.
    const isLocal = host.startsWith('/') || isLoopback(host);
    const secret = decodeURIComponent(password) || searchParams.get('password');
    const weakness = secret ? weaknessOfSecret(secret) : undefined;
    return linesThat(
      [
        !isLocal && !checksServer(dsn),
        `${variable} must end in ?sslmode=verify-full, with &sslrootcert=FILE for an authority of your own`,
      ],
      [
        !secret && !searchParams.has('sslcert') && !host.startsWith('/'),
        `${variable} must have a password, or sslcert and sslkey`,
      ],
      [weakness !== undefined, `${variable} has a password that can be guessed: ${weakness}`],
    );
  });
  return [...new Set(gaps)];
}

/** Whether the client of PostgreSQL asks for a certificate, and for the right name in it. */
function checksServer(dsn: string): boolean {
  let ssl: boolean | ConnectionOptions;
  try {
    ({ ssl } = new pg.Client({ connectionString: dsn }) as unknown as { ssl: boolean | ConnectionOptions });
  } catch {
    // The client reports an unreadable file when it connects.
    return true;
  }
  if (typeof ssl === 'boolean') return ssl;
  return ssl.rejectUnauthorized !== false && ssl.checkServerIdentity === undefined;
}

function temporalGaps(temporalEnv: Record<string, string>): string[] {
  let options: ReturnType<typeof temporalConnection>['connectionOptions'];
  try {
    ({ connectionOptions: options } = temporalConnection({ temporalEnv }, undefined));
  } catch {
    // The client reports an unreadable profile or file when it connects.
    return [];
  }
  const { tls, apiKey, address = '' } = options;
  const hasCertificate = typeof tls === 'object' && tls !== null && tls.clientCertPair !== undefined;
  const isUnchecked = /^(1|true)$/i.test(temporalEnv['TEMPORAL_TLS_DISABLE_HOST_VERIFICATION'] ?? '');
  return linesThat(
    [
      !tls && !isLoopback(address.replace(/:\d+$/, '')),
      'TEMPORAL_TLS must be true: without TLS everything can be read and changed',
    ],
    [isUnchecked, 'TEMPORAL_TLS_DISABLE_HOST_VERIFICATION must not be set: the server may be any'],
    [
      !apiKey && !hasCertificate,
      'TEMPORAL_API_KEY must be set, or TEMPORAL_TLS_CLIENT_CERT_PATH and …_KEY_PATH: Temporal cannot tell who calls',
    ],
  );
}

const codecGaps = (values: ServiceValues, host: string): string[] => [
  ...linesThat([
    !isLoopback(host),
    'NOTIFICATION_CODEC_HTTP_ADDR must be on the loopback, behind what speaks TLS: others can read what it decrypts',
  ]),
  ...[values.NOTIFICATION_CODEC_JWKS_URL ?? []]
    .flat()
    .flatMap((url) => plainUrlGaps('NOTIFICATION_CODEC_JWKS_URL', url)),
];

const collectorGaps = ({ OTEL_EXPORTER_OTLP_HEADERS: headers }: ServiceValues, url: string): string[] => [
  ...plainUrlGaps('OTEL_EXPORTER_OTLP_ENDPOINT', url),
  ...linesThat([
    headers === undefined && !isLoopback(new URL(url).hostname),
    'OTEL_EXPORTER_OTLP_HEADERS must be set: the collector cannot tell who sends',
  ]),
];

/** Whether the Temporal server is named by a profile of the SDK's configuration file. */
export function hasTemporalProfile(env: Record<string, string | undefined>): boolean {
  return Boolean(env['TEMPORAL_PROFILE'] || env['TEMPORAL_CONFIG_FILE']);
}

/**
 * Options of a connection to Temporal: by the SDK's own variables and profiles, TLS and API key included.
 *
 * @param address takes the place of a configured one.
 */
export function temporalConnection(
  { temporalEnv }: { temporalEnv: Record<string, string> },
  address: string | undefined,
) {
  const { connectionOptions, namespace = 'default' } = loadClientConnectConfig({
    overrideEnvVars: { ...temporalEnv, ...(address ? { TEMPORAL_ADDRESS: address } : {}) },
    // A profile of the user's own must not reach a server that it was not written for.
    disableFile: !hasTemporalProfile(temporalEnv),
  });
  return { connectionOptions, namespace };
}
