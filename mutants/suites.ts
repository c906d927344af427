/** Runs suites in the scratch copy. */
import { spawn } from 'node:child_process';
import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import type { ServersOfRun } from '../test/global-setup.ts';
import { startServersOfRun } from '../test/global-setup.ts';
import type { Tier } from './mutant.ts';
import { patternOf } from './places.ts';

/** What does not happen within this time does not happen, ms. */
const PATIENCE_MS = 20_000;
/** A suite that takes longer hangs, ms. */
const LIMIT_MS = { unit: 60_000, workflow: 60_000, service: 150_000 };

export interface SuiteResult {
  /** `timeout` when it had to be stopped. */
  status: 'passed' | 'failed' | 'timeout';
  /** Tests that ran. */
  tests: number;
  /** The first that failed, and its file from the top of the checkout. */
  failed?: string;
  failedIn?: string;
  ms: number;
}

/** What is run together. Several files stop at the first that fails. */
export interface Selection {
  tiers: readonly Tier[];
  files: readonly string[];
  /** Parts of titles of tests; without them, all of the files. */
  titles?: readonly string[] | undefined;
}

/** The suites of a scratch copy, and the servers that they share. */
export function createSuites(dir: string) {
  let servers: ServersOfRun | undefined;

  return {
    /** @param mutated the file that is changed. */
    async run(selection: Selection, mutated = ''): Promise<SuiteResult> {
      if (selection.tiers.includes('service')) servers ??= await start();
      return runJest(dir, selection, !mutated.startsWith('migrations/'));
    },
    async stop(): Promise<void> {
      await servers?.stop();
    },
  };

  async function start(): Promise<ServersOfRun> {
    const started = await startServersOfRun();
    const environment = { TEST_STACK: JSON.stringify(started.stack), TEST_PATIENCE_MS: String(PATIENCE_MS) };
    // mutants/jest.config.js reads it.
    writeFileSync(path.join(dir, '.mutants-environment.json'), JSON.stringify(environment));
    return started;
  }
}

/** @param hasTemplate whether databases are copies of the one that was migrated before. */
function runJest(
  dir: string,
  { tiers, files, titles }: Selection,
  hasTemplate: boolean,
): Promise<SuiteResult> {
  const output = path.join(dir, '.mutant.json');
  rmSync(output, { force: true });
  const args = [
    path.join(dir, 'node_modules', 'jest', 'bin', 'jest.js'),
    ...files,
    ...['--config', path.join(dir, 'mutants', 'jest.config.js')],
    ...['--selectProjects', ...tiers],
    ...['--runInBand', '--bail', '--forceExit'],
    ...(titles ? ['--testNamePattern', titles.map(patternOf).join('|')] : []),
  ];
  const beganMs = performance.now();
  const variables = hasTemplate ? [] : ['TEST_TEMPLATE=none'];
  const jest = spawn('env', [...variables, process.execPath, ...args], {
    cwd: dir,
    stdio: 'ignore',
    // A separate process group, so that its children end with it.
    detached: true,
  });
  return new Promise((resolve, reject) => {
    let isLate = false;
    const timer = setTimeout(
      () => {
        isLate = true;
        process.kill(-jest.pid!, 'SIGKILL');
      },
      Math.max(...tiers.map((tier) => LIMIT_MS[tier])) * (files.length > 1 ? 2 : 1),
    );
    jest.on('error', (error) => {
      clearTimeout(timer);
      reject(error);
    });
    jest.on('exit', (code) => {
      clearTimeout(timer);
      const ms = performance.now() - beganMs;
      if (isLate) resolve({ status: 'timeout', tests: 0, ms });
      else resolve({ ...resultOf(output, code), ms });
    });
  });
}

/** A file that cannot even be loaded leaves no test. */
function resultOf(output: string, code: number | null): Omit<SuiteResult, 'ms'> {
  if (!existsSync(output)) return { status: 'failed', tests: 0, failed: `it ended with ${code}` };
  const result = JSON.parse(readFileSync(output, 'utf8')) as Pick<
    SuiteResult,
    'tests' | 'failed' | 'failedIn'
  >;
  return code === 0
    ? { status: 'passed', tests: result.tests }
    : { status: 'failed', failed: 'it does not load', ...result };
}
