/**
 * Identity of operating system processes.
 *
 * A pid alone does not name a process: it is used again after a reboot and, in containers, after every restart. A pid
 * together with the process's start time does, for servers as well as for owners of lock files, whatever their
 * command line looks like (Redis rewrites its own, an in-memory Temporal has no path in it).
 */
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';

/** One process of this machine, unmistakably. Written to pid and lock files as JSON. */
export interface ProcessRef {
  pid: number;
  /** When it started, in the system's own notation: compared for equality only. */
  startedAt: string;
}

const POLL_MS = 20;

/** Describes the living process with this pid; undefined without one. A zombie does not count. */
export function processRef(pid: number): ProcessRef | undefined {
  const startedAt = process.platform === 'linux' ? startedAtFromProc(pid) : startedAtFromPs(pid);
  return startedAt === undefined ? undefined : { pid, startedAt };
}

/** Describes the calling process. */
export function ownProcessRef(): ProcessRef {
  const ref = processRef(process.pid);
  if (!ref) throw new Error('cannot read the start time of this process');
  return ref;
}

/** Whether exactly this process, not a later one with the same pid, is still running. */
export function isRunning(ref: ProcessRef): boolean {
  return processRef(ref.pid)?.startedAt === ref.startedAt;
}

/**
 * Asks a process to end and waits until it has; one that has not after `graceMs` milliseconds is killed.
 * Returns immediately when it is not running any more.
 */
export async function stopProcess(ref: ProcessRef, signal: NodeJS.Signals, graceMs: number): Promise<void> {
  signalProcess(ref, signal);
  if (await endsWithin(ref, graceMs)) return;
  signalProcess(ref, 'SIGKILL');
  if (!(await endsWithin(ref, graceMs))) throw new Error(`process ${ref.pid} cannot be stopped`);
}

/** Sends a signal to exactly this process; does nothing when it is gone. */
export function signalProcess(ref: ProcessRef, signal: NodeJS.Signals): void {
  if (!isRunning(ref)) return;
  try {
    process.kill(ref.pid, signal);
  } catch (error) {
    // It ended between the look and the signal.
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}

async function endsWithin(ref: ProcessRef, limitMs: number): Promise<boolean> {
  const deadline = Date.now() + limitMs;
  while (isRunning(ref)) {
    if (Date.now() > deadline) return false;
    await sleep(POLL_MS);
  }
  return true;
}

/** Linux: boot id and clock ticks since boot, because ticks alone repeat after a reboot. */
function startedAtFromProc(pid: number): string | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    // The second field is the command in parentheses and may hold blanks; the state follows it, the start is field 22.
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    if (fields[0] === 'Z' || fields[0] === 'X') return undefined;
    const bootId = readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim();
    return `${bootId}/${fields[19]}`;
  } catch {
    return undefined;
  }
}

function startedAtFromPs(pid: number): string | undefined {
  try {
    const line = execFileSync('ps', ['-o', 'stat=,lstart=', '-p', String(pid)], { encoding: 'utf8' }).trim();
    if (line === '' || line.startsWith('Z')) return undefined;
    return line.replace(/^\S+\s+/, '');
  } catch {
    return undefined;
  }
}
