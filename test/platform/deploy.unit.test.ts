/**
 * What `deploy/`, the chart, the Compose file, the image, dashboards and alarms say, held against what they are about, and the version
 * that each file has; deploy/validate.sh renders the chart.
 */
import { spawnSync } from 'node:child_process';
import { existsSync, globSync, readFileSync, readdirSync, realpathSync } from 'node:fs';
import path from 'node:path';
import { Ajv } from 'ajv';
import { parse } from 'yaml';
import type { z } from 'zod';
import packageJson from '../../package.json' with { type: 'json' };
import { DASHBOARDS } from '../../deploy/dashboard-panels.ts';
import type { Instrument } from '../../dev/instruments.ts';
import { instruments } from '../../dev/instruments.ts';
import { versionPlaces, withVersion } from '../../dev/release.ts';
import { DYNAMIC_CONFIG } from '../../dev/servers/temporal.ts';
import { ROLE_NAMES, VARIABLES, loadConfig, needsOf } from '../../config/load.ts';
import { defaultOf } from '../../config/variables.ts';
import { ADMIN_EMAIL_VARIABLES } from '../intent/galaxy.ts';
import { namesOf } from '../../migrations/namespace.ts';
import { SEARCH_ATTRIBUTES } from '../../workflows/search-attributes.ts';
import { ALARMS, SECTIONS } from '../runbook/pages.ts';

const ROOT = path.join(import.meta.dirname, '../..');
const read = (file: string) => readFileSync(path.join(ROOT, file), 'utf8');
const readAll = (pattern: string) => globSync(pattern, { cwd: ROOT }).map((file) => read(file));

const dynamicConfig = (profile: string) =>
  Object.fromEntries(
    Object.entries(
      parse(read(`deploy/temporal/${profile}.yaml`)) as Record<string, { value: unknown }[]>,
    ).map(([key, [first, ...constrained]]) => {
      expect([key, constrained]).toEqual([key, []]);
      return [key, first?.value];
    }),
  );

interface ComposeService {
  image?: string;
  command?: string[];
  environment?: Record<string, string>;
  volumes?: string[];
  ports?: string[];
  depends_on?: Record<string, { condition: string }>;
}

const { services } = parse(read('docker-compose.yml'), { merge: true }) as {
  services: Record<string, ComposeService>;
};
const mountsOf = ({ volumes = [] }: ComposeService) =>
  Object.fromEntries(
    volumes
      .filter((volume) => volume.startsWith('./'))
      .map((volume) => volume.split(':').slice(0, 2).reverse() as [string, string]),
  );

test('I40 the image starts Node as `npm start` does, as an unprivileged user', () => {
  const [, command] = /^CMD (\[.*\])$/m.exec(read('Dockerfile'))!;
  expect((JSON.parse(command!) as string[]).join(' ')).toBe(packageJson.scripts.start.split(' exec env ')[1]);
  expect(command).toContain('--no-memory-reducer');
  expect(read('Dockerfile')).toMatch(/^USER 1000:1000$/m);
});

test('I40 the small profile is what the embedded server runs with, and the large one sets nothing else', () => {
  expect(dynamicConfig('small')).toEqual(DYNAMIC_CONFIG);
  const unknown = Object.keys(dynamicConfig('large')).filter((key) => !(key in DYNAMIC_CONFIG));
  expect(unknown).toEqual([]);
});

