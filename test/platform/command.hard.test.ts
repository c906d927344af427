/** `bin/gn`, the command line of a clone as git makes it. */
import { spawnSync } from 'node:child_process';
import { appendFileSync, symlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { scratchFolder } from '../scratch.ts';

const ROOT = path.join(import.meta.dirname, '../..');

const { dir: folder } = scratchFolder('clone');
const clone = path.join(folder, 'checkout');
beforeAll(() => void run('git', ['clone', '--quiet', '--no-hardlinks', ROOT, clone], folder));

function run(command: string, args: string[], cwd = clone, changes: Record<string, string> = {}) {
  const { status, stdout, stderr } = spawnSync(command, args, {
    cwd,
    encoding: 'utf8',
    env: { ...process.env, NODE_OPTIONS: '', ...changes },
  });
  return { status, stdout, stderr };
}

const gn = (args: string[], cwd?: string) => run(path.join(clone, 'bin/gn'), args, cwd);

test('I40 before the dependencies are installed, the command installs them', () => {
  writeFileSync(path.join(folder, 'npm'), '#!/bin/sh\necho "npm $1 in $PWD"; exit 7\n', { mode: 0o755 });
  const { status, stdout, stderr } = run(path.join(clone, 'bin/gn'), ['--version'], folder, {
    PATH: `${folder}:${process.env['PATH']}`,
    npm_execpath: '',
  });
  expect({ status, stdout }).toEqual({ status: 7, stdout: '' });
  expect(stderr).toContain(`npm install in ${clone}`);
});

describe('with its dependencies', () => {
  beforeAll(() => {
    symlinkSync(path.join(ROOT, 'node_modules'), path.join(clone, 'node_modules'));
    // A link in their place is the test's; .gitignore knows the folder.
    appendFileSync(path.join(clone, '.git', 'info', 'exclude'), 'node_modules\n');
  });

  test('I40 the command works in a fresh clone, changes no file, and works again after git checkout', () => {
    for (const _ of ['first', 'again']) {
      expect(gn(['--version'])).toMatchObject({ status: 0, stdout: '0.1.0\n' });
      expect(run('git', ['status', '--porcelain']).stdout).toBe('');
      expect(run('git', ['checkout', '--quiet', '.']).status).toBe(0);
    }
  }, 120_000);

  test('I40 the command works from another folder and by a link, and looks for the npm start of its clone', () => {
    const link = path.join(folder, 'gn');
    symlinkSync('checkout/bin/gn', link);
    const { status, stderr } = run(link, ['notifications', 'list'], folder, {
      ...{ NOTIFICATION_DATA_DIR: '', NOTIFICATION_REDIS_MASTER_ADDR: '' },
      ...{ NOTIFICATION_POSTGRES_PRIMARY_DSN: '', TEMPORAL_ADDRESS: '' },
    });
    expect(status).toBe(1);
    expect(stderr).toContain(`no npm start is running in ${path.join(clone, '.data')}.`);
  });
});
