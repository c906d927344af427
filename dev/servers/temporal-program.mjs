/**
 * Finds or makes the program of the embedded Temporal: the Temporal CLI, which contains a development server, or our own
 * server of the same parts (dev/temporal-server/), which takes the CLI's place where that cannot be downloaded.
 *
 *     node dev/servers/temporal-program.mjs [--program FILE] [--cache FOLDER]
 *
 * prints `{"command": …, "server": …, "isCli": …}`, or a `problem`; progress goes to standard error. Plain JavaScript for Node 18 and later: `dev/install.mjs` begins it
 * beside npm, before anything is installed.
 */
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { chmodSync, mkdtempSync, readdirSync, readFileSync, renameSync, rmSync, statSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { withLock } from '../lock.mjs';
import { beginStep } from '../progress.mjs';

const DEV = path.dirname(path.dirname(fileURLToPath(import.meta.url)));
const SERVER_SOURCES = path.join(DEV, 'temporal-server');
const CHECKSUMS = JSON.parse(readFileSync(path.join(DEV, 'temporal-checksums.json'), 'utf8'));

/**
 * The release of the Temporal CLI that is downloaded, with server 1.32.0 and Web UI 2.54.1; our own server is 1.32.2 with
 * 2.58.1. The checksums of its archives are in dev/temporal-checksums.json.
 */
export const CLI = '1.9.1';
/** Priority and fairness, which the service relies on, are in the server from here on. */
const OLDEST_SERVER = '1.29';

const CONNECT_LIMIT_MS = 5_000;
const DOWNLOAD_LIMIT_MS = 60_000;
const VERSION_LIMIT_MS = 10_000;
const KEPT_SERVERS = 4;

/**
 * Tries in this order: the given program; `temporal` on PATH; what an earlier call has kept in the cache folder; the
 * official download, of which the checksum must be known; a build with Go.
 *
 * Any number of processes may do this concurrently: one fetches or builds, the others wait for it.
 *
 * @param {object} options
 * @param {string | undefined} [options.program] nothing else is tried: a wrong setting must not be covered up.
 * @param {string | undefined} [options.cacheDir] default `~/.cache/galaxy-notify`.
 * @param {(line: string) => void} options.report receives lines of progress.
 * @returns {Promise<{ command: string, server: string, isCli: boolean }>} what to start, the version of the server in it
 *   (`1.32.2`), and whether it has the other commands of the Temporal CLI.
 * @throws {Error} that names every step with its reason.
 */
export async function findTemporalProgram({ program, cacheDir = defaultCacheDir(), report }) {
  if (program !== undefined) {
    return usable(path.resolve(program)).catch((error) => {
      throw new Error(`TEMPORAL_CLI_PATH cannot be used: ${error.message}`);
    });
  }
  try {
    return await firstOf([
      ['temporal on PATH', () => usable('temporal')],
      ['cache', () => keptOrMade(cacheDir, report)],
    ]);
  } catch (error) {
    throw new Error(
      [
        'no Temporal server found:',
        ...error.reasons.map((reason) => `- ${reason}`),
        'Install the Temporal CLI (https://docs.temporal.io/cli) or Go 1.21 or later, set TEMPORAL_CLI_PATH to a CLI ' +
          'you have, or set TEMPORAL_ADDRESS to a server you have',
      ].join('\n'),
      { cause: error },
    );
  }
}

function defaultCacheDir() {
  return path.join(os.homedir(), '.cache', 'galaxy-notify');
}

/** What the first of the ways gives that does not fail. Why each of them failed is in `reasons` of the error. */
async function firstOf(ways) {
  const reasons = [];
  for (const [name, find] of ways) {
    try {
      return await find();
    } catch (error) {
      reasons.push(...(error.reasons ?? [`${name}: ${error.message}`]));
    }
  }
  throw Object.assign(new Error(reasons.join('\n')), { reasons });
}

function keptOrMade(cacheDir, report) {
  const downloaded = path.join(cacheDir, `temporal-${CLI}`);
  const built = path.join(cacheDir, ownServerName());
  const kept = () => usable(downloaded).catch(() => usable(built));
  const make = async (program, makeInto) => {
    const folder = mkdtempSync(path.join(cacheDir, 'temporal-incomplete-'));
    try {
      const made = await usable(await makeInto(folder, report));
      renameSync(made.command, program);
      return { ...made, command: program };
    } finally {
      rmSync(folder, { recursive: true, force: true });
      removeOldServers(cacheDir);
    }
  };
  const ways = [
    // Once more: the last holder of the lock may have made it.
    [cacheDir, kept],
    ['download', () => make(downloaded, download)],
    ['build', () => make(built, buildServer)],
  ];
  return kept().catch(() =>
    withLock(
      path.join(cacheDir, 'temporal.lock'),
      () => firstOf(ways),
      (holder) => report(`Waiting for process ${holder}, which gets the Temporal server ...`),
    ),
  );
}

/** Another source is another program, so that a checkout never runs the server of another one. */
function ownServerName() {
  const hash = createHash('sha256');
  for (const file of filesIn(SERVER_SOURCES).sort())
    hash.update(path.relative(SERVER_SOURCES, file)).update(readFileSync(file));
  return `temporal-server-${hash.digest('hex').slice(0, 12)}`;
}

function filesIn(folder) {
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const file = path.join(folder, entry.name);
    return entry.isDirectory() ? filesIn(file) : [file];
  });
}

