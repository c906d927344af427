/** The embedded Temporal: a development server with settings for one machine. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, rm, stat, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { text } from 'node:stream/consumers';
import { Connection } from '@temporalio/client';
import { WORKFLOW_TASKS } from '../../api/task-queue-types.ts';
import { ensureSearchAttributes, namesOf } from '../../migrations/namespace.ts';
import type { SearchAttributes } from '../../workflows/search-attributes.ts';
import { withEnvironment } from './command.ts';
import { freePort, LOOPBACK, type PortUse } from './ports.ts';
import { startServer, type Report } from './server-process.ts';

/** Options of {@link startTemporal}. */
export interface TemporalOptions {
  /** Folder of the embedded servers; the database is `temporal.db` in `temporal*` of it. */
  dataDir: string;
  /** Loopback port of the frontend (gRPC); 0 chooses a free one. */
  port: number;
  /** Loopback port of the Web UI; 0 chooses a free one, undefined means no Web UI. */
  uiPort?: number | undefined;
  /** Loopback port of the server's own metrics; 0 chooses a free one, undefined turns them off. */
  metricsPort?: number | undefined;
  /** The configured program (TEMPORAL_CLI_PATH). When given, nothing else is tried. */
  program?: string | undefined;
  /** Created when missing; default `default`, which exists always. */
  namespaces?: readonly string[];
  /** Created in every namespace where missing. */
  searchAttributes?: SearchAttributes;
  /** false: in memory, for tests. Default true. */
  durable?: boolean;
  report: Report;
}

/** A running Temporal. */
export interface EmbeddedTemporal {
  /** `127.0.0.1:<port>`. */
  address: string;
  /** `http://127.0.0.1:<port>`; undefined without a Web UI. */
  uiUrl: string | undefined;
  /** `http://127.0.0.1:<port>/metrics`, in the text format of Prometheus; undefined unless they are asked for. */
  metricsUrl: string | undefined;
  /** Where its database is; undefined when it keeps nothing. */
  folder: string | undefined;
  stop(): Promise<void>;
}

/**
 * The write-ahead log, flushed at checkpoints: what was committed survives the death of any process; a power failure
 * may take the last moments along. Flushing at every commit, the default, is two to three times slower.
 */
const SQLITE_PRAGMAS: Readonly<Record<string, string>> = { journal_mode: 'wal', synchronous: 'normal' };

/**
 * Server settings for a small installation; all are safe for durability. Our own server refuses keys that it does not know;
 * the Temporal CLI ignores them without a word.
 */
export const DYNAMIC_CONFIG: Readonly<Record<string, boolean | number>> = {
  // The development server reads all search attributes from the database at every visibility operation.
  'system.forceSearchAttributesCacheRefreshOnRead': false,

  // One partition: with more, a task and the poll for it meet through a forwarding hop. A large cluster keeps 4 or more.
  'matching.numTaskqueueReadPartitions': 1,
  'matching.numTaskqueueWritePartitions': 1,

  // Latency: at the default of 20 a hop from history to matching waits up to 50 ms.
  'history.transferProcessorMaxPollRPS': 200,
  // The limit of all shards together, which must not be below the one above.
  'history.transferProcessorMaxPollHostRPS': 1_000,

  // One visibility row instead of two for short workflows: each write feeds dozens of indexes.
  'history.visibilityProcessorMaxPollRPS': 1,
  'history.visibilityTaskBatchSize': 1_000,
  'history.visibilityProcessorSchedulerWorkerCount': 16,

  'history.enableHostLevelEventsCache': true,

  // Memory: a cached execution has about 25 KB, and the server would keep 128,000 for an hour, ended ones as well.
  'history.hostLevelCacheMaxSize': 10_000,
  'history.eventsHostLevelCacheMaxSizeBytes': 67_108_864,

  // Priority, and fairness between producers.
  'matching.useNewMatcher': true,
  'matching.enableFairness': true,

  // The defaults protect clusters of many tenants; matching's 1,200 and visibility's 10 bind first.
  'matching.rps': 10_000,
  'history.rps': 10_000,
  'frontend.rps': 10_000,
  'frontend.namespaceRPS': 10_000,
  'frontend.namespaceRPS.visibility': 100,
  'frontend.persistenceMaxQPS': 10_000,
  'history.persistenceMaxQPS': 45_000,

  // Statistics without a reader here.
  'system.persistenceHealthSignalMetricsEnabled': false,
  'system.persistenceHealthSignalAggregationEnabled': false,
  'system.historyHealthSignalMetricsEnabled': false,

  // What columns of SQL databases hold; 1,000 by default, so that a longer id fails late and in the database.
  'limit.maxIDLength': 255,
};

