/**
 * Supervisor of the embedded servers.
 *
 * - Each server has a log file and a pid file in the data directory: `<name>.log` (the run before: `<name>.previous.log`)
 *   and `<name>.pid.json`. The pid file names the server and its owner, so that a server whose owner was killed is found
 *   and stopped by the next start, and one whose owner lives is left alone.
 * - Each server runs in its own process group: Ctrl-C reaches the service only, which drains its work while they
 *   still answer, and stops them after.
 * - When the owner exits without having stopped them they get their stop signal on the way out. Only `kill -9` and a
 *   unhandled signal escape that; then the pid file does its work.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { closeSync, openSync } from 'node:fs';
import { mkdir, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { tail, withEnvironment, type UserIds } from './command.ts';
import { assertPortsFree, type PortUse } from './ports.ts';
import {
  isRunning,
  ownProcessRef,
  processRef,
  signalProcess,
  stopProcess,
  type ProcessRef,
} from './processes.ts';

/** Receives one line of progress for the operator. */
export type Report = (line: string) => void;

/** What to start, and how to see that it works. */
export interface ServerSpec {
  /** Stem of the log and pid files: `redis`. */
  name: string;
  /** The name shown to people: `Redis`. */
  title: string;
  /** Where the log and pid files are; created when missing. */
  dataDir: string;
  command: string;
  args: readonly string[];
  /** Added to the inherited environment. */
  env?: Readonly<Record<string, string>>;
  /** Run as this user (root only). */
  user?: UserIds | undefined;
  /** Checked after an orphan was stopped and before the start, because a stranger's server would pass the readiness check. */
  ports: readonly PortUse[];
  /** The signal for an orderly end; default SIGTERM. */
  stopSignal?: NodeJS.Signals;
  /** Milliseconds between the stop signal and SIGKILL; default 10,000. */
  stopGraceMs?: number;
  /**
   * Resolves when the server is usable and rejects while it is not; called again until `readyLimitMs` have passed.
   * Must not take longer than a few seconds a time.
   */
  ready: () => Promise<void>;
  /** Milliseconds the server has to become usable; default 60,000. */
  readyLimitMs?: number;
  report: Report;
}

/** A started, usable server. */
export interface RunningServer {
  pid: number;
  /** Ends it in order, kills it after the grace time, and resolves when it is gone. May be called more than once. */
  stop(): Promise<void>;
}

/** Content of a pid file. */
interface PidFile {
  server: ProcessRef;
  owner: ProcessRef;
  title: string;
  stopSignal: NodeJS.Signals;
  stopGraceMs: number;
}

const READY_POLL_MS = 50;
const LOG_LINES_IN_ERRORS = 15;
const PID_FILE_SUFFIX = '.pid.json';

/** Servers of this process that must not outlive it. */
const servedByUs = new Map<ProcessRef, NodeJS.Signals>();

process.on('exit', () => {
  for (const [server, stopSignal] of servedByUs) signalProcess(server, stopSignal);
});

/**
 * Starts a server and waits until it is usable. An orphan of an earlier run is stopped first.
 *
 * @throws Error when a port is taken, the server of a living owner runs here, the server exits early or is not usable
 *   in time (both with the end of its log). Nothing is left running then.
 */
export async function startServer(spec: ServerSpec): Promise<RunningServer> {
  const { name, title, dataDir, stopSignal = 'SIGTERM', stopGraceMs = 10_000 } = spec;
  const pidFile = path.join(dataDir, `${name}${PID_FILE_SUFFIX}`);
  const logFile = path.join(dataDir, `${name}.log`);
  await mkdir(dataDir, { recursive: true });
  await stopOrphan(pidFile, spec.report);
  await assertPortsFree(spec.ports);
  await rename(logFile, path.join(dataDir, `${name}.previous.log`)).catch(ignoreMissing);

  const child = await spawnDetached(spec, logFile);
  const server = processRef(child.pid);
  // Before it is usable an exit is the error of this start, and after `stop` it is wanted: neither is news.
  let inService = false;
  child.process.once('exit', (code, signal) => {
    if (inService)
      spec.report(`${title} stopped unexpectedly (${signal ?? `exit code ${code}`}), see ${logFile}`);
  });
  if (!server) throw await startError(title, 'exited immediately', logFile);
  servedByUs.set(server, stopSignal);

  const stop = async (): Promise<void> => {
    inService = false;
    await stopProcess(server, stopSignal, stopGraceMs);
    servedByUs.delete(server);
    await rm(pidFile, { force: true });
  };
  try {
    const content: PidFile = { server, owner: ownProcessRef(), title, stopSignal, stopGraceMs };
    await writeFile(pidFile, JSON.stringify(content));
    await waitUntilReady(spec, server, logFile);
  } catch (error) {
    await stop();
    throw error;
  }
  inService = true;
  return { pid: server.pid, stop };
}

