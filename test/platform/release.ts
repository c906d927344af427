/** The release that this checkout must be able to take over from, with sources that can be run. */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';

/**
 * The commit of the release that is in production. When a release is made, this becomes its tag: an upgrade goes from
 * one release to the next.
 */
export const RELEASE = '37595630838c32aa2020dc08fc273db98de20a0c';

const ROOT = path.join(import.meta.dirname, '../..');

export interface UnpackedRelease {
  /** Where its sources are. */
  folder: string;
  remove(): void;
}

/**
 * Unpacks a release, by default the one in production, into a temporary folder. It uses the packages of this checkout when it was made with the same
 * ones, and installs its own otherwise, which takes about a minute.
 *
 * @throws Error when the clone does not have the release, or its packages cannot be installed; says what to do.
 */
export function unpackRelease(commit = RELEASE): UnpackedRelease {
  const folder = mkdtempSync(path.join(tmpdir(), 'galaxy-notify-release-'));
  const remove = () => rmSync(folder, { recursive: true, force: true });
  try {
    unpack(folder, commit);
    if (samePackages(folder)) symlinkSync(path.join(ROOT, 'node_modules'), path.join(folder, 'node_modules'));
    else install(folder, commit);
  } catch (error) {
    remove();
    throw error;
  }
  return { folder, remove };
}

function unpack(folder: string, commit: string): void {
  const git = (...args: string[]) =>
    execFileSync('git', args, { cwd: ROOT, maxBuffer: 2 ** 30, stdio: ['ignore', 'pipe', 'pipe'] });
  try {
    git('cat-file', '-e', `${commit}^{commit}`);
  } catch (error) {
    throw new Error(
      `this clone has no commit ${commit}, the release to upgrade from (test/platform/release.ts): ` +
        'the test needs the history, which git fetch --unshallow brings',
      { cause: error },
    );
  }
  execFileSync('tar', ['-x', '-C', folder], { input: git('archive', '--format=tar', commit) });
}

/** Packages that only development needs make no difference to a service that runs. */
function samePackages(folder: string): boolean {
  const packagesIn = (root: string): string => {
    const { packages } = JSON.parse(readFileSync(path.join(root, 'package-lock.json'), 'utf8')) as {
      packages: Record<string, { version: string; dev?: boolean }>;
    };
    const names = Object.entries(packages).flatMap(([name, { version, dev }]) =>
      name === '' || dev ? [] : [`${name} ${version}`],
    );
    return names.sort().join('\n');
  };
  return packagesIn(folder) === packagesIn(ROOT);
}

function install(folder: string, commit: string): void {
  try {
    execFileSync(process.execPath, ['dev/install.mjs'], { cwd: folder, stdio: 'pipe' });
  } catch (error) {
    throw new Error(
      `the packages of the release ${commit} are not those of this checkout, and could not be installed: ` +
        'let npm reach its registry, or name a later release in test/platform/release.ts',
      { cause: error },
    );
  }
}
