/** What `deploy/`, the chart, the Compose file and the image say, held against what they are about; deploy/validate.sh renders the chart. */
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync, readdirSync } from 'node:fs';
import path from 'node:path';
import { Ajv } from 'ajv';
import { parse } from 'yaml';
import type { z } from 'zod';
import packageJson from '../../package.json' with { type: 'json' };
import { DYNAMIC_CONFIG } from '../../dev/servers/temporal.ts';
import { ROLE_NAMES, VARIABLES, loadConfig, needsOf } from '../../config/load.ts';
import { defaultOf } from '../../config/variables.ts';
import { ADMIN_EMAIL_VARIABLES } from '../intent/galaxy.ts';
import { namesOf } from '../../migrations/namespace.ts';
import { SEARCH_ATTRIBUTES } from '../../workflows/search-attributes.ts';

const ROOT = path.join(import.meta.dirname, '../..');
const read = (file: string) => readFileSync(path.join(ROOT, file), 'utf8');

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
  read_only?: boolean;
  cap_drop?: string[];
  security_opt?: string[];
  tmpfs?: string[];
}

const { services } = parse(read('docker-compose.yml'), { merge: true }) as {
  services: Record<string, ComposeService>;
};
test('the image starts Node as `npm start` does', () => {
  const [, command] = /^CMD (\[.*\])$/m.exec(read('Dockerfile'))!;
  expect((JSON.parse(command!) as string[]).join(' ')).toBe(packageJson.scripts.start.split(' exec env ')[1]);
  expect(command).toContain('--no-memory-reducer');
});

const mountsOf = ({ volumes = [] }: ComposeService) =>
  Object.fromEntries(
    volumes
      .filter((volume) => volume.startsWith('./'))
      .map((volume) => volume.split(':').slice(0, 2).reverse() as [string, string]),
  );

test('I40 the small profile is what the embedded server runs with', () => {
  expect(dynamicConfig('small')).toEqual(DYNAMIC_CONFIG);
});

test('I40 the large profile sets nothing that the small one does not know', () => {
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
    expect(temporal!.depends_on).toEqual({
      'temporal-schema': { condition: 'service_completed_successfully' },
    });
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
    for (const name of ['galaxy-notify', 'setup']) {
      expect(services[name]).toMatchObject({
        read_only: true,
        tmpfs: ['/tmp'],
        cap_drop: ['ALL'],
        security_opt: ['no-new-privileges:true'],
      });
    }
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

test('I40 the image runs as an unprivileged user', () => {
  expect(read('Dockerfile')).toMatch(/^USER 1000:1000$/m);
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
  const filesIn = (folder: string) =>
    readdirSync(path.join(ROOT, CHART, folder)).map((file) => `${folder}/${file}`);
  const CI_VALUES = filesIn('ci');
  const templates = filesIn('templates').map(ofChart);

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
  const variablesThat = (property: 'secret' | 'inFile') =>
    Object.entries<z.ZodType>(VARIABLES).flatMap(([name, one]) => (one.meta()?.[property] ? [name] : []));
  const secretVariables = variablesThat('secret');
  const filesOfVariables = variablesThat('inFile');
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
      const readFromFiles = [...secretVariables, ...filesOfVariables, 'TEMPORAL_API_KEY'];
      expect(secrets.variables.filter((name) => !readFromFiles.includes(name))).toEqual([]);
      expect(Object.keys(config).filter((name) => readFromFiles.includes(name))).toEqual([]);
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
    const secrets = [...secretVariables, ...filesOfVariables, 'TEMPORAL_API_KEY'];
    expect(Object.keys(readers).sort()).toEqual(
      secrets.filter((name) => !mountedElsewhere.test(name)).sort(),
    );
    for (const [name, who] of Object.entries(readers)) {
      expect(who.filter((reader) => !['all', 'codec', 'setup', ...ROLE_NAMES].includes(reader))).toEqual([]);
      const [, prefix] = /^NOTIFICATION_(USER_SERVICE|SYMBOL_TARGETS|PORTFOLIO)_/.exec(name) ?? [];
      if (prefix !== undefined)
        expect([name, who]).toEqual([name, [callers[prefix as keyof typeof callers]]]);
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
    const policies = ofChart('templates/network-policies.yaml');
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
    expect(ofChart('templates/_helpers.tpl')).toMatch(
      /runAsNonRoot: true[^]*allowPrivilegeEscalation: false\nreadOnlyRootFilesystem: true\ncapabilities:\n {2}drop: \[ALL\]/,
    );
  });
});
