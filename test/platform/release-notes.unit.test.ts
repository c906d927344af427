/** What a release writes. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { parse } from 'yaml';
import { releasedChangelog, releasedChart } from '../../dev/release.ts';

const ROOT = path.join(import.meta.dirname, '../..');
const read = (...file: string[]) => readFileSync(path.join(ROOT, ...file), 'utf8');

test('what was unreleased becomes that of the version, and there is room for what comes next', () => {
  const page = '# Changelog\n\n## [Unreleased]\n\n### Added\n\n- a\n\n## [0.1.0] - 2026-01-01\n';
  expect(releasedChangelog(page, '0.2.0', '2026-11-26')).toBe(
    '# Changelog\n\n## [Unreleased]\n\n## [0.2.0] - 2026-11-26\n\n### Added\n\n- a\n\n## [0.1.0] - 2026-01-01\n',
  );
  expect(() => releasedChangelog(page, '0.1.0', '2026-11-26')).toThrow('already');
  const nothing = '# Changelog\n\n## [Unreleased]\n\n## [0.1.0] - 2026-01-01\n';
  expect(() => releasedChangelog(nothing, '0.2.0', '2026-11-26')).toThrow('nothing');
});

test('the chart gets the version of the release, and nothing else changes', () => {
  const chart = read('deploy/helm/galaxy-notify/Chart.yaml');
  const before = parse(chart) as object;
  expect(parse(releasedChart(chart, '7.8.9'))).toEqual({ ...before, version: '7.8.9', appVersion: '7.8.9' });
});
