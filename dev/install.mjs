/**
 * Installs the dependencies when they are missing or are not those of package-lock.json. The `pre` script of `npm start`,
 * `npm run demo` and `npm test`: silent and quick when nothing is to do.
 *
 * Plain JavaScript for Node 18 and later: it runs before anything is installed, with whatever Node the system has.
 *
 * - `node_modules/.installed-lock` is the hash of the lock file the folder was made from. Without it, after somebody's
 *   own `npm install`, npm's record of what it installed is compared with the lock file instead.
 * - `.cache/install.lock/` is held while installing, by the process named in it. Others wait, then look again.
 * - `.cache/install-incomplete` exists from before an installation until it has succeeded, so that a failed or
 *   interrupted one is repeated however finished node_modules looks.
 */
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';

const root = path.dirname(path.dirname(fileURLToPath(import.meta.url)));
const packageLock = path.join(root, 'package-lock.json');
const npmRecord = path.join(root, 'node_modules', '.package-lock.json');
const installedMark = path.join(root, 'node_modules', '.installed-lock');
const cacheDir = path.join(root, '.cache');
const incompleteMark = path.join(cacheDir, 'install-incomplete');
const lockDir = path.join(cacheDir, 'install.lock');

const WAIT_POLL_MS = 250;
/** No installation takes this long: a lock this old belongs to a process whose pid is used again. */
const LOCK_EXPIRES_MS = 15 * 60_000;
/** Between making the lock folder and writing the pid into it lies a moment only. */
const NAMELESS_LOCK_EXPIRES_MS = 5_000;

if (!isInstalled()) {
  await takeLock();
  try {
    // The process that held the lock before us may have done it.
    if (!isInstalled()) process.exitCode = install();
  } finally {
    rmSync(lockDir, { recursive: true, force: true });
  }
}

function isInstalled() {
  if (existsSync(incompleteMark)) return false;
  const hash = hashOfLock();
  if (read(installedMark) === hash) return true;
  if (!recordMatchesLock()) return false;
  writeFileSync(installedMark, hash);
  return true;
}

function hashOfLock() {
  return createHash('sha256').update(readFileSync(packageLock)).digest('hex');
}

/** Whether npm's own record has every package of the lock file in its version; those for other platforms may be absent. */
function recordMatchesLock() {
  const record = read(npmRecord);
  if (record === undefined) return false;
  const production = process.env.NODE_ENV === 'production';
  try {
    const installed = JSON.parse(record).packages;
    const wanted = Object.entries(JSON.parse(readFileSync(packageLock, 'utf8')).packages);
    return wanted.every(([folder, { version, integrity, optional, devOptional, dev }]) => {
      if (folder === '') return true;
      const found = installed[folder];
      if (!found) return Boolean(optional || devOptional || (production && dev));
      return found.version === version && found.integrity === integrity;
    });
  } catch {
    return false;
  }
}

/**
 * Runs npm and returns its exit code; npm says itself what went wrong.
 *
 * `npm install` and not `npm ci`: both install what the lock file says, but `npm ci` refuses a lock file without the
 * optional packages of other platforms, which is what npm writes where the registry has no such packages. `--no-save`
 * keeps it from completing the lock file in everybody's checkout.
 */
function install() {
  console.log('Installing dependencies (about 1 minute, only when package-lock.json changed) ...');
  writeFileSync(incompleteMark, '');
  const [command, args] = npmCommand();
  // Warnings would be about the system's Node, which does not run anything of ours.
  args.push('install', '--no-save', '--no-audit', '--no-fund', '--loglevel=error');
  const { status, signal, error } = spawnSync(command, args, { cwd: root, stdio: 'inherit' });
  if (error) console.error(`npm could not be started: ${error.message}`);
  if (signal) console.error(`npm was ended by ${signal}`);
  if (status !== 0) return status ?? 1;
  if (!isKnownNode()) return 1;
  writeFileSync(installedMark, hashOfLock());
  rmSync(incompleteMark, { force: true });
  return 0;
}

/**
 * The package `node` fetches the program that runs everything here by itself, past the lock file. It must be the one that
 * dev/node-checksums.json knows; of a version or platform that is not in there, that is said.
 */
function isKnownNode() {
  const folder = path.join(root, 'node_modules', 'node');
  const program = path.join(folder, 'bin', 'node');
  if (!existsSync(program)) return true;
  const { version } = JSON.parse(readFileSync(path.join(folder, 'package.json'), 'utf8'));
  const checksums = JSON.parse(read(path.join(root, 'dev', 'node-checksums.json')) ?? '{}');
  const platform = `${process.platform}-${process.arch}`;
  const expected = checksums[version]?.[platform];
  if (expected === undefined) {
    console.error(`Node ${version} for ${platform} is not in dev/node-checksums.json, and was not checked`);
    return true;
  }
  if (createHash('sha256').update(readFileSync(program)).digest('hex') === expected) return true;
  rmSync(program);
  console.error(`Node ${version} for ${platform} is not what dev/node-checksums.json says, and was removed`);
  return false;
}

/** The npm that runs us, on the Node it runs on: ours may be the one in node_modules, which npm may replace. */
function npmCommand() {
  const { npm_execpath: npm, npm_node_execpath: node } = process.env;
  return npm && path.basename(npm).startsWith('npm') ? [node ?? process.execPath, [npm]] : ['npm', []];
}

async function takeLock() {
  mkdirSync(cacheDir, { recursive: true });
  for (;;) {
    try {
      mkdirSync(lockDir);
      writeFileSync(path.join(lockDir, 'pid'), String(process.pid));
      return;
    } catch (error) {
      if (error.code !== 'EEXIST') throw error;
    }
    if (isStale(lockDir)) removeStaleLock();
    else await sleep(WAIT_POLL_MS);
  }
}

function isStale(lock) {
  let ageMs;
  try {
    ageMs = Date.now() - statSync(lock).mtimeMs;
  } catch {
    return false; // released meanwhile: nothing to take over
  }
  const pid = Number(read(path.join(lock, 'pid')));
  if (!pid) return ageMs > NAMELESS_LOCK_EXPIRES_MS;
  return ageMs > LOCK_EXPIRES_MS || !isAlive(pid);
}

/** Moves the lock aside first: of several processes that want to remove it, one succeeds. */
function removeStaleLock() {
  const aside = `${lockDir}.stale.${process.pid}`;
  try {
    renameSync(lockDir, aside);
    // A competitor may have removed the stale one and made its own before we moved it.
    if (isStale(aside)) rmSync(aside, { recursive: true, force: true });
    else renameSync(aside, lockDir);
  } catch (error) {
    if (error.code !== 'ENOENT') throw error;
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

function read(file) {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return undefined;
  }
}
