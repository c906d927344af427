/**
 * The servers of a run and who uses them. All are started for the run, with data in a folder that is removed at its
 * end. What is compared runs side by side on them, in parts that do not see each other: a part has its own Temporal
 * namespace, PostgreSQL database, Redis database and service process, of which only the one that is measured has work.
 */
import { chmodSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { Client, Connection } from '@temporalio/client';
import { Redis } from 'ioredis';
import pg from 'pg';
import { createDeviceTokens } from '../dev/stand-ins/mobile-push/device-tokens.ts';
import type { Stack } from '../dev/servers/stack.ts';
import { startStack } from '../dev/servers/stack.ts';
import { MEMBERS, startTemporalCluster } from '../dev/servers/temporal-cluster.ts';
import { TEMPORAL_VERSIONS } from '../dev/go-programs.ts';
import { loadConfig } from '../config/load.ts';
import { cpuSecondsOf, startServiceProcess, type ServiceProcess } from './processes.ts';
import { SEARCH_ATTRIBUTES } from '../workflows/search-attributes.ts';

/** The modes of `NOTIFICATION_ROUTE_DISPATCH`, each a part. */
export const MODES = ['child', 'on_failure'] as const;
export type Mode = (typeof MODES)[number];

/** How intents are worked off: in a mode with workflows, or without. */
export const WAYS = [...MODES, 'direct'] as const;
export type Way = (typeof WAYS)[number];

const PARTS = [
  ...(['baselines', 'peers'] as const),
  ...WAYS,
  ...(['mobile-push', 'account-callback', 'subscription', 'routers', 'idle', 'why', 'intake'] as const),
  ...WAYS.map((way) => `urgent-${way}` as const),
] as const;
export type PartName = (typeof PARTS)[number];

/** How much is measured. */
export interface Sizes {
  rounds: number;
  /** Of rounds that take long. */
  longRounds: number;
  /** Intents of one round. */
  intents: number;
  /** Of each shape of `throughput` before its first round, at least: compilers find out meanwhile what is hot. */
  warmUpIntents: number;
  /** How long one intent a second is published, s. */
  idleSeconds: number;
  /** How long half of the highest rate is published, s. */
  loadSeconds: number;
  /** Intents of the backlog. Draining takes about as long in all ways, and much longer than a process takes to warm up. */
  backlog: Readonly<Record<Way, number>>;
  /** Records past their retention. */
  oldRecords: number;
}

export const sizesOf = ({
  quick,
  rounds,
  oldRecords,
}: Pick<Sizes, 'rounds' | 'oldRecords'> & { quick: boolean }): Sizes =>
  quick
    ? {
        rounds,
        oldRecords,
        longRounds: 1,
        intents: 60,
        warmUpIntents: 60,
        idleSeconds: 15,
        loadSeconds: 8,
        backlog: { child: 1_000, on_failure: 3_000, direct: 20_000 },
      }
    : {
        rounds,
        oldRecords,
        longRounds: rounds,
        intents: 300,
        warmUpIntents: 900,
        idleSeconds: 120,
        loadSeconds: 30,
        backlog: { child: 5_000, on_failure: 15_000, direct: 200_000 },
      };

/** When a stream's entry was appended, by the clock of Redis, ms since the epoch. */
export const appendedAtMs = (entryId: string): number => Number(entryId.split('-')[0]);

/** One user of the servers, and the connections of the benchmark to its part of them. */
export interface Part {
  name: PartName;
  /** How a process of this part is told where the servers are. */
  env: Readonly<Record<string, string>>;
  redis: Redis;
  /** A further connection, for blocking reads. */
  openRedis(): Redis;
  db: pg.Pool;
  client: Client;
}

/** CPU time by process, seconds. */
export type CpuSeconds = Record<'temporal' | 'postgres' | 'redis' | 'worker', number>;

export interface Bench {
  sizes: Sizes;
  report: (line: string) => void;
  /** Node's options for the service, and where the log files lie. */
  nodeOptionsOf(part: PartName): readonly string[];
  dataDir: string;
  part(name: PartName): Promise<Part>;
  /** The service of a part, started when it is not running. `env` adds to its configuration. */
  service(name: PartName, env?: Readonly<Record<string, string>>): Promise<ServiceProcess>;
  stopService(name: PartName): Promise<void>;
  /** A further process of a part's service, which its caller stops. @param logName of its log file. */
  startProcess(
    name: PartName,
    env: Readonly<Record<string, string>>,
    logName: string,
  ): Promise<ServiceProcess>;
  /** When each service process of this run was ready, by its id: see `ServiceProcess`. */
  readyAtUs: ReadonlyMap<number, number>;
  /** @returns the CPU time of the servers and of a worker's process so far; undefined where the system does not tell. */
  cpu(workerPid: number): CpuSeconds | undefined;
  /** Runs at the end, last registered first. */
  onClose(close: () => Promise<unknown>): void;
  /** Temporal's own metrics, in the text format of Prometheus. */
  temporalMetrics(): Promise<string>;
  /** What was found out about the servers. */
  versions(): Promise<Record<string, string>>;
  /** Stops everything and removes the data. May be called more than once. */
  close(): Promise<void>;
}

interface BenchOptions {
  sizes: Sizes;
  /** Temporal as several processes on PostgreSQL, instead of the embedded one on SQLite. */
  isCluster: boolean;
  nodeOptionsOf: Bench['nodeOptionsOf'];
  report: (line: string) => void;
}

/** @throws Error when a server cannot be had; what was started is stopped again. */
export async function openBench({ sizes, isCluster, nodeOptionsOf, report }: BenchOptions): Promise<Bench> {
  const dataDir = mkdtempSync(path.join(tmpdir(), 'galaxy-notify-bench-'));
  // As root, PostgreSQL runs as another user, who must get in.
  chmodSync(dataDir, 0o755);
  // PostgreSQL may still be writing while it ends.
  const remove = () => rmSync(dataDir, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });

  report('Starting PostgreSQL, Redis, Temporal and the stand-in User Service');
  const starting = startStack({
    dataDir,
    report,
    postgres: { port: 0 },
    redis: { port: 0 },
    userService: { port: 0 },
    ...(isCluster
      ? {}
      : {
          temporal: {
            ...TEMPORAL,
            port: 0,
            metricsPort: 0,
            // Of the caller's environment only the path of a program: no server that is configured is measured.
            program: loadConfig().values.TEMPORAL_CLI_PATH,
          },
        }),
  });
  // After the servers' own listeners, which stop what is still running.
  const embedded = await starting.finally(() => process.once('exit', remove));
  const closers: (() => Promise<unknown>)[] = [async () => remove(), () => embedded.stop()];
  const temporal = isCluster
    ? await startCluster(dataDir, report).catch(async (error: unknown) => {
        await embedded.stop();
        throw error;
      })
    : {
        address: embedded.temporalAddress!,
        metricsUrls: [embedded.temporalMetricsUrl!],
        pids: [pidOf(dataDir, 'temporal')],
        stop: async () => undefined,
      };
  closers.push(() => temporal.stop());
  const stack: Stack = { ...embedded, temporalAddress: temporal.address };
  const parts = new Map<PartName, Promise<Part>>();
  const services = new Map<PartName, Promise<ServiceProcess>>();
  const readyAtUs = new Map<number, number>();
  const pids = {
    temporal: temporal.pids,
    postgres: [pidOf(dataDir, 'postgres')],
    redis: [pidOf(dataDir, 'redis')],
  };

  const bench: Bench = {
    sizes,
    report,
    nodeOptionsOf,
    dataDir,
    readyAtUs,
    part(name) {
      const opened = parts.get(name) ?? openPart(name, stack, bench);
      parts.set(name, opened);
      return opened;
    },
    service(name, env = {}) {
      const started = services.get(name) ?? startService(name, env);
      services.set(name, started);
      return started;
    },
    async stopService(name) {
      const started = services.get(name);
      services.delete(name);
      await (await started)?.stop();
    },
    startProcess: startServiceOf,
    cpu(workerPid) {
      const entries = Object.entries({ ...pids, worker: [workerPid] }).map(
        ([name, of]) => [name, cpuSecondsOf(of)] as const,
      );
      if (entries.some(([, seconds]) => seconds === undefined)) return undefined;
      return Object.fromEntries(entries) as CpuSeconds;
    },
    onClose: (close) => void closers.push(close),
    temporalMetrics: async () => {
      const texts = await Promise.all(temporal.metricsUrls.map(async (url) => (await fetch(url)).text()));
      return texts.join('\n');
    },
    versions: () => versionsOf(bench),
    async close() {
      for (const close of closers.splice(0).reverse()) {
        await close().catch((error: Error) => report(`Not ended in good order: ${error.message}`));
      }
      process.off('exit', remove);
    },
  };
  bench.onClose(() => Promise.all([...services.keys()].map((name) => bench.stopService(name))));
  return bench;

  async function startService(name: PartName, env: Readonly<Record<string, string>>) {
    report(`Starting the service of ${name}`);
    const service = await startServiceOf(name, env, name);
    readyAtUs.set(service.pid, service.readyAtUs);
    return service;
  }

  async function startServiceOf(name: PartName, env: Readonly<Record<string, string>>, logName: string) {
    const part = await bench.part(name);
    return startServiceProcess({
      env: { ...part.env, ...env },
      logFile: path.join(dataDir, `service-${logName}.log`),
      nodeOptions: nodeOptionsOf(name),
    });
  }
}

