/**
 * Installs the dependencies when they are missing or are not those of package-lock.json. Scripts of
 * package.json begin with it: silent and quick when nothing is to do. They go on with `env node`, so that the shell looks for Node
 * again, which may have come with the packages.
 *
 * Plain JavaScript for Node 18 and later: it runs before anything is installed, with whatever Node the system has.
 *
 * With `--with-temporal`, and when something is to be installed, the embedded Temporal is made beside it.
 *
 * - `node_modules/.installed-lock` is the hash of the lock file that the folder was made from. It is missing from before an
 *   installation until that has succeeded, so that a failed or interrupted one is repeated however finished node_modules looks.
 * - `.cache/install.lock` is held while installing, by the process that it names. Others wait, then look again.
 */
import { spawn, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { withLock } from './lock.mjs';
import { beginStep } from './progress.mjs';

const root = path.dirname(path.dirname(fileURLToPath(import.meta.url)));
const packageLock = path.join(root, 'package-lock.json');
const installedMark = path.join(root, 'node_modules', '.installed-lock');

if (!isInstalled()) {
  await withLock(path.join(root, '.cache', 'install.lock'), () => {
    // The process that held the lock before us may have done it.
    if (isInstalled()) return;
    if (process.argv.includes('--with-temporal')) beginTemporal();
    process.exitCode = install();
  });
}

/**
 * Where the program of the embedded Temporal must be built, that takes longest of all and needs nothing of npm: it begins
 * now, on its own, and a later start of Temporal waits for it. With a Temporal that is configured it is not needed.
 */
function beginTemporal() {
  const { TEMPORAL_ADDRESS, TEMPORAL_PROFILE, TEMPORAL_CONFIG_FILE, TEMPORAL_CLI_PATH } = process.env;
  if (TEMPORAL_ADDRESS || TEMPORAL_PROFILE || TEMPORAL_CONFIG_FILE || TEMPORAL_CLI_PATH) return;
  const child = spawn(process.execPath, [path.join(root, 'dev', 'servers', 'temporal-program.mjs')], {
    stdio: ['ignore', 'ignore', 'inherit'],
    env: { ...process.env, NODE_USE_ENV_PROXY: '1' },
  });
  // The command that needs the program reports that it is missing.
  child.once('error', () => undefined);
  child.unref();
}

function isInstalled() {
  return read(installedMark) === hashOfLock();
}

function hashOfLock() {
  return createHash('sha256').update(readFileSync(packageLock)).digest('hex');
}

/**
 * Runs npm and returns its exit code; npm says itself what went wrong.
 *
 * `npm install` and not `npm ci`: both install what the lock file says, but `npm ci` refuses a lock file without the
 * optional packages of other platforms, which is what npm writes where the registry has no such packages. `--no-save`
 * keeps it from completing the lock file in everybody's checkout.
 */
function install() {
  const done = beginStep(
    console.log,
    'Installing npm packages (half a minute, when package-lock.json has changed)',
  );
  rmSync(installedMark, { force: true });
  const [command, args] = npmCommand();
  // Warnings would be about the system's Node, which does not run anything of ours.
  args.push('install', '--no-save', '--no-audit', '--no-fund', '--loglevel=error');
  const { status, signal, error } = spawnSync(command, args, { cwd: root, stdio: 'inherit' });
  if (error) console.error(`npm could not be started: ${error.message}`);
  if (signal) console.error(`npm was ended by ${signal}`);
  if (status !== 0) return status ?? 1;
  if (!isKnownNode()) return 1;
  writeFileSync(installedMark, hashOfLock());
  done('npm packages installed');
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

function read(file) {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return undefined;
  }
}
