/** Where the dependencies are: as configured, or started here when they are not configured outside production. */
import type { FcmTarget } from '../activities/mobile-push/fcm.ts';
import { reasonOf } from '../activities/reason.ts';
import { SelfExplanatoryError } from '../api/errors.ts';
import { given } from '../api/given.ts';
import type { Config, RoleName } from '../config/load.ts';
import { redisPlaceOf } from '../config/redis.ts';
import { hasTemporalProfile } from '../config/service.ts';
import type { Stack, StackOptions } from '../dev/servers/stack.ts';
import type { Endpoints } from './context.ts';
import { SEARCH_ATTRIBUTES } from '../workflows/search-attributes.ts';

/**
 * @returns also the embedded servers that were started; stop them after the service.
 * @throws SelfExplanatoryError when an embedded server cannot be had; ConfigError for an invalid file of targets.
 */
export async function provideEndpoints(config: Config, report: (line: string) => void) {
  const { values } = config;
  // Before anything is started: a mistake in a file is found immediately.
  const configured = configuredServers(config);
  const missing = config.production ? {} : missingServers(config, configured);
  const isComplete = Object.values(missing).every((options) => options === undefined);
  const stack = isComplete
    ? undefined
    : await startServers({ dataDir: values.NOTIFICATION_DATA_DIR, report, ...missing });
  return {
    endpoints: given({
      redis: redisPlaceOf(values) ?? hostAndPortOf(stack?.redisAddr),
      postgresDsn: values.NOTIFICATION_POSTGRES_PRIMARY_DSN ?? provided(stack?.postgresDsn),
      userServiceUrl: values.NOTIFICATION_USER_SERVICE_BASE_URL ?? provided(stack?.userServiceUrl),
      temporalAddress: stack?.temporalAddress ?? values.TEMPORAL_ADDRESS,
      fcm: configured.fcm ?? stack?.fcm,
      symbolTargets: configured.symbolTargets ?? stack?.symbolTargets?.targets ?? [],
      sampleSymbols: stack?.symbolTargets?.sampleSymbols ?? [],
      portfolioUrl: values.NOTIFICATION_PORTFOLIO_BASE_URL ?? stack?.portfolio?.url,
      ntfServers: configured.ntfServers ?? stack?.routers?.notificationRouters ?? [],
    }) satisfies Endpoints,
    stack,
    uiUrl: values.NOTIFICATION_TEMPORAL_UI_URL ?? stack?.uiUrl,
  };
}

/** What is configured, of the servers that have no variable of one value. */
function configuredServers({ values }: Config) {
  const routers = values.NOTIFICATION_SUBSCRIPTION_NTF_SERVERS ?? [];
  return {
    fcm: fcmTargetOf(values),
    symbolTargets: values.NOTIFICATION_SYMBOL_TARGETS_FILE,
    ntfServers: routers.length === 0 ? undefined : routers,
  };
}

async function startServers(options: StackOptions): Promise<Stack> {
  try {
    // Loaded on demand: production images come without the embedded stack.
    const { startStack } = await import('../dev/servers/stack.ts');
    return await startStack(options);
  } catch (error) {
    throw new SelfExplanatoryError(reasonOf(error), { cause: error });
  }
}

/** In the order in which they follow a base port. The routers take four. */
const USUAL_PORTS = {
  redis: 6_379,
  postgres: 5_432,
  temporal: 7_233,
  temporalUi: 8_233,
  userService: 8_093,
  fcm: 8_094,
  symbolTargets: 8_095,
  portfolio: 8_096,
  routers: 8_101,
};

function portsFrom(base: number | undefined): typeof USUAL_PORTS {
  if (base === undefined) return USUAL_PORTS;
  const ports = Object.keys(USUAL_PORTS).map((name, index) => [name, base && base + index]);
  return Object.fromEntries(ports) as typeof USUAL_PORTS;
}

/** What is started here: each server that this process needs and that is not configured, with its port. */
function missingServers(
  { roles, values, temporalEnv }: Config,
  configured: ReturnType<typeof configuredServers>,
): Omit<StackOptions, 'dataDir' | 'report'> {
  const unless = <T>(found: unknown, options: T) => (found === undefined ? options : undefined);
  const forRole = <T>(role: RoleName, options: T | undefined) => (roles.includes(role) ? options : undefined);
  const ports = portsFrom(values.NOTIFICATION_DEV_BASE_PORT);
  const temporal = hasTemporalProfile(temporalEnv) ? 'named by a profile' : values.TEMPORAL_ADDRESS;
  return {
    redis: unless(redisPlaceOf(values), { port: ports.redis }),
    postgres: unless(values.NOTIFICATION_POSTGRES_PRIMARY_DSN, { port: ports.postgres }),
    temporal: unless(temporal, {
      port: ports.temporal,
      uiPort: ports.temporalUi,
      namespaces: [values.TEMPORAL_NAMESPACE],
      searchAttributes: SEARCH_ATTRIBUTES,
      program: values.TEMPORAL_CLI_PATH,
    }),
    userService: unless(values.NOTIFICATION_USER_SERVICE_BASE_URL, { port: ports.userService }),
    fcm: forRole('mobile-push', unless(configured.fcm, { port: ports.fcm })),
    symbolTargets: forRole('symbol-config', unless(configured.symbolTargets, { port: ports.symbolTargets })),
    portfolio: forRole(
      'account-callback',
      unless(values.NOTIFICATION_PORTFOLIO_BASE_URL, { port: ports.portfolio }),
    ),
    routers: forRole('subscription', unless(configured.ntfServers, { port: ports.routers })),
  };
}

/** Where pushes go when that is configured: a server that stands in for FCM comes before FCM itself. */
export function fcmTargetOf(values: Config['values']): FcmTarget | undefined {
  const endpoint = values.NOTIFICATION_FCM_ENDPOINT;
  if (endpoint !== undefined) {
    return given({ endpoint, caPem: values.NOTIFICATION_HTTP_CA_FILE });
  }
  const credentialsFile = values.GOOGLE_APPLICATION_CREDENTIALS;
  return credentialsFile === undefined ? undefined : { credentialsFile };
}

/** The configuration check has made sure that what is not started is configured. */
function provided(value: string | undefined): string {
  if (value === undefined) throw new Error('a required endpoint is neither configured nor embedded');
  return value;
}

function hostAndPortOf(address: string | undefined): { host: string; port: number } {
  const [host, port] = provided(address).split(':');
  return { host: host!, port: Number(port) };
}
