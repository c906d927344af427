/**
 * The embedded stack: everything the service needs that was not configured, started together, stopped together.
 *
 * A stack owns its data directory (`owner.json`): a second one on the same directory is refused while the first lives.
 * `endpoints.json` in it tells the CLI where the servers listen.
 */
import { rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { endpointsFile, type StackEndpoints } from '../../config/operator.ts';
import { lockDataDir } from './data-dir-lock.ts';
import { startFcm, type FcmStandIn } from '../stand-ins/mobile-push/fcm.ts';
import { createDeviceTokens } from '../stand-ins/mobile-push/device-tokens.ts';
import {
  startPortfolioService,
  type PortfolioStandIn,
} from '../stand-ins/account-callback/portfolio-service.ts';
import { assertPortsFree, ROUTER_PORTS, type PortUse } from './ports.ts';
import { startPostgres } from './postgres.ts';
import { startRedis } from './redis.ts';
import type { RouterStack } from '../stand-ins/subscription/routers.ts';
import { stopOrphans, type Report } from './server-process.ts';
import { startSymbolTargets, type SymbolTargetsStandIn } from '../stand-ins/symbol-config/targets.ts';
import { startTemporal, type TemporalOptions } from './temporal.ts';
import { startUserService, type UserServiceStandIn } from '../stand-ins/intent/user-service.ts';

/** What to start: only the servers that are named. Ports are loopback ports; 0 chooses a free one. */
export interface StackOptions {
  /** Holds data, logs and pid files; survives restarts. Created when missing. */
  dataDir: string;
  postgres?: { port: number } | undefined;
  redis?: { port: number; databases?: number } | undefined;
  temporal?:
    | Pick<TemporalOptions, 'port' | 'uiPort' | 'metricsPort' | 'program' | 'namespaces' | 'searchAttributes'>
    | undefined;
  userService?: { port: number } | undefined;
  fcm?: { port: number } | undefined;
  symbolTargets?: { port: number } | undefined;
  portfolio?: { port: number } | undefined;
  /** The first of their ports. */
  routers?: { port: number } | undefined;
  /** false: data need not survive a crash, for tests. Default true. */
  durable?: boolean;
  /** Lines of progress for the operator; silent when nothing takes long. */
  report: Report;
}

/** The running servers: an address for each that was asked for. */
export interface Stack {
  /** Superuser's connection string of the database `notification`. */
  postgresDsn?: string;
  /** `127.0.0.1:<port>`. */
  redisAddr?: string;
  /** `127.0.0.1:<port>`. */
  temporalAddress?: string;
  /** `http://127.0.0.1:<port>`; absent without a Web UI. */
  uiUrl?: string;
  /** Temporal's own metrics, `http://127.0.0.1:<port>/metrics`; absent unless they were asked for. */
  temporalMetricsUrl?: string;
  /** `http://127.0.0.1:<port>`. */
  userServiceUrl?: string;
  /** The stand-in itself, for tests that script its users and failures. */
  userService?: UserServiceStandIn;
  /** Where the stand-in for FCM listens. */
  fcm?: { endpoint: string; caPem: string };
  /** The stand-in itself, for what it was sent. */
  fcmStandIn?: FcmStandIn;
  /** The receivers of symbol configuration, in this process. */
  symbolTargets?: SymbolTargetsStandIn;
  /** The receiver of account callbacks, in this process. */
  portfolio?: PortfolioStandIn;
  /** The routers that subscriptions live on, in this process. */
  routers?: RouterStack;
  /** Stops everything and releases the data directory; rejects when a server cannot be stopped. */
  stop(): Promise<void>;
}

/** One started server: what it adds to the stack, and how it ends. */
interface Part {
  addresses: Omit<Stack, 'stop'>;
  stop(): Promise<void>;
}

/**
 * Starts the servers in parallel, after what an earlier run left behind is stopped and every port is known to be free.
 *
 * @throws DataDirInUseError when a living process uses the data directory; nothing of its is touched.
 * @throws Error that names all taken ports, before anything is installed or started.
 * @throws AggregateError whose message has every server that failed; the others are stopped again.
 */
export async function startStack(options: StackOptions): Promise<Stack> {
  const { report } = options;
  const dataDir = path.resolve(options.dataDir);
  const unlock = lockDataDir(dataDir);
  try {
    await stopOrphans(dataDir, report);
    await assertPortsFree(wantedPorts(options));

    const attempts = await Promise.allSettled(startParts({ ...options, dataDir }));
    const parts = attempts.filter((attempt) => attempt.status === 'fulfilled').map(({ value }) => value);
    const errors = attempts
      .filter((attempt) => attempt.status === 'rejected')
      .map(({ reason }) => reason as Error);
    if (errors.length > 0) {
      await stopParts(parts).catch((error: Error) => errors.push(error));
      throw new AggregateError(errors, errors.map(({ message }) => message).join('\n'));
    }
    const addresses = parts.reduce<Part['addresses']>((all, part) => ({ ...all, ...part.addresses }), {});
    const withdraw = announce(dataDir, addresses);
    return {
      ...addresses,
      stop: async () => {
        withdraw();
        await stopParts(parts);
        unlock();
      },
    };
  } catch (error) {
    unlock();
    throw error;
  }
}

function startParts(options: StackOptions): Promise<Part>[] {
  const {
    dataDir,
    postgres,
    redis,
    temporal,
    userService,
    fcm,
    symbolTargets,
    portfolio,
    routers,
    durable = true,
    report,
  } = options;
  const common = { dataDir, durable, report };
  const parts: Promise<Part>[] = [];
  if (postgres) {
    parts.push(
      startPostgres({ ...common, ...postgres }).then(async ({ dsn, stop }) => {
        await createDeviceTokens(dsn).catch(async (error: unknown) => {
          await stop();
          throw error;
        });
        return part({ postgresDsn: dsn }, stop);
      }),
    );
  }
  if (redis) {
    parts.push(startRedis({ ...common, ...redis }).then(({ addr, stop }) => part({ redisAddr: addr }, stop)));
  }
  if (temporal) {
    parts.push(
      startTemporal({ ...common, ...temporal }).then(({ address, uiUrl, metricsUrl, stop }) =>
        part(
          {
            temporalAddress: address,
            ...(uiUrl === undefined ? {} : { uiUrl }),
            ...(metricsUrl === undefined ? {} : { temporalMetricsUrl: metricsUrl }),
          },
          stop,
        ),
      ),
    );
  }
  if (userService) {
    parts.push(
      startUserService(userService).then((standIn) =>
        part({ userServiceUrl: standIn.url, userService: standIn }, () => standIn.stop()),
      ),
    );
  }
  if (fcm) {
    parts.push(
      startFcm(fcm).then((standIn) =>
        part({ fcm: { endpoint: standIn.url, caPem: standIn.caPem }, fcmStandIn: standIn }, () =>
          standIn.stop(),
        ),
      ),
    );
  }
  if (symbolTargets) {
    const storeDir = path.join(dataDir, 'symbol-targets');
    parts.push(
      startSymbolTargets({ ...symbolTargets, storeDir }).then((standIn) =>
        part({ symbolTargets: standIn }, () => standIn.stop()),
      ),
    );
  }
  if (portfolio) {
    parts.push(
      startPortfolioService(portfolio).then((standIn) => part({ portfolio: standIn }, () => standIn.stop())),
    );
  }
  if (routers) {
    const storeDir = path.join(dataDir, 'routers');
    parts.push(
      // On demand: what it needs is not loaded where there are no routers.
      import('../stand-ins/subscription/routers.ts')
        .then(({ startRouters }) => startRouters({ ...routers, storeDir }))
        .then((standIns) => part({ routers: standIns }, () => standIns.stop())),
    );
  }
  return parts;
}

/** Writes where the servers listen, until the returned function is called or the process exits. */
function announce(dataDir: string, all: Part['addresses']): () => void {
  const {
    userService: _standIn,
    fcm: _fcm,
    fcmStandIn: _fcmStandIn,
    symbolTargets: _receivers,
    portfolio: _portfolio,
    temporalMetricsUrl: _metrics,
    routers,
    ...addresses
  } = all;
  const file = endpointsFile(dataDir);
  const endpoints: StackEndpoints = {
    ...addresses,
    ...(routers
      ? { messagingRouters: routers.messagingRouters, notificationRouters: routers.notificationRouters }
      : {}),
    pid: process.pid,
  };
  // One that a killed process left behind may be readable by others, and the mode is set at creation only.
  rmSync(file, { force: true });
  // The connection string holds the superuser's password.
  writeFileSync(file, `${JSON.stringify(endpoints, null, 2)}\n`, { mode: 0o600 });
  const withdraw = (): void => {
    process.off('exit', withdraw);
    rmSync(file, { force: true });
  };
  process.once('exit', withdraw);
  return withdraw;
}

function part(addresses: Part['addresses'], stop: Part['stop']): Part {
  return { addresses, stop };
}

/** Stops all of them, whatever happens to one. */
async function stopParts(parts: readonly Part[]): Promise<void> {
  const attempts = await Promise.allSettled(parts.map((one) => one.stop()));
  const errors = attempts
    .filter((attempt) => attempt.status === 'rejected')
    .map(({ reason }) => reason as Error);
  if (errors.length > 0) throw new AggregateError(errors, errors.map(({ message }) => message).join('\n'));
}

function wantedPorts({
  postgres,
  redis,
  temporal,
  userService,
  fcm,
  symbolTargets,
  portfolio,
  routers,
}: StackOptions): PortUse[] {
  const uses: (Omit<PortUse, 'port'> & { port: number | undefined })[] = [
    { port: postgres?.port, name: 'embedded PostgreSQL' },
    { port: redis?.port, name: 'embedded Redis' },
    { port: temporal?.port, name: 'embedded Temporal' },
    { port: temporal?.uiPort, name: 'Temporal Web UI' },
    { port: userService?.port, name: 'stand-in User Service' },
    { port: fcm?.port, name: 'stand-in FCM' },
    { port: symbolTargets?.port, name: 'stand-in symbol targets' },
    { port: portfolio?.port, name: 'stand-in portfolio service' },
    ...(routers && routers.port !== 0
      ? ROUTER_PORTS.map((name, index) => ({
          port: routers.port + index,
          name: `stand-in ${name}`,
        }))
      : []),
  ];
  return uses.filter((use): use is PortUse => use.port !== undefined && use.port !== 0);
}
