/**
 * Temporal as in a production installation: several processes of each service on PostgreSQL, behind one address, with a
 * dynamic configuration of deploy/temporal/. Any of them can be killed and started again.
 *
 * A separate PostgreSQL server holds the two databases of Temporal, made by Temporal's own tool.
 */
import { existsSync, readFileSync } from 'node:fs';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Connection } from '@temporalio/client';
import { createNamespace } from '../../migrations/namespace.ts';
import type { TemporalVersion } from '../go-programs.ts';
import { findTemporalPrograms } from '../go-programs.ts';
import { runCommand } from './command.ts';
import { freePort, LOOPBACK } from './ports.ts';
import { startPostgres } from './postgres.ts';
import { isRunning, signalProcess, type ProcessRef } from './processes.ts';
import { startServer, type Report, type RunningServer } from './server-process.ts';
import { startTcpBalancer } from './tcp-balancer.ts';
import { readiness } from './temporal.ts';
import type { SearchAttributes } from '../../workflows/search-attributes.ts';

/** What runs, by default: each service twice but the one for its own workflows. */
const SERVICES = { frontend: 2, history: 2, matching: 2, worker: 1 } as const;
type ServiceName = keyof typeof SERVICES;

/** All processes; `store` is their PostgreSQL. */
export const MEMBERS = [
  'store',
  ...Object.entries(SERVICES).flatMap(([service, count]) =>
    Array.from({ length: count }, (_, index) => `${service}-${index + 1}` as const),
  ),
] as MemberName[];
export type MemberName = 'store' | `${ServiceName}-${1 | 2}`;

export interface TemporalClusterOptions {
  /** Holds data, configuration, logs and pid files. */
  dataDir: string;
  /** Loopback port of the balancer in front of the frontends; 0 chooses a free one. */
  port: number;
  version: TemporalVersion;
  namespaces: readonly string[];
  searchAttributes: SearchAttributes;
  /** Of another PostgreSQL; default: the embedded one. */
  binDir?: string | undefined;
  /** Processes are killed on purpose: that one has stopped is no news. */
  mayDie?: boolean;
  /** A file of dynamic configuration; default: that of a large installation. */
  dynamicConfig?: string;
  report: Report;
}

export interface ClusterMember {
  name: MemberName;
  isRunning(): boolean;
  /** SIGKILL; resolves when it is gone. */
  kill(): Promise<void>;
  /** Does nothing when it runs. Resolves when it answers. */
  start(): Promise<void>;
}

export interface TemporalCluster {
  /** `127.0.0.1:<port>` of the balancer. */
  address: string;
  members: ReadonlyMap<MemberName, ClusterMember>;
  /** Of the database that has the histories. */
  dsn: string;
  /** Metrics of each process, in the text format of Prometheus. */
  metricsUrls: readonly string[];
  /** Waits until the frontends answer for all namespaces. */
  untilUsable(): Promise<void>;
  /** Everything that they logged. */
  logs(): string;
  stop(): Promise<void>;
}

const SHARDS = 16;
const DATABASES = { temporal: 'temporal', temporal_visibility: 'visibility' } as const;
/** Each process has so many connections at most: PostgreSQL takes 200. */
const CONNECTIONS = { maxConns: 20, maxIdleConns: 10, maxConnLifetime: '1h' };
const PLUGIN = 'postgres12_pgx';
const USABLE_LIMIT_MS = 120_000;
const RETENTION_MS = 24 * 3_600_000;
/** PostgreSQL does not start while processes of the one before are still ending. */
const START_ATTEMPTS = 20;
const START_PAUSE_MS = 250;
const LARGE = path.join(import.meta.dirname, '../../deploy/temporal/large.yaml');

type MemberPorts = Record<'grpcPort' | 'membershipPort' | 'httpPort' | 'metricsPort', number>;

