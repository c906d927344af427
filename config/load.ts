/** The whole configuration: the kinds of work, their variables, and the only place that reads the environment. */
import { z } from 'zod';
import type { Catalog, NotificationType } from '../api/intent/catalog.ts';
import { adminTypesOf } from '../api/intent/catalog.ts';
import { GALAXY } from '../api/intent/galaxy.ts';
import { nearestOf } from '../api/text.ts';
import {
  RECONCILIATION_WORKFLOW,
  RETENTION_WORKFLOW,
  reconciliationScheduleId,
  retentionScheduleId,
} from '../workflows/recovery-contract.ts';
import { ACCOUNT_CALLBACK, ACCOUNT_CALLBACK_VARIABLES } from './account-callback.ts';
import type { ConfigFile, ReadFile } from './files.ts';
import { filesOfDsn, readFromDisk, rememberingReader } from './files.ts';
import { INTENT, INTENT_VARIABLES, adminEmailVariablesOf, adminEmailsVariable } from './intent.ts';
import { MOBILE_PUSH, MOBILE_PUSH_VARIABLES } from './mobile-push.ts';
import {
  DEPRECATED,
  hasTemporalProfile,
  OTEL_FIXED,
  SERVICE_VARIABLES,
  serviceContradictions,
  serviceWires,
} from './service.ts';
import { SUBSCRIPTION, SUBSCRIPTION_VARIABLES } from './subscription.ts';
import { SYMBOL_CONFIG, SYMBOL_CONFIG_VARIABLES } from './symbol-config.ts';
import { ConfigError, defaultOf, list, reconciliationMs } from './variables.ts';
import type { Kind, NeededSchedule, ValuesOf, Variables } from './variables.ts';
import type { ConfiguredWire, Wire } from './wire.ts';
import { wireProblems } from './wire.ts';

/** The kinds of work, by the name of the role that a process takes on to do it. */
const KINDS = {
  intent: INTENT,
  'mobile-push': MOBILE_PUSH,
  'symbol-config': SYMBOL_CONFIG,
  'account-callback': ACCOUNT_CALLBACK,
  subscription: SUBSCRIPTION,
};
export type RoleName = keyof typeof KINDS;
export const ROLE_NAMES = Object.keys(KINDS) as RoleName[];

/** Every variable but the lists of administrators, in the order of `.env.example`. */
export const VARIABLES = {
  NODE_ENV: z
    .enum(['production', 'development', 'test'], 'must be production, development or test')
    .prefault('development')
    .describe('production: nothing is embedded, and a missing required variable stops the start.'),
  NOTIFICATION_ROLES: list
    .pipe(z.array(z.enum(ROLE_NAMES, `must name roles: ${ROLE_NAMES.join(', ')}`)))
    .prefault('')
    .describe(
      'What this process works on, comma-separated. Empty: intent in production, everything elsewhere.',
    ),

  ...SERVICE_VARIABLES,
  ...INTENT_VARIABLES,
  ...MOBILE_PUSH_VARIABLES,
  ...SYMBOL_CONFIG_VARIABLES,
  ...ACCOUNT_CALLBACK_VARIABLES,
  ...SUBSCRIPTION_VARIABLES,
};

/** Every name that may be set of those that are looked at, with the files of secrets. */
const namesWith = (catalog: Catalog): ReadonlySet<string> =>
  new Set(
    Object.entries<z.ZodType>({ ...VARIABLES, ...adminEmailVariablesOf(catalog) }).flatMap(
      ([name, schema]) => (schema.meta()?.secret ? [name, `${name}_FILE`] : [name]),
    ),
  );

/** A user or password before the host: never for a log, in whatever variable it stands. */
const CREDENTIALS_IN_URL = /:(\/\/)?[^/]*@/;

type Environment = Record<string, string | undefined>;
type RememberingReader = ReturnType<typeof rememberingReader>;
type Values = ValuesOf<typeof VARIABLES>;

/** Everything the process is told from outside. Durations are milliseconds. */
export interface Config {
  production: boolean;
  /** What this process works on. */
  roles: readonly RoleName[];
  values: Values;
  /** The notification types. */
  catalog: Catalog;
  /** Of each type that reaches administrators. */
  adminEmails: ReadonlyMap<NotificationType, string[]>;
  /** The TEMPORAL_* variables, for the SDK's own profile loader (TLS, API key, profiles). */
  temporalEnv: Record<string, string>;
  /** Connections, and what is open on them. */
  wires: readonly ConfiguredWire[];
  /** What was read from files. */
  files: readonly ConfigFile[];
  /** The same environment with other files. @throws ConfigError as {@link loadConfig} does. */
  reread(readFile: ReadFile): Config;
}