/**
 * Stops every server in the data directory whose owner is not running any more, in parallel.
 *
 * @throws Error when a server's owner lives, or a server cannot be stopped.
 */
export async function stopOrphans(dataDir: string, report: Report): Promise<void> {
  const files = await readdir(dataDir).catch(ignoreMissing);
  const pidFiles = (files ?? []).filter((file) => file.endsWith(PID_FILE_SUFFIX));
  await Promise.all(pidFiles.map((file) => stopOrphan(path.join(dataDir, file), report)));
}

async function stopOrphan(pidFile: string, report: Report): Promise<void> {
  const found = await readPidFile(pidFile);
  if (found && isRunning(found.server)) {
    const { title, server, owner } = found;
    if (isRunning(owner)) {
      throw new Error(
        `${title} is already running here (pid ${server.pid}), started by process ${owner.pid}`,
      );
    }
    report(`Stopping ${title} (pid ${server.pid}), left behind by an earlier run`);
    await stopProcess(server, found.stopSignal, found.stopGraceMs);
  }
  await rm(pidFile, { force: true });
}

/** A pid file that was cut short by a crash counts as missing. */
async function readPidFile(pidFile: string): Promise<PidFile | undefined> {
  const text = await readFile(pidFile, 'utf8').catch(ignoreMissing);
  try {
    return text === undefined ? undefined : (JSON.parse(text) as PidFile);
  } catch {
    return undefined;
  }
}

function spawnDetached(spec: ServerSpec, logFile: string): Promise<{ process: ChildProcess; pid: number }> {
  const [file, args] = withEnvironment(spec.command, spec.args, spec.env ?? {});
  const log = openSync(logFile, 'w');
  return new Promise((resolve, reject) => {
    const child = spawn(file, args, {
      detached: true,
      stdio: ['ignore', log, log],
      // Not the data directory: the server's user may not be allowed into it.
      cwd: '/',
      ...spec.user,
    });
    closeSync(log);
    // A program that forgot to stop its servers must still be able to end, which then stops them (see the exit hook).
    child.unref();
    child.once('error', (error) => reject(new Error(`${spec.title} could not be started: ${error.message}`)));
    child.once('spawn', () => {
      if (child.pid !== undefined) resolve({ process: child, pid: child.pid });
    });
  });
}

async function waitUntilReady(spec: ServerSpec, server: ProcessRef, logFile: string): Promise<void> {
  const limitMs = spec.readyLimitMs ?? 120_000;
  const deadline = Date.now() + limitMs;
  for (;;) {
    const problem = await spec.ready().then(
      () => undefined,
      (error: unknown) => (error instanceof Error ? error : new Error(String(error))),
    );
    // Asked after the check: another server on the same port must not make a dead one look usable.
    if (!isRunning(server)) throw await startError(spec.title, 'exited while starting', logFile);
    if (problem === undefined) return;
    if (Date.now() > deadline) {
      throw await startError(
        spec.title,
        `was not usable after ${limitMs / 1000} s (${problem.message})`,
        logFile,
      );
    }
    await sleep(READY_POLL_MS);
  }
}

async function startError(title: string, what: string, logFile: string): Promise<Error> {
  const log = (await readFile(logFile, 'utf8').catch(ignoreMissing)) ?? '';
  return new Error(`${title} ${what}; log ${logFile}${tail(log, LOG_LINES_IN_ERRORS)}`);
}

function ignoreMissing(error: NodeJS.ErrnoException): undefined {
  if (error.code !== 'ENOENT') throw error;
}
