/**
 * The servers of a run: real, durable, killed like any process, and reached by the service through a proxy each. The run
 * itself talks to them directly, so that what it finds out is not spoiled.
 */
import { chmodSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createDeviceTokens } from '../dev/stand-ins/mobile-push/device-tokens.ts';
import { LOOPBACK } from '../dev/servers/ports.ts';
import { startPostgres } from '../dev/servers/postgres.ts';
import { startRedis } from '../dev/servers/redis.ts';
import type { TcpProxy } from '../dev/servers/tcp-proxy.ts';
import { startTcpProxy } from '../dev/servers/tcp-proxy.ts';
import { startTemporal } from '../dev/servers/temporal.ts';
import { loadConfig } from '../config/load.ts';
import type { ServerName } from './fault-kinds.ts';
import { SERVERS } from './fault-kinds.ts';
import { startClusterInstance } from './cluster.ts';
import type { Instance, Starter } from './instances.ts';
import { startInstance } from './instances.ts';
import type { Options } from './options.ts';
import type { TemporalRow } from './temporal-rows.ts';
import { rowsOfPostgres, rowsOfSqlite } from './temporal-rows.ts';
import type { SmallDisk } from './store-files.ts';
import { copyFolder, mountSmallDisk } from './store-files.ts';
import { SEARCH_ATTRIBUTES } from '../workflows/search-attributes.ts';

export interface Server {
  /** The run's own way to it, which always works while the server does. */
  port: number;
  /** The service's way to it. */
  proxy: TcpProxy;
  /** The one that both ways lead to. */
  now(): Instance;
  /** Has both ways lead to another one, and resets what is open. */
  moveTo(instance: Instance): void;
  /** Starts another one of the kind, beside it. */
  another(): Promise<Instance>;
  /** Kept for later: what is on its disk, copied while it is dead. It runs again afterwards. */
  remember(): Promise<void>;
  /** Has it start with what was remembered, or with nothing. */
  putBack(what: 'remembered' | 'nothing'): Promise<void>;
  disk?: SmallDisk;
}

export interface Servers extends Record<ServerName, Server> {
  dataDir: string;
  /** Of PostgreSQL through a port: the run's own or its proxy's. */
  dsnAt(port: number): string;
  /** Reads every row that Temporal has; the embedded one ends before. */
  temporalRows(): AsyncIterable<TemporalRow>;
  /** Everything that they logged. */
  logs(): string;
  /** Stops what still runs. The data stay until the end of the process. */
  stop(): Promise<void>;
}

/** @param options.report says what is being started. @param options.namespaces of Temporal, besides `default`. */
export async function startServers({
  keep,
  report,
  namespaces = [],
  cluster,
  postgres,
  redis,
}: Pick<Options, 'keep' | 'cluster' | 'postgres' | 'redis'> & {
  report: (line: string) => void;
  namespaces?: readonly string[];
}): Promise<Servers> {
  const dataDir = mkdtempSync(path.join(tmpdir(), 'galaxy-notify-faults-'));
  // As root, PostgreSQL runs as another user, who must get in.
  chmodSync(dataDir, 0o755);
  if (keep) report(`Data and logs are in ${dataDir}`);
  else {
    process.once('exit', () =>
      rmSync(dataDir, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 }),
    );
  }
  // That one "stopped unexpectedly" is what this is about.
  const quiet = { report: () => undefined };
  const temporal = {
    ...quiet,
    program: loadConfig().values.TEMPORAL_CLI_PATH,
    namespaces: ['default', ...namespaces],
    searchAttributes: SEARCH_ATTRIBUTES,
  };
  const oneProcess = (name: ServerName, starter: Starter) => (folder: string) =>
    startInstance(name, folder, starter);
  const starters: Record<ServerName, (dataDir: string) => Promise<Instance>> = {
    // Synced with each write: with `everysec` a write may wait while a sync is under way, and a killed Redis would lose what it
    // had acknowledged. Losses are a separate kind of fault here.
    redis: oneProcess('redis', (port, folder) =>
      startRedis({ ...quiet, dataDir: folder, port, sync: 'always', command: redis }),
    ),
    postgres: oneProcess('postgres', (port, folder) =>
      startPostgres({ ...quiet, dataDir: folder, port, binDir: postgres }),
    ),
    temporal:
      cluster === undefined
        ? oneProcess('temporal', (port, folder) => startTemporal({ ...temporal, dataDir: folder, port }))
        : (folder) =>
            startClusterInstance(folder, { ...temporal, report, version: cluster, binDir: postgres }),
  };
  const disk = mountSmallDisk(path.join(dataDir, 'disk'));
  if (!disk) report('No separate disk for PostgreSQL: this user may not mount one, so it is never full');
  const opened = await Promise.all(
    SERVERS.map(async (name) => {
      const own = name === 'postgres' ? disk : undefined;
      const server = await openServer(name, own?.folder ?? dataDir, starters[name]);
      return [name, { ...server, ...(own ? { disk: own } : {}) }] as const;
    }),
  );
  const servers = Object.fromEntries(opened) as Record<ServerName, Awaited<ReturnType<typeof openServer>>>;
  const dsnAt = (port: number) => `postgres://notification@${LOOPBACK}:${port}/notification?sslmode=disable`;
  await createDeviceTokens(dsnAt(servers.postgres.port), { samples: false });
  return {
    ...servers,
    dataDir,
    dsnAt,
    async *temporalRows() {
      const { store, folder, stop } = servers.temporal.now();
      if (store !== undefined) return yield* rowsOfPostgres(store);
      // Nothing is left in its log of writes then.
      await stop();
      yield* rowsOfSqlite(folder);
    },
    logs: () => SERVERS.map((name) => servers[name].logs()).join(''),
    async stop() {
      await Promise.all(SERVERS.map((name) => servers[name].stop()));
    },
  };
}

async function openServer(
  name: ServerName,
  dataDir: string,
  startAnother: (dataDir: string) => Promise<Instance>,
): Promise<Server & { logs(): string; stop(): Promise<void> }> {
  const instances: Instance[] = [];
  const openInstance = async (): Promise<Instance> => {
    const own = instances.length === 0 ? dataDir : path.join(dataDir, `${name}-${instances.length + 1}`);
    mkdirSync(own, { recursive: true });
    const instance = await startAnother(own);
    instances.push(instance);
    return instance;
  };
  let current = await openInstance();
  const direct = await startTcpProxy({ host: LOOPBACK, port: current.port });
  const proxy = await startTcpProxy({ host: LOOPBACK, port: current.port });
  const remembered = path.join(dataDir, `${name}.remembered`);
  return {
    port: direct.port,
    proxy,
    now: () => current,
    moveTo(instance) {
      current = instance;
      for (const way of [proxy, direct]) {
        way.moveTo({ host: LOOPBACK, port: instance.port });
        way.cut();
      }
    },
    another: openInstance,
    async remember() {
      await current.kill();
      copyFolder(current.folder, remembered);
      await current.start();
    },
    async putBack(what) {
      await current.kill();
      if (what === 'remembered') copyFolder(remembered, current.folder);
      else rmSync(current.folder, { recursive: true });
      await current.start();
    },
    logs: () => instances.map((instance) => instance.logs()).join(''),
    async stop() {
      await Promise.all(instances.map((instance) => instance.stop()));
      await Promise.all([proxy.stop(), direct.stop()]);
    },
  };
}
