/** What npm installs, and what images and workflows are made of, is known byte by byte. */
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { readFileSync, readdirSync } from 'node:fs';
import path from 'node:path';
import checksums from '../../dev/node-checksums.json' with { type: 'json' };
import { CLI, unpackKnown } from '../../dev/servers/temporal-program.mjs';
import temporalChecksums from '../../dev/temporal-checksums.json' with { type: 'json' };
import { scratchFolder } from '../scratch.ts';

const scratch = scratchFolder('archive');

interface LockedPackage {
  version?: string;
  integrity?: string;
  link?: boolean;
  dev?: boolean;
  resolved?: string;
  optionalDependencies?: Record<string, string>;
}

const { packages } = JSON.parse(readFileSync('package-lock.json', 'utf8')) as {
  packages: Record<string, LockedPackage>;
};

test('security-21 every package of the lock file has an integrity hash', () => {
  const without = Object.entries(packages).flatMap(([folder, { integrity, link }]) =>
    folder === '' || link || /^sha512-[A-Za-z0-9+/]{86}==$/.test(integrity ?? '') ? [] : [folder],
  );
  expect(without).toEqual([]);
  expect(Object.keys(packages).length).toBeGreaterThan(500);
});

test('security-21 the lock file has the optional packages of every platform', () => {
  const missing = Object.entries(packages).flatMap(([folder, { optionalDependencies = {} }]) =>
    Object.keys(optionalDependencies).filter((name) => {
      // As Node looks for it: in the package's own folder, and in those around it.
      const places = folder.split('/node_modules/').map((_, depth, parts) => parts.slice(0, depth + 1));
      const prefixes = ['', ...places.map((parts) => `${parts.join('/node_modules/')}/`)];
      return !prefixes.some((prefix) => `${prefix}node_modules/${name}` in packages);
    }),
  );
  expect([...new Set(missing)]).toEqual([]);
});

test('security-21 of the Node that the package of that name fetches, the checksums are known', () => {
  const version = packages['node_modules/node']?.version ?? '';
  expect(checksums).toMatchObject({
    [version]: {
      'linux-x64': expect.stringMatching(/^[0-9a-f]{64}$/) as string,
      'linux-arm64': expect.stringMatching(/^[0-9a-f]{64}$/) as string,
    },
  });
});

const LEFT_OUT = 'dev/left-out.tgz';
const { overrides } = JSON.parse(readFileSync('package.json', 'utf8')) as {
  overrides: Record<string, Record<string, string>>;
};

test('security-21 what stands in the place of packages that bundle, or speak to other clouds, is empty, and nothing else is', () => {
  const unwanted =
    /node_modules\/(webpack|@swc\/core|memfs|terser|@firebase\/database|google-gax|@google-cloud\/.*)$/;
  const installed = Object.entries(packages).filter(
    ([, { dev, resolved }]) => !dev && resolved === undefined,
  );
  expect(installed.filter(([folder]) => unwanted.test(folder))).toEqual([]);
  const names = Object.values(overrides).flatMap((each) => Object.entries(each));
  const placed = Object.entries(packages).flatMap(([folder, { resolved }]) =>
    resolved === undefined ? [] : [[folder.split('node_modules/').at(-1), resolved]],
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
  const known = temporalChecksums as Record<string, Record<string, string>>;
  const { dir: folder } = scratch;
  const archive = readFileSync(LEFT_OUT);
  await expect(unpackKnown(archive, known[CLI]!['linux-x64']!, folder)).rejects.toThrow('is not the one');
  expect(readdirSync(folder)).toEqual([]);
  await unpackKnown(archive, createHash('sha256').update(archive).digest('hex'), folder);
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
