/** CONFIGURATION.md has the variables that the configuration reads. */
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { VARIABLES } from '../../config/load.ts';

const ROOT = path.join(import.meta.dirname, '../..');

test('I30 CONFIGURATION.md has one row for every variable', () => {
  const page = readFileSync(path.join(ROOT, 'CONFIGURATION.md'), 'utf8');
  const rows = [...page.matchAll(/^\| `([A-Z0-9_]+)`/gm)].map(([, name]) => name);

  expect(rows).toHaveLength(new Set(rows).size);
  expect(Object.keys(VARIABLES).filter((name) => !rows.includes(name))).toEqual([]);
});

test('I30 CONFIGURATION.md tells defaults, meanings and secrets as the configuration has them', () => {
  const { status, stderr } = spawnSync(process.execPath, ['dev/configuration.ts', '--check'], {
    cwd: ROOT,
    encoding: 'utf8',
  });

  expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
});
