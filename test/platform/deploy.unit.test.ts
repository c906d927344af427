/** What `deploy/`, the Compose file and the image say, held against what they are about. */
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { parse } from 'yaml';
import packageJson from '../../package.json' with { type: 'json' };
import { DYNAMIC_CONFIG } from '../../dev/servers/temporal.ts';
import { VARIABLES, loadConfig } from '../../config/load.ts';
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
