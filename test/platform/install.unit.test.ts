/**
 * Before npm scripts, the packages of the lock file are installed; what npm installs, and what images and workflows are made of, is
 * known byte by byte.
 */
import { execFileSync, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { cpSync, existsSync, mkdirSync, readFileSync, readdirSync } from 'node:fs';
import path from 'node:path';
import checksums from '../../dev/node-checksums.json' with { type: 'json' };
import { CLI, unpackKnown } from '../../dev/servers/temporal-program.mjs';
import temporalChecksums from '../../dev/temporal-checksums.json' with { type: 'json' };
import { scratchFolder } from '../scratch.ts';

const { dir: checkout, write } = scratchFolder('install');
const NODE = path.join('node_modules', 'node');
const sha256Of = (text: string | Buffer): string => createHash('sha256').update(text).digest('hex');

beforeAll(() => {
  mkdirSync(path.join(checkout, 'dev'));
  for (const file of ['install.mjs', 'lock.mjs', 'progress.mjs'])
    cpSync(path.resolve('dev', file), path.join(checkout, 'dev', file));
  write('package-lock.json', '{}');
});

/** An installation that leaves this Node, of which this one is known. @returns its exit code and what it says. */
function install(left: string, known?: string): [code: number | null, output: string] {
  const checksum = known === undefined ? {} : { [`${process.platform}-${process.arch}`]: sha256Of(known) };
  write('dev/node-checksums.json', JSON.stringify({ '1.2.3': checksum }));
  const npm = write(
    'npm-cli.cjs',
    `const fs = require('node:fs');
    fs.mkdirSync('${NODE}/bin', { recursive: true });
    fs.writeFileSync('${NODE}/package.json', '{"version":"1.2.3"}');
    fs.writeFileSync('${NODE}/bin/node', '${left}');`,
  );
  const { status, stdout, stderr } = spawnSync(process.execPath, [path.join(checkout, 'dev/install.mjs')], {
    ...{ env: { ...process.env, npm_execpath: npm }, encoding: 'utf8' },
  });
  return [status, stdout + stderr];
}

test('security-21 a Node that is not the known one is removed, and nothing counts as installed', () => {
  expect(install('another', 'the known one')).toEqual([1, expect.stringContaining('is not what')]);
  expect(existsSync(path.join(checkout, NODE, 'bin/node'))).toBe(false);
  expect(install('the known one', 'the known one')).toEqual([0, expect.stringContaining('Installing')]);
  expect(install('the known one', 'the known one')).toEqual([0, '']);
});

test('security-21 an unknown Node is taken, and that is said', () => {
  write('package-lock.json', '{"version":"another"}');
  expect(install('any')).toEqual([0, expect.stringContaining('not checked')]);
});

interface LockedPackage {
  version?: string;
  integrity?: string;
  link?: boolean;
  dev?: boolean;
  resolved?: string;
  optionalDependencies?: Record<string, string>;
}

const parsed = <T>(file: string) => JSON.parse(readFileSync(file, 'utf8')) as T;
const { packages } = parsed<{ packages: Record<string, LockedPackage> }>('package-lock.json');

test('security-21 every package of the lock file has an integrity hash', () => {
  const without = Object.entries(packages).flatMap(([place, { integrity, link }]) =>
    place === '' || link || /^sha512-[A-Za-z0-9+/]{86}==$/.test(integrity ?? '') ? [] : [place],
  );
  expect(without).toEqual([]);
  expect(Object.keys(packages).length).toBeGreaterThan(500);
});

test('security-21 the lock file has the optional packages of every platform', () => {
  const missing = Object.entries(packages).flatMap(([place, { optionalDependencies = {} }]) =>
    Object.keys(optionalDependencies).filter((name) => {
      // As Node looks for it: in the package's own folder, and in those around it.
      const places = place.split('/node_modules/').map((_, depth, parts) => parts.slice(0, depth + 1));
      const prefixes = ['', ...places.map((parts) => `${parts.join('/node_modules/')}/`)];
      return !prefixes.some((prefix) => `${prefix}node_modules/${name}` in packages);
    }),
  );
  expect([...new Set(missing)]).toEqual([]);
});

test('security-21 of the Node that the package of that name fetches, the checksums are known', () => {
  const checksum = expect.stringMatching(/^[0-9a-f]{64}$/) as string;
  const version = packages['node_modules/node']?.version ?? '';
  expect(checksums).toMatchObject({ [version]: { 'linux-x64': checksum, 'linux-arm64': checksum } });
});

const { dir: folder } = scratchFolder('archive');
const LEFT_OUT = 'dev/left-out.tgz';
const { overrides } = parsed<{ overrides: Record<string, Record<string, string>> }>('package.json');

test('security-21 what stands in the place of packages that bundle, or speak to other clouds, is empty, and nothing else is', () => {
  const unwanted =
    /node_modules\/(webpack|@swc\/core|memfs|terser|@firebase\/database|google-gax|@google-cloud\/.*)$/;
  const installed = Object.entries(packages).filter(
    ([, { dev, resolved }]) => !dev && resolved === undefined,
  );
  expect(installed.filter(([place]) => unwanted.test(place))).toEqual([]);
  const names = Object.values(overrides).flatMap((each) => Object.entries(each));
  const placed = Object.entries(packages).flatMap(([place, { resolved }]) =>
    resolved === undefined ? [] : [[place.split('node_modules/').at(-1), resolved]],
  );
  expect(placed.sort()).toEqual(names.sort());
  expect(new Set(names.map(([, file]) => file))).toEqual(new Set([`file:${LEFT_OUT}`]));
  const list = (...args: string[]) => execFileSync('tar', args, { encoding: 'utf8' });
  expect(list('-tzf', LEFT_OUT).split('\n').sort()).toEqual(['', 'package/index.js', 'package/package.json']);
  // It can be loaded, since the SDK loads its bundler at a start, too.
  expect(list('-xOzf', LEFT_OUT, 'package/index.js')).toBe("'use strict';\n\nmodule.exports = {};\n");
});

test('security-21 the bundler of development is the SDK of production', () => {
  expect(packages['node_modules/temporal-bundler']).toMatchObject({
    integrity: packages['node_modules/@temporalio/worker']!.integrity,
    dev: true,
  });
});

test('security-21 an archive of the Temporal server is unpacked only when its checksum is known', async () => {
  const known = (temporalChecksums as Record<string, Record<string, string>>)[CLI]!['linux-x64']!;
  const archive = readFileSync(LEFT_OUT);
  await expect(unpackKnown(archive, known, folder)).rejects.toThrow('is not the one');
  expect(readdirSync(folder)).toEqual([]);
  await unpackKnown(archive, sha256Of(archive), folder);
  expect(readdirSync(folder)).toEqual(['package']);
});

test('security-20 workflows name each Action by its commit, and Go by its version', () => {
  for (const file of readdirSync('.github/workflows')) {
    const text = readFileSync(path.join('.github/workflows', file), 'utf8');
    const actions = [...text.matchAll(/uses: (.*)/g)].map(([, action]) => action!);
    expect(actions.length).toBeGreaterThan(0);
    expect(actions.filter((action) => !/@[0-9a-f]{40} # v\d+\.\d+\.\d+$/.test(action))).toEqual([]);
    for (const [, version] of text.matchAll(/go-version: (.*)/g)) expect(version).toMatch(/^\d+\.\d+\.\d+$/);
  }
});
