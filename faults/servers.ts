/**
 * The servers of a run: real, durable, killed like any process, and reached by the service through a proxy each. The run
 * itself talks to them directly, so that what it finds out is not spoiled.
 */
import { appendFileSync, chmodSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { createDeviceTokens } from '../dev/stand-ins/mobile-push/device-tokens.ts';
import { freePort, LOOPBACK } from '../dev/servers/ports.ts';
import { startPostgres } from '../dev/servers/postgres.ts';
import { isRunning, signalProcess, type ProcessRef } from '../dev/servers/processes.ts';
import { startRedis } from '../dev/servers/redis.ts';
import type { TcpProxy } from '../dev/servers/tcp-proxy.ts';
import { startTcpProxy } from '../dev/servers/tcp-proxy.ts';
import { startTemporal } from '../dev/servers/temporal.ts';
import { SEARCH_ATTRIBUTE_NAMES, loadConfig } from '../config/load.ts';
import { temporalProgramOf } from '../config/service.ts';
import type { ServerName } from './fault-kinds.ts';
import { SERVERS } from './fault-kinds.ts';
import type { SmallDisk } from './store-files.ts';
import { copyFolder, mountSmallDisk } from './store-files.ts';

/** PostgreSQL does not start while processes of the one before are still ending. */
const START_ATTEMPTS = 20;
const START_PAUSE_MS = 250;

/** A server's process and its data. */
export interface Instance {
  port: number;
  /** Where its data are. */
  folder: string;
  isRunning(): boolean;
  /** SIGKILL; resolves when the process is gone. */
  kill(): Promise<void>;
  /** Starts it again with the data that it left. */
  start(): Promise<void>;
  stop(): Promise<void>;
  logs(): string;
}

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
  /** Everything that they logged. */
  logs(): string;
  /** Stops what still runs. The data stay until the end of the process. */
  stop(): Promise<void>;
}

type Starter = (port: number, dataDir: string) => Promise<{ stop(): Promise<void> }>;

/** @param report says what is being started. @param namespaces of Temporal, besides `default`. */
export async function startServers({
  keep,
  report,
  namespaces = [],
}: {
  keep: boolean;
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
  const starters: Record<ServerName, Starter> = {
    // Synced with each write: with `everysec` a write may wait while a sync is under way, and a killed Redis would lose what it
    // had acknowledged. Losses are faults of their own here.
    redis: (port, folder) => startRedis({ ...quiet, dataDir: folder, port, sync: 'always' }),
    postgres: (port, folder) => startPostgres({ ...quiet, dataDir: folder, port }),
    temporal: (port, folder) =>
      startTemporal({
        ...quiet,
        dataDir: folder,
        port,
        program: temporalProgramOf(loadConfig().values),
        namespaces: ['default', ...namespaces],
        searchAttributes: SEARCH_ATTRIBUTE_NAMES,
      }),
  };
  const disk = mountSmallDisk(path.join(dataDir, 'disk'));
  if (!disk) report('No disk of its own for PostgreSQL: this user may not mount one, so it is never full');
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
    logs: () => SERVERS.map((name) => servers[name].logs()).join(''),
    async stop() {
      await Promise.all(SERVERS.map((name) => servers[name].stop()));
    },
  };
}

async function openServer(
  name: ServerName,
  dataDir: string,
  startOnce: Starter,
): Promise<Server & { logs(): string; stop(): Promise<void> }> {
  const instances: Instance[] = [];
  const openInstance = async (): Promise<Instance> => {
    const own = instances.length === 0 ? dataDir : path.join(dataDir, `${name}-${instances.length + 1}`);
    mkdirSync(own, { recursive: true });
    const instance = await startInstance(name, own, startOnce);
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

async function startInstance(name: ServerName, dataDir: string, startOnce: Starter): Promise<Instance> {
  const port = await freePort();
  const log = path.join(dataDir, `${name}.log`);
  /** Logs of the processes that were killed: a start overwrites the last one but one. */
  const history = path.join(dataDir, `${name}.killed.log`);
  const start = async () => {
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await startOnce(port, dataDir);
      } catch (error) {
        if (attempt === START_ATTEMPTS) throw error;
        await sleep(START_PAUSE_MS);
      }
    }
  };
  let running = await start();
  const processOf = (): ProcessRef => {
    const pidFile = readFileSync(path.join(dataDir, `${name}.pid.json`), 'utf8');
    return (JSON.parse(pidFile) as { server: ProcessRef }).server;
  };
  return {
    port,
    folder: path.join(dataDir, name),
    isRunning: () => isRunning(processOf()),
    async kill() {
      const server = processOf();
      signalProcess(server, 'SIGKILL');
      while (isRunning(server)) await sleep(5);
      appendFileSync(history, textOf(log));
    },
    async start() {
      running = await start();
    },
    stop: () => running.stop(),
    logs: () => textOf(history) + textOf(log),
  };
}

const textOf = (file: string): string => (existsSync(file) ? readFileSync(file, 'utf8') : '');
