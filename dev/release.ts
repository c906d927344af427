/**
 * `npm run release -- patch|minor|major|VERSION`: writes the version into every file that names it. CHANGELOG.md gets a section of
 * the version with what was unreleased. Nothing is committed.
 */
import { execFileSync } from 'node:child_process';
import { readFileSync, readdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';

const UNRELEASED = '## [Unreleased]\n';

/**
 * @param date of the release, `2026-11-26`.
 * @returns the page with what was unreleased under the version, and room for what comes next.
 * @throws Error when nothing is unreleased, or the version is there already.
 */
export function releasedChangelog(page: string, version: string, date: string): string {
  if (page.includes(`## [${version}]`)) throw new Error(`CHANGELOG.md has ${version} already`);
  const [before, after] = page.split(UNRELEASED);
  if (after === undefined || /^\s*(## |$)/.test(after))
    throw new Error('CHANGELOG.md says nothing under Unreleased');
  return `${before}${UNRELEASED}\n## [${version}] - ${date}\n${after}`;
}

const VERSION = String.raw`\d+\.\d+\.\d+(?:-[\w.]+)?`;

/**
 * Files that name the version, besides package.json and its lock file, and the text in front of it.
 *
 * @param root of the checkout.
 */
export function versionPlaces(root: string): { file: string; before: RegExp }[] {
  const contracts = readdirSync(path.join(root, 'api'), { recursive: true, encoding: 'utf8' }).filter(
    (file) => /-(asyncapi|openapi)\.yaml$/.test(file),
  );
  return [
    { file: 'deploy/helm/galaxy-notify/Chart.yaml', before: /^(?:version|appVersion): / },
    { file: 'Dockerfile', before: /org\.opencontainers\.image\.version="/ },
    { file: 'clients/python/pyproject.toml', before: /^version = "/ },
    { file: 'clients/go/README.md', before: /\/clients\/go@v/ },
    ...contracts.map((file) => ({ file: `api/${file}`, before: /^ {2}version: / })),
  ];
}

/** @returns the text of a file of {@link versionPlaces} with another version. */
export const withVersion = (text: string, before: RegExp, version: string): string =>
  text.replace(new RegExp(`(${before.source})${VERSION}`, 'gm'), `$1${version}`);

if (import.meta.main) {
  const root = path.dirname(import.meta.dirname);
  const change = (file: string, to: (text: string) => string) => {
    const name = path.join(root, file);
    writeFileSync(name, to(readFileSync(name, 'utf8')));
  };
  const [growth] = process.argv.slice(2);
  if (growth === undefined)
    throw new Error('say how the version grows: patch, minor, major, or the version itself');
  execFileSync(
    'npm',
    ['version', growth, '--no-git-tag-version', '--ignore-scripts', '--allow-same-version'],
    {
      cwd: root,
      stdio: 'inherit',
    },
  );
  const { version } = JSON.parse(readFileSync(path.join(root, 'package.json'), 'utf8')) as {
    version: string;
  };
  change('CHANGELOG.md', (page) => releasedChangelog(page, version, new Date().toISOString().slice(0, 10)));
  for (const { file, before } of versionPlaces(root))
    change(file, (text) => withVersion(text, before, version));
  process.stdout.write(
    `${version} is written. Look at the difference and commit it, then: git tag v${version} && git push origin v${version}\n`,
  );
}
