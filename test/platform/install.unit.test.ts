import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { cp, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';

/**
 * Stands for npm: notes that it ran, and leaves what npm would; a file `npm-fails` makes it fail after having left it.
 */
const FAKE_NPM = `
  const fs = require('node:fs');
  fs.appendFileSync('npm-runs', process.argv.slice(2).join(' ') + '\\n');
  fs.rmSync('node_modules', { recursive: true, force: true });
  fs.mkdirSync('node_modules');
  process.exit(fs.existsSync('npm-fails') ? 7 : 0);
`;

describe('installation of dependencies before npm scripts', () => {
  let checkout: string;

  beforeEach(async () => {
    checkout = await mkdtemp(path.join(tmpdir(), 'install-test-'));
    await mkdir(path.join(checkout, 'dev'));
    for (const file of ['install.mjs', 'lock.mjs', 'progress.mjs']) {
      await cp(path.resolve('dev', file), path.join(checkout, 'dev', file));
    }
    await writeFile(path.join(checkout, 'npm-cli.cjs'), FAKE_NPM);
    await writeLock('1.0.0');
  });

  afterEach(() => rm(checkout, { recursive: true, force: true }));

  const writeLock = (version: string): Promise<void> =>
    writeFile(path.join(checkout, 'package-lock.json'), JSON.stringify({ version }));

  function runInstall(): { code: number | null; output: string } {
    const { status, stdout, stderr } = spawnSync(
      process.execPath,
      [path.join(checkout, 'dev', 'install.mjs')],
      { env: { ...process.env, npm_execpath: path.join(checkout, 'npm-cli.cjs') }, encoding: 'utf8' },
    );
    return { code: status, output: stdout + stderr };
  }

  const installedNode = path.join('node_modules', 'node', 'bin', 'node');
  /** What npm leaves is a Node as well; the checksum is that of `known`. */
  async function withNode(left: string, known: string | undefined): Promise<void> {
    const folder = path.join('node_modules', 'node');
    const leave = `
      fs.mkdirSync(${JSON.stringify(path.join(folder, 'bin'))}, { recursive: true });
      fs.writeFileSync(${JSON.stringify(path.join(folder, 'package.json'))}, '{"version":"1.2.3"}');
      fs.writeFileSync(${JSON.stringify(installedNode)}, ${JSON.stringify(left)});
    `;
    await writeFile(
      path.join(checkout, 'npm-cli.cjs'),
      FAKE_NPM.replace('process.exit', `${leave} process.exit`),
    );
    const checksum = known === undefined ? {} : { [`${process.platform}-${process.arch}`]: sha256Of(known) };
    await writeFile(path.join(checkout, 'dev', 'node-checksums.json'), JSON.stringify({ '1.2.3': checksum }));
  }
  const sha256Of = (text: string): string => createHash('sha256').update(text).digest('hex');

  const npmRuns = async (): Promise<number> => {
    const runs = await readFile(path.join(checkout, 'npm-runs'), 'utf8').catch(() => '');
    return runs.split('\n').length - 1;
  };

  test('installs once, then is silent until the lock file changes', async () => {
    expect(runInstall()).toMatchObject({ code: 0, output: expect.stringContaining('Installing') });
    expect(runInstall()).toEqual({ code: 0, output: '' });
    expect(await npmRuns()).toBe(1);

    await writeLock('1.1.0');
    expect(runInstall().code).toBe(0);
    expect(await npmRuns()).toBe(2);
  });

  test('passes on the failure of npm and tries again the next time', async () => {
    await writeFile(path.join(checkout, 'npm-fails'), '');
    expect(runInstall().code).toBe(7);

    await rm(path.join(checkout, 'npm-fails'));
    expect(runInstall().code).toBe(0);
    expect(await npmRuns()).toBe(2);
  });

  test('security-21 a Node that is not the known one is removed, and nothing counts as installed', async () => {
    await withNode('another', 'the known one');
    const refused = runInstall();
    expect([refused.code, refused.output]).toEqual([1, expect.stringContaining('is not what')]);
    await expect(readFile(path.join(checkout, installedNode))).rejects.toThrow('ENOENT');

    await withNode('the known one', 'the known one');
    expect(runInstall().code).toBe(0);
    expect(await npmRuns()).toBe(2);
  });

  test('security-21 an unknown Node is taken, and that is said', async () => {
    await withNode('any', undefined);
    expect(runInstall()).toMatchObject({ code: 0, output: expect.stringContaining('not checked') });
  });
});