/** @returns the environment of the process, with these values for what is not set. */
export const environmentWith = (defaults: Record<string, string>): Environment => ({
  ...defaults,
  ...Object.fromEntries(Object.entries(process.env).filter(([, value]) => value)),
});

/**
 * Reads and checks the environment. An empty value counts as not set.
 *
 * @throws ConfigError naming every wrong, missing or deprecated variable together.
 */
export function loadConfig(env: Environment = process.env, readFile: ReadFile = readFromDisk): Config {
  const config = readConfig(env, readFile, true);
  const problems = config.production ? wireProblems(config.wires) : [];
  if (problems.length > 0) throw new ConfigError(problems);
  return config;
}

/**
 * The configuration of a command of an operator, who must see what is open. A command asks for the servers that it needs itself.
 *
 * @throws ConfigError as {@link loadConfig} does, but for what is not set and for connections that are open.
 */
export const loadOperatorConfig = (env: Environment): Config => readConfig(env, readFromDisk, false);

/** Connections that the codec server has. */
const CODEC_WIRES = ['Node', 'codec server', 'keys of payloads', 'OTLP collector'];

/**
 * The configuration of the codec server: variables of servers that it does not connect to may be missing.
 *
 * @throws ConfigError as {@link loadConfig} does.
 */
export function loadCodecConfig(env: Environment = process.env, readFile: ReadFile = readFromDisk): Config {
  const config = readConfig(env, readFile, false);
  const wires = config.wires.filter(({ name }) => CODEC_WIRES.includes(name));
  const problems = config.production ? wireProblems(wires) : [];
  if (config.values.NOTIFICATION_CODEC_HTTP_ADDR === undefined)
    problems.push('NOTIFICATION_CODEC_HTTP_ADDR is required by the codec server');
  if (problems.length > 0) throw new ConfigError(problems);
  return { ...config, roles: [], wires, reread: (readAgain) => loadCodecConfig(env, readAgain) };
}

/** @param isService whether what the service needs in production may not be missing. */
function readConfig(env: Environment, readFile: ReadFile, isService: boolean): Config {
  const production = env['NODE_ENV'] === 'production';
  const files = rememberingReader(readFile);
  const { problems, readSecret, readAll } = readerOf(env, production && isService, files);
  const apiKey = readSecret('TEMPORAL_API_KEY');
  const values = readAll(VARIABLES) as Values;
  const catalog = values.NOTIFICATION_CATALOG_FILE ?? GALAXY;
  const emails = readAll(adminEmailVariablesOf(catalog));
  const roles = rolesOf(values, production);

  problems.push(...withoutEffect(env, namesWith(catalog)));
  problems.push(...serviceContradictions(values), ...sharedStreams(values));
  for (const kind of kindsOf(ROLE_NAMES)) problems.push(...(kind.contradictions?.(values) ?? []));
  if (production && isService) problems.push(...missingByRole(values, roles));
  if (problems.length > 0) throw new ConfigError(problems);

  const adminEmails = new Map(
    adminTypesOf(catalog).map(({ type }) => [type, emails[adminEmailsVariable(type)] as string[]]),
  );
  const temporalEnv = {
    ...temporalEnvOf(env, files),
    ...(apiKey === undefined ? {} : { TEMPORAL_API_KEY: apiKey }),
  };
  const wires = [
    ...nodeWires(env),
    ...serviceWires(values, temporalEnv),
    ...kindsOf(roles).flatMap((kind) => kind.wires?.(values) ?? []),
  ].map((wire) => {
    const { connection } = wire;
    const isAllowed = connection !== undefined && values.NOTIFICATION_INSECURE.includes(connection);
    return { ...wire, isAllowed };
  });
  noteOtherFiles(values, files);
  return {
    ...{ production, roles, values, catalog, adminEmails, temporalEnv, wires },
    files: files.files,
    reread: (readAgain) => loadConfig(env, readAgain),
  };
}