/** @throws Error when its programs cannot be had, or as `startServer`; what was started is stopped again. */
export async function startTemporalCluster(options: TemporalClusterOptions): Promise<TemporalCluster> {
  const { version, namespaces, searchAttributes, dynamicConfig = LARGE, mayDie = false } = options;
  const report = mayDie ? () => undefined : options.report;
  const dataDir = path.resolve(options.dataDir);
  const programs = await findTemporalPrograms(version, options.report);
  await mkdir(dataDir, { recursive: true });
  const storePort = await freePort();
  const startStore = () => startPostgres({ dataDir, port: storePort, binDir: options.binDir, report });
  const store = await startStore();
  const running = new Map<MemberName, { stop(): Promise<void> }>([['store', store]]);
  const stopAll = async () => {
    // The store stops last, so that the other members can still write.
    const members = [...running].filter(([name]) => name !== 'store');
    await Promise.all(members.map(([, server]) => server.stop()));
    await running.get('store')?.stop();
  };
  try {
    await makeSchema(programs.sqlTool, storePort);
    const ports = new Map<MemberName, MemberPorts>();
    for (const name of MEMBERS) if (name !== 'store') ports.set(name, await memberPorts());
    const starters = new Map<MemberName, () => Promise<{ stop(): Promise<void> }>>([['store', startStore]]);
    for (const [name, own] of ports) {
      const config = await writeConfig(dataDir, { name, own, storePort, dynamicConfig });
      starters.set(name, () => startMember({ dataDir, name, own, config, command: programs.server, report }));
    }
    const members = new Map(
      MEMBERS.map((name): [MemberName, ClusterMember] => [
        name,
        memberOf(dataDir, name, async () => void running.set(name, await starters.get(name)!())),
      ]),
    );
    // The first member writes the shared records; two members that write them at the same time exit.
    await members.get('history-1')!.start();
    await Promise.all([...members.values()].map((member) => member.start()));
    const frontends = [...ports].filter(([name]) => name.startsWith('frontend'));
    const balancer = await startTcpBalancer(
      frontends.map(([, { grpcPort }]) => grpcPort),
      options.port === 0 ? await freePort() : options.port,
    );
    const untilUsable = () => usable(balancer.address, namespaces, searchAttributes);
    await untilUsable();
    return {
      address: balancer.address,
      members,
      dsn: dsnOf(storePort),
      metricsUrls: [...ports.values()].map(({ metricsPort }) => `http://${LOOPBACK}:${metricsPort}/metrics`),
      untilUsable,
      logs: () => MEMBERS.map((name) => logOf(dataDir, name)).join(''),
      async stop() {
        await balancer.stop();
        await stopAll();
      },
    };
  } catch (error) {
    await stopAll();
    throw error;
  }
}

const dsnOf = (port: number): string =>
  `postgres://notification@${LOOPBACK}:${port}/temporal?sslmode=disable`;

/** As in docker-compose.yml. Each step may be repeated. */
async function makeSchema(sqlTool: string, port: number): Promise<void> {
  for (const [database, schema] of Object.entries(DATABASES)) {
    const tool = (...args: string[]) =>
      runCommand(sqlTool, [
        ...['--plugin', PLUGIN, '--endpoint', LOOPBACK, '--port', String(port), '--user', 'notification'],
        ...['--password', 'none', '--database', database],
        ...args,
      ]);
    await tool('create-database');
    await tool('setup-schema', '--version', '0.0');
    await tool('update-schema', '--schema-name', `postgresql/v12/${schema}`);
  }
}

async function memberPorts(): Promise<MemberPorts> {
  return {
    grpcPort: await freePort(),
    membershipPort: await freePort(),
    httpPort: await freePort(),
    metricsPort: await freePort(),
  };
}

interface MemberConfig {
  name: MemberName;
  own: MemberPorts;
  storePort: number;
  dynamicConfig: string;
}

/** @returns its folder, which Temporal takes with the name of the file. */
async function writeConfig(
  dataDir: string,
  { name, own, storePort, dynamicConfig }: MemberConfig,
): Promise<string> {
  const folder = path.join(dataDir, 'config');
  await mkdir(folder, { recursive: true });
  const store = (databaseName: string) => ({
    sql: {
      pluginName: PLUGIN,
      databaseName,
      connectAddr: `${LOOPBACK}:${storePort}`,
      connectProtocol: 'tcp',
      user: 'notification',
      password: 'none',
      ...CONNECTIONS,
    },
  });
  const { metricsPort, httpPort, ...rpc } = own;
  const config = {
    log: { stdout: true, level: 'warn' },
    persistence: {
      defaultStore: 'default',
      visibilityStore: 'visibility',
      numHistoryShards: SHARDS,
      datastores: { default: store('temporal'), visibility: store('temporal_visibility') },
    },
    global: {
      membership: { maxJoinDuration: '30s', broadcastAddress: LOOPBACK },
      metrics: { prometheus: { timerType: 'histogram', listenAddress: `${LOOPBACK}:${metricsPort}` } },
    },
    // Each must know that there are others. Where they are, they tell each other.
    services: Object.fromEntries(
      Object.keys(SERVICES).map((service) => [
        service,
        { rpc: { ...rpc, bindOnIP: LOOPBACK, ...(service === 'frontend' ? { httpPort } : {}) } },
      ]),
    ),
    clusterMetadata: {
      enableGlobalNamespace: false,
      failoverVersionIncrement: 10,
      masterClusterName: 'active',
      currentClusterName: 'active',
      clusterInformation: {
        active: { enabled: true, initialFailoverVersion: 1, rpcName: 'frontend', rpcAddress: 'unused:0' },
      },
    },
    dcRedirectionPolicy: { policy: 'noop' },
    dynamicConfigClient: { filepath: dynamicConfig, pollInterval: '10s' },
  };
  // JSON is YAML.
  await writeFile(path.join(folder, `${name}.yaml`), JSON.stringify(config, null, 2));
  return folder;
}

