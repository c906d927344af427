/**
 * `npm run release -- patch|minor|major|VERSION`: writes the version into everything that names it: package.json and the lock file,
 * the chart, the Python client, and CHANGELOG.md, whose unreleased part becomes that of the version. Nothing is committed.
 */
import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
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

/** The chart is of the same version as what it installs. */
export const releasedChart = (chart: string, version: string): string =>
  chart.replace(/^(version|appVersion): .*$/gm, `$1: ${version}`);

if (import.meta.main) {
  const root = path.dirname(import.meta.dirname);
  const change = (file: string, to: (text: string) => string) => {
    const name = path.join(root, file);
    writeFileSync(name, to(readFileSync(name, 'utf8')));
  };
  const [growth] = process.argv.slice(2);
  if (growth === undefined)
    throw new Error('say how the version grows: patch, minor, major, or the version itself');
  execFileSync('npm', ['version', growth, '--no-git-tag-version', '--ignore-scripts'], {
    cwd: root,
    stdio: 'inherit',
  });
  const { version } = JSON.parse(readFileSync(path.join(root, 'package.json'), 'utf8')) as {
    version: string;
  };
  change('CHANGELOG.md', (page) => releasedChangelog(page, version, new Date().toISOString().slice(0, 10)));
  change('deploy/helm/galaxy-notify/Chart.yaml', (chart) => releasedChart(chart, version));
  change('clients/python/pyproject.toml', (page) =>
    page.replace(/^version = .*$/m, `version = "${version}"`),
  );
  process.stdout.write(
    `${version} is written. Look at the difference, commit it, then: git tag v${version} && git push --follow-tags\n`,
  );
}
