/** What every command has in common: global options, exit codes, and progress. */
import { readFile } from 'node:fs/promises';
import { text as contentOf } from 'node:stream/consumers';
import type { Command } from 'commander';
import { CommanderError } from 'commander';
import { SelfExplanatoryError } from '../api/errors.ts';
import { NotFoundError, NothingToDoError, causeOf } from '../client/errors.ts';
import type { Page } from '../client/lists.ts';
import { currentInvocation, onStop, shell } from './invocation.ts';
import { printJson, report, textOf } from './output.ts';

export const EXIT = {
  done: 0,
  /** A dependency does not answer, or an operation did not succeed. */
  failed: 1,
  usage: 2,
  /** Not found, nothing matched, or nothing left to do. */
  nothing: 3,
  /** Ctrl-C, as shells count it. */
  interrupted: 130,
} as const;
export type ExitCode = (typeof EXIT)[keyof typeof EXIT];

/** Something about the command line is wrong that can only be seen when it is carried out. */
export class UsageError extends SelfExplanatoryError {
  override name = 'UsageError';
}

/**
 * Before something that cannot be taken back, or reaches further than the operator has looked.
 *
 * @throws UsageError unless the operator has said yes.
 */
export function requireYes(what: string, { yes }: { yes?: boolean | undefined }): void {
  if (!yes) throw new UsageError(`${what}: add --yes, or --dry-run to look`);
}

/**
 * What standard input says, in the place of an argument: everybody on the machine sees arguments in the list of processes.
 *
 * @param what it is, for the message. @throws UsageError for any argument but `-`.
 */
export async function readSecret(argument: string, what: string): Promise<string> {
  if (argument !== '-') {
    throw new UsageError(`the list of processes shows arguments: give -, and ${what} on standard input`);
  }
  return (await contentOf(shell().stdin)).trim();
}

/** The content of a file; `-` reads standard input. @param what it is, for the message. @throws UsageError. */
export async function readText(file: string, what = file): Promise<string> {
  try {
    return await (file === '-' ? contentOf(shell().stdin) : readFile(file, 'utf8'));
  } catch (error) {
    throw new UsageError(`cannot read ${what}: ${(error as Error).message}`);
  }
}

/** @param what the text is, for the message. @throws UsageError for a text that is no JSON. */
export function parseJson(text: string, what: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new UsageError(`${what} is no JSON: ${(error as Error).message}`);
  }
}

export function exitCodeOf(error: unknown): ExitCode {
  if (error instanceof NotFoundError || error instanceof NothingToDoError) return EXIT.nothing;
  return error instanceof UsageError ? EXIT.usage : EXIT.failed;
}

/** What is wrong; the stack only on request. */
export function explain(error: unknown, withStack = false): string {
  if (withStack && error instanceof Error) return error.stack ?? error.message;
  return error instanceof SelfExplanatoryError || error instanceof CommanderError
    ? error.message
    : `${textOf(causeOf(error))} (--debug shows where)`;
}

export interface GlobalOptions {
  json?: boolean;
  debug?: boolean;
}

/**
 * An action as commander calls it.
 *
 * @param run gets the options, global ones included, and the arguments; it returns the exit code when that is not 0.
 */
export function action<Options, Args extends unknown[] = []>(
  run: (options: Options & GlobalOptions, ...args: Args) => Promise<ExitCode | void>,
): (...given: unknown[]) => Promise<void> {
  return async (...given) => {
    const command = given.at(-1) as Command;
    const options = command.optsWithGlobals<Options & GlobalOptions>();
    const code = (await run(options, ...(command.processedArgs as Args))) ?? EXIT.done;
    const invocation = currentInvocation();
    invocation.exitCode = invocation.isInterrupted && code === EXIT.failed ? EXIT.interrupted : code;
  };
}

export function reportMore(hasMore: boolean, limit: number): void {
  if (hasMore) report(`the newest ${limit} are shown, there are more: narrow it down, or raise --limit`);
}

/** Prints a list, says when there is more of it, and ends with `nothing` when it is empty. */
export function showPage<T>(
  { items, hasMore }: Page<T>,
  { json, limit }: GlobalOptions & { limit: number },
  printItems: (items: T[]) => void,
): ExitCode {
  if (json) printJson({ items, hasMore });
  else if (items.length > 0) printItems(items);
  if (items.length === 0) report('nothing matched');
  reportMore(hasMore, limit);
  return items.length === 0 ? EXIT.nothing : EXIT.done;
}

// --- A command that takes longer ---------------------------------------------------------------------------------------

/** Between two lines of progress. */
const LINE_EVERY_MS = 5_000;

/**
 * Runs work and shows its progress until it ends.
 *
 * @param what a word for the things that are counted, e.g. `routes`.
 * @param work gets a function that says how many are done, and what else is worth knowing, e.g. how many failed.
 */
export function withProgress<T>(
  total: number,
  what: string,
  work: (update: (done: number, note?: string) => void) => Promise<T>,
): Promise<T> {
  let lastMs = Date.now();
  return work((done, note = '') => {
    if (Date.now() - lastMs < LINE_EVERY_MS) return;
    lastMs = Date.now();
    report(`${done}/${total} ${what}${note === '' ? '' : `, ${note}`}`);
  });
}

/** Runs work whose signal the first Ctrl-C aborts, so that the current step is finished; the second one ends the run immediately. */
export async function untilInterrupted<T>(work: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const controller = new AbortController();
  const onFirst = () => {
    report('stopping after the current one (Ctrl-C again to stop immediately)');
    currentInvocation().isInterrupted = true;
    controller.abort();
  };
  return work(controller.signal).finally(onStop(onFirst, ['SIGINT']));
}
