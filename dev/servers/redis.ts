/**
 * The embedded Redis: the machine's own `redis-server` or `valkey-server`, 7 or later, with its own data and port. As
 * root on Debian and Ubuntu a missing one is installed from the distribution.
 */
import { mkdir, rm, stat, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { Redis } from 'ioredis';
import { commandSucceeds, runCommand } from './command.ts';
import { freePort, LOOPBACK } from './ports.ts';
import { startServer, type Report } from './server-process.ts';

/** Options of {@link startRedis}. */
export interface RedisOptions {
  /** Folder of the embedded servers; the append-only file is in its sub-folder `redis`. */
  dataDir: string;
  /** Loopback port; 0 chooses a free one. */
  port: number;
  /** How many logical databases; default 16. */
  databases?: number;
  /** false: nothing is written to disk, for tests. Default true: append-only file, synced every second. */
  durable?: boolean;
  /** When the append-only file is synced; default `everysec`. */
  sync?: 'everysec' | 'always';
  /** The program, of Redis or Valkey; default: the one that this machine has. */
  command?: string | undefined;
  report: Report;
}

/** A running Redis or Valkey. */
export interface EmbeddedRedis {
  /** `127.0.0.1:<port>`. */
  addr: string;
  pid: number;
  stop(): Promise<void>;
}

const OLDEST_MAJOR = 7;
const NAMES = ['redis-server', 'valkey-server'];
/** '' is PATH; the others are often not on it, sbin for users and Homebrew for programs started from a desktop. */
const FOLDERS = [
  '',
  '/usr/local/sbin',
  '/usr/sbin',
  '/usr/local/bin',
  '/opt/homebrew/bin',
  '/home/linuxbrew/.linuxbrew/bin',
];

/**
 * Starts Redis on 127.0.0.1 and waits until it has loaded its data. Its log is `<dataDir>/redis.log`.
 *
 * @throws Error with the ways to get one when there is no Redis 7, or as {@link startServer}.
 */
export async function startRedis(options: RedisOptions): Promise<EmbeddedRedis> {
  const { dataDir, databases = 16, durable = true, sync = 'everysec', report } = options;
  const port = options.port === 0 ? await freePort() : options.port;
  const command = options.command ?? (await findRedis(report));
  const folder = path.resolve(dataDir, 'redis');
  await mkdir(folder, { recursive: true });

  const settings: Record<string, string> = {
    bind: LOOPBACK,
    port: String(port),
    dir: folder,
    databases: String(databases),
    appendonly: durable ? 'yes' : 'no',
    appendfsync: sync,
    // The append-only file is the durability; snapshots beside it would only cost.
    save: '',
    // Streams and leases must never be evicted silently.
    'maxmemory-policy': 'noeviction',
    daemonize: 'no',
  };
  const server = await startServer({
    name: 'redis',
    title: 'Redis',
    dataDir,
    command,
    args: Object.entries(settings).flatMap(([name, value]) => [`--${name}`, value]),
    ports: [{ port, name: 'embedded Redis' }],
    ready: () => ping(port),
    report,
  });
  return { addr: `${LOOPBACK}:${port}`, pid: server.pid, stop: server.stop };
}

/** Rejects while the server does not answer or still loads its data. */
async function ping(port: number): Promise<void> {
  const client = new Redis({
    host: LOOPBACK,
    port,
    lazyConnect: true,
    connectTimeout: 2_000,
    commandTimeout: 2_000,
    retryStrategy: () => null,
    maxRetriesPerRequest: 0,
    // ioredis would wait for the loading itself, without a limit; the supervisor has one.
    enableReadyCheck: false,
  });
  // The rejection of `connect` says the same; without a listener ioredis prints it.
  client.on('error', () => undefined);
  try {
    await client.connect();
    await client.ping();
  } finally {
    client.disconnect();
  }
}

/**
 * Finds a Redis or Valkey of version 7 or later; as root on Debian and Ubuntu it installs a missing one.
 *
 * @returns the command to start it with.
 * @throws Error that names what was found, why it does not do, and three ways to get one.
 */
export async function findRedis(report: Report): Promise<string> {
  const reasons: string[] = [];
  const installed = await findInstalled(reasons);
  if (installed) return installed;

  if (process.getuid?.() === 0 && (await commandSucceeds('apt-get', ['--version']))) {
    try {
      await installFromDebian(report, 'Redis', 'redis-server');
      const added = await findInstalled(reasons);
      if (added) return added;
    } catch (error) {
      reasons.push((error as Error).message);
    }
  }
  throw new Error(
    [
      'no Redis 7 or later found:',
      ...new Set(reasons),
      'Three ways to get one:',
      '- install redis or valkey with your package manager (brew install redis, apt-get install redis-server)',
      '- start one in a container: docker run -p 127.0.0.1:6379:6379 redis:7, and use it as below',
      '- set NOTIFICATION_REDIS_MASTER_ADDR to the address of a server you have',
    ].join('\n'),
  );
}

/** Tries every name in every folder; adds why a candidate does not do to `reasons`. */
async function findInstalled(reasons: string[]): Promise<string | undefined> {
  for (const candidate of FOLDERS.flatMap((folder) => NAMES.map((name) => path.join(folder, name)))) {
    const version = await runCommand(candidate, ['--version']).catch((error: Error) => {
      // Only what PATH lacks is worth a line; the other folders are a courtesy.
      if (!path.isAbsolute(candidate) || !error.message.endsWith('not found')) reasons.push(error.message);
      return undefined;
    });
    if (version === undefined) continue;
    // `Redis server v=7.0.15 sha=…`, `Valkey server v=8.1.1 sha=…`
    const [, number = '?', major = '0'] = /v=((\d+)\.[\d.]+)/.exec(version) ?? [];
    if (Number(major) >= OLDEST_MAJOR) return candidate;
    reasons.push(`${candidate} is version ${number}, needed is ${OLDEST_MAJOR} or later`);
  }
  return undefined;
}

/**
 * Installs a package of Debian or Ubuntu, whose service is not started. Needs root.
 *
 * @param title of the program, for the report.
 * @throws Error with what apt-get says.
 */
export async function installFromDebian(report: Report, title: string, name: string): Promise<void> {
  report(`Installing ${title} with apt-get (about half a minute, once) ...`);
  const env = { DEBIAN_FRONTEND: 'noninteractive' };
  await withoutServiceStart(async () => {
    // An outdated or unreachable list of one source need not matter; the installation itself tells.
    await commandSucceeds('apt-get', ['update'], { env });
    await runCommand('apt-get', ['install', '-y', '--no-install-recommends', name], { env });
  });
  // The package enables its own service, which would take a port at the next boot. No systemd, no such service.
  await commandSucceeds('systemctl', ['disable', name]);
}

/** Debian's switch against packages starting their services: they would take our port. Container images have it already. */
async function withoutServiceStart(install: () => Promise<void>): Promise<void> {
  const policy = '/usr/sbin/policy-rc.d';
  const present = await stat(policy).then(
    () => true,
    () => false,
  );
  if (present) return install();
  await writeFile(policy, '#!/bin/sh\n# galaxy-notify: while it installs a server\nexit 101\n', {
    mode: 0o755,
  });
  try {
    await install();
  } finally {
    await rm(policy, { force: true });
  }
}
