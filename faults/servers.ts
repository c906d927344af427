/**
 * The servers of a run: real, durable, killed like any process, and reached by the service through a proxy each. The run
 * itself talks to them directly, so that what it finds out is not spoiled.
 */
import { appendFileSync, chmodSync, existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
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
import type { ServerName } from './plan.ts';
import { SERVERS } from './plan.ts';

/** PostgreSQL does not start while processes of the one before are still ending. */
const START_ATTEMPTS = 20;
const START_PAUSE_MS = 250;

export interface Server {
  port: number;
  proxy: TcpProxy;
  /** SIGKILL; resolves when the process is gone. */
  kill(): Promise<void>;
  /** Starts it again with the data that it left. */
  start(): Promise<void>;
  stop(): Promise<void>;
}

export interface Servers extends Record<ServerName, Server> {
  dataDir: string;
  /** Of PostgreSQL through a port: the server's own or its proxy's. */
  dsnAt(port: number): string;
  /** Everything that they logged. */
  logs(): string;
  /** Stops what still runs. The data stay until the end of the process. */
  stop(): Promise<void>;
}

/** @param report says what is being started. */
export async function startServers({
  keep,
  report,
}: {
  keep: boolean;
  report: (line: string) => void;
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
  const common = { dataDir, report: () => undefined };
  const starters: Record<ServerName, (port: number) => Promise<{ stop(): Promise<void> }>> = {
    // Synced with each write: with `everysec` a write may wait while a sync is under way, and a killed Redis would lose what it
    // had acknowledged. What then happens is another matter, which test/intent/stream-loss.service.test.ts is about.
    redis: (port) => startRedis({ ...common, port, sync: 'always' }),
    postgres: (port) => startPostgres({ ...common, port }),
    temporal: (port) =>
      startTemporal({
        ...common,
        port,
        cliPath: loadConfig().values.TEMPORAL_CLI_PATH,
        searchAttributes: SEARCH_ATTRIBUTE_NAMES,
      }),
  };
  const opened = await Promise.all(
    SERVERS.map(async (name) => [name, await openServer(name, dataDir, starters[name])] as const),
  );
  const servers = Object.fromEntries(opened) as Record<ServerName, Server>;
  const dsnAt = (port: number) => `postgres://notification@${LOOPBACK}:${port}/notification?sslmode=disable`;
  await createDeviceTokens(dsnAt(servers.postgres.port), { samples: false });
  return {
    ...servers,
    dataDir,
    dsnAt,
    logs: () =>
      SERVERS.map((name) => [historyOf(dataDir, name), logOf(dataDir, name)].map(textOf).join('')).join(''),
    async stop() {
      await Promise.all(SERVERS.map((name) => servers[name].stop()));
      await Promise.all(SERVERS.map((name) => servers[name].proxy.stop()));
    },
  };
}

const logOf = (dataDir: string, name: ServerName) => path.join(dataDir, `${name}.log`);
/** Logs of the processes that were killed: a start overwrites the last one but one. */
const historyOf = (dataDir: string, name: ServerName) => path.join(dataDir, `${name}.killed.log`);
const textOf = (file: string): string => (existsSync(file) ? readFileSync(file, 'utf8') : '');

async function openServer(
  name: ServerName,
  dataDir: string,
  startOnce: (port: number) => Promise<{ stop(): Promise<void> }>,
): Promise<Server> {
  const port = await freePort();
  const start = async () => {
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await startOnce(port);
      } catch (error) {
        if (attempt === START_ATTEMPTS) throw error;
        await sleep(START_PAUSE_MS);
      }
    }
  };
  let running = await start();
  const proxy = await startTcpProxy({ host: LOOPBACK, port });
  return {
    port,
    proxy,
    async kill() {
      const pidFile = readFileSync(path.join(dataDir, `${name}.pid.json`), 'utf8');
      const { server } = JSON.parse(pidFile) as { server: ProcessRef };
      signalProcess(server, 'SIGKILL');
      while (isRunning(server)) await sleep(5);
      appendFileSync(historyOf(dataDir, name), textOf(logOf(dataDir, name)));
    },
    async start() {
      running = await start();
    },
    stop: () => running.stop(),
  };
}
