/** The whole configuration, read by the table of config-variables.ts. The only place that reads the environment. */
import { readFileSync } from 'node:fs';
import type { z } from 'zod';
import type { AdminNotificationType } from '../api/intent/catalog.ts';
import { ADMIN_NOTIFICATION_TYPES } from '../api/intent/catalog.ts';
import type { RoleName, Variable } from './variables.ts';
import {
  ADMIN_EMAIL_VARIABLES,
  DEPRECATED,
  ROLE_NAMES,
  VARIABLES,
  adminEmailsVariable,
} from './variables.ts';

// Who asks about the configuration asks here.
export type { RoleName } from './variables.ts';
export { ADMIN_EMAIL_VARIABLES, VARIABLES } from './variables.ts';
export { redisConnection } from './redis.ts';
export type { RedisAddress } from './values.ts';

/** A user or password before the host: not for a log, wherever somebody put it. */
const CREDENTIALS_IN_URL = /:\/\/[^/]*@/;

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

  /** A secret may come in a file, as orchestrators mount it; the line break that editors leave is not part of it. */
  const readFile = (name: string): string | undefined => {
    const file = env[`${name}_FILE`];
    if (!file) return undefined;
    if (env[name]) {
      problems.push(`${name} and ${name}_FILE are both set: keep one of them`);
      return undefined;
    }
    try {
      const text = readFileSync(file, 'utf8').replace(/\r?\n$/, '');
      if (text !== '') return text;
      problems.push(`${name}_FILE names an empty file: ${file}`);
    } catch (error) {
      problems.push(`${name}_FILE cannot be read: ${(error as Error).message}`);
    }
    return undefined;
  };

  const read = (name: string, { schema, ...rest }: Variable): unknown => {
    const inFile = rest.secret ? readFile(name) : undefined;
    const text = env[name] || inFile || (defaults[name] ?? rest.default);
    if (text === undefined) {
      if (
        production &&
        rest.requiredInProduction &&
        !(rest.secret && env[`${name}_FILE`]) &&
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

  const apiKey = readFile('TEMPORAL_API_KEY');
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
    temporalEnv: { ...temporalEnvOf(env), ...(apiKey === undefined ? {} : { TEMPORAL_API_KEY: apiKey }) },
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
  if (roles.includes('account-callback') && values.NOTIFICATION_PORTFOLIO_BASE_URL === undefined) {
    const { meaning } = VARIABLES.NOTIFICATION_PORTFOLIO_BASE_URL;
    problems.push(`NOTIFICATION_PORTFOLIO_BASE_URL is required in production: ${meaning}`);
  }
  if (roles.includes('subscription')) {
    for (const name of ['NOTIFICATION_SUBSCRIPTION_KEYS', 'NOTIFICATION_SUBSCRIPTION_NTF_SERVERS'] as const) {
      if ((values[name] ?? []).length > 0) continue;
      problems.push(`${name} is required in production by the role subscription: ${VARIABLES[name].meaning}`);
    }
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
  return [
    ...exceeding(values),
    ...codecProblems(values),
    ...redisProblems(values),
    ...versionProblems(values),
  ];
}

/** A codec server without a key has nothing to do, and one without a token would read to everybody. */
function codecProblems(values: Config['values']): string[] {
  if (values.NOTIFICATION_CODEC_HTTP_ADDR === undefined) return [];
  const needed = 'is required by NOTIFICATION_CODEC_HTTP_ADDR';
  return [
    ...(values.NOTIFICATION_PAYLOAD_KEYS?.length === 0 ? [`NOTIFICATION_PAYLOAD_KEYS ${needed}`] : []),
    ...(values.NOTIFICATION_CODEC_TOKEN === undefined ? [`NOTIFICATION_CODEC_TOKEN ${needed}`] : []),
  ];
}

function versionProblems(values: Config['values']): string[] {
  const { NOTIFICATION_WORKER_DEPLOYMENT: deployment, NOTIFICATION_WORKER_BUILD_ID: buildId } = values;
  return (deployment === undefined) === (buildId === undefined)
    ? []
    : ['NOTIFICATION_WORKER_DEPLOYMENT and NOTIFICATION_WORKER_BUILD_ID belong together: set both or none'];
}

/** What protects a connection must not be silently without effect. */
function redisProblems(values: Config['values']): string[] {
  const files = ['CA', 'CERT', 'KEY'] as const;
  const [ca, cert, key] = files.map((file) => values[`NOTIFICATION_REDIS_${file}_FILE`] !== undefined);
  const address = values.NOTIFICATION_REDIS_MASTER_ADDR;
  return [
    ...((ca || cert || key) && !address?.tls
      ? [
          'NOTIFICATION_REDIS_MASTER_ADDR must be rediss://host:port: without TLS the files for it have no effect',
        ]
      : []),
    ...(cert === key
      ? []
      : ['NOTIFICATION_REDIS_CERT_FILE and NOTIFICATION_REDIS_KEY_FILE belong together: set both']),
  ];
}

function exceeding(values: Config['values']): string[] {
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
      'NOTIFICATION_SUBSCRIPTION_RETRY_FIRST',
      'NOTIFICATION_SUBSCRIPTION_RETRY_MAX',
      'it is the first of the delays',
    ],
    [
      'NOTIFICATION_POSTGRES_MAX_IDLE_CONNS',
      'NOTIFICATION_POSTGRES_MAX_OPEN_CONNS',
      'idle connections are part of the open ones',
    ],
    [
      'NOTIFICATION_CALLBACK_PRICE_GRACE',
      'NOTIFICATION_CALLBACK_SNAPSHOT_RETENTION',
      'what an hour is made of must be kept until then',
    ],
  ];
  return mustNotExceed.flatMap(([smaller, larger, why]) => {
    const [low, high] = [values[smaller], values[larger]];
    if (typeof low !== 'number' || typeof high !== 'number' || low <= high) return [];
    return [`${smaller} must not exceed ${larger}: ${why}`];
  });
}
