/**
 * What the Dockerfile makes, made by its own commands without a container: the files that .dockerignore lets through, the
 * packages of production alone, and the bundle of the workflows. The service starts from that, and works.
 */
import { execFileSync, spawnSync } from 'node:child_process';
import {
  appendFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  readFileSync,
  readdirSync,
  rmSync,
  symlinkSync,
} from 'node:fs';
import path from 'node:path';
import { slotOfTests } from '../harness.ts';
import { publishTurn } from '../intent/entries.ts';
import { PROGRAM_ENV } from '../program-env.ts';
import { asUserOf } from '../redis-users.ts';
import { scratchFolder } from '../scratch.ts';
import { fleetOfTests, delivered } from '../service-process.ts';

jest.setTimeout(600_000);
const ROOT = path.join(import.meta.dirname, '../..');
const CACHE = path.join('node_modules', '.cache', 'galaxy-notify');
const DOCKERFILE = readFileSync(path.join(ROOT, 'Dockerfile'), 'utf8');
const [, BUNDLE_STAGE, PACKAGES_STAGE] = DOCKERFILE.split(/^FROM /m) as [string, string, string, string];

const { dir: folder } = scratchFolder('image');
/** As the last stage of the Dockerfile has it. */
const image = path.join(folder, 'app');
const slot = slotOfTests({ isEmpty: true });
const fleet = fleetOfTests(() => slot);

beforeAll(async () => {
  copyContext(image);
  installPackages(image);
  makeBundles(path.join(folder, 'bundle'));
  cpSync(path.join(folder, 'bundle', CACHE), path.join(image, CACHE), { recursive: true });
});

/** `COPY . .`: everything is ignored, but for what .dockerignore lists with `!`, less what it takes out of that again. */
function copyContext(target: string): void {
  const lines = readFileSync(path.join(ROOT, '.dockerignore'), 'utf8').split('\n');
  const entries = lines.filter((line) => line !== '' && line !== '*' && !line.startsWith('#'));
  for (const entry of entries.filter((line) => line.startsWith('!'))) {
    cpSync(path.join(ROOT, entry.slice(1)), path.join(target, entry.slice(1)), { recursive: true });
  }
  for (const entry of entries.filter((line) => !line.startsWith('!')))
    rmSync(path.join(target, entry), { recursive: true });
}

/** The command of the second stage; what npm has in its cache need not be fetched. */
function installPackages(target: string): void {
  const [, command] = /^RUN (npm ci (?:.*\\\n)*.*)$/m.exec(PACKAGES_STAGE)!;
  const npm = { npm_config_prefer_offline: 'true', npm_config_loglevel: 'error' };
  const env = { ...process.env, NODE_OPTIONS: '', ...npm };
  execFileSync(command!, { cwd: target, shell: true, stdio: 'pipe', env });
}

/** The command of the first stage, with the packages of this checkout, and a cache that is empty. */
function makeBundles(target: string): void {
  copyContext(target);
  const packages = path.join(target, 'node_modules');
  mkdirSync(packages);
  for (const entry of readdirSync(path.join(ROOT, 'node_modules'))) {
    if (entry !== '.cache') symlinkSync(path.join(ROOT, 'node_modules', entry), path.join(packages, entry));
  }
  const [, list] = /^RUN (\["node"[^]*?\])$/m.exec(BUNDLE_STAGE)!;
  const [, ...args] = JSON.parse(list!.replaceAll('\\\n', '')) as string[];
  execFileSync(process.execPath, args, { cwd: target, stdio: 'pipe', env: PROGRAM_ENV });
}

/** As in the Compose file: production, with nothing encrypted. */
const PRODUCTION = {
  NODE_ENV: 'production',
  ...asUserOf('intent'),
  NOTIFICATION_INSECURE: 'redis,postgres,temporal,user-service',
};

/** Every file, with its size: what was written, changed or taken away makes a difference. */
const filesOf = (target: string): string[] =>
  execFileSync('find', ['.', '-type', 'f', '-printf', '%p %s %T@\n'], { cwd: target, maxBuffer: 2 ** 28 })
    .toString()
    .split('\n')
    .sort();

test('security-21 the image has the packages of production and none that makes bundles', () => {
  for (const name of ['webpack', 'typescript', 'jest', 'temporal-bundler', '@swc', 'node'])
    expect([name, existsSync(path.join(image, 'node_modules', name))]).toEqual([name, false]);
  expect(readdirSync(path.join(image, 'node_modules/@temporalio/core-bridge/releases'))).toHaveLength(1);
  for (const name of ['test', 'bench', 'faults', 'deploy'])
    expect([name, existsSync(path.join(image, name))]).toEqual([name, false]);
});

test('security-21 the service starts from the image in production, delivers, and writes no file', async () => {
  const before = filesOf(image);
  const service = await fleet.start(PRODUCTION, image);
  await delivered(slot, await publishTurn(slot.redis, 'image'));
  expect(service.lines.filter(({ msg }) => msg.includes('Bundling'))).toEqual([]);
  expect(await service.end('SIGTERM')).toBe(0);
  expect(filesOf(image)).toEqual(before);
});

test('security-21 with keys of payloads it starts, too, with the other bundle', async () => {
  const key = Buffer.from('a key of payloads, 32 bytes long').toString('base64');
  const service = await fleet.start({ ...PRODUCTION, NOTIFICATION_PAYLOAD_KEYS: `k1:${key}` }, image);
  // npm passes on what the terminal has sent to both: that is no wish to stop immediately. Of two of the same name that are
  // still to be delivered, a process would get one.
  process.kill(service.pid, 'SIGINT');
  expect(await service.end('SIGTERM')).toBe(0);
});

test('security-21 what sends mobile pushes loads from the image', () => {
  const script = `
    await import('./activities/mobile-push/fcm.ts');
    await (await import('./cli/program.ts')).programOf();
    console.log('loaded')`;
  const { stdout, stderr } = spawnSync(process.execPath, ['--input-type=module', '--eval', script], {
    ...{ cwd: image, encoding: 'utf8', env: PROGRAM_ENV },
  });
  expect([stdout, stderr]).toEqual(['loaded\n', '']);
});

test('security-21 a bundle of other sources is not taken: the start says that these have no bundle', async () => {
  appendFileSync(path.join(image, 'workflows', 'failures.ts'), '\n// Another one.\n');
  await expect(fleet.start(PRODUCTION, image)).rejects.toThrow(
    /there is no bundle of these workflows \(node_modules.*make it where they are, as the Dockerfile does/,
  );
});
