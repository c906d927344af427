/** What every command has in common: global options and exit codes. */
import { once as eventOf } from 'node:events';
import { readFile } from 'node:fs/promises';
import { text as contentOf } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Command } from 'commander';
import { SelfExplanatoryError } from '../api/errors.ts';
import { NotFoundError, NothingToDoError, causeOf } from '../client/errors.ts';
import type { Page } from '../client/lists.ts';
import { currentInvocation, onStop, shell } from './invocation.ts';
import { beginFrame, endFrame, printJson, report, textOf } from './output.ts';

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
  return error instanceof SelfExplanatoryError
    ? error.message
    : `${textOf(causeOf(error))} (--debug shows where)`;
}

export interface GlobalOptions {
  json?: boolean;
  debug?: boolean;
  /** Time between two runs, ms; see read-only.ts. */
  watch?: number;
}

/**
 * An action as commander calls it.
 *
 * @param run gets the options, global ones included, and the arguments; it returns the exit code when that is not 0.
 * @param everyMsOf time between two runs, ms; undefined: it runs once.
 */
export function action<Options, Args extends unknown[] = []>(
  run: (options: Options & GlobalOptions, ...args: Args) => Promise<ExitCode | void>,
  everyMsOf: (options: Options & GlobalOptions) => number | undefined = ({ watch }) => watch,
): (...given: unknown[]) => Promise<void> {
  return async (...given) => {
    const command = given.at(-1) as Command;
    const options = command.optsWithGlobals<Options & GlobalOptions>();
    const once = () => run(options, ...(command.processedArgs as Args));
    const everyMs = everyMsOf(options);
    currentInvocation().exitCode =
      (await (everyMs === undefined ? once() : repeat(everyMs, !options.json, once))) ?? EXIT.done;
  };
}

/**
 * Runs a command again and again, each time below the time of the run unless it prints JSON, until Ctrl-C or a request to end:
 * without a trace, and without waiting for a server that hangs. What goes wrong after the first run is shown, and a later one may
 * find the server again.
 */
async function repeat(
  everyMs: number,
  isTitled: boolean,
  read: () => Promise<ExitCode | void>,
): Promise<ExitCode> {
  const end = new AbortController();
  const ended = eventOf(end.signal, 'abort');
  onStop((signal) => end.abort(signal === 'SIGINT' ? EXIT.interrupted : EXIT.done));
  for (let isFirst = true; !end.signal.aborted; isFirst = false) {
    beginFrame(isTitled ? `${new Date().toISOString()}, every ${everyMs / 1_000} s` : undefined);
    try {
      await Promise.race([read(), ended]);
    } catch (error) {
      if (isFirst) throw error;
      report(`error: ${textOf(causeOf(error))}`);
    }
    endFrame();
    await sleep(everyMs, undefined, { signal: end.signal }).catch(() => undefined);
  }
  return end.signal.reason as ExitCode;
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
