/** The documented command, `npx --no-install galaxy-notify`, in a checkout as git makes it. */
import { spawnSync } from 'node:child_process';
import { appendFileSync, mkdtempSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';

const ROOT = path.join(import.meta.dirname, '../..');

let folder: string;
let clone: string;

beforeAll(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'galaxy-notify-clone-'));
  clone = path.join(folder, 'checkout');
  run('git', ['clone', '--quiet', '--no-hardlinks', ROOT, clone], folder);
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** What npx knows about this checkout stays in the test's folder, and it fetches nothing. */
function run(command: string, args: string[], cwd = clone, changes: Record<string, string> = {}) {
  const { status, stdout, stderr } = spawnSync(command, args, {
    cwd,
    encoding: 'utf8',
    env: {
      ...process.env,
      NODE_OPTIONS: '',
      npm_config_cache: path.join(folder, 'npm'),
      npm_config_offline: 'true',
      ...changes,
    },
  });
  return { status, stdout, stderr };
}

const npx = (...args: string[]) => run('npx', ['--no-install', 'galaxy-notify', ...args]);

test('I40 before the dependencies are installed, the command says how to get them', () => {
  const { status, stderr } = run(process.execPath, ['cli/galaxy-notify.mjs', '--version']);
  expect({ status, stderr }).toEqual({
    status: 1,
    stderr: 'error: the dependencies are not installed; npm run cli -- <command> installs and uses both\n',
  });
});

describe('with its dependencies', () => {
  beforeAll(() => {
    symlinkSync(path.join(ROOT, 'node_modules'), path.join(clone, 'node_modules'));
    // A link in their place is the test's; .gitignore knows the folder.
    appendFileSync(path.join(clone, '.git', 'info', 'exclude'), 'node_modules\n');
  });

  test('I40 the command works in a fresh clone, changes no file, and works again after git checkout', () => {
    expect(npx('--version')).toMatchObject({ status: 0, stdout: '0.1.0\n' });
    expect(run('git', ['status', '--porcelain']).stdout).toBe('');
    expect(run('git', ['checkout', '--quiet', '.']).status).toBe(0);
    const help = npx('--help');
    expect(help.status).toBe(0);
    expect(help.stdout).toContain('Usage: galaxy-notify');
    expect(run('git', ['status', '--porcelain']).stdout).toBe('');
  }, 120_000);

  test('I40 a Node that runs no TypeScript is told apart from a mistake in the command', () => {
    const { status, stderr } = run(process.execPath, [
      '--no-experimental-strip-types',
      ...['cli/galaxy-notify.mjs', '--version'],
    ]);
    expect(status).toBe(1);
    expect(stderr).toContain(`Node 22.18 or later is needed, and this is ${process.version}`);
  });
});
