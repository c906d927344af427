/** `galaxy-notify`: the operator's command line, from its arguments to its exit code. */
import { CommanderError } from 'commander';
import { EXIT, exitCodeOf, explain } from './command.ts';
import type { Invocation, Shell } from './invocation.ts';
import { invoke } from './invocation.ts';
import { printableLines, report } from './output.ts';
import { programOf, wholeProgram } from './program.ts';

/** Of help where there is no terminal. */
const DEFAULT_WIDTH = 80;

/** Carries out what the command line asks for. @returns the exit code, once everything is written. */
export function run(shell: Shell): Promise<number> {
  const { stdout, stderr } = shell;
  return invoke(shell, async (invocation) => {
    // `galaxy-notify … | head` closes the pipe early, which is no error.
    stdout.on('error', (error: NodeJS.ErrnoException) => {
      invocation.endNow(error.code === 'EPIPE' ? EXIT.done : EXIT.failed);
    });
    await carryOut(invocation);
    await Promise.all([stdout, stderr].map(written));
  });
}

const written = (output: NodeJS.WritableStream) =>
  new Promise<void>((resolve) => {
    output.write('', () => resolve());
  });

async function carryOut(invocation: Invocation): Promise<void> {
  const { argv, stdout, stderr } = invocation.shell;
  const output = {
    writeOut: (text: string) => stdout.write(text),
    writeErr: (text: string) => stderr.write(printableLines(text)),
    getOutHelpWidth: () => stdout.columns ?? DEFAULT_WIDTH,
    getErrHelpWidth: () => stderr.columns ?? DEFAULT_WIDTH,
  };
  const program = argv[2] === 'help' ? await wholeProgram(output) : programOf(output);
  try {
    await program.parseAsync(argv);
  } catch (error) {
    invocation.exitCode = exitCodeAfter(error, argv);
  }
}

function exitCodeAfter(error: unknown, argv: readonly string[]): number {
  // Commander has said what is wrong, or shown the help that was asked for.
  if (error instanceof CommanderError) return error.exitCode === 0 ? EXIT.done : EXIT.usage;
  report(`error: ${printableLines(explain(error, argv.includes('--debug')))}`);
  return exitCodeOf(error);
}
