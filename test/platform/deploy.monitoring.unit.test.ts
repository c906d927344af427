/** Dashboards, alarms and the runbook, held against the metrics that there are. */
import { readFileSync, readdirSync, realpathSync } from 'node:fs';
import path from 'node:path';
import { DASHBOARDS } from '../../deploy/dashboard-panels.ts';
import type { Instrument } from '../../dev/instruments.ts';
import { instruments } from '../../dev/instruments.ts';
import { ALARMS, SECTIONS } from '../runbook/pages.ts';

const ROOT = path.join(import.meta.dirname, '../..');
const read = (...file: string[]) => readFileSync(path.join(ROOT, ...file), 'utf8');

const ofTemporal = (kind: Instrument['kind'], names: string): Instrument[] =>
  names
    .split(' ')
    .map((name) => ({ name: `temporal_${name}`, kind, ...(kind === 'histogram' && { unit: 'ms' }) }));

/** Of Temporal's SDK those that dashboards and alarms use; test/intent/metrics.service.test.ts sees that they arrive. */
const TEMPORAL: Instrument[] = [
  ...ofTemporal('counter', 'request request_failure sticky_cache_total_forced_eviction'),
  ...ofTemporal('counter', 'workflow_task_execution_failed activity_execution_failed'),
  ...ofTemporal('gauge', 'worker_task_slots_available worker_task_slots_used num_pollers sticky_cache_size'),
  ...ofTemporal('histogram', 'workflow_task_schedule_to_start_latency activity_schedule_to_start_latency'),
  ...ofTemporal('histogram', 'workflow_task_execution_latency request_latency'),
];

const UNITS: Record<string, string> = { ms: 'milliseconds', s: 'seconds' };

/** As the collector's exporter and Prometheus's own receiver translate names (docs/operate/logs-and-traces.md). */
function inPrometheus({ name, kind, unit }: Instrument): string {
  const words = name.split(/[^A-Za-z0-9]+/);
  if (unit !== undefined && !words.includes(UNITS[unit]!)) words.push(UNITS[unit]!);
  if (kind !== 'counter') return words.join('_') + (kind === 'histogram' ? '_bucket' : '');
  return [...words.filter((word) => word !== 'total'), 'total'].join('_');
}

const OURS = instruments().map(inPrometheus);
const KNOWN = new Set([...OURS, ...TEMPORAL.map(inPrometheus), 'up']);
/** Metrics of an expression: a name that ours begin with, or Prometheus's own `up`. */
const metricsOf = (expression: string) =>
  expression.match(/\b(?:notification|temporal)_[a-z_]+|\bup(?=\{)/g)?.filter(isNoLabel) ?? [];
/** The one label that looks like a metric. */
const isNoLabel = (word: string) => word !== 'notification_type';

test('I33 no instrument of the code is left out of these tests', () => {
  const written = ['activities', 'client', 'workers'].flatMap((room) =>
    readdirSync(path.join(ROOT, room), { recursive: true, encoding: 'utf8' })
      .filter((file) => file.endsWith('.ts'))
      .flatMap((file) => read(room, file).match(/(?<=')notification\.[a-z_]+\.[a-z_]+(?=')/g) ?? []),
  );
  const known = instruments().map(({ name }) => name);
  expect(written.filter((name) => !known.includes(name))).toEqual([]);
});

describe('dashboards', () => {
  const shown = DASHBOARDS.flatMap(({ panels }) =>
    panels.flatMap(({ queries }) => queries.map(([expression]) => expression)),
  );

  test('I33 each names metrics that exist, and each metric is on one', () => {
    const named = shown.flatMap(metricsOf);
    expect(named.filter((name) => !KNOWN.has(name))).toEqual([]);
    expect([...KNOWN].filter((name) => name !== 'up' && !named.includes(name))).toEqual([]);
  });

  test('I33 gauges that all processes share are never added up', () => {
    const shared = instruments().filter(({ kind }) => kind === 'gauge');
    const expressions = [...shown, ...ALARMS.map(({ expr }) => expr)];
    for (const gauge of shared.map(inPrometheus)) {
      const using = expressions.filter((expression) => metricsOf(expression).includes(gauge));
      expect(using).not.toEqual([]);
      for (const expression of using) expect(expression).toMatch(/^(max|min|absent)\b/);
    }
  });
});

describe('alarms', () => {
  test('I33 each names metrics that exist, by its own name, with a severity and a summary', () => {
    expect(ALARMS.length).toBeGreaterThan(30);
    const unknown = ALARMS.flatMap(({ alert, expr }) =>
      metricsOf(expr)
        .filter((name) => !KNOWN.has(name))
        .map((name) => `${alert}: ${name}`),
    );
    expect(unknown).toEqual([]);
    expect(ALARMS.filter(({ expr }) => metricsOf(expr).length === 0)).toEqual([]);
    const names = ALARMS.map(({ alert }) => alert);
    expect(new Set(names).size).toBe(names.length);
    for (const { labels, annotations } of ALARMS) {
      expect(['page', 'ticket']).toContain(labels.severity);
      expect(annotations.summary).toMatch(/\.$/);
    }
  });

  test('I40 each has its section in the runbook, and each section its alarm', () => {
    expect([...SECTIONS.keys()].sort()).toEqual(ALARMS.map(({ alert }) => alert).sort());
    for (const { alert, annotations } of ALARMS) {
      expect(annotations.runbook).toBe(`docs/operate/runbook.md#${alert.toLowerCase()}`);
    }
  });

  test('I40 each has a drill, which brings it about and carries out its section', () => {
    const drills = readdirSync(path.join(ROOT, 'test'), { recursive: true, encoding: 'utf8' })
      .filter((file) => file.endsWith('.runbook.test.ts'))
      .map((file) => read('test', file))
      .join();
    const missing = ALARMS.filter(({ alert }) => !drills.includes(`'${alert}'`));
    expect(missing.map(({ alert }) => alert)).toEqual([]);
  });
});

test('the chart links to alarms and dashboards, and has no copies', () => {
  for (const folder of ['alerts', 'dashboards'])
    expect(realpathSync(path.join(ROOT, 'deploy/helm/galaxy-notify/files', folder))).toBe(
      realpathSync(path.join(ROOT, 'deploy', folder)),
    );
});
