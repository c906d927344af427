/**
 * Locks between processes of this machine: links to nothing, whose text is the pid of their holder, since a link and its text
 * are made in one step. Plain JavaScript for Node 18 and later, since `dev/install.mjs` needs them before anything is installed.
 */
import { lstatSync, mkdirSync, readlinkSync, renameSync, rmSync, symlinkSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

const WAIT_POLL_MS = 250;
/** Nothing that is done under a lock takes this long: one this old belongs to a process whose pid is used again. */
const LOCK_EXPIRES_MS = 15 * 60_000;

/**
 * Does something while no other process that takes the same lock does; waits for those that came before. The lock of a
 * process that is gone is taken over.
 *
 * @template T
 * @param {string} lock the link to make; the folder around it is made when missing.
 * @param {() => T | Promise<T>} work
 * @param {(holder: number | undefined) => void} [onWait] called once with the pid of the holder, when another process holds the lock.
 * @returns {Promise<T>} what `work` returns.
 */
export async function withLock(lock, work, onWait = () => undefined) {
  await acquire(lock, onWait);
  try {
    return await work();
  } finally {
    rmSync(lock, { force: true });
  }
}

async function acquire(lock, onWait) {
  mkdirSync(path.dirname(lock), { recursive: true });
  for (let isFirst = true; ; isFirst = false) {
    try {
      symlinkSync(String(process.pid), lock);
      return;
    } catch (error) {
      if (error.code !== 'EEXIST') throw error;
    }
    if (isStale(lock)) {
      removeStale(lock);
      continue;
    }
    if (isFirst) onWait(holderOf(lock));
    await sleep(WAIT_POLL_MS);
  }
}

function isStale(lock) {
  const holder = holderOf(lock);
  // Without a holder it was released meanwhile: nothing to take over.
  if (holder === undefined) return false;
  const madeAt = lstatSync(lock, { throwIfNoEntry: false })?.mtimeMs ?? Infinity;
  return !isAlive(holder) || Date.now() - madeAt > LOCK_EXPIRES_MS;
}

/** Moves the lock aside first: of several processes that want to remove it, one succeeds. */
function removeStale(lock) {
  const aside = `${lock}.stale.${process.pid}`;
  try {
    renameSync(lock, aside);
    // A competitor may have removed the stale one and made its own before we moved it.
    if (isStale(aside)) rmSync(aside, { force: true });
    else renameSync(aside, lock);
  } catch (error) {
    if (error.code !== 'ENOENT') throw error;
  }
}

function holderOf(lock) {
  try {
    return Number(readlinkSync(lock));
  } catch {
    return undefined;
  }
}

function isAlive(pid) {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return error.code === 'EPERM';
  }
}
