/** `galaxy-notify`: the operator's command line, from its arguments to its exit code. */
import { CommanderError } from 'commander';
import { SelfExplanatoryError } from '../api/errors.ts';
import { causeOf } from '../client/errors.ts';
import type { ExitCode } from './command.ts';
import { EXIT, exitCodeOf } from './command.ts';
import { report, textOf } from './output.ts';
import { programOf } from './program.ts';

/** What is wrong; the stack only on request. */
function explain(error: unknown): string {
  if (process.argv.includes('--debug') && error instanceof Error) return error.stack ?? error.message;
  return error instanceof SelfExplanatoryError
    ? error.message
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
