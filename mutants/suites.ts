/** Runs suites in the scratch copy. */
import { spawn } from 'node:child_process';
import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import type { ServersOfRun } from '../test/global-setup.ts';
import { startServersOfRun } from '../test/global-setup.ts';
import type { Suite } from './mutant.ts';

/** What does not happen within this time does not happen, ms. */
const PATIENCE_MS = 20_000;
/** A suite that takes longer hangs, ms. */
const LIMIT_MS = { unit: 60_000, workflow: 60_000, service: 150_000 };

export interface SuiteResult {
  /** `timeout` when it had to be stopped. */
  status: 'passed' | 'failed' | 'timeout';
  /** Tests that ran. */
  tests: number;
  /** The first that failed. */
  failed?: string;
  ms: number;
}

interface JestResult {
  numPassedTests: number;
  numFailedTests: number;
  testResults: { message: string; assertionResults: { status: string; fullName: string }[] }[];
}

/** The suites of a scratch copy, and the servers that they share. */
export function createSuites(dir: string) {
  let servers: ServersOfRun | undefined;

  return {
    /**
     * @param titles parts of titles of tests; undefined for all of the file.
     * @param mutated the file that is changed.
     */
    async run(
      { tier, file }: Pick<Suite, 'tier' | 'file'>,
      titles?: readonly string[],
      mutated = '',
    ): Promise<SuiteResult> {
      if (tier === 'service') servers ??= await start();
      return runJest(dir, { tier, file, titles, hasTemplate: !mutated.startsWith('migrations/') });
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

interface Run extends Pick<Suite, 'tier' | 'file'> {
  titles: readonly string[] | undefined;
  /** Whether databases are copies of the one that was migrated before. */
  hasTemplate: boolean;
}

function runJest(dir: string, suite: Run): Promise<SuiteResult> {
  const output = path.join(dir, '.mutant.json');
  rmSync(output, { force: true });
  const args = [
    path.join(dir, 'node_modules', 'jest', 'bin', 'jest.js'),
    suite.file,
    ...['--config', path.join(dir, 'mutants', 'jest.config.js')],
    ...['--selectProjects', suite.tier],
    ...['--runInBand', '--forceExit', '--json', '--outputFile', output],
    ...(suite.titles ? ['--testNamePattern', suite.titles.map(patternOf).join('|')] : []),
  ];
  const beganMs = performance.now();
  const variables = suite.hasTemplate ? [] : ['TEST_TEMPLATE=none'];
  const jest = spawn('env', [...variables, process.execPath, ...args], {
    cwd: dir,
    stdio: 'ignore',
    // A separate process group, so that its children end with it.
    detached: true,
  });
  return new Promise((resolve, reject) => {
    let isLate = false;
    const timer = setTimeout(() => {
      isLate = true;
      process.kill(-jest.pid!, 'SIGKILL');
    }, LIMIT_MS[suite.tier]);
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

/** A file that cannot even be loaded leaves a message and no test. */
function resultOf(output: string, code: number | null): Omit<SuiteResult, 'ms'> {
  if (!existsSync(output)) return { status: 'failed', tests: 0, failed: `it ended with ${code}` };
  const result = JSON.parse(readFileSync(output, 'utf8')) as JestResult;
  const tests = result.numPassedTests + result.numFailedTests;
  if (code === 0) return { status: 'passed', tests };
  const failed = result.testResults
    .flatMap(({ assertionResults }) => assertionResults)
    .find(({ status }) => status === 'failed')?.fullName;
  return { status: 'failed', tests, failed: failed ?? 'it does not load' };
}

const patternOf = (text: string): string => text.replaceAll(/[.*+?^${}()|[\]\\]/g, String.raw`\$&`);
