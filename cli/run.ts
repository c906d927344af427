/** `galaxy-notify`: the operator's command line, from its arguments to its exit code. */
import { CommanderError } from 'commander';
import { ConfigError } from '../config/load.ts';
import type { ExitCode } from './exit-codes.ts';
import { EXIT, UsageError, exitCodeOf } from './exit-codes.ts';
import { report, textOf } from './output.ts';
import { programOf } from './program.ts';
import { NotConfiguredError } from './session.ts';
import { NotFoundError, NothingToDoError, OperationFailedError, causeOf } from '../client/errors.ts';

/** Errors whose message says all there is to say, one line for each thing that is wrong. */
const SELF_EXPLANATORY = [
  ConfigError,
  NotConfiguredError,
  NotFoundError,
  NothingToDoError,
  OperationFailedError,
  UsageError,
];

/** For whoever is woken by it: what is wrong, and the stack only on request. */
function explain(error: unknown): string {
  if (process.argv.includes('--debug') && error instanceof Error) return error.stack ?? error.message;
  return SELF_EXPLANATORY.some((kind) => error instanceof kind)
    ? (error as Error).message
    : `${textOf(causeOf(error))} (--debug shows where)`;
}

/** Carries out what the command line asks for, and ends the process. */
export async function main(): Promise<never> {
  // `galaxy-notify … | head` closes the pipe early, which is no error.
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    process.exit(error.code === 'EPIPE' ? EXIT.done : EXIT.failed);
  });
  const code = await run();
  await Promise.all([process.stdout, process.stderr].map(written));
  // Not when nothing is left to do: calls to Temporal that nobody waits for any more would be made again, on a
  // connection that is closed, and end the process with a stack trace.
  process.exit(code ?? process.exitCode);
}

const written = (output: NodeJS.WriteStream) =>
  new Promise<void>((resolve) => {
    output.write('', () => resolve());
  });

async function run(): Promise<ExitCode | undefined> {
  try {
    await programOf().parseAsync();
    return undefined;
  } catch (error) {
    // Commander has said what is wrong, or shown the help that was asked for.
    if (error instanceof CommanderError) return error.exitCode === 0 ? EXIT.done : EXIT.usage;
    report(`error: ${explain(error)}`);
    return exitCodeOf(error);
  }
}