/** Those of older sources, but for the last few: other checkouts may use them. */
function removeOldServers(cacheDir) {
  // Another process may remove it at the same time.
  const builtAt = (name) => statSync(path.join(cacheDir, name), { throwIfNoEntry: false })?.mtimeMs ?? 0;
  const servers = readdirSync(cacheDir).filter((name) => name.startsWith('temporal-server-'));
  const old = servers.sort((a, b) => builtAt(b) - builtAt(a)).slice(KEPT_SERVERS);
  for (const name of old) rmSync(path.join(cacheDir, name), { force: true });
}

/** Asks the program for the version of its server, which must be new enough. */
async function usable(command) {
  const output = await run(command, ['--version'], { limitMs: VERSION_LIMIT_MS });
  // `temporal version 1.9.1 (Server 1.32.0, UI 2.54.1)`; built by Go the first number is 0.0.0-DEV.
  const [, server = 'unknown', minor = '0.0'] = /Server ((\d+\.\d+)[^,)]*)/.exec(output) ?? [];
  if (isFrom(OLDEST_SERVER, minor)) return { command, server, isCli: output.startsWith('temporal version') };
  throw new Error(`${command} has server version ${server}, needed is ${OLDEST_SERVER} or later`);
}

function isFrom(oldest, version) {
  const [oldestMajor, oldestMinor] = oldest.split('.').map(Number);
  const [major, minor] = version.split('.').map(Number);
  return major > oldestMajor || (major === oldestMajor && minor >= oldestMinor);
}

/** The official archive of the release. */
async function download(folder, report) {
  const platform = `${process.platform}-${process.arch}`;
  const known = CHECKSUMS[CLI]?.[platform];
  if (known === undefined) {
    throw new Error(`dev/temporal-checksums.json has no checksum of ${CLI} for ${platform}`);
  }
  const arch = process.arch === 'x64' ? 'amd64' : process.arch;
  const file = `temporal_cli_${CLI}_${process.platform}_${arch}.tar.gz`;
  const url = `https://github.com/temporalio/cli/releases/download/v${CLI}/${file}`;
  const limit = new AbortController();
  let timer = setTimeout(() => limit.abort(new Error('no answer')), CONNECT_LIMIT_MS);
  try {
    const response = await fetch(url, { signal: limit.signal });
    if (!response.ok) throw new Error(`${url} answers ${response.status}`);
    clearTimeout(timer);
    timer = setTimeout(() => limit.abort(new Error('it takes too long')), DOWNLOAD_LIMIT_MS);
    const done = beginStep(report, `Downloading the Temporal CLI ${CLI} (once)`);
    await unpackKnown(Buffer.from(await response.arrayBuffer()), known, folder);
    done(`Temporal CLI ${CLI} downloaded`);
  } catch (error) {
    const { message, cause } = error;
    throw new Error(cause instanceof Error ? `${message} (${cause.message})` : message, { cause: error });
  } finally {
    clearTimeout(timer);
  }
  const program = path.join(folder, 'temporal');
  chmodSync(program, 0o755);
  return program;
}