const serviceOf = (name: MemberName): string => name.replace(/-\d$/, '');

function startMember(options: {
  dataDir: string;
  name: MemberName;
  own: MemberPorts;
  config: string;
  command: string;
  report: Report;
}): Promise<RunningServer> {
  const { dataDir, name, own, config, command, report } = options;
  return startServer({
    name,
    title: `Temporal ${name}`,
    dataDir,
    command,
    args: [
      ...['--root', path.dirname(config), '--config', path.basename(config), '--env', name],
      ...['--allow-no-auth', 'start', '--service', serviceOf(name)],
    ],
    ports: Object.values(own).map((port) => ({ port, name: `Temporal ${name}` })),
    // Until it has joined the others, it does not listen.
    ready: () => listens(serviceOf(name) === 'worker' ? own.metricsPort : own.grpcPort),
    report,
  });
}

const listens = (port: number): Promise<void> =>
  new Promise((resolve, reject) => {
    const socket = connect(port, LOOPBACK);
    socket.once('connect', () => {
      socket.destroy();
      resolve();
    });
    socket.once('error', reject);
  });

/** A process by its pid file: it may have been killed and started again. */
function memberOf(dataDir: string, name: MemberName, start: () => Promise<void>): ClusterMember {
  const fileName = name === 'store' ? 'postgres' : name;
  const processNow = async (): Promise<ProcessRef | undefined> => {
    const text = await readFile(path.join(dataDir, `${fileName}.pid.json`), 'utf8').catch(() => undefined);
    return text === undefined ? undefined : (JSON.parse(text) as { server: ProcessRef }).server;
  };
  let current: ProcessRef | undefined;
  return {
    name,
    isRunning: () => current !== undefined && isRunning(current),
    async kill() {
      if (!current) return;
      signalProcess(current, 'SIGKILL');
      while (isRunning(current)) await sleep(5);
    },
    async start() {
      current ??= name === 'store' ? await processNow() : undefined;
      if (current && isRunning(current)) return;
      for (let attempt = 1; ; attempt += 1) {
        try {
          await start();
          break;
        } catch (error) {
          if (attempt === START_ATTEMPTS) throw error;
          await sleep(START_PAUSE_MS);
        }
      }
      current = await processNow();
    },
  };
}

async function usable(
  address: string,
  namespaces: readonly string[],
  searchAttributes: SearchAttributes,
): Promise<void> {
  const deadline = Date.now() + USABLE_LIMIT_MS;
  const makeUsable = readiness(address, namespaces, searchAttributes);
  for (;;) {
    try {
      const connection = await Connection.connect({ address });
      try {
        for (const namespace of namespaces) await createNamespace(connection, namespace, RETENTION_MS);
      } finally {
        await connection.close();
      }
      return await makeUsable();
    } catch (error) {
      if (Date.now() > deadline) {
        throw new Error(`the cluster was not usable after ${USABLE_LIMIT_MS / 1_000} s`, { cause: error });
      }
      await sleep(200);
    }
  }
}

/** Of the process that runs now, and of the one before. */
function logOf(dataDir: string, name: MemberName): string {
  const stem = name === 'store' ? 'postgres' : name;
  return ['previous.log', 'log']
    .map((end) => path.join(dataDir, `${stem}.${end}`))
    .filter((file) => existsSync(file))
    .map((file) => readFileSync(file, 'utf8'))
    .join('');
}
