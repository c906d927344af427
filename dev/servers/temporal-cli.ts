/**
 * Where the Temporal CLI, which contains the development server, comes from. The steps are tried in order; the reason
 * why one does not do is kept for the final message.
 */
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { chmod, mkdir, mkdtemp, rename, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { EnvHttpProxyAgent, fetch } from 'undici';
import checksums from '../temporal-checksums.json' with { type: 'json' };
import { runCommand } from './command.ts';
import type { Report } from './server-process.ts';

/** Options of {@link findTemporalCli}. */
export interface TemporalCliOptions {
  /** The configured binary (TEMPORAL_CLI_PATH). When given, nothing else is tried. */
  cliPath?: string | undefined;
  /** Where a downloaded or built CLI is kept; default `~/.cache/galaxy-notify`. */
  cacheDir?: string | undefined;
  report: Report;
}

/**
 * The newest version that `go install` accepts: from 1.6 on its go.mod has a `replace`. Contains server 1.29.1. The
 * checksums of its archives are in dev/temporal-checksums.json; those of its sources are Go's own (sum.golang.org).
 */
export const CLI_VERSION = '1.5.1';
/** Priority and fairness, which the service relies on, are in the server from here on. */
const OLDEST_SERVER = { major: 1, minor: 29 };

const EXECUTABLE_SUFFIX = process.platform === 'win32' ? '.exe' : '';
const CONNECT_LIMIT_MS = 3_000;
const DOWNLOAD_LIMIT_MS = 60_000;
const VERSION_LIMIT_MS = 10_000;
const PROGRESS_EVERY_MS = 15_000;

/**
 * Finds or fetches a Temporal CLI: the configured one; `temporal` on PATH; the cache folder; the official download, of
 * which the checksum must be known (given up after 3 s without a connection); a build with Go (about 2.5 minutes on 2 cores, once).
 *
 * Any number of processes may do this concurrently: each works in a folder of its own and moves the finished binary into the
 * cache in one step.
 *
 * @returns the command to start it with.
 * @throws Error that names every step with its reason, or only the configured binary's when one is configured: a wrong
 *   setting must not be covered up by some other server.
 */
export async function findTemporalCli(options: TemporalCliOptions): Promise<string> {
  if (options.cliPath !== undefined) {
    return usable(path.resolve(options.cliPath)).catch((error: Error) => {
      throw new Error(`TEMPORAL_CLI_PATH cannot be used: ${error.message}`);
    });
  }

  const cacheDir = options.cacheDir ?? path.join(os.homedir(), '.cache', 'galaxy-notify');
  const cached = path.join(cacheDir, `temporal-${CLI_VERSION}${EXECUTABLE_SUFFIX}`);
  const intoCache = (fetchInto: (folder: string, report: Report) => Promise<string>) => async () => {
    await mkdir(cacheDir, { recursive: true });
    const folder = await mkdtemp(path.join(cacheDir, 'temporal-incomplete-'));
    try {
      await rename(await usable(await fetchInto(folder, options.report)), cached);
      return cached;
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  };
  const steps: [name: string, find: () => Promise<string>][] = [
    ['temporal on PATH', () => usable('temporal')],
    ['cache folder', () => usable(cached)],
    ['download', intoCache(download)],
    ['go install', intoCache(goInstall)],
  ];

  const reasons: string[] = [];
  for (const [name, find] of steps) {
    try {
      return await find();
    } catch (error) {
      reasons.push(`- ${name}: ${(error as Error).message}`);
    }
  }
  throw new Error(
    [
      'no Temporal server found:',
      ...reasons,
      'Install the Temporal CLI (https://docs.temporal.io/cli) or Go 1.24 or later, set TEMPORAL_CLI_PATH to a CLI ' +
        'you have, or set TEMPORAL_ADDRESS to a server you have',
    ].join('\n'),
  );
}

/** Runs the CLI and returns its command when its server is new enough. */
async function usable(command: string): Promise<string> {
  const output = await runCommand(command, ['--version'], { timeoutMs: VERSION_LIMIT_MS });
  // `temporal version 1.5.1 (Server 1.29.1, UI 2.42.1)`; built by Go the first number is 0.0.0-DEV.
  const [, version = 'unknown', major = '0', minor = '0'] = /Server ((\d+)\.(\d+)[^,)]*)/.exec(output) ?? [];
  const isNewEnough =
    Number(major) > OLDEST_SERVER.major ||
    (Number(major) === OLDEST_SERVER.major && Number(minor) >= OLDEST_SERVER.minor);
  if (isNewEnough) return command;
  throw new Error(
    `${command} has server version ${version}, needed is ${OLDEST_SERVER.major}.${OLDEST_SERVER.minor} or later`,
  );
}

/**
 * The official archive of the release. The SDK's own download is reachable only together with its test server through an
 * internal interface of @temporalio/core-bridge.
 */
async function download(folder: string, report: Report): Promise<string> {
  const platform = `${process.platform}-${process.arch}`;
  const known = (checksums as Record<string, Record<string, string>>)[CLI_VERSION]?.[platform];
  if (known === undefined) {
    throw new Error(`dev/temporal-checksums.json has no checksum of ${CLI_VERSION} for ${platform}`);
  }
  const arch = process.arch === 'x64' ? 'amd64' : process.arch;
  const file = `temporal_cli_${CLI_VERSION}_${process.platform}_${arch}.tar.gz`;
  const url = `https://github.com/temporalio/cli/releases/download/v${CLI_VERSION}/${file}`;
  // Not Node's own fetch: it has no limit of its own for connecting, and ignores the proxy variables.
  const dispatcher = new EnvHttpProxyAgent({ connect: { timeout: CONNECT_LIMIT_MS } });
  try {
    const response = await fetch(url, { dispatcher, signal: AbortSignal.timeout(DOWNLOAD_LIMIT_MS) });
    if (!response.ok) throw new Error(`${url} answers ${response.status}`);
    report(`Downloading the Temporal server ${CLI_VERSION} (once) ...`);
    await unpackKnown(Buffer.from(await response.arrayBuffer()), known, folder);
  } catch (error) {
    const { message, cause } = error as Error;
    throw new Error(cause instanceof Error ? `${message} (${cause.message})` : message, { cause: error });
  } finally {
    await dispatcher.destroy();
  }
  const binary = path.join(folder, `temporal${EXECUTABLE_SUFFIX}`);
  await chmod(binary, 0o755);
  return binary;
}

/**
 * Unpacks a gzipped tar archive into a folder.
 *
 * @param known the SHA-256 that the archive must have, in hexadecimal digits.
 * @throws Error when it has another one, and then nothing is unpacked; or when it is no archive.
 */
export async function unpackKnown(archive: Buffer, known: string, folder: string): Promise<void> {
  if (createHash('sha256').update(archive).digest('hex') !== known) {
    throw new Error('the archive is not the one that dev/temporal-checksums.json knows');
  }
  const tar = spawn('tar', ['-xzf', '-', '-C', folder], { stdio: ['pipe', 'ignore', 'ignore'] });
  const closed = once(tar, 'close');
  await Promise.all([pipeline(Readable.from([archive]), tar.stdin), closed]);
  if (tar.exitCode !== 0) throw new Error(`the archive cannot be unpacked (tar exit code ${tar.exitCode})`);
}

async function goInstall(folder: string, report: Report): Promise<string> {
  // A missing Go is told before any progress is.
  await runCommand('go', ['version'], { timeoutMs: VERSION_LIMIT_MS });
  const startedAt = Date.now();
  const progress = (): void => {
    const seconds = Math.round((Date.now() - startedAt) / 1000);
    report(`Building the Temporal server with Go (about 2.5 minutes, once): ${seconds} s`);
  };
  progress();
  const timer = setInterval(progress, PROGRESS_EVERY_MS);
  try {
    const module = `github.com/temporalio/cli/cmd/temporal@v${CLI_VERSION}`;
    await runCommand('go', ['install', module], { env: { GOBIN: folder } });
  } finally {
    clearInterval(timer);
  }
  return path.join(folder, `temporal${EXECUTABLE_SUFFIX}`);
}
