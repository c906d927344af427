/** Where the dependencies are: as configured, or started here when they are not configured outside production. */
import { readFileSync } from 'node:fs';
import type { FcmTarget } from '../activities/mobile-push/fcm.ts';
import type { Stack } from '../dev/servers/stack.ts';
import type { Config } from '../config/load.ts';
import { hasTemporalProfile } from '../config/load.ts';
import type { Endpoints } from './resources.ts';
import { SEARCH_ATTRIBUTE_NAMES } from '../migrations/namespace.ts';
import { readSymbolTargets } from './symbol-config-setup.ts';
import { reasonOf } from '../activities/reason.ts';

/** The embedded servers could not be had; the message says why, and what to do. */
export class SetupError extends Error {
  override name = 'SetupError';
}

export interface ProvidedEndpoints {
  endpoints: Endpoints;
  /** The embedded servers that were started; stop them after the service. */
  stack?: Stack;
  uiUrl?: string;
}

/** What is started here unless it is configured. */
type Missing = Record<
  'redis' | 'postgres' | 'temporal' | 'userService' | 'fcm' | 'symbolTargets' | 'portfolio' | 'routers',
  boolean
>;

/** @throws SetupError when an embedded server cannot be had, or the file of an authority cannot be read; ConfigError
 * for a file of targets that is wrong. */
export async function provideEndpoints(
  config: Config,
  report: (line: string) => void,
): Promise<ProvidedEndpoints> {
  const { values, temporalEnv } = config;
  const configuredFcm = fcmTargetOf(config);
  const missing: Missing = {
    redis: values.NOTIFICATION_REDIS_MASTER_ADDR === undefined,
    postgres: values.NOTIFICATION_POSTGRES_PRIMARY_DSN === undefined,
    temporal: values.TEMPORAL_ADDRESS === undefined && !hasTemporalProfile(temporalEnv),
    userService: values.NOTIFICATION_USER_SERVICE_BASE_URL === undefined,
    fcm: config.roles.includes('mobile-push') && configuredFcm === undefined,
    symbolTargets:
      config.roles.includes('symbol-config') && values.NOTIFICATION_SYMBOL_TARGETS_FILE === undefined,
    portfolio:
      config.roles.includes('account-callback') && values.NOTIFICATION_PORTFOLIO_BASE_URL === undefined,
    routers:
      config.roles.includes('subscription') &&
      (values.NOTIFICATION_SUBSCRIPTION_NTF_SERVERS ?? []).length === 0,
  };
  // Before anything is started: a mistake in it is found at once.
  const targetsOfFile = readSymbolTargets(values.NOTIFICATION_SYMBOL_TARGETS_FILE);
  const stack =
    Object.values(missing).includes(true) && !config.production
      ? await startMissing(config, missing, report).catch((error: unknown) => {
          throw new SetupError(reasonOf(error), { cause: error });
        })
      : undefined;

  const temporalAddress = stack?.temporalAddress ?? values.TEMPORAL_ADDRESS;
  const fcm = configuredFcm ?? stack?.fcm;
  const portfolioUrl = values.NOTIFICATION_PORTFOLIO_BASE_URL ?? stack?.portfolio?.url;
  const uiUrl = values.NOTIFICATION_TEMPORAL_UI_URL ?? stack?.uiUrl;
  return {
    endpoints: {
      redis: values.NOTIFICATION_REDIS_MASTER_ADDR ?? hostAndPortOf(stack?.redisAddr),
      postgresDsn: values.NOTIFICATION_POSTGRES_PRIMARY_DSN ?? given(stack?.postgresDsn),
      userServiceUrl: values.NOTIFICATION_USER_SERVICE_BASE_URL ?? given(stack?.userServiceUrl),
      ...(temporalAddress === undefined ? {} : { temporalAddress }),
      ...(fcm === undefined ? {} : { fcm }),
      symbolTargets: targetsOfFile ?? stack?.symbolTargets?.targets ?? [],
      sampleSymbols: stack?.symbolTargets?.sampleSymbols ?? [],
      ...(portfolioUrl === undefined ? {} : { portfolioUrl }),
      ntfServers: values.NOTIFICATION_SUBSCRIPTION_NTF_SERVERS ?? stack?.routers?.notificationRouters ?? [],
    },
    ...(stack ? { stack } : {}),
    ...(uiUrl === undefined ? {} : { uiUrl }),
  };
}

async function startMissing(
  { values }: Config,
  missing: Missing,
  report: (line: string) => void,
): Promise<Stack> {
  // Loaded on demand: production images come without the embedded stack.
  const { startStack } = await import('../dev/servers/stack.ts');
  return startStack({
    dataDir: values.NOTIFICATION_DATA_DIR,
    report,
    ...(missing.redis ? { redis: { port: values.NOTIFICATION_DEV_REDIS_PORT } } : {}),
    ...(missing.postgres ? { postgres: { port: values.NOTIFICATION_DEV_POSTGRES_PORT } } : {}),
    ...(missing.userService ? { userService: { port: values.NOTIFICATION_DEV_USER_SERVICE_PORT } } : {}),
    ...(missing.fcm ? { fcm: { port: values.NOTIFICATION_DEV_FCM_PORT } } : {}),
    ...(missing.symbolTargets
      ? { symbolTargets: { port: values.NOTIFICATION_DEV_SYMBOL_TARGETS_PORT } }
      : {}),
    ...(missing.portfolio ? { portfolio: { port: values.NOTIFICATION_DEV_PORTFOLIO_PORT } } : {}),
    ...(missing.routers ? { routers: { port: values.NOTIFICATION_DEV_ROUTERS_PORT } } : {}),
    ...(missing.temporal
      ? {
          temporal: {
            port: values.NOTIFICATION_DEV_TEMPORAL_PORT,
            uiPort: values.NOTIFICATION_DEV_TEMPORAL_UI_PORT,
            namespaces: [values.TEMPORAL_NAMESPACE],
            searchAttributes: SEARCH_ATTRIBUTE_NAMES,
            ...(values.TEMPORAL_CLI_PATH === undefined ? {} : { cliPath: values.TEMPORAL_CLI_PATH }),
          },
        }
      : {}),
  });
}

/** Where pushes go when that is configured: a server that stands in for FCM comes before FCM itself. */
function fcmTargetOf({ values }: Config): FcmTarget | undefined {
  const endpoint = values.NOTIFICATION_FCM_ENDPOINT;
  if (endpoint !== undefined) {
    const caFile = values.NOTIFICATION_FCM_CA_FILE;
    return { endpoint, ...(caFile === undefined ? {} : { caPem: readAuthority(caFile) }) };
  }
  const credentialsFile = values.GOOGLE_APPLICATION_CREDENTIALS;
  return credentialsFile === undefined ? undefined : { credentialsFile };
}

function readAuthority(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    throw new SetupError(`NOTIFICATION_FCM_CA_FILE ${file} cannot be read: ${code}`, { cause: error });
  }
}

/** The configuration check has made sure that what is not started is configured. */
function given(value: string | undefined): string {
  if (value === undefined) throw new Error('a required endpoint is neither configured nor embedded');
  return value;
}

function hostAndPortOf(address: string | undefined): { host: string; port: number } {
  const [host, port] = given(address).split(':');
  return { host: host!, port: Number(port) };
}