export function namespaceOf(part: PartName): string {
  return `bench-${part}`;
}

/** What every Temporal that is measured has. */
const TEMPORAL = {
  namespaces: PARTS.map((part) => namespaceOf(part)),
  searchAttributes: SEARCH_ATTRIBUTES,
};

async function startCluster(benchDir: string, report: (line: string) => void) {
  const dataDir = path.join(benchDir, 'temporal-cluster');
  const version = TEMPORAL_VERSIONS.at(-1)!;
  const { address, metricsUrls, stop } = await startTemporalCluster({
    ...TEMPORAL,
    dataDir,
    port: 0,
    version,
    report,
  });
  const pids = MEMBERS.map((member) => pidOf(dataDir, member === 'store' ? 'postgres' : member));
  return { address, metricsUrls, pids, stop };
}

function pidOf(dataDir: string, server: string): number {
  const file = readFileSync(path.join(dataDir, `${server}.pid.json`), 'utf8');
  return (JSON.parse(file) as { server: { pid: number } }).server.pid;
}

async function openPart(name: PartName, stack: Stack, bench: Bench): Promise<Part> {
  const [host = '', port = ''] = stack.redisAddr!.split(':');
  const redisDb = PARTS.indexOf(name);
  const dsn = new URL(stack.postgresDsn!);
  const database = `bench_${name.replace('-', '_')}`;
  const admin = new pg.Client({ connectionString: dsn.href });
  await admin.connect();
  await admin.query(`CREATE DATABASE ${database}`).finally(() => admin.end());
  dsn.pathname = `/${database}`;
  await createDeviceTokens(dsn.href, { samples: false });

  const connection = await Connection.connect({ address: stack.temporalAddress! });
  const db = new pg.Pool({ connectionString: dsn.href, max: 2, options: '-c timezone=UTC' });
  db.on('error', () => undefined);
  const openRedis = () => new Redis({ host, port: Number(port), db: redisDb });
  const redis = openRedis();
  bench.onClose(async () => {
    redis.disconnect();
    await Promise.allSettled([db.end(), connection.close()]);
  });
  return {
    name,
    env: {
      NOTIFICATION_ROLES: 'intent',
      NOTIFICATION_REDIS_MASTER_ADDR: `${host}:${port}`,
      NOTIFICATION_REDIS_DB: String(redisDb),
      NOTIFICATION_POSTGRES_PRIMARY_DSN: dsn.href,
      NOTIFICATION_USER_SERVICE_BASE_URL: stack.userServiceUrl!,
      TEMPORAL_ADDRESS: stack.temporalAddress!,
      TEMPORAL_NAMESPACE: namespaceOf(name),
    },
    redis,
    openRedis,
    db,
    client: new Client({ connection, namespace: namespaceOf(name) }),
  };
}

async function versionsOf(bench: Bench): Promise<Record<string, string>> {
  const { redis, db, client } = await bench.part('baselines');
  const [info, postgres, temporal] = await Promise.all([
    redis.info('server'),
    db.query<{ server_version: string }>('SHOW server_version'),
    client.workflowService.getSystemInfo({}),
  ]);
  return {
    temporal: temporal.serverVersion ?? 'unknown',
    postgres: postgres.rows[0]!.server_version,
    redis: /(?:valkey|redis)_version:(\S+)/.exec(info)?.[1] ?? 'unknown',
  };
}
