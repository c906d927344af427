/** The chart, as far as it can be checked without Helm; deploy/validate.sh renders it. */
import { readFileSync, readdirSync } from 'node:fs';
import path from 'node:path';
import { Ajv } from 'ajv';
import { parse } from 'yaml';
import type { z } from 'zod';
import { ROLE_NAMES, VARIABLES, loadConfig, needsOf } from '../../config/load.ts';
import { defaultOf } from '../../config/variables.ts';
import { ADMIN_EMAIL_VARIABLES } from '../intent/galaxy.ts';

const CHART = path.join(import.meta.dirname, '../../deploy/helm/galaxy-notify');
const read = (...file: string[]) => readFileSync(path.join(CHART, ...file), 'utf8');
const CI_VALUES = readdirSync(path.join(CHART, 'ci')).map((file) => `ci/${file}`);
const templates = readdirSync(path.join(CHART, 'templates')).map((file) => read('templates', file));

interface Values {
  config: Record<string, string>;
  secrets: { variables: string[] };
  roles: Record<string, { enabled: boolean }>;
  terminationGracePeriodSeconds: number;
}

/** Anchors of YAML are merged into each role, so that every role has its own settings. */
const valuesOf = (file: string) => parse(read(file)) as Values;
const validate = new Ajv({ allowUnionTypes: true }).compile(JSON.parse(read('values.schema.json')) as object);
const variablesThat = (property: 'secret' | 'inFile') =>
  Object.entries<z.ZodType>(VARIABLES).flatMap(([name, one]) => (one.meta()?.[property] ? [name] : []));
const secretVariables = variablesThat('secret');
const filesOfVariables = variablesThat('inFile');
/** Who reads which secret, as the templates have it. */
const readers = parse(
  /define "galaxy-notify.readers" -}}\n([^]*?)\n{{- end }}/.exec(read('templates', '_helpers.tpl'))![1]!,
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
  const text = [...templates, ...['values.yaml', ...CI_VALUES].map((file) => read(file))].join();
  const named = new Set(text.match(/\b(?:NOTIFICATION|OTEL|TEMPORAL|GOOGLE)_[A-Z0-9_]+[A-Z0-9]/g));
  expect(named.size).toBeGreaterThan(15);
  expect([...named].filter((name) => !isKnown(name))).toEqual([]);
});

test('I30 what is mounted as a file is secret, and what is secret is never a plain value', () => {
  const withSecrets = ['values.yaml', ...CI_VALUES].map(valuesOf).filter(({ secrets }) => secrets);
  expect(withSecrets.length).toBeGreaterThan(3);
  for (const { config, secrets } of withSecrets) {
    const readFromFiles = [...secretVariables, ...filesOfVariables, 'TEMPORAL_API_KEY'];
    expect(secrets.variables.filter((name) => !readFromFiles.includes(name))).toEqual([]);
    expect(Object.keys(config).filter((name) => readFromFiles.includes(name))).toEqual([]);
  }
});

test('I30 I90 each secret is mounted for the roles that read it, and for no other', () => {
  const callers = { USER_SERVICE: 'intent', SYMBOL_TARGETS: 'symbol-config', PORTFOLIO: 'account-callback' };
  const mountedElsewhere =
    /^NOTIFICATION_(REDIS_(CA|CERT|KEY)|CATALOG|SYMBOL_TARGETS)_FILE$|^NOTIFICATION_OUTBOX_/;
  const secrets = [...secretVariables, ...filesOfVariables, 'TEMPORAL_API_KEY'];
  expect(Object.keys(readers).sort()).toEqual(secrets.filter((name) => !mountedElsewhere.test(name)).sort());
  for (const [name, who] of Object.entries(readers)) {
    expect(who.filter((reader) => !['all', 'codec', 'setup', ...ROLE_NAMES].includes(reader))).toEqual([]);
    const [, prefix] = /^NOTIFICATION_(USER_SERVICE|SYMBOL_TARGETS|PORTFOLIO)_/.exec(name) ?? [];
    if (prefix !== undefined) expect([name, who]).toEqual([name, [callers[prefix as keyof typeof callers]]]);
  }
  // What owns the tables is in no pod that takes calls or entries from outside.
  expect(readers['NOTIFICATION_POSTGRES_OWNER_DSN']).toEqual(['setup']);
  // security-2: the codec server has nothing with which an attacker could reach another server.
  const ofCodec = Object.keys(readers).filter((name) => readers[name]!.includes('codec'));
  expect(ofCodec.filter((name) => !name.startsWith('OTEL_'))).toEqual(['NOTIFICATION_PAYLOAD_KEYS']);
});

test('I40 the values fit their schema, and misspelt ones do not', () => {
  const values = valuesOf('values.yaml');
  expect([validate(values), validate.errors]).toEqual([true, null]);
  const wrong: object[] = [
    { ...values, replicas: 3 },
    { ...values, roles: { ...values.roles, intents: values.roles['intent'] } },
    { ...values, roles: { ...values.roles, intent: { ...values.roles['intent'], replicas: '2' } } },
    { ...values, config: { redis: 'redis:6379' } },
    { ...values, image: { repository: 'galaxy-notify', digest: 'sha256:latest' } },
    { ...values, networkPolicy: { egress: [{ ports: [{ port: 6379 }] }] } },
    { ...values, networkPolicy: { egress: [{ to: [], ports: [{ port: 6379 }] }] } },
    { ...values, networkPolicy: { codecServerFrom: [{}] } },
    { ...values, monitoring: { enabled: true, runbookURL: 'https://runbook.test' } },
    { ...values, monitoring: { runbookUrl: 'docs/operate/runbook.md' } },
    { ...values, monitoring: { serviceMonitor: { enabled: true, port: 9464 } } },
  ];
  for (const values of wrong) expect(validate(values)).toBe(false);
});

test('security-21 ports are open to public addresses and to private ranges that are named, never to link-local ones', () => {
  const policies = read('templates', 'network-policies.yaml');
  const open = [...policies.matchAll(/cidr: '?(\S+?)'?\n +except: (.*)/g)].map(([, cidr, except]) => [
    cidr,
    parse(except!) as string[],
  ]);
  expect(Object.fromEntries(open)).toEqual({
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
  expect(read('templates', '_helpers.tpl')).toMatch(
    /runAsNonRoot: true[^]*allowPrivilegeEscalation: false\nreadOnlyRootFilesystem: true\ncapabilities:\n {2}drop: \[ALL\]/,
  );
});