/** What the configured roles need in Temporal: `setup` and each process make it, `doctor` looks for it. */
export function needsOf({ roles, values }: Config) {
  const kinds = kindsOf(roles);
  const taskQueues = kinds.map(({ taskQueue }) => taskQueue);
  const schedules = kinds.flatMap((kind): NeededSchedule[] => {
    const { taskQueue, reconciliation } = kind;
    const retention = {
      ...{ id: retentionScheduleId(taskQueue), workflowType: RETENTION_WORKFLOW, taskQueue },
      ...{ everyMs: values.NOTIFICATION_CLEANUP_INTERVAL, purpose: 'old rows are not deleted' },
    };
    if (!reconciliation) return [retention];
    return [
      retention,
      {
        ...{ id: reconciliationScheduleId(taskQueue), workflowType: RECONCILIATION_WORKFLOW, taskQueue },
        ...{ everyMs: reconciliationMs(kind, values), purpose: reconciliation.purpose },
      },
    ];
  });
  return { taskQueues, schedules };
}

function kindsOf(roles: readonly RoleName[]): Kind<Values>[] {
  return roles.map((role) => KINDS[role]);
}

/**
 * Reads variables one by one, and collects what is wrong with them.
 *
 * @param isStrict whether what production needs may not be missing, and what it refuses not be set.
 */
function readerOf(env: Environment, isStrict: boolean, files: RememberingReader) {
  const problems: string[] = [];
  return { problems, readSecret, readAll };

  function readAll(variables: Variables): Record<string, unknown> {
    return Object.fromEntries(Object.entries(variables).map(([name, row]) => [name, read(name, row)]));
  }

  function read(name: string, schema: z.ZodType): unknown {
    const row = schema.meta() ?? {};
    const inFile = row.secret ? readSecret(name) : undefined;
    const given = env[name] || inFile || defaultOf(schema);
    const text = row.inFile && given !== undefined ? readNamed(name, given) : given;
    if (text === undefined) {
      if (isStrict && row.requiredInProduction && !isProvidedElsewhere(name, row.secret)) {
        problems.push(`${name} is required in production: ${row.description}`);
      }
      return undefined;
    }
    if (isStrict && row.refusedInProduction) {
      problems.push(`${name} is refused in production: ${row.refusedInProduction}`);
    }
    const result = schema.safeParse(text);
    if (result.success) return result.data;
    const shown =
      row.secret || CREDENTIALS_IN_URL.test(text) ? 'a value that is not shown' : JSON.stringify(given);
    problems.push(`${name} ${result.error.issues.map(messageOf).join('; ')} (got ${shown})`);
    return undefined;
  }

  /** A file that cannot be read is a problem already. */
  function isProvidedElsewhere(name: string, secret?: true): boolean {
    if (secret && env[`${name}_FILE`]) return true;
    if (name === 'NOTIFICATION_REDIS_MASTER_ADDR' && env['NOTIFICATION_REDIS_SENTINELS']) return true;
    return name === 'TEMPORAL_ADDRESS' && hasTemporalProfile(env);
  }

  /** A secret may come in a file, as orchestrators mount it; the line break that editors leave is not part of it. */
  function readSecret(name: string): string | undefined {
    const file = env[`${name}_FILE`];
    if (!file) return undefined;
    if (env[name]) {
      problems.push(`${name} and ${name}_FILE are both set: keep one of them`);
      return undefined;
    }
    const text = readNamed(`${name}_FILE`, file)?.replace(/\r?\n$/, '');
    if (text !== '') return text;
    problems.push(`${name}_FILE names an empty file: ${file}`);
    return undefined;
  }

  function readNamed(variableName: string, file: string): string | undefined {
    try {
      return files.read(variableName, file);
    } catch (error) {
      problems.push(`${variableName} cannot be read: ${(error as Error).message}`);
      return undefined;
    }
  }
}

/** With certificates and keys, which the SDK of Temporal would read from their files by itself. */
function temporalEnvOf(env: Environment, files: RememberingReader): Record<string, string> {
  const variables = Object.entries(env).flatMap(([name, value]) =>
    name.startsWith('TEMPORAL_') && value ? [[name, value] as const] : [],
  );
  return Object.fromEntries(
    variables.map(([name, value]) => {
      const [, named] = /^(TEMPORAL_TLS_.*)_PATH$/.exec(name) ?? [];
      const text = named === undefined ? undefined : files.readIfPossible(name, value);
      return text === undefined ? [name, value] : [`${named}_DATA`, text];
    }),
  );
}

/** Files that clients read when they connect: this module only knows their content, and when it changes. */
function noteOtherFiles(values: Values, files: RememberingReader): void {
  for (const name of ['NOTIFICATION_POSTGRES_PRIMARY_DSN', 'NOTIFICATION_POSTGRES_REPLICA_DSNS'] as const) {
    const dsns = [values[name] ?? []].flat();
    for (const path of dsns.flatMap(filesOfDsn)) files.readIfPossible(name, path);
  }
  const credentials = values.GOOGLE_APPLICATION_CREDENTIALS;
  if (credentials !== undefined) files.readIfPossible('GOOGLE_APPLICATION_CREDENTIALS', credentials);
}

