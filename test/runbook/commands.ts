/** Commands of the runbook as an operator runs them at a terminal. */
import { spawn } from 'node:child_process';
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { loadConfig } from '../../config/load.ts';
import { findGoProgram } from '../../dev/go-programs.ts';
import { report } from '../../dev/program.ts';
import { findTemporalProgram } from '../../dev/servers/temporal.ts';
import { PROGRAM_ENV } from '../program-env.ts';

export interface CommandResult {
  command: string;
  code: number | null;
  /** What stood on the terminal. */
  output: string;
}

export interface Terminal {
  run(command: string, env: Readonly<Record<string, string>>): Promise<CommandResult>;
  close(): void;
}

/** Wide enough that no table is cut. */
const COLUMNS = 250;
/** One that takes longer hangs, ms. */
const LIMIT_MS = 240_000;

/** Has the two programs that the runbook names. */
export async function openTerminal(): Promise<Terminal> {
  const { command, isCli } = await findTemporalProgram(loadConfig().values.TEMPORAL_CLI_PATH, report);
  const temporal = isCli ? command : await findGoProgram('temporal', report);
  const dir = mkdtempSync(path.join(tmpdir(), 'galaxy-notify-terminal-'));
  const addProgram = (name: string, command: string) => {
    const file = path.join(dir, name);
    writeFileSync(file, `#!/bin/sh\nexec ${command} "$@"\n`);
    chmodSync(file, 0o755);
  };
  addProgram('galaxy-notify', `'${process.execPath}' '${path.resolve('cli/main.ts')}'`);
  addProgram('temporal', `'${temporal}'`);

  return {
    run: (command, env) =>
      new Promise((resolve) => {
        // A terminal, as operators have it.
        const child = spawn('script', ['-qec', `stty cols ${COLUMNS}; ${command}`, '/dev/null'], {
          timeout: LIMIT_MS,
          env: {
            ...PROGRAM_ENV,
            ...env,
            PATH: `${dir}:${PROGRAM_ENV.PATH}`,
            SHELL: '/bin/bash',
            TERM: 'dumb',
            HOME: dir,
          },
        });
        let output = '';
        child.stdout.on('data', (chunk: Buffer) => (output += chunk.toString()));
        child.stderr.on('data', (chunk: Buffer) => (output += chunk.toString()));
        child.once('close', (code) => resolve({ command, code, output }));
      }),
    close: () => rmSync(dir, { recursive: true, force: true }),
  };
}
