/**
 * The Grafana dashboards in deploy/dashboards/, made of the tables in dashboard-panels.ts: `npm run generate` writes
 * them, and with `--check` this program fails when one is not up to date. Written by hand they would be thousands of
 * lines that differ in a title and a query.
 */
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { format } from 'prettier';
import type { Dashboard, Panel } from './dashboard-panels.ts';
import { DASHBOARDS } from './dashboard-panels.ts';

const HERE = import.meta.dirname;
const isCheck = process.argv.includes('--check');
const DATASOURCE = { type: 'prometheus', uid: '${datasource}' };
/** Grafana's grid is 24 columns wide. */
const COLUMNS = 24;
const [WIDTH, HEIGHT] = [8, 7];

function panelOf(
  { title, about, kind = 'timeseries', unit = 'short', queries, thresholds }: Panel,
  index: number,
) {
  const perRow = COLUMNS / WIDTH;
  const isTimeseries = kind === 'timeseries';
  return {
    id: index + 1,
    type: kind,
    title,
    description: about,
    datasource: DATASOURCE,
    gridPos: {
      x: (index % perRow) * WIDTH,
      y: Math.floor(index / perRow) * HEIGHT,
      w: WIDTH,
      h: HEIGHT,
    },
    fieldConfig: {
      defaults: {
        unit,
        min: 0,
        ...(isTimeseries
          ? { custom: { lineWidth: 1, fillOpacity: 8, showPoints: 'never', spanNulls: false } }
          : {}),
        ...(thresholds
          ? {
              thresholds: {
                mode: 'absolute',
                steps: ['green', 'yellow', 'red'].map((color, step) => ({
                  color,
                  value: step === 0 ? null : thresholds[step - 1],
                })),
              },
            }
          : {}),
      },
      overrides: [],
    },
    options: isTimeseries
      ? { legend: { displayMode: 'list', placement: 'bottom' }, tooltip: { mode: 'multi', sort: 'desc' } }
      : { reduceOptions: { calcs: ['lastNotNull'] }, colorMode: thresholds ? 'value' : 'none' },
    targets: queries.map(([expr, legend], at) => ({
      refId: String.fromCharCode(65 + at),
      datasource: DATASOURCE,
      expr,
      legendFormat: legend,
    })),
  };
}

function dashboardOf({ uid, title, about, panels }: Dashboard) {
  return {
    uid,
    title,
    description: about,
    tags: ['galaxy-notify'],
    schemaVersion: 39,
    version: 1,
    editable: true,
    graphTooltip: 1,
    timezone: 'utc',
    refresh: '30s',
    time: { from: 'now-3h', to: 'now' },
    links: [{ type: 'dashboards', title: 'galaxy-notify', tags: ['galaxy-notify'], asDropdown: true }],
    templating: {
      list: [{ name: 'datasource', label: 'Data source', type: 'datasource', query: 'prometheus' }],
    },
    annotations: { list: [] },
    panels: panels.map(panelOf),
  };
}

const style = JSON.parse(readFileSync(path.join(HERE, '..', '.prettierrc.json'), 'utf8')) as object;
for (const dashboard of DASHBOARDS) {
  const text = await format(JSON.stringify(dashboardOf(dashboard)), { parser: 'json', ...style });
  write(path.join('dashboards', `${dashboard.uid}.json`), text);
}

function write(name: string, text: string): void {
  const file = path.join(HERE, name);
  if (existsSync(file) && readFileSync(file, 'utf8') === text) return;
  if (isCheck) return complain(file);
  mkdirSync(path.dirname(file), { recursive: true });
  writeFileSync(file, text);
}

function complain(file: string): void {
  console.error(`${file} is not up to date: npm run generate`);
  process.exitCode = 1;
}