/**
 * Unpacks a gzipped tar archive into a folder.
 *
 * @param {Buffer} archive
 * @param {string} known the SHA-256 that the archive must have, in hexadecimal digits.
 * @param {string} folder
 * @throws {Error} when it has another one, and then nothing is unpacked; or when it is no archive.
 */
export async function unpackKnown(archive, known, folder) {
  if (createHash('sha256').update(archive).digest('hex') !== known) {
    throw new Error('the archive is not the one that dev/temporal-checksums.json knows');
  }
  const tar = spawn('tar', ['-xzf', '-', '-C', folder], { stdio: ['pipe', 'ignore', 'ignore'] });
  const closed = once(tar, 'close');
  await Promise.all([pipeline(Readable.from([archive]), tar.stdin), closed]);
  if (tar.exitCode !== 0) throw new Error(`the archive cannot be unpacked (tar exit code ${tar.exitCode})`);
}

/** Without debugging information, which takes a tenth of the time to compile. Stack traces remain. */
const BUILD_FLAGS = ['-trimpath', '-gcflags=all=-dwarf=false', '-ldflags=-s -w'];

/** Our own server, of the modules that its go.sum knows. */
async function buildServer(folder, report) {
  // A missing Go is told before any progress is.
  await run('go', ['version'], { limitMs: VERSION_LIMIT_MS });
  const program = path.join(folder, 'temporal-server');
  const done = beginStep(report, 'Building Temporal with Go (about a minute and a half on 2 cores, once)');
  await run('go', ['-C', SERVER_SOURCES, 'build', ...BUILD_FLAGS, '-o', program, '.'], {
    env: {
      // The toolchain that the sources ask for is fetched when the machine's is older.
      GOTOOLCHAIN: 'auto',
      GOFLAGS: '-buildvcs=false',
      GOWORK: 'off',
      CGO_ENABLED: '0',
      // The compiler does without collecting garbage up to a gigabyte for each package, which saves a quarter of its time.
      GOGC: 'off',
      GOMEMLIMIT: '1GiB',
    },
  });
  done('Temporal built with Go');
  return program;
}

/** @returns {Promise<string>} what the command printed; rejects with the end of it. */
function run(command, args, { env = {}, limitMs } = {}) {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, {
      stdio: ['ignore', 'pipe', 'pipe'],
      env: { ...process.env, ...env },
      // Not the option `timeout`: after a failed spawn its timer keeps the process alive until it fires.
      ...(limitMs === undefined ? {} : { signal: AbortSignal.timeout(limitMs), killSignal: 'SIGKILL' }),
    });
    let output = '';
    const collect = (chunk) => (output += chunk);
    child.stdout.on('data', collect);
    child.stderr.on('data', collect);
    child.once('error', (error) => {
      if (error.code === 'ENOENT') reject(new Error(`${command}: not found`));
      else if (error.name === 'AbortError') reject(new Error(`${command} took longer than ${limitMs} ms`));
      else reject(error);
    });
    child.once('close', (code, signal) => {
      if (code === 0) return resolve(output.trim());
      const reason = code === null ? `was ended by ${signal}` : `failed with exit code ${code}`;
      const end = output.trim().split('\n').slice(-10).join('\n');
      reject(new Error(`${command} ${reason}${end === '' ? '' : `:\n${end}`}`));
    });
  });
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { values } = parseArgs({
    options: { program: { type: 'string' }, cache: { type: 'string' } },
  });
  try {
    const found = await findTemporalProgram({
      program: values.program,
      cacheDir: values.cache,
      report: (line) => process.stderr.write(`${line}\n`),
    });
    process.stdout.write(`${JSON.stringify(found)}\n`);
  } catch (error) {
    process.stdout.write(`${JSON.stringify({ problem: error.message })}\n`);
    process.exitCode = 1;
  }
}
