/** Images of containers are named by tag and digest, or it is said that they are not. */
import { spawnSync } from 'node:child_process';
import {
  chmodSync,
  cpSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';

let checkout: string;

beforeEach(() => {
  checkout = mkdtempSync(path.join(tmpdir(), 'galaxy-notify-images-'));
  for (const folder of ['dev', 'bin']) mkdirSync(path.join(checkout, folder));
  for (const file of ['dev/images.mjs', 'Dockerfile', 'docker-compose.yml'])
    cpSync(file, path.join(checkout, file));
});
afterEach(() => rmSync(checkout, { recursive: true, force: true }));

/** Stands for Docker: the digest of an image is made of its name; `failing` is one that no registry has. */
function provideDocker({ failing = 'none', generation = 'a' } = {}): void {
  const file = path.join(checkout, 'bin', 'docker');
  writeFileSync(
    file,
    `#!/bin/sh
case "$4" in ${failing}) echo 'no such manifest' >&2; exit 1;; esac
echo "sha256:$(printf '%s' "$4 ${generation}" | sha256sum | cut -d' ' -f1)"
`,
  );
  chmodSync(file, 0o755);
}

function images(...args: string[]) {
  const { status, stdout, stderr } = spawnSync(
    process.execPath,
    [path.join(checkout, 'dev/images.mjs'), ...args],
    { encoding: 'utf8', env: { PATH: `${path.join(checkout, 'bin')}:${process.env['PATH']}` } },
  );
  return { status, stdout, stderr };
}
const named = () => JSON.parse(images('--json').stdout) as { file: string; image: string; digest?: string }[];

test('security-20 workflows name each Action by its commit, and Go by its version', () => {
  for (const file of readdirSync('.github/workflows')) {
    const text = readFileSync(path.join('.github/workflows', file), 'utf8');
    const actions = [...text.matchAll(/uses: (.*)/g)].map(([, action]) => action!);
    expect(actions.length).toBeGreaterThan(0);
    expect(actions.filter((action) => !/@[0-9a-f]{40} # v\d+\.\d+\.\d+$/.test(action))).toEqual([]);
    for (const [, version] of text.matchAll(/go-version: (.*)/g)) expect(version).toMatch(/^\d+\.\d+\.\d+$/);
  }
});

test('security-21 every image of Dockerfile and Compose file is looked at, the own one aside', () => {
  const found = named().map(({ file, image }) => [file, image.split(':')[0]]);
  expect(found).toEqual([
    ['Dockerfile', 'node'],
    ...[...readFileSync('docker-compose.yml', 'utf8').matchAll(/^ +image: ([^:\n]+):/gm)].flatMap(
      ([, name]) => (name === 'galaxy-notify' ? [] : [['docker-compose.yml', name]]),
    ),
  ]);
  expect(readFileSync('Dockerfile', 'utf8').match(/^FROM .*/gm)).toEqual([
    'FROM ${NODE_IMAGE} AS bundle',
    'FROM ${NODE_IMAGE} AS packages',
    'FROM ${NODE_IMAGE}',
  ]);
});

test('security-21 a release is refused while one is not pinned, and pinning gives each the digest that its registry has', () => {
  const dockerfile = path.join(checkout, 'Dockerfile');
  writeFileSync(dockerfile, readFileSync(dockerfile, 'utf8').replace(/^(ARG NODE_IMAGE=[^@\n]*).*$/m, '$1'));
  expect(images('--release')).toMatchObject({ status: 1, stdout: expect.stringContaining('not pinned') });

  provideDocker();
  expect(images('--write', '--release')).toMatchObject({ status: 0, stderr: '' });
  const pinned = named();
  for (const { digest } of pinned) expect(digest).toMatch(/^sha256:[0-9a-f]{64}$/);
  expect(readFileSync(dockerfile, 'utf8')).toMatch(/^ARG NODE_IMAGE=node:24-slim@sha256:[0-9a-f]{64}$/m);

  provideDocker({ generation: 'b' });
  images('--write');
  expect(named()).toEqual(pinned);
  images('--update');
  expect(named().map(({ digest }) => digest)).not.toContain(pinned[0]!.digest);
});

test('security-21 what no registry knows is named, and nothing is made up', () => {
  provideDocker({ failing: 'prom/*' });
  const { status, stderr } = images('--write');
  expect([status, stderr]).toEqual([
    1,
    expect.stringMatching(/^prom\/prometheus:\S+: its digest .*no such manifest/),
  ]);
  expect(readFileSync(path.join(checkout, 'docker-compose.yml'), 'utf8')).not.toContain('prometheus:v3.5.0@');
});