describe('the Compose file', () => {
  test("I40 its Temporal runs with the small profile, on the database of the schema's job", () => {
    const { temporal, 'temporal-schema': schema } = services;
    const file = temporal!.environment!['DYNAMIC_CONFIG_FILE_PATH']!;
    expect(mountsOf(temporal!)[file]).toBe('./deploy/temporal/small.yaml');
    expect(temporal!.image!.split(':')[1]).toBe(schema!.image!.split(':')[1]);
    expect(schema!.command!.join()).toContain(temporal!.environment!['VISIBILITY_DBNAME']);
    const isDone = { condition: 'service_completed_successfully' };
    expect(temporal!.depends_on).toEqual({ 'temporal-schema': isDone });
  });

  test('I30 the service starts with what it sets, and it sets nothing unknown', () => {
    const { environment } = services['galaxy-notify']!;
    const asRun = Object.fromEntries(
      Object.entries(environment!).map(([name, value]) => [name, value.replace(/\$\{\w+:-([^}]*)\}/g, '$1')]),
    );
    expect(loadConfig(asRun)).toMatchObject({ production: true, roles: ['intent'] });
    const known = [...Object.keys(VARIABLES), ...Object.keys(ADMIN_EMAIL_VARIABLES)];
    expect(Object.keys(asRun).filter((name) => !known.includes(name))).toEqual([]);
  });

  test('I40 the service and its set-up can write nowhere and gain nothing', () => {
    const confined = {
      read_only: true,
      tmpfs: ['/tmp'],
      cap_drop: ['ALL'],
      security_opt: ['no-new-privileges:true'],
    };
    for (const name of ['galaxy-notify', 'setup']) expect(services[name]).toMatchObject(confined);
  });

  test('I40 nothing listens beyond the loopback, and everything mounted exists', () => {
    for (const service of Object.values(services)) {
      for (const port of service.ports ?? []) expect(port).toMatch(/^127\.0\.0\.1:/);
      for (const source of Object.values(mountsOf(service))) {
        expect([source, existsSync(path.join(ROOT, source))]).toEqual([source, true]);
      }
      for (const dependency of Object.keys(service.depends_on ?? {})) {
        expect(Object.keys(services)).toContain(dependency);
      }
    }
  });
});

test('I40 the page about Temporal Cloud makes the search attributes that the service needs', () => {
  const byTcld = [...read('docs/deploy/temporal-cloud.md').matchAll(/--sa (\w+=\w+)/g)];
  expect(byTcld.map(([, one]) => one).sort()).toEqual(namesOf(SEARCH_ATTRIBUTES).sort());
});

test('I40 npx makes nothing executable that is not so in git, and leaves a clone as it was', () => {
  const programs = Object.values(packageJson.bin);
  const { stdout } = spawnSync('git', ['ls-files', '--stage', ...programs], { cwd: ROOT, encoding: 'utf8' });
  expect(stdout.match(/^\d+/gm)).toEqual(programs.map(() => '100755'));
});

