/**
 * Holds what the chart renders for monitoring against deploy/alerts, deploy/dashboards and the runbook: the same alarms,
 * each with a link to its section, and the same dashboards. Used by validate.sh:
 * `node deploy/chart-monitoring.ts RENDERED RULES` also writes the rules, in the form that promtool reads, to RULES.
 */
import assert from 'node:assert/strict';
import { readFileSync, readdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { parse, parseAllDocuments, stringify } from 'yaml';

interface Rule {
  alert: string;
  annotations: Record<string, string>;
}

interface Group {
  name: string;
  rules: Rule[];
}

interface Resource {
  kind: string;
  metadata: { name: string };
  spec: { groups: Group[] };
  data: Record<string, string>;
}

const HERE = import.meta.dirname;
const read = (...file: string[]): string => readFileSync(path.join(HERE, ...file), 'utf8');
const filesIn = (folder: string, extension: string): string[] =>
  readdirSync(path.join(HERE, folder)).filter((file) => file.endsWith(extension));

const [rendered, rulesFile] = process.argv.slice(2);
const resources = parseAllDocuments(readFileSync(rendered!, 'utf8')).map(
  (document) => (document.toJS() ?? {}) as Resource,
);

const { groups } = resources.find(({ kind }) => kind === 'PrometheusRule')!.spec;
const withoutLink = (rule: Rule) => ({
  ...rule,
  annotations: { ...rule.annotations, runbook: undefined, runbook_url: undefined },
});
const alarmsOf = (from: Group[]) => from.map(({ name, rules }) => ({ name, rules: rules.map(withoutLink) }));
const written = filesIn('alerts', '.yaml').flatMap(
  (file) => (parse(read('alerts', file)) as { groups: Group[] }).groups,
);
assert.deepEqual(alarmsOf(groups), alarmsOf(written));
const runbook = read('../docs/operate/runbook.md');
for (const { alert, annotations } of groups.flatMap(({ rules }) => rules)) {
  assert.deepEqual(annotations['runbook'], undefined);
  const { protocol, hash } = new URL(annotations['runbook_url']!);
  assert.deepEqual([protocol, hash], ['https:', `#${alert.toLowerCase()}`]);
  assert.ok(runbook.includes(`\n### ${alert}\n`), `${alert} has no section in the runbook`);
}
writeFileSync(rulesFile!, stringify({ groups }));

const shown = Object.assign(
  {},
  ...resources.filter(({ metadata }) => metadata?.name.includes('-dashboard-')).map(({ data }) => data),
) as Record<string, string>;
const dashboards = filesIn('dashboards', '.json').map((file) => [file, read('dashboards', file)]);
assert.deepEqual(shown, Object.fromEntries(dashboards));
console.log(`${groups.flatMap(({ rules }) => rules).length} alarms, ${dashboards.length} dashboards`);