/** The heap may grow ninefold between collections, which measured 20 % faster, up to a gigabyte. */
const SERVER_ENV = { GOGC: '800', GOMEMLIMIT: '1GiB' };
const DEFAULT_NAMESPACE = 'default';
const CALL_LIMIT_MS = 3_000;
const GRPC_NOT_FOUND = 5;

/**
 * Starts Temporal, its ports on 127.0.0.1 only, and waits until every namespace is usable: frontend, history, matching
 * and visibility answer for it, and it has the search attributes. Its log (warnings only) is `<dataDir>/temporal.log`.
 *
 * @throws Error as {@link findTemporalProgram} and {@link startServer}.
 */
export async function startTemporal(options: TemporalOptions): Promise<EmbeddedTemporal> {
  const {
    dataDir,
    durable = true,
    namespaces = [DEFAULT_NAMESPACE],
    searchAttributes = {},
    report,
  } = options;
  const { command, server: version } = await findTemporalProgram(options.program, report);
  const port = options.port === 0 ? await freePort() : options.port;
  const uiPort = options.uiPort === 0 ? await freePort() : options.uiPort;
  const metricsPort = options.metricsPort === 0 ? await freePort() : options.metricsPort;
  const address = `${LOOPBACK}:${port}`;
  const folder = durable ? path.resolve(dataDir, databaseFolder(version)) : undefined;
  const database = folder === undefined ? undefined : await prepareDatabase(folder);

  const ports: PortUse[] = [{ port, name: 'embedded Temporal' }];
  if (uiPort !== undefined) {
    ports.push({ port: uiPort, name: 'Temporal Web UI' });
  }
  const server = await startServer({
    name: 'temporal',
    title: 'Temporal',
    dataDir,
    command,
    args: [
      ...['server', 'start-dev', '--log-level', 'warn'],
      // A profile of the user's own is for other servers.
      ...['--disable-config-file', '--disable-config-env'],
      ...['--ip', LOOPBACK, '--port', String(port)],
      ...(uiPort === undefined ? ['--headless'] : ['--ui-ip', LOOPBACK, '--ui-port', String(uiPort)]),
      ...(metricsPort === undefined ? [] : ['--metrics-port', String(metricsPort)]),
      ...(database ? ['--db-filename', database.file] : []),
      ...namespaces.filter((name) => name !== DEFAULT_NAMESPACE).flatMap((name) => ['--namespace', name]),
      ...namesOf(searchAttributes).flatMap((one) => ['--search-attribute', one]),
      ...keyValueFlags('--sqlite-pragma', SQLITE_PRAGMAS),
      ...keyValueFlags('--dynamic-config-value', DYNAMIC_CONFIG),
    ],
    env: SERVER_ENV,
    ports,
    ready: readiness(address, namespaces, searchAttributes),
    report,
  });
  await database?.markComplete();
  return {
    address,
    uiUrl: uiPort === undefined ? undefined : `http://${LOOPBACK}:${uiPort}`,
    metricsUrl: metricsPort === undefined ? undefined : `http://${LOOPBACK}:${metricsPort}/metrics`,
    folder,
    stop: server.stop,
  };
}

/** A program that can be started: the Temporal CLI, or our own server with the same flags. */
export interface TemporalProgram {
  command: string;
  /** The version of the server in it: `1.32.2`. */
  server: string;
  /** Whether it has the other commands of the Temporal CLI: `temporal workflow …`. */
  isCli: boolean;
}

