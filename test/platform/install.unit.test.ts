/** Before npm scripts, the packages of the lock file are installed, with the Node whose checksum is known. */
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { cpSync, existsSync, mkdirSync } from 'node:fs';
import path from 'node:path';
import { scratchFolder } from '../scratch.ts';

const { dir: checkout, write } = scratchFolder('install');
const NODE = path.join('node_modules', 'node');
const sha256Of = (text: string): string => createHash('sha256').update(text).digest('hex');

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