describe('the chart, as far as it can be checked without Helm', () => {
  const CHART = 'deploy/helm/galaxy-notify';
  const ofChart = (file: string) => read(`${CHART}/${file}`);
  const CI_VALUES = readdirSync(path.join(ROOT, CHART, 'ci')).map((file) => `ci/${file}`);
  const templates = readAll(`${CHART}/templates/*`);

  interface Values {
    config: Record<string, string>;
    secrets: { variables: string[] };
    roles: Record<string, { enabled: boolean }>;
    terminationGracePeriodSeconds: number;
  }

  /** Anchors of YAML are merged into each role, so that every role has its own settings. */
  const valuesOf = (file: string) => parse(ofChart(file)) as Values;
  const validate = new Ajv({ allowUnionTypes: true }).compile(
    JSON.parse(ofChart('values.schema.json')) as object,
  );
  /** Variables that are secret or name a file. */
  const secret = ['TEMPORAL_API_KEY'];
  for (const [name, schema] of Object.entries<z.ZodType>(VARIABLES)) {
    const { secret: isSecret, inFile } = schema.meta() ?? {};
    if (isSecret || inFile) secret.push(name);
  }
  /** Who reads which secret, as the templates have it. */
  const readers = parse(
    /define "galaxy-notify.readers" -}}\n([^]*?)\n{{- end }}/.exec(ofChart('templates/_helpers.tpl'))![1]!,
  ) as Record<string, string[]>;
  const isKnown = (name: string) =>
    name in VARIABLES ||
    name in ADMIN_EMAIL_VARIABLES ||
    // The SDK's own, which its profile loader reads.
    /^TEMPORAL_(API_KEY|TLS(_SERVER_NAME|_(CLIENT_(CERT|KEY)|SERVER_CA_CERT)_PATH)?)$/.test(name);

  test('I40 chart and service have the same roles, each with a task queue of its name', () => {
    expect(Object.keys(valuesOf('values.yaml').roles)).toEqual([...ROLE_NAMES]);
    expect(needsOf(loadConfig({})).taskQueues).toEqual([...ROLE_NAMES]);
  });

  test('I30 every variable that the chart names is one of the service', () => {
    const text = [...templates, ...['values.yaml', ...CI_VALUES].map(ofChart)].join();
    const named = new Set(text.match(/\b(?:NOTIFICATION|OTEL|TEMPORAL|GOOGLE)_[A-Z0-9_]+[A-Z0-9]/g));
    expect(named.size).toBeGreaterThan(15);
    expect([...named].filter((name) => !isKnown(name))).toEqual([]);
  });

  test('I30 what is mounted as a file is secret, and what is secret is never a plain value', () => {
    const withSecrets = ['values.yaml', ...CI_VALUES].map(valuesOf).filter(({ secrets }) => secrets);
    expect(withSecrets.length).toBeGreaterThan(3);
    for (const { config, secrets } of withSecrets) {
      expect(secrets.variables.filter((name) => !secret.includes(name))).toEqual([]);
      expect(Object.keys(config).filter((name) => secret.includes(name))).toEqual([]);
    }
  });

  test('I30 I90 each secret is mounted for the roles that read it, and for no other', () => {
    const callers = {
      USER_SERVICE: 'intent',
      SYMBOL_TARGETS: 'symbol-config',
      PORTFOLIO: 'account-callback',
    };
    const mountedElsewhere =
      /^NOTIFICATION_(REDIS_(CA|CERT|KEY)|CATALOG|SYMBOL_TARGETS)_FILE$|^NOTIFICATION_OUTBOX_/;
    expect(Object.keys(readers).sort()).toEqual(secret.filter((name) => !mountedElsewhere.test(name)).sort());
    for (const [name, who] of Object.entries(readers)) {
      expect(who.filter((reader) => !['all', 'codec', 'setup', ...ROLE_NAMES].includes(reader))).toEqual([]);
      for (const [prefix, caller] of Object.entries(callers))
        if (name.startsWith(`NOTIFICATION_${prefix}_`)) expect([name, who]).toEqual([name, [caller]]);
    }
    // What owns the tables is in no pod that takes calls or entries from outside.
    expect(readers['NOTIFICATION_POSTGRES_OWNER_DSN']).toEqual(['setup']);
    // security-2: the codec server has nothing with which an attacker could reach another server.
    const ofCodec = Object.keys(readers).filter((name) => readers[name]!.includes('codec'));
    expect(ofCodec.filter((name) => !name.startsWith('OTEL_'))).toEqual(['NOTIFICATION_PAYLOAD_KEYS']);
  });

  test('I40 the values fit their schema, and misspelt ones do not', () => {
    const values = valuesOf('values.yaml');
    const { roles } = values;
    expect([validate(values), validate.errors]).toEqual([true, null]);
    const wrong: object[] = [
      { replicas: 3 },
      { roles: { ...roles, intents: roles['intent'] } },
      { roles: { ...roles, intent: { ...roles['intent'], replicas: '2' } } },
      { config: { redis: 'redis:6379' } },
      { image: { repository: 'galaxy-notify', digest: 'sha256:latest' } },
      { networkPolicy: { egress: [{ ports: [{ port: 6379 }] }] } },
      { networkPolicy: { egress: [{ to: [], ports: [{ port: 6379 }] }] } },
      { networkPolicy: { codecServerFrom: [{}] } },
      { monitoring: { enabled: true, runbookURL: 'https://runbook.test' } },
      { monitoring: { runbookUrl: 'docs/operate/runbook.md' } },
      { monitoring: { serviceMonitor: { enabled: true, port: 9464 } } },
    ];
    expect(wrong.filter((changed) => validate({ ...values, ...changed }))).toEqual([]);
  });

  test('security-21 ports are open to public addresses and to private ranges that are named, never to link-local ones', () => {
    const policies = ofChart('templates/network-policies.yaml');
    const open = policies.matchAll(/cidr: '?(\S+?)'?\n +except: (.*)/g);
    expect(
      Object.fromEntries([...open].map(([, cidr, except]) => [cidr, parse(except!) as string[]])),
    ).toEqual({
      '0.0.0.0/0': ['10.0.0.0/8', '100.64.0.0/10', '169.254.0.0/16', '172.16.0.0/12', '192.168.0.0/16'],
      '::/0': ['fc00::/7', 'fe80::/10'],
    });
    const isTaken = (range: string) =>
      validate({ ...valuesOf('values.yaml'), networkPolicy: { privateRanges: [range] } });
    expect(['10.0.0.0/8', 'fd12::/16'].map(isTaken)).toEqual([true, true]);
    expect(['169.254.0.0/16', 'fe80::/10', '0.0.0.0/0', 'redis'].map(isTaken)).toEqual(Array(4).fill(false));
  });

  test('I35 a pod has longer to stop than the service takes', () => {
    const seconds = Number(/^(\d+)s$/.exec(defaultOf(VARIABLES.NOTIFICATION_SHUTDOWN_TIMEOUT)!)?.[1]);
    expect(valuesOf('values.yaml').terminationGracePeriodSeconds).toBeGreaterThanOrEqual(seconds + 5);
  });

  test('I40 containers can write nowhere and gain nothing, in every template that has one', () => {
    const withContainers = templates.filter((text) => text.includes('containers:'));
    expect(withContainers).toHaveLength(2);
    for (const text of withContainers) {
      expect(text).toContain('galaxy-notify.podSecurityContext');
      expect(text).toContain('galaxy-notify.containerSecurityContext');
      expect(text).toContain('automountServiceAccountToken: false');
    }
    expect(ofChart('templates/_helpers.tpl')).toMatch(
      /runAsNonRoot: true[^]*allowPrivilegeEscalation: false\nreadOnlyRootFilesystem: true\ncapabilities:\n {2}drop: \[ALL\]/,
    );
  });
});

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
  const written = readAll('{activities,client,workers}/**/*.ts').flatMap(
    (text) => text.match(/(?<=')notification\.[a-z_]+\.[a-z_]+(?=')/g) ?? [],
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
  test('I33 each names metrics that exist, with a severity and a summary', () => {
    expect(ALARMS.length).toBeGreaterThan(30);
    const isNamed = (expr: string) =>
      metricsOf(expr).length > 0 && metricsOf(expr).every((name) => KNOWN.has(name));
    expect(ALARMS.filter(({ expr }) => !isNamed(expr))).toEqual([]);
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
    const drills = readAll('test/**/*.runbook.test.ts').join();
    expect(ALARMS.filter(({ alert }) => !drills.includes(`'${alert}'`))).toEqual([]);
  });
});

test('the chart links to alarms and dashboards, and has no copies', () => {
  for (const folder of ['alerts', 'dashboards'])
    expect(realpathSync(path.join(ROOT, 'deploy/helm/galaxy-notify/files', folder))).toBe(
      realpathSync(path.join(ROOT, 'deploy', folder)),
    );
});

test('chart, image, clients and contracts have the version of package.json, and a release changes all of them', () => {
  const { version } = packageJson;
  const places = versionPlaces(ROOT);
  for (const { file, before } of places) {
    const text = read(file);
    expect([file, withVersion(text, before, version)]).toEqual([file, text]);
    const next = withVersion(text, before, '7.8.9-rc.1');
    expect([file, next === text, next.includes('7.8.9-rc.1')]).toEqual([file, false, true]);
    expect(withVersion(next, before, version)).toBe(text);
  }
  expect(places.map(({ file }) => file)).toEqual(
    expect.arrayContaining(['api/intent/intents-asyncapi.yaml', 'api/probe-openapi.yaml']),
  );
  expect(JSON.parse(read('package-lock.json'))).toMatchObject({ version, packages: { '': { version } } });
});