/**
 * Finds a Temporal program, or fetches or builds one.
 *
 * @throws Error that names every step that was tried, with its reason.
 */
export async function findTemporalProgram(
  program: string | undefined,
  report: Report,
): Promise<TemporalProgram> {
  const args = [path.join(import.meta.dirname, 'temporal-program.mjs')];
  if (program !== undefined) args.push('--program', path.resolve(program));
  // Node's own fetch looks at the variables of proxies only when it is told to.
  const [file, fileArgs] = withEnvironment(process.execPath, args, { NODE_USE_ENV_PROXY: '1' });
  const child = spawn(file, fileArgs, { stdio: ['ignore', 'pipe', 'pipe'] });
  createInterface({ input: child.stderr }).on('line', report);
  const [answer] = await Promise.all([text(child.stdout), once(child, 'close')]);
  if (answer === '') throw new Error('the search for a Temporal server was interrupted');
  const found = JSON.parse(answer) as TemporalProgram | { problem: string };
  if ('problem' in found) throw new Error(found.problem);
  return found;
}

/** `--flag Name=value` for each; the values are JSON for the dynamic configuration, which plain words are not. */
function keyValueFlags(flag: string, values: Readonly<Record<string, string | number | boolean>>): string[] {
  return Object.entries(values).flatMap(([name, value]) => [flag, `${name}=${value}`]);
}

/** The tables in SQLite belong to a version of the server, which neither changes them nor knows those of another one. */
function databaseFolder(version: string): string {
  const [major, minor] = version.split('.');
  return `temporal-${major}.${minor}`;
}

/**
 * The server creates its tables only when the file is missing, so a first start that was interrupted leaves a file that
 * never works. Such a file, not yet marked as complete, holds no work and is removed.
 */
async function prepareDatabase(folder: string): Promise<{ file: string; markComplete: () => Promise<void> }> {
  const completeMark = path.join(folder, 'complete');
  const isComplete = await stat(completeMark).then(
    () => true,
    () => false,
  );
  if (!isComplete) await rm(folder, { recursive: true, force: true });
  await mkdir(folder, { recursive: true });
  return { file: path.join(folder, 'temporal.db'), markComplete: () => writeFile(completeMark, '') };
}

/**
 * A function that rejects while the server does not answer, or a part of it is not ready for one of the namespaces. The
 * next call goes on with those that are left: a busy machine does not get through 250 in the time of one.
 */
export function readiness(
  address: string,
  namespaces: readonly string[],
  searchAttributes: SearchAttributes,
): () => Promise<void> {
  const waiting = new Set(namespaces);
  return async () => {
    // Asks for the system info.
    const connection = await Connection.connect({ address, connectTimeout: CALL_LIMIT_MS });
    try {
      await connection.withDeadline(Date.now() + CALL_LIMIT_MS, async () => {
        for (const namespace of waiting) {
          // The flag of the server reaches new namespaces only; an older database gets what it lacks here.
          await ensureSearchAttributes(connection, namespace, searchAttributes);
          await checkServices(connection, namespace, searchAttributes);
          waiting.delete(namespace);
        }
      });
    } finally {
      await connection.close();
    }
  };
}

/** A cheap question to each service behind the frontend. */
async function checkServices(
  { workflowService }: Connection,
  namespace: string,
  searchAttributes: SearchAttributes,
): Promise<void> {
  // Names every attribute: one that was just added is refused until the server's cache is refreshed (2 s).
  const query = Object.keys(searchAttributes)
    .map((name) => `${name} IS NULL`)
    .join(' AND ');
  const visibility = workflowService.listWorkflowExecutions({ namespace, pageSize: 1, query });
  const matching = workflowService.describeTaskQueue({
    namespace,
    taskQueue: { name: 'readiness' },
    taskQueueType: WORKFLOW_TASKS,
  });
  const history = workflowService
    .describeWorkflowExecution({ namespace, execution: { workflowId: 'readiness' } })
    .catch((error: { code?: number }) => {
      // The right answer: there is no such workflow, and a shard that knows it.
      if (error.code !== GRPC_NOT_FOUND) throw error;
    });
  await Promise.all([visibility, matching, history]);
}
