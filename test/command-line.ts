/** The command line as operators run it, configured by its environment alone: in the test's process, or in its own. */
import type { ChildProcessByStdio } from 'node:child_process';
import { spawn } from 'node:child_process';
import { EventEmitter } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { Readable, Writable } from 'node:stream';
import type { StopSignal } from '../api/interrupts.ts';
import { run } from '../cli/program.ts';
import { eventually } from './eventually.ts';
import type { Slot } from './harness.ts';
import { shared } from './of-tests.ts';
import { PROGRAM_ENV } from './program-env.ts';
import { asUser } from './redis-users.ts';
import { namespaceOf } from './slots.ts';

type Env = Record<string, string>;

export interface CliResult {
  code: number;
  stdout: string;
  stderr: string;
}

/** What a check of `doctor` finds. */
interface Finding {
  status: string;
  detail: string;
  hint?: string;
}

/**
 * Runs a command in this process.
 *
 * @param columns of the terminal that it writes to; default: there is no terminal.
 */
export function startCommand(
  args: string[],
  env: Env,
  { input = Readable.from([]), columns }: { input?: Readable; columns?: number } = {},
) {
  const written = { stdout: '', stderr: '' };
  const outputTo = (name: 'stdout' | 'stderr') => {
    const output = new Writable({
      decodeStrings: false,
      write(text: string, _, done) {
        written[name] += text;
        done();
      },
    });
    return columns === undefined ? output : Object.assign(output, { isTTY: true, columns });
  };
  const shell = Object.assign(new EventEmitter(), {
    argv: [process.execPath, 'cli/main.ts', ...args],
    env,
    stdin: input,
    stdout: outputTo('stdout'),
    stderr: outputTo('stderr'),
  });
  return {
    /** What it has written so far. */
    written,
    /** Asks it to end, as Ctrl-C and `kill` do. */
    send: (signal: StopSignal) => void shell.emit(signal, signal),
    ended: run(shell).then((code): CliResult => ({ code, ...written })),
  };
}

/** Runs a command in its own process, without input: for what only a process has, such as signals and a closed pipe. */
export function spawnCli(args: string[], env: Env): ChildProcessByStdio<null, Readable, Readable> {
  return spawn(process.execPath, ['cli/main.ts', ...args], {
    env: { ...PROGRAM_ENV, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
}

/** Only this run's Redis knows the users. */
const usersOf = (changes: Env) =>
  changes['NOTIFICATION_REDIS_MASTER_ADDR'] === undefined ? asUser('operator') : {};

/** The command line of a file of tests, or of each test. */
export const { ofTests: cliOfTests, ofEachTest: cliOfEachTest } = shared(
  (slot: Slot | (() => Slot)) => cliFor(typeof slot === 'function' ? slot() : slot),
  (cli) => cli.dispose(),
);

/** The command line with the servers of a slot. Call `dispose` at the end. */
function cliFor(slot: Slot) {
  const dataDir = mkdtempSync(path.join(tmpdir(), 'galaxy-notify-cli-'));
  const { redis, postgresDsn, temporalAddress = '', userServiceUrl } = slot.endpoints;
  const env: Env = {
    NOTIFICATION_DATA_DIR: dataDir,
    NOTIFICATION_ROLES: 'intent',
    NOTIFICATION_REDIS_MASTER_ADDR: `${redis.host}:${redis.port}`,
    NOTIFICATION_REDIS_DB: String(slot.slot),
    NOTIFICATION_POSTGRES_PRIMARY_DSN: postgresDsn,
    TEMPORAL_ADDRESS: temporalAddress,
    TEMPORAL_NAMESPACE: namespaceOf(slot.slot),
    NOTIFICATION_USER_SERVICE_BASE_URL: userServiceUrl,
    NOTIFICATION_TEMPORAL_UI_URL: 'http://ui.test',
  };

  function start(args: string[], { changes = {}, input = '' }: { changes?: Env; input?: string } = {}) {
    const variables = { ...env, ...usersOf(changes), ...changes };
    return startCommand(args, variables, { input: Readable.from(Buffer.from(input)) });
  }

  const cli = (...command: Parameters<typeof start>): Promise<CliResult> => start(...command).ended;

  /** Runs it with --json; the output must be one JSON document. */
  async function json<T>(args: string[]): Promise<{ code: number; value: T }> {
    const { code, stdout } = await cli([...args, '--json']);
    return { code, value: JSON.parse(stdout) as T };
  }

  /** Runs `setup`. @returns also the status of each step, by its name. */
  async function setUp(args: string[] = [], changes: Env = {}) {
    const result = await cli(['setup', '--json', ...args], { changes });
    const { steps } = JSON.parse(result.stdout || '{"steps":[]}') as {
      steps: Record<'name' | 'status', string>[];
    };
    return { ...result, steps: Object.fromEntries(steps.map(({ name, status }) => [name, status])) };
  }

  /** What `doctor` finds, by the name of the check. */
  async function findings(changes: Env = {}): Promise<Record<string, Finding>> {
    const { stdout } = await cli(['doctor', '--json'], { changes });
    const found = (JSON.parse(stdout) as { findings: (Finding & { name: string })[] }).findings;
    return Object.fromEntries(found.map(({ name, ...finding }) => [name, finding]));
  }

  /** Waits until `doctor` finds this: on a machine with much else to do, a server may answer it too late. */
  const untilFound = (expected: Record<string, object>, changes: Env, limitMs: number) =>
    eventually(
      'doctor to find it',
      async () => {
        expect(await findings(changes)).toMatchObject(expected);
        return true;
      },
      limitMs,
    );

  return {
    start,
    cli,
    json,
    setUp,
    findings,
    untilFound,
    env,
    dataDir,
    dispose: () => rmSync(dataDir, { recursive: true, force: true }),
  };
}
