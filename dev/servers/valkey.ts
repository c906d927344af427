/**
 * Valkey 8: the machine's own, or the package of Debian's backports, unpacked into the cache folder and not installed, so that
 * nothing of the machine changes. The archive is asked for where the machine's own packages come from.
 */
import { access, mkdir, mkdtemp, readdir, rename, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { runCommand } from './command.ts';
import type { Report } from './server-process.ts';

const MAJOR = 8;
const FOLDER = path.join(os.homedir(), '.cache', 'galaxy-notify', 'tools', `valkey-${MAJOR}`);
const UNPACKED = path.join(FOLDER, 'usr', 'bin', 'valkey-server');
/** The server is a name for a file of the other package. */
const PACKAGES = ['valkey-server', 'valkey-tools'];

/** @returns the command. @throws Error when this machine lacks it and is not a Debian that has a package. */
export async function findValkey(report: Report): Promise<string> {
  for (const command of ['valkey-server', UNPACKED]) if (await isValkey(command)) return command;
  report(`Getting Valkey ${MAJOR} from Debian's backports (once) ...`);
  await unpackFromDebian();
  if (await isValkey(UNPACKED)) return UNPACKED;
  throw new Error(`Debian's backports have no Valkey ${MAJOR}`);
}

async function isValkey(command: string): Promise<boolean> {
  const version = await runCommand(command, ['--version']).catch(() => '');
  return new RegExp(`^Valkey server v=${MAJOR}\\.`).test(version);
}

async function unpackFromDebian(): Promise<void> {
  // Where packages of this release come from, such as `<address> bookworm`.
  const targets = await runCommand('apt-get', ['indextargets', '--format', '$(REPO_URI) $(CODENAME)']);
  const { VERSION_CODENAME: codename } = Object.fromEntries(
    (await runCommand('cat', ['/etc/os-release'])).split('\n').map((line) => line.split('=')),
  ) as Record<string, string>;
  const archive = targets
    .split('\n')
    .find((line) => line.endsWith(` ${codename}`))
    ?.split(' ')[0];
  if (archive === undefined) throw new Error(`no archive of ${codename} is known to apt`);
  await mkdir(path.dirname(FOLDER), { recursive: true });
  const draft = await mkdtemp(path.join(path.dirname(FOLDER), 'incomplete-'));
  try {
    const sources = path.join(draft, 'sources.list');
    await writeFile(sources, `deb ${archive} ${codename}-backports main\n`);
    for (const folder of ['lists/partial', 'archives/partial', 'unpacked'])
      await mkdir(path.join(draft, folder), { recursive: true });
    const settings = {
      'Dir::Etc::SourceList': sources,
      'Dir::Etc::SourceParts': '/dev/null',
      'Dir::State::Lists': path.join(draft, 'lists'),
      'Dir::Cache': draft,
      // The folder is ours alone.
      'APT::Sandbox::User': 'root',
    };
    const apt = (...args: string[]) =>
      runCommand('apt-get', [
        ...Object.entries(settings).flatMap(([name, value]) => ['-o', `${name}=${value}`]),
        ...args,
      ]);
    await apt('update');
    await apt(
      'install',
      '--download-only',
      '--no-install-recommends',
      '--reinstall',
      '-y',
      '-t',
      `${codename}-backports`,
      ...PACKAGES,
    );
    const packages = (await readdir(path.join(draft, 'archives'))).filter((file) =>
      file.startsWith('valkey'),
    );
    for (const file of packages)
      await runCommand('dpkg-deb', ['-x', path.join(draft, 'archives', file), path.join(draft, 'unpacked')]);
    await access(path.join(draft, 'unpacked', 'usr', 'bin'));
    await rm(FOLDER, { recursive: true, force: true });
    await rename(path.join(draft, 'unpacked'), FOLDER);
  } finally {
    await rm(draft, { recursive: true, force: true });
  }
}
