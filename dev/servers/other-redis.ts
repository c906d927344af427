/**
 * Valkey 8 and Redis 8, for the fault suite: the machine's own, or those of another release of Debian, in the cache folder and not
 * installed, so that nothing of the machine changes. Debian is asked for where the machine's own packages come from.
 */
import { copyFile, mkdir, mkdtemp, readdir, rename, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { runCommand } from './command.ts';
import type { Report } from './server-process.ts';

const CACHE = path.join(os.homedir(), '.cache', 'galaxy-notify', 'tools');

type Apt = (...args: readonly string[]) => Promise<string>;

/** @returns the command. @throws Error when this machine lacks it and is not a Debian that has a package. */
export const findValkey = (report: Report): Promise<string> =>
  find('Valkey', report, async (draft) => {
    const { archive, codename } = await ownArchive();
    const apt = await aptOf(draft, `deb ${archive} ${codename}-backports main`);
    // The server is a name for a file of the tools.
    const packages = ['valkey-server', 'valkey-tools'];
    const options = ['--download-only', '--no-install-recommends', '--reinstall', '-y'];
    await apt('install', ...options, '-t', `${codename}-backports`, ...packages);
    const archives = path.join(draft, 'archives');
    for (const file of (await readdir(archives)).filter((name) => name.startsWith('valkey')))
      await runCommand('dpkg-deb', ['-x', path.join(archives, file), draft]);
    return path.join(draft, 'usr', 'bin', 'valkey-check-rdb');
  });

/**
 * Builds Redis from the source of the first release that has version 8: its package needs a newer C library than the machine has.
 *
 * @returns the command. @throws Error when this machine lacks it and is no Debian, or has no compiler.
 */
export const findRedis8 = (report: Report): Promise<string> =>
  find('Redis', report, async (draft) => {
    const apt = await aptOf(draft, `deb-src ${(await ownArchive()).archive} trixie main`);
    // A line such as `'<address>/redis_8.0.2.orig.tar.gz' redis_8.0.2.orig.tar.gz 3860147 SHA256:<hash>`.
    const sources = await apt('source', '--print-uris', 'redis');
    const [, address, hash] = /^'(\S+\.orig\.tar\.gz)' .*(SHA256:\w+)/m.exec(sources) ?? [];
    if (address === undefined || hash === undefined) throw new Error('Debian has no source of Redis');
    const file = path.join(draft, 'source.tar.gz');
    await runCommand('/usr/lib/apt/apt-helper', ['download-file', address, file, hash]);
    await runCommand('tar', ['-xzf', file, '-C', draft, '--strip-components=1']);
    await runCommand('make', ['-C', path.join(draft, 'src'), '-j2', 'MALLOC=libc', 'redis-server']);
    return path.join(draft, 'src', 'redis-server');
  });

/** @param get puts a version 8 into the folder, and returns the program. */
async function find(
  name: 'Redis' | 'Valkey',
  report: Report,
  get: (draft: string) => Promise<string>,
): Promise<string> {
  const command = `${name.toLowerCase()}-server`;
  const own = path.join(CACHE, `${command}-8`);
  const isWanted = async (candidate: string): Promise<boolean> => {
    const version = await runCommand(candidate, ['--version']).catch(() => '');
    return new RegExp(`^${name} server v=8\\.`).test(version);
  };
  for (const candidate of [command, own]) if (await isWanted(candidate)) return candidate;
  report(`Getting ${name} 8 from Debian (once) ...`);
  await mkdir(CACHE, { recursive: true });
  const draft = await mkdtemp(path.join(CACHE, 'incomplete-'));
  try {
    const program = path.join(draft, 'program');
    await copyFile(await get(draft), program);
    await rename(program, own);
  } finally {
    await rm(draft, { recursive: true, force: true });
  }
  if (await isWanted(own)) return own;
  throw new Error(`Debian has no ${name} 8 that runs here`);
}

/** Where the packages of this machine's release come from. */
async function ownArchive(): Promise<{ archive: string; codename: string }> {
  const codename = /^VERSION_CODENAME=(\w+)$/m.exec(await runCommand('cat', ['/etc/os-release']))?.[1];
  // Lines such as `<address> bookworm`.
  const targets = await runCommand('apt-get', ['indextargets', '--format', '$(REPO_URI) $(CODENAME)']);
  const archive = targets
    .split('\n')
    .find((line) => line.endsWith(` ${codename}`))
    ?.split(' ')[0];
  if (codename === undefined || archive === undefined) throw new Error(`apt knows no archive of ${codename}`);
  return { archive, codename };
}

/** @returns apt-get, which keeps everything in `folder` and knows no packages but those of `source`. */
async function aptOf(folder: string, source: string): Promise<Apt> {
  const list = path.join(folder, 'sources.list');
  await writeFile(list, `${source}\n`);
  for (const name of ['lists/partial', 'archives/partial'])
    await mkdir(path.join(folder, name), { recursive: true });
  const settings = {
    'Dir::Etc::SourceList': list,
    'Dir::Etc::SourceParts': '/dev/null',
    'Dir::State::Lists': path.join(folder, 'lists'),
    'Dir::Cache': folder,
    // The folder is ours alone.
    'APT::Sandbox::User': 'root',
  };
  const options = Object.entries(settings).flatMap(([name, value]) => ['-o', `${name}=${value}`]);
  const apt: Apt = (...args) => runCommand('apt-get', [...options, ...args]);
  await apt('update');
  return apt;
}
