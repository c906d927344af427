import { linkSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { SelfExplanatoryError } from '../../api/errors.ts';
import { isRunning, ownProcessRef, type ProcessRef } from './processes.ts';

/** Thrown when a living process uses the data directory. */
export class DataDirInUseError extends SelfExplanatoryError {
  override name = 'DataDirInUseError';
  /** The process that holds the directory. */
  readonly pid: number;

  constructor(dataDir: string, pid: number) {
    super(
      `another galaxy-notify (pid ${pid}) is using ${dataDir}; stop it first or choose another data directory`,
    );
    this.pid = pid;
  }
}

/**
 * Makes this process the only owner of a data directory, created when missing, until the returned function is called
 * or the process exits. The lock of a process that is not running any more is taken over.
 *
 * @throws DataDirInUseError while its owner lives, this process included.
 */
export function lockDataDir(dataDir: string): () => void {
  mkdirSync(dataDir, { recursive: true });
  const lockFile = path.join(dataDir, 'owner.json');
  const draft = `${lockFile}.${process.pid}`;
  writeFileSync(draft, JSON.stringify(ownProcessRef()));
  try {
    while (!linked(draft, lockFile)) {
      const owner = readOwner(lockFile);
      if (owner && isRunning(owner)) throw new DataDirInUseError(dataDir, owner.pid);
      removeStale(lockFile, owner);
    }
  } finally {
    rmSync(draft, { force: true });
  }

  const release = (): void => {
    process.off('exit', release);
    rmSync(lockFile, { force: true });
  };
  process.once('exit', release);
  return release;
}

/** Creates the lock file in one step with its content, so that no process reads a half-written owner. */
function linked(draft: string, lockFile: string): boolean {
  try {
    linkSync(draft, lockFile);
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false;
    throw error;
  }
}

/** Removes a dead owner's lock, but not the one a competitor has put in its place meanwhile. */
function removeStale(lockFile: string, stale: ProcessRef | undefined): void {
  const aside = `${lockFile}.stale.${process.pid}`;
  try {
    renameSync(lockFile, aside);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return;
    throw error;
  }
  const removed = readOwner(aside);
  if (removed && removed.pid !== stale?.pid) linked(aside, lockFile);
  rmSync(aside, { force: true });
}

function readOwner(lockFile: string): ProcessRef | undefined {
  try {
    return JSON.parse(readFileSync(lockFile, 'utf8')) as ProcessRef;
  } catch {
    return undefined;
  }
}
