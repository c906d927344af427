/**
 * Processes of the service under a supervisor, as in production: a process that ends is started again.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { appendFileSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';

/** Where its sources are, and its whole environment: nothing of the caller's gets in by accident. */
export interface Program {
  env: Readonly<Record<string, string>>;
  folder: string;
}

export const ROOT = path.dirname(import.meta.dirname);
/** Between the end of a process that ended by itself and the next one, ms. */
const RESTART_PAUSE_MS = 1_000;
/** Lines of what a process said last: the report of Node about an uncaught error, and some lines before it. */
const LAST_LINES = 60;
/** Loading the sources and connecting on a busy machine, ms. */
const READY_LIMIT_MS = 180_000;

export interface SupervisedService {
  /** Of the process that runs now. */
  readonly pid: number | undefined;
  /**
   * Ends the process, waits, and lets the next one start. Resolves when that has begun.
   *
   * @param program of the next one and those after it; default: as before.
   * @returns when it had ended, ms since the epoch.
   */
  end(signal: 'SIGKILL' | 'SIGTERM', pauseMs: number, program?: Program): Promise<number>;
  /** To the present process, which goes on living. */
  signal(name: 'SIGSTOP' | 'SIGCONT'): void;
  /** Resolves when the present process, or a later one, is ready. */
  ready(): Promise<void>;
  /** Processes that ended by themselves after they had been ready: there is no reason for any. */
  readonly crashes: readonly string[];
  /** Processes that found a server missing at their start, and ended saying so. */
  readonly failedStarts: number;
  log(): string;
  /** Ends it for good, in order. */
  stop(): Promise<void>;
}

export function superviseService(options: {
  name: string;
  program: Program;
  dataDir: string;
}): SupervisedService {
  const logFile = path.join(options.dataDir, `${options.name}.log`);
  writeFileSync(logFile, '');
  let { program } = options;
  const crashes: string[] = [];
  let failedStarts = 0;
  let child: ChildProcess | undefined;
  let isReady = false;
  let isStopping = false;
  let wasEnded = false;
  let pauseMs = 0;
  const killOrphan = () => child?.kill('SIGKILL');
  process.once('exit', killOrphan);

  const running = supervise();

  async function supervise(): Promise<void> {
    while (!isStopping) {
      [isReady, wasEnded] = [false, false];
      child = spawn(process.execPath, ['workers/main.ts'], {
        cwd: program.folder,
        env: { ...program.env },
        stdio: ['ignore', 'pipe', 'pipe'],
      });
      const lastLines: string[] = [];
      for (const stream of [child.stdout!, child.stderr!]) {
        createInterface({ input: stream }).on('line', (line) => {
          appendFileSync(logFile, `${line}\n`);
          if (lastLines.push(line) > LAST_LINES) lastLines.shift();
          if (line.includes('"msg":"service ready"')) isReady = true;
        });
      }
      await once(child, 'close');
      if (isStopping) return;
      if (!wasEnded) {
        if (isReady)
          crashes.push(`${options.name} ended by itself (${child.exitCode}): ${lastLines.join('\n')}`);
        else failedStarts += 1;
      }
      isReady = false;
      await sleep(wasEnded ? pauseMs : RESTART_PAUSE_MS);
    }
  }

  return {
    get pid() {
      return child?.pid;
    },
    async end(signal, restartAfterMs, next = program) {
      program = next;
      const ended = child;
      if (!ended || ended.exitCode !== null || ended.signalCode !== null) return Date.now();
      [wasEnded, pauseMs] = [true, restartAfterMs];
      let endedAt = 0;
      ended.once('exit', () => (endedAt = Date.now()));
      ended.kill(signal);
      while (child === ended) await sleep(20);
      return endedAt;
    },
    signal: (name) => void child?.kill(name),
    async ready() {
      const deadline = Date.now() + READY_LIMIT_MS;
      while (!isReady) {
        if (Date.now() > deadline)
          throw new Error(`${options.name} was not ready in time; its log ends with\n${tail()}`);
        await sleep(20);
      }
    },
    crashes,
    get failedStarts() {
      return failedStarts;
    },
    log: () => readFileSync(logFile, 'utf8'),
    async stop() {
      isStopping = true;
      const force = setTimeout(() => child?.kill('SIGKILL'), 30_000);
      child?.kill('SIGTERM');
      await running;
      clearTimeout(force);
      process.off('exit', killOrphan);
    },
  };

  function tail(): string {
    return readFileSync(logFile, 'utf8').split('\n').slice(-15).join('\n');
  }
}
