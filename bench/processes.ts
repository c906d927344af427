/**
 * Processes of the benchmark: the service as `npm start` runs it, and what any process costs. Linux tells the latter in
 * /proc; on other systems the rows that need it are not measured.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, existsSync, openSync, readdirSync, readFileSync, statSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { tail } from '../dev/servers/command.ts';
import packageJson from '../package.json' with { type: 'json' };

const ROOT = path.dirname(import.meta.dirname);
/** What `npm start` tells Node. What the service is compared with is told the same. */
const NODE_OPTIONS = packageJson.scripts.start
  .split(' env node ')[1]!
  .split(' ')
  .filter((word) => word.startsWith('--'));
/** Loading the sources, connecting and bundling on a busy machine, ms. */
const READY_LIMIT_MS = 180_000;
/** Longer than the service itself allows its shutdown to take, ms. */
const STOP_LIMIT_MS = 30_000;

/** USER_HZ, the unit of /proc/<pid>/stat: 100 on every architecture that Node runs on. */
const TICKS_PER_SECOND = 100;

export interface ServiceProcess {
  pid: number;
  /** By the monotonic clock of the machine, µs. */
  readyAtUs: number;
  /** Ends it as an operator would, and resolves when it is gone. May be called more than once. */
  stop(): Promise<void>;
}

export interface ServiceOptions {
  /** The whole environment: nothing of the caller's gets in by accident. */
  env: Record<string, string>;
  /** Takes its log, which costs the service what a container's standard output would. */
  logFile: string;
  /** Further options of Node, such as a profiler. */
  nodeOptions: readonly string[];
}

/** Starts `workers/main.ts` and waits until it is ready. @throws Error with the end of its log when it is not. */
export async function startServiceProcess(options: ServiceOptions): Promise<ServiceProcess> {
  const { env, logFile } = options;
  // An earlier service may have written to the same file.
  const logStart = existsSync(logFile) ? statSync(logFile).size : 0;
  const logOf = () => readFileSync(logFile).subarray(logStart).toString();
  const child = startProcess('workers/main.ts', {
    ...options,
    env: { ...env, NOTIFICATION_INTERNAL_HTTP_ADDR: '127.0.0.1:0' },
  });
  const stop = () => stopChild(child);
  try {
    await untilReady(child, logOf);
  } catch (error) {
    await stop();
    throw new Error(`${(error as Error).message}; its log ${logFile}${tail(logOf(), 15)}`, { cause: error });
  }
  return { pid: child.pid!, readyAtUs: Number(process.hrtime.bigint() / 1_000n), stop };
}

/** Runs a source file in another process of Node, with a channel for messages if asked. It does not outlive this process. */
export function startProcess(
  file: string,
  { env, logFile, nodeOptions, ipc = false }: ServiceOptions & { ipc?: boolean },
): ChildProcess {
  const log = openSync(logFile, 'a');
  const child = spawn(process.execPath, [...NODE_OPTIONS, ...nodeOptions, path.join(ROOT, file)], {
    cwd: ROOT,
    env,
    stdio: ['ignore', log, log, ...(ipc ? (['ipc'] as const) : [])],
  });
  closeSync(log);
  const killOrphan = () => child.kill('SIGKILL');
  process.once('exit', killOrphan);
  child.once('exit', () => process.off('exit', killOrphan));
  return child;
}

async function untilReady(child: ChildProcess, logOf: () => string): Promise<void> {
  const deadline = Date.now() + READY_LIMIT_MS;
  while (!logOf().includes('"msg":"service ready"')) {
    if (isEnded(child)) throw new Error('the service ended while starting');
    if (Date.now() > deadline) throw new Error(`the service was not ready after ${READY_LIMIT_MS / 1_000} s`);
    await sleep(50);
  }
}

const isEnded = ({ exitCode, signalCode }: ChildProcess): boolean => exitCode !== null || signalCode !== null;

/** Ends a process, by force when it does not obey in time. */
export async function stopChild(child: ChildProcess): Promise<void> {
  if (isEnded(child)) return;
  const ended = once(child, 'exit');
  child.kill('SIGTERM');
  const force = setTimeout(() => child.kill('SIGKILL'), STOP_LIMIT_MS);
  await ended;
  clearTimeout(force);
}

/**
 * CPU time of processes and of everything that they started, children that have ended included.
 *
 * @returns seconds, undefined where the system does not tell.
 */
export function cpuSecondsOf(pids: readonly number[]): number | undefined {
  const all = readStats();
  if (all === undefined) return undefined;
  const family = new Set(pids);
  // A child may be listed before its parent, so this is repeated until no new process is found.
  for (let size = 0; size < family.size;) {
    size = family.size;
    for (const { pid, parent } of all) if (family.has(parent)) family.add(pid);
  }
  const ticks = all.reduce((sum, stat) => sum + (family.has(stat.pid) ? stat.ticks : 0), 0);
  return ticks / TICKS_PER_SECOND;
}

interface Stat {
  pid: number;
  parent: number;
  /** User and system time of the process, and of its children that have ended and were waited for. */
  ticks: number;
}

function readStats(): Stat[] | undefined {
  if (process.platform !== 'linux') return undefined;
  return readdirSync('/proc').flatMap((name) => {
    if (!/^\d+$/.test(name)) return [];
    try {
      const stat = readFileSync(`/proc/${name}/stat`, 'utf8');
      // The second field is the command in parentheses and may hold blanks; the parent is field 4, the times 14 to 17.
      const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
      const ticks = fields.slice(11, 15).reduce((sum, field) => sum + Number(field), 0);
      return [{ pid: Number(name), parent: Number(fields[1]), ticks }];
    } catch {
      // It has just ended.
      return [];
    }
  });
}

/** Resident memory of a process, MB; undefined where the system does not tell, and when it has ended. */
export function memoryMbOf(pid: number): number | undefined {
  if (process.platform !== 'linux') return undefined;
  let status: string;
  try {
    status = readFileSync(`/proc/${pid}/status`, 'utf8');
  } catch {
    return undefined;
  }
  const kilobytes = /^VmRSS:\s+(\d+) kB$/m.exec(status)?.[1];
  return kilobytes === undefined ? undefined : Number(kilobytes) / 1_024;
}

/** Samples the memory of a process until it is stopped. */
export function watchMemory(pid: number, intervalMs: number): { samples: MemorySample[]; stop(): void } {
  const samples: MemorySample[] = [];
  const startedAt = performance.now();
  const sample = (): void => {
    const mb = memoryMbOf(pid);
    if (mb !== undefined) samples.push({ ms: performance.now() - startedAt, mb });
  };
  sample();
  const timer = setInterval(sample, intervalMs);
  return { samples, stop: () => clearInterval(timer) };
}

export interface MemorySample {
  /** Since the start, ms. */
  ms: number;
  mb: number;
}
