/** Runs suites in the scratch copy. */
import { spawn } from 'node:child_process';
import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { Redis } from 'ioredis';
import { SEARCH_ATTRIBUTE_NAMES, loadConfig } from '../config/load.ts';
import { temporalProgramOf } from '../config/service.ts';
import type { Stack } from '../dev/servers/stack.ts';
import { startStack } from '../dev/servers/stack.ts';
import { makeUsers } from '../test/redis-users.ts';
import { SLOTS, namespaceOf } from '../test/slots.ts';
import type { Suite } from './mutant.ts';

/** What does not happen within this time does not happen, ms. */
const PATIENCE_MS = 20_000;
/** A suite that takes longer hangs, ms. */
const LIMIT_MS = { unit: 60_000, service: 150_000 };

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

/** The servers of one run after the other: a run takes slots for its files, and there are so many. */
export function createSuites(dir: string, report: (line: string) => void) {
  let servers: { stack: Stack; dataDir: string } | undefined;
  let slotsLeft = 0;

  return {
    /** @param titles parts of titles of tests; undefined for all of the file. */
    async run(
      { tier, file }: Pick<Suite, 'tier' | 'file'>,
      titles?: readonly string[],
    ): Promise<SuiteResult> {
      const suite = { tier, file, titles };
      if (tier === 'unit') return runJest(dir, suite);
      if (slotsLeft < 1) await restart();
      slotsLeft -= 1;
      return runJest(dir, suite);
    },
    stop,
  };

  async function restart(): Promise<void> {
    await stop();
    const dataDir = mkdtempSync(path.join(tmpdir(), 'galaxy-notify-mutants-data-'));
    // As root, PostgreSQL runs as a user of its own, who must get in.
    chmodSync(dataDir, 0o755);
    const stack = await startStack({
      dataDir,
      durable: false,
      report,
      postgres: { port: 0 },
      redis: { port: 0, databases: SLOTS },
      temporal: {
        port: 0,
        uiPort: 0,
        program: temporalProgramOf(loadConfig().values),
        namespaces: Array.from({ length: SLOTS }, (_, slot) => namespaceOf(slot)),
        searchAttributes: SEARCH_ATTRIBUTE_NAMES,
      },
    });
    servers = { stack, dataDir };
    // As global setup does: services have the rights of their roles and no others.
    const redis = new Redis(Number(stack.redisAddr!.split(':')[1]));
    await makeUsers(redis);
    redis.disconnect();
    const environment = { TEST_STACK: JSON.stringify(stack), TEST_PATIENCE_MS: String(PATIENCE_MS) };
    // mutants/jest.config.js reads it.
    writeFileSync(path.join(dir, '.mutants-environment.json'), JSON.stringify(environment));
    // The first slot is 1. Some files take several.
    slotsLeft = Math.floor((SLOTS - 1) / 2);
  }

  async function stop(): Promise<void> {
    if (!servers) return;
    await servers.stack.stop();
    rmSync(servers.dataDir, { recursive: true, force: true });
    servers = undefined;
  }
}

interface Run extends Pick<Suite, 'tier' | 'file'> {
  titles: readonly string[] | undefined;
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
  const jest = spawn(process.execPath, args, {
    cwd: dir,
    stdio: 'ignore',
    // A group of its own, so that what it has started ends with it.
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
