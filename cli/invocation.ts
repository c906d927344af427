/**
 * One run of the command line: what its shell gives it, and what it remembers until it ends. Several may run in one
 * process at the same time: each command finds its own through the asynchronous context.
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import type { SignalSource, StopSignal } from '../api/interrupts.ts';
import { onInterrupt } from '../api/interrupts.ts';

type Output = NodeJS.WritableStream & { isTTY?: boolean; columns?: number };

/** What a shell gives a run; a process has all of it. */
export interface Shell extends SignalSource {
  /** The program and its script come first. */
  argv: readonly string[];
  env: Record<string, string | undefined>;
  stdin: NodeJS.ReadableStream;
  stdout: Output;
  stderr: Output;
}

export interface Invocation {
  readonly shell: Shell;
  exitCode: number;
  /** Ctrl-C has ended what the command waited for. */
  isInterrupted: boolean;
  hasHeading: boolean;
  /** Each stops listening for signals. */
  readonly listeners: (() => void)[];
  /** Ends the run without waiting for its command. */
  endNow(exitCode: number): void;
}

const invocations = new AsyncLocalStorage<Invocation>();

/**
 * Runs a command.
 *
 * @returns its exit code, or that of {@link Invocation.endNow}.
 */
export async function invoke(
  shell: Shell,
  command: (invocation: Invocation) => Promise<void>,
): Promise<number> {
  const listeners: (() => void)[] = [];
  try {
    return await new Promise((resolve, reject) => {
      const invocation: Invocation = {
        shell,
        exitCode: 0,
        isInterrupted: false,
        hasHeading: false,
        listeners,
        endNow: resolve,
      };
      invocations
        .run(invocation, command, invocation)
        .then(() => resolve(invocation.exitCode))
        .catch(reject);
    });
  } finally {
    for (const stopListening of listeners) stopListening();
  }
}

/** The run that the caller belongs to. */
export function currentInvocation(): Invocation {
  const invocation = invocations.getStore();
  if (!invocation) throw new Error('no command runs here');
  return invocation;
}

/** What the shell gave the caller's run. */
export const shell = (): Shell => currentInvocation().shell;

/**
 * Listens for requests to end the run, until it ends; a second one ends it immediately.
 *
 * @param first is called with the first signal. @param signals default: SIGINT and SIGTERM.
 * @returns a function that stops listening earlier. Only work that ends before the run needs it: npm passes Ctrl-C on, and
 * a second signal without a listener kills the process.
 */
export function onStop(first: (signal: StopSignal) => void, signals?: readonly StopSignal[]): () => void {
  const invocation = currentInvocation();
  const stopListening = onInterrupt(
    // A signal does not come in the context of the run.
    (signal) => invocations.run(invocation, first, signal),
    () => invocation.endNow(130),
    signals,
    invocation.shell,
  );
  invocation.listeners.push(stopListening);
  return stopListening;
}