/** One line for each stream that two variables name: the service would read its own output, or mix two kinds of work. */
function sharedStreams(values: Values): string[] {
  const names = Object.keys(VARIABLES).filter((name) => name.endsWith('_STREAM')) as (keyof Values)[];
  const given = names.filter((name) => values[name] !== undefined);
  const sharing = [...Map.groupBy(given, (name) => values[name]).values()];
  return sharing
    .filter(({ length }) => length > 1)
    .map((some) => `${some.join(' and ')} must name different streams`);
}

const PROXIES = ['HTTPS_PROXY', 'https_proxy', 'HTTP_PROXY', 'http_proxy', 'grpc_proxy'];

/** Variables that belong to no server: Node or its libraries read them by themselves. */
function nodeWires(env: Environment): Wire[] {
  const gaps = PROXIES.filter((name) => (env[name] ?? '') !== '').map(
    (name) => `${name} must not be set: some libraries would use the proxy, most connections would not`,
  );
  if (env['NODE_TLS_REJECT_UNAUTHORIZED'] === '0') {
    gaps.push('NODE_TLS_REJECT_UNAUTHORIZED must not be 0: each server that the process calls may be any');
  }
  return gaps.length > 0 ? [{ name: 'Node', gaps }] : [];
}

/**
 * One line for each variable of ours that is set and that nothing reads. Never with its value: it may be a misspelt secret.
 * Those named `OTEL_*` are read by OpenTelemetry's packages.
 */
function withoutEffect(env: Environment, known: ReadonlySet<string>): string[] {
  // Of a service beside the pod, named `notification-x`, Kubernetes sets NOTIFICATION_X_SERVICE_HOST, NOTIFICATION_X_PORT and more.
  const services = Object.keys(env).flatMap((name) => /^(.+)_SERVICE_HOST$/.exec(name)?.slice(1) ?? []);
  const isLink = (name: string) =>
    services.some((service) => /^_(SERVICE|PORT)(_|$)/.test(name.replace(service, '')));
  return Object.entries(env).flatMap(([name, value]) => {
    if (Object.hasOwn(DEPRECATED, name)) return [`${name} is no longer supported: ${DEPRECATED[name]}`];
    const fixed = OTEL_FIXED.get(name);
    if (value && fixed !== undefined)
      return value === fixed ? [] : [`${name} must be ${fixed}: nothing else is supported`];
    if (!value || !name.startsWith('NOTIFICATION_') || known.has(name) || isLink(name)) return [];
    const nearest = nearestName(name, known);
    const advice = nearest === undefined ? '' : `did you mean ${nearest}? `;
    return [`${name} has no effect: ${advice}docs/reference/variables.md lists the variables`];
  });
}

/** @returns the known name that is most like this one; undefined when over half of the letters behind the prefix differ. */
function nearestName(name: string, known: ReadonlySet<string>): string | undefined {
  const withoutFile = name.replace(/_FILE$/, '');
  if (known.has(withoutFile)) return withoutFile;
  return nearestOf(name, known, Math.floor((name.length - name.indexOf('_')) / 2));
}

function rolesOf(
  { NOTIFICATION_ROLES: named = [] }: Partial<Values>,
  production: boolean,
): readonly RoleName[] {
  if (named.length > 0) return [...new Set(named)];
  return production ? ['intent'] : ROLE_NAMES;
}

function missingByRole(values: Values, roles: readonly RoleName[]): string[] {
  return roles.flatMap((role) =>
    Object.entries<z.ZodType>(KINDS[role].variables).flatMap(([name, schema]) => {
      const { requiredByRole, description } = schema.meta() ?? {};
      const value = values[name as keyof Values];
      const isGiven = value !== undefined && !(Array.isArray(value) && value.length === 0);
      if (!requiredByRole || isGiven) return [];
      return [`${name} is required in production by the role ${role}: ${description}`];
    }),
  );
}

/** Schemas have their own messages, except for a list of values. Of a list, the entry at fault is counted from 1. */
function messageOf(issue: z.core.$ZodIssue): string {
  const [index, ...field] = issue.path;
  const where = typeof index === 'number' ? ['entry', index + 1, ...field] : [];
  const message =
    issue.code === 'invalid_value' && issue.message.startsWith('Invalid ')
      ? `must be one of ${issue.values.join(', ')}`
      : issue.message;
  return [...where, message].join(' ');
}
